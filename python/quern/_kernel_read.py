# SPDX-License-Identifier: Apache-2.0
"""What a call of a kernel is given, argument by argument: arrays of any library, and what is wrong with them. Nothing
is allocated and nothing launched here."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from . import _arrays, _streams
from . import _kernel_values as values

_NUMBERS = (bool, int, float, complex)


class Seen:
    """One argument: what the library is told of it, and the object (`given`) or its memory (`held`), which must live
    through the call."""

    __slots__ = ("address", "code", "device", "given", "held", "name", "raw", "read_only", "shape", "strides")

    def __init__(self, name: str, given: object) -> None:
        self.name, self.given = name, given
        self.raw: bytes | None = None  # of a number of Python's
        self.address, self.code, self.read_only = 0, 0, False
        self.shape: Sequence[int] = ()
        self.strides: Sequence[int] | None = None
        self.device = _arrays.CPU_DEVICE
        self.held: object = None


def look(name: str, value: object, order: _streams.Order, written: bool) -> Seen | _arrays.Later:
    """One argument of any kind. TypeError and ValueError for what no kernel takes."""
    seen = Seen(name, value)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    is_number = type(value) in _NUMBERS or (numpy is not None and type(value) is numpy.float64)
    if is_number and isinstance(value, (int, float, complex)):
        if written:
            raise TypeError(f"{name} is a number, it must be an array")
        seen.code, seen.raw = values.scalar(name, float(value) if isinstance(value, float) else value)
        return seen
    if numpy is not None and isinstance(value, numpy.generic) and not written:
        value = numpy.asarray(value)
    elif torch is not None and isinstance(value, torch.Tensor):
        value = _plain_tensor(torch, name, value, written)
    elif not _arrays.is_array(value):
        raise TypeError(f"{name} is {_arrays._a(value)}, it must be an array or a number")
    view = _arrays.view(name, value, order, written)
    if isinstance(view, _arrays.Later):
        return view
    return settle(seen, view, value)


def _plain_tensor(torch, name: str, tensor, written: bool):
    if tensor.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(
            f"{name} requires grad while gradients are recorded, and a kernel has no derivative of its own: call it "
            "under torch.no_grad(), or give it one (quern.function, quern.torch.function)"
        )
    if not written and tensor.layout is torch.strided and (tensor.is_neg() or tensor.is_conj()):
        return tensor.resolve_conj().resolve_neg()
    if tensor.is_conj():
        raise TypeError(f"{name} has a pending conjugation; it must be a plain dense tensor")
    return tensor


def settle(seen: Seen, view: _arrays.View, held: object) -> Seen:
    """What the view of an array says, as the library's words."""
    code = values.CODES.get(view.dtype)
    if code is None:
        raise TypeError(f"{seen.name} is {view.dtype}; storage types are {values.KNOWN}")
    seen.code, seen.address, seen.shape, seen.strides = code, view.address, view.shape, view.strides
    seen.device, seen.read_only, seen.held = view.device, view.read_only, (view, held)
    if seen.strides is not None and _arrays.is_row_major(seen.shape, seen.strides):
        seen.strides = None
    return seen


def look_at_all(
    name: str, names: Sequence[str], given: Sequence[object], order: _streams.Order, written: bool
) -> list[Seen | None]:
    """Arguments in order; None stays None among those that are written (the caller makes them)."""
    made: list = []
    for word, value in zip(names, given):
        made.append(None if value is None and written else look(f"{name}: {word}", value, order, written))
    for k, one in enumerate(made):
        if isinstance(one, _arrays.Later):
            made[k] = settle(Seen(one.name, given[k]), one.view(order), given[k])
    for one in made:
        if one is not None and written and one.read_only:
            raise ValueError(f"{one.name} ({type(one.given).__qualname__}) is read-only, and it would be written")
    return made


def framework_of(seen: Sequence[Seen | None]) -> str:
    """Whose arrays the outputs are: those of the first array that has dimensions, else of the first array."""
    arrays = [one for one in seen if one is not None and one.raw is None]
    for one in [*(one for one in arrays if len(one.shape)), *arrays]:
        for module, kind in (("torch", "Tensor"), ("cupy", "ndarray")):
            loaded = sys.modules.get(module)
            if loaded is not None and isinstance(one.given, getattr(loaded, kind)):
                return module
        return "numpy" if one.device[0] == _arrays.CPU else "another"
    return "numpy"


def device_of(seen: Sequence[Seen | None]) -> tuple[int, int]:
    """Where the call runs: where its first array with dimensions is, else where any array is that is on a GPU."""
    arrays = [one for one in seen if one is not None and one.raw is None]
    for one in arrays:
        if len(one.shape):
            return one.device
    return next((one.device for one in arrays if one.device[0] != _arrays.CPU), _arrays.CPU_DEVICE)
