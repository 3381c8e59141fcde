# SPDX-License-Identifier: Apache-2.0
"""Are a list's tensors still what they were when a plan was made for them, and where are they now? Asked at every step
of every tensor, this is most of what a step costs the host. Where PyTorch has DLPack's table for C (from 2.10 or so on)
the library asks all tensors of a role in one call, 0.05 us each; else Python does, 0.2 us each."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from operator import attrgetter

import torch
from torch import Tensor

from .. import _library
from .._tensors import Tensors

CHANGED, SAME, MOVED = 0, 1, 2  # qn_follow

data_ptr, stride, is_contiguous = Tensor.data_ptr, Tensor.stride, Tensor.is_contiguous
nbytes, dtype_of = attrgetter("nbytes"), attrgetter("dtype")


class Watch:
    """Over the tensors that `array` describes to the library. Any version of PyTorch."""

    def __init__(self, array: Tensors, tensors: Sequence[Tensor]) -> None:
        self._array = array
        self._addresses = list(map(data_ptr, tensors))
        self._bytes = list(map(nbytes, tensors))
        self._strides = None if all(map(is_contiguous, tensors)) else list(map(stride, tensors))
        # Four bytes an element are f32; two may be either of two types.
        self._dtypes = None if all(t.dtype is torch.float32 for t in tensors) else list(map(dtype_of, tensors))

    def follow(self, tensors: list[Tensor]) -> int:
        """CHANGED: not of the kind that they were. Else SAME, or MOVED, and the array says where they are. Raises
        AttributeError, TypeError or RuntimeError for what is no dense tensor."""
        if list(map(nbytes, tensors)) != self._bytes:
            return CHANGED
        if self._strides is None:
            if not all(map(is_contiguous, tensors)):
                return CHANGED
        elif list(map(stride, tensors)) != self._strides:
            return CHANGED
        if self._dtypes is not None and list(map(dtype_of, tensors)) != self._dtypes:
            return CHANGED
        return self.move(list(map(data_ptr, tensors)))

    def move(self, addresses: list[int]) -> int:
        """The tensors are there now: SAME or MOVED."""
        if addresses == self._addresses:
            return SAME
        self._addresses = addresses
        self._array.move(addresses)
        return MOVED


class TableWatch:
    """The same by DLPack's table. Not for complex tensors, which the library is told to be pairs of reals."""

    def __init__(self, array: Tensors, tensors: Sequence[Tensor]) -> None:
        self._array = array
        self._n = len(tensors)

    def follow(self, tensors: list[Tensor]) -> int:
        """See Watch; a gradient that is None is no dense tensor."""
        return _follow(_read, _item, tensors, self._n, self._array.address)

    def move(self, addresses: list[int]) -> int:
        """See Watch; always MOVED."""
        self._array.move(addresses)
        return MOVED


class _Table(ctypes.Structure):
    """DLPackExchangeAPI of DLPack 1."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        *((name, ctypes.c_void_p) for name in ("before", "allocate", "managed_from", "managed_to", "tensor_from")),
    ]


def _reader_of(kind: type) -> int | None:
    """The address of the function that fills a DLTensor from one of torch's tensors, where there is one."""
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if type(capsule).__name__ != "PyCapsule":
        return None
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    try:
        table = _Table.from_address(get(capsule, b"dlpack_exchange_api"))
    except ValueError:  # a capsule of another name
        return None
    return table.tensor_from if table.major == 1 else None


_read = _reader_of(Tensor)
_item = ctypes.cast(ctypes.pythonapi.PyList_GetItem, ctypes.c_void_p).value
# Through PyDLL the interpreter's lock is held, and a Python exception that the call leaves is raised.
_follow = ctypes.PyDLL(_library.path).qn_objects_follow
_follow.restype = ctypes.c_int
_follow.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.py_object, ctypes.c_size_t, ctypes.c_void_p]


def watch(array: Tensors, tensors: Sequence[Tensor]) -> Watch | TableWatch:
    """The quicker one that can watch these tensors."""
    if _read is None or any(map(torch.is_complex, tensors)):
        return Watch(array, tensors)
    return TableWatch(array, tensors)
