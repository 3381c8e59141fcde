# SPDX-License-Identifier: Apache-2.0
"""What a call of a kernel is given, looked at in two ways. `quick` asks NumPy's arrays, PyTorch's tensors and numbers
for no more than address and kind, for calls whose like was made before; `look` takes arrays of any library and says
what is wrong with them. Nothing is allocated and nothing launched here."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence

from . import _arrays, _streams
from . import _kernel_values as values

_address = ctypes.addressof
_begin = ctypes.c_char.from_buffer
_NUMBERS = (bool, int, float, complex)
_INT32, _INT64 = 1 << 31, 1 << 63


def _wide(number: int) -> int:
    """Which type an int gets; part of what a call is known by."""
    if -_INT32 <= number < _INT32:
        return 0
    if -_INT64 <= number < _INT64:
        return 1
    return 2 if 0 < number < 2 * _INT64 else 3  # what fits into no type is refused one by one


class Quick:
    """Addresses and kinds of some arguments. `numbers`: (place, value) of those that are numbers of Python's; `held`
    keeps what was made on the way. `framework` is "numpy" or "torch", or None where no array is among them."""

    __slots__ = ("addresses", "framework", "held", "kinds", "numbers")

    def __init__(self) -> None:
        self.addresses: list[int] = []
        self.kinds: list[object] = []
        self.numbers: list[tuple[int, object]] = []
        self.held: list[object] = []
        self.framework: str | None = None


def quick(arguments: Sequence[object], written: bool = False) -> Quick | None:
    """None: something is among them that must be looked at (or refused) one by one."""
    made = Quick()
    addresses, kinds, framework = made.addresses, made.kinds, None
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    array_type = None if numpy is None else numpy.ndarray
    tensor_types = () if torch is None else (torch.Tensor, torch.nn.Parameter)
    for argument in arguments:
        kind = type(argument)
        if kind is array_type:
            if framework == "torch":
                return None
            framework = "numpy"
            if not _quick_numpy(argument, addresses, kinds, written):
                return None
        elif kind in tensor_types:
            if framework == "numpy" or not _quick_torch(torch, argument, addresses, kinds, written):
                return None
            framework = "torch"
        elif kind in _NUMBERS and not written:
            made.numbers.append((len(addresses), argument))
            addresses.append(0)
            kinds.append((kind, _wide(argument)) if type(argument) is int else kind)
        elif argument is None and written:
            addresses.append(0)
            kinds.append(None)
        elif numpy is not None and not written and isinstance(argument, numpy.generic):
            if kind is numpy.float64:  # it is a float of Python's too, and what arithmetic with one gives
                made.numbers.append((len(addresses), float(argument)))
                addresses.append(0)
                kinds.append(float)
            else:
                array = numpy.asarray(argument)
                made.held.append(array)
                if not _quick_numpy(array, addresses, kinds, False):
                    return None
        else:
            return None
    made.framework = framework
    return made


def _quick_numpy(array, addresses: list[int], kinds: list[object], written: bool) -> bool:
    try:
        # The buffer protocol refuses what is read-only, empty or not row-major, and types that it does not know.
        addresses.append(_address(_begin(array)))
    except (TypeError, ValueError, BufferError):
        flags = array.flags
        if written and not flags.writeable:
            return False
        addresses.append(array.__array_interface__["data"][0])
        if not flags.c_contiguous:
            kinds.append((array.dtype, array.shape, array.strides))
            return True
    kinds.append((array.dtype, array.shape))
    return True


def _quick_torch(torch, tensor, addresses: list[int], kinds: list[object], written: bool) -> bool:
    if tensor.layout is not torch.strided or tensor.is_neg() or tensor.is_conj():
        return False
    if tensor.requires_grad and torch.is_grad_enabled():
        return False
    addresses.append(tensor.data_ptr())
    if tensor.is_contiguous():
        kinds.append((tensor.dtype, tensor.shape, tensor.device))
    else:
        kinds.append((tensor.dtype, tensor.shape, tensor.device, tensor.stride()))
    return True


# ---- one by one ----
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
    if seen.strides is not None and _is_row_major(seen.shape, seen.strides):
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


def _is_row_major(shape: Sequence[int], strides: Sequence[int]) -> bool:
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent == 0:
            return True
        if extent > 1 and stride != step:
            return False
        step *= extent
    return True


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
