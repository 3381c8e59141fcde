# SPDX-License-Identifier: Apache-2.0
"""VeLO on plain arrays: what it has beside the other learned optimizers (_lopt_arrays.py), the loss, an LSTM's rows and
the loss's buffer. The arithmetic is the library's."""

from __future__ import annotations

import sys
from array import array
from typing import Any

from . import _arrays, _lopt, _lopt_abi, _lopt_weights, _streams
from ._columns import Column
from ._library import DTYPES
from ._lopt_arrays import LAST, OPTIONS, Learned, viewed, zeros
from ._tensors import Tensors


def _row(values: array, like: object):
    """Floats as an array of one dimension, in the library of another, to be copied into arrays of it."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and isinstance(like, torch.Tensor):
        return torch.frombuffer(values, dtype=torch.float32)
    if cupy is not None and isinstance(like, cupy.ndarray):
        return cupy.array(list(values), "float32")
    import numpy

    return numpy.frombuffer(values, numpy.float32)


class VeLO(Learned):
    _family = _lopt.VELO
    __init__ = _lopt.constructor(_family, "shapes", OPTIONS)
    __doc__ = _lopt.document(
        _family,
        "shapes",
        "shapes of all trained arrays, each of 0 to 5 dimensions, at most four of which are above 1",
        OPTIONS,
        LAST + " `skipped_steps` of them changed nothing, because their loss was NaN or infinite.",
    )

    def step(self, params, grads, loss, *, stream=None) -> None:
        """One step in place: writes params; reads grads and their loss. `loss`: a number, or an
        array of float32 with one element where the parameters are, which is read there. A loss that is NaN or infinite
        skips the step: skipped_steps counts those. The other arguments are those of SmallFCLopt."""
        self._loss = loss
        try:
            self._step(params, grads, stream)
        finally:
            self._loss = self._held = self._making = None

    @property
    def skipped_steps(self) -> int:
        """How many steps were skipped because their loss was NaN or infinite. Waits for a device."""
        return int(self._shared["loss_buffer"][_lopt_abi.LOSS_SKIPPED]) if self._shared else 0

    # During a step: the loss as it was given, what keeps its memory, and what _shared becomes if the step is taken.
    _loss: Any = None
    _held: object = None
    _making: dict[str, Any] | None = None
    _is_past_end = False  # has it been said that the training was to have ended?

    def _shared_shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        family = self._family
        return {
            role.name: (
                _lopt.role_shape(family, role, len(self.shapes), ()),
                _arrays.LONG_NAMES[_lopt.dtype_of(family, role)],
            )
            for role in family.shared[1:]  # the first is the loss
        }

    def _begin_shared(self, like: object, device: tuple[int, int]) -> dict[str, Any]:
        made = {}
        for name, (shape, dtype) in self._shared_shapes().items():
            made[name] = zeros(self._family.title, shape, like, device, dtype)
        for name, weight in _lopt.ROWS.items():
            made[name][:] = _row(self._weights["rnn"][_lopt_weights.place(_lopt_abi.VELO_RNN, weight)], made[name])
        return made

    def _besides(self, params: Column, device: tuple[int, int], order: _streams.Order) -> list[Tensors]:
        like = params.arrays[0] if self.shapes else None
        self._making = self._shared or self._begin_shared(like, device)
        made = [self._loss_on(device, order)]
        for name, (_, dtype) in self._shared_shapes().items():
            made.append(self._single(name, self._making[name], dtype, device, order, True))
        return made

    def _took(self) -> None:
        self._is_past_end = self._is_past_end or _lopt.past_end("VeLO", self.steps, self._options()["num_steps"])
        self._shared = self._making or {}

    def _single(self, name: str, value: object, dtype: str, device, order: _streams.Order, written: bool) -> Tensors:
        name = f"{self._family.title}: {name}"
        view = viewed(name, value, dtype, order, written)
        if view.device != device:
            places = " and the arrays on ".join(map(_arrays.place_name, (view.device, device)))
            raise ValueError(f"{name} is on {places}")
        strides = None if view.strides is None else [view.strides]
        return Tensors([view.address], _arrays.STORAGE[dtype][0], [view.shape], strides, device)

    def _loss_on(self, device: tuple[int, int], order: _streams.Order) -> Tensors:
        loss, title = self._loss, self._family.title
        if loss is None:
            raise ValueError(f"{title}: loss is missing: give the loss that the gradients are of")
        numpy = sys.modules.get("numpy")
        if _arrays.is_array(loss) and not (numpy is not None and isinstance(loss, numpy.generic)):
            made = self._single("loss", loss, "float32", device, order, False)
            self._held = loss
            return made
        try:
            if isinstance(loss, (str, bytes)):  # which float() would read
                raise TypeError
            number = float(loss)
        except (TypeError, ValueError):
            raise TypeError(f"{title}: loss is {loss!r}, it must be a number or an array of one element") from None
        values = array("f", [number])
        if device[0] == _arrays.CPU:
            self._held, address = values, values.buffer_info()[0]
        else:
            there = _lopt.DeviceWeights(values, device, order.stream(device[1]))
            self._held, address = there, there.address
        return Tensors([address], DTYPES["f32"], [(1,)], None, device)
