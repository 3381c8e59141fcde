# SPDX-License-Identifier: Apache-2.0
"""Lists of tensors as the library reads them: one packed array of qn_tensor for a role, made without an object of
ctypes for each tensor. It knows addresses, shapes and codes only; where they come from is the caller's business, and
what is wrong with them is the library's."""

from __future__ import annotations

import ctypes
import sys
from array import array
from collections.abc import Sequence
from itertools import chain

from . import _abi

# A qn_tensor is five words of 8 bytes: data; dtype and ndim; shape; strides; device kind and index. Two ints share a
# word, the first one in its low half.
_WORDS = 5
assert ctypes.sizeof(_abi.Tensor) == 8 * _WORDS and sys.byteorder == "little", "quern is for 64-bit little-endian Linux"

Shape = Sequence[int]


class Tensors:
    """The tensors of one role: of one storage type, on one device, in the order of the list.

    addresses  of the first elements; the memory is the caller's and must outlive the calls that read this object
    dtype      a code of _library.DTYPES
    shapes     one sequence of extents a tensor; () is one element
    strides    in elements, one sequence a tensor or None for row-major; None: all are row-major
    device     (kind, index): a code of _library.KINDS and the device's number, 0 for the CPU

    `address` is that of the array of qn_tensor, valid as long as this object; len() is the number of tensors. Nothing
    is checked here: the library's call refuses what does not fit, before anything is written. OverflowError where a
    number does not fit into 64 bits."""

    __slots__ = ("_extents", "_records", "address", "dtype")

    def __init__(
        self,
        addresses: Sequence[int],
        dtype: int,
        shapes: Sequence[Shape],
        strides: Sequence[Shape | None] | None = None,
        device: tuple[int, int] = (0, 0),
    ) -> None:
        if len(addresses) != len(shapes) or (strides is not None and len(strides) != len(shapes)):
            raise ValueError(f"{len(addresses)} addresses, {len(shapes)} shapes: one each a tensor")
        kind, index = device
        place = kind | index << 32
        extents = array("q", chain.from_iterable(shapes))
        n_extents = len(extents)
        if strides is not None:
            for shape, steps in zip(shapes, strides):
                if steps is not None:
                    if len(steps) != len(shape):
                        raise ValueError(f"a tensor of shape {tuple(shape)} has the strides {tuple(steps)}")
                    extents.extend(steps)
        at = extents.buffer_info()[0]  # from here on extents keeps its length, so it does not move
        words: list[int] = []
        if strides is None:
            for address, shape in zip(addresses, shapes):
                ndim = len(shape)
                words += (address, dtype | ndim << 32, at, 0, place)
                at += 8 * ndim
        else:
            at_strides = at + 8 * n_extents
            for address, shape, steps in zip(addresses, shapes, strides):
                ndim = len(shape)
                words += (address, dtype | ndim << 32, at, 0 if steps is None else at_strides, place)
                at += 8 * ndim
                if steps is not None:
                    at_strides += 8 * ndim
        self.dtype = dtype
        self._extents = extents
        self._records = array("q", words)
        self.address: int = self._records.buffer_info()[0]

    def like(self, addresses: Sequence[int], dtype: int) -> Tensors:
        """Another role's tensors, with these shapes, strides and device; a tenth of the work of making them anew."""
        made: Tensors = object.__new__(Tensors)
        made._extents = self._extents
        made._records = array("q", self._records)
        made.dtype = dtype
        made.address = made._records.buffer_info()[0]
        made.move(addresses)
        if dtype != self.dtype:
            change = dtype - self.dtype
            made._records[1::_WORDS] = array("q", [word + change for word in self._records[1::_WORDS]])
        return made

    def move(self, addresses: Sequence[int]) -> None:
        """The same tensors, but for where they are: what a step of a plan needs when gradients have moved. ValueError
        if their number is another."""
        self._records[0::_WORDS] = array("q", addresses)

    def __len__(self) -> int:
        return len(self._records) // _WORDS
