# SPDX-License-Identifier: Apache-2.0
"""Holds a plan against the module that it is to replace, on data of several kinds: values by the judge's comparison,
the class of precision by the errors against float64, shapes, types, strides, what shares memory, and buffers."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ..kernelbench import _compare
from . import _capture, _convolutions, _objects

# Two results of one class of precision may differ by so many of the module's own errors against float64, which are root
# mean squares: where PyTorch rounds to TF32, as in cuDNN by default, these are above the tolerance of float32.
ERRORS_APART = 16
GREATEST_APART = 4  # the same of the greatest errors
ROUNDING = 2.0**-22  # an error of float32 that nothing is said about
SETS = 5  # of data; the last two have NaN, the last one infinities besides
GOLDEN = 0.618  # a step of so many times a tensor's elements brings neighbours far apart


class _AsTF32(TorchDispatchMode):
    """Convolutions of float64 tensors whose values are rounded to TF32 first, as the GPU rounds them. found: whether
    there was one."""

    found = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.convolution.default:
            self.found, args = True, (*map(_tf32, args[:2]), *args[2:])
        return func(*args, **(kwargs or {}))


def _tf32(t: torch.Tensor) -> torch.Tensor:
    """To 11 bits, halves away from zero."""
    last = 1 << 42  # of a float64's 52 bits
    return (t.contiguous().view(torch.int64) + last // 2).bitwise_and_(-last).view(torch.float64)


def data_set(k: int, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """One of SETS calls of the same kind: the given one; values in another order and smaller; heavy-tailed reals; one
    of them NaN; others infinite besides. Whole numbers and bools are those of the given call in another order."""
    devices = {t.device for t in _tensors((args, kwargs))}
    drawn = {device: torch.Generator(device).manual_seed(20) for device in devices}

    def heavy(t: torch.Tensor) -> torch.Tensor:
        noise = torch.randn(t.shape, generator=drawn[t.device], device=t.device)
        return noise.pow_(3).mul_(t.abs().mean(dtype=torch.float64))

    def spoilt(t: torch.Tensor) -> torch.Tensor:
        flat = t.clone().reshape(-1)
        for at, value in enumerate(("nan", "inf", "-inf")[: 1 if k == SETS - 2 else 3]):
            flat[(at * 7919 + flat.numel() // 3) % flat.numel()] = float(value)
        return flat.reshape(t.shape)

    def one(leaf):
        if not isinstance(leaf, torch.Tensor) or not leaf.numel():
            return leaf
        with torch.no_grad():
            how = {1: lambda t: _shuffled(t).mul_(0.7), 2: heavy}.get(k, spoilt)
            new = how(leaf.detach()) if leaf.is_floating_point() else _shuffled(leaf)
            return _like(new.to(leaf.dtype), leaf)

    return pytree.tree_map(one, (args, kwargs)) if k else (args, kwargs)


def _shuffled(t: torch.Tensor) -> torch.Tensor:
    """In another order. It is that of a step prime to the number of elements: random numbers for an order, and their
    sorting, take ten times the memory of the elements."""
    flat, n = t.reshape(-1), t.numel()
    new, step = torch.empty_like(flat), max(1, int(n * GOLDEN))
    while math.gcd(step, n) > 1:
        step += 1
    for part in _compare.chunks(n, t.device.type):
        new[part] = flat[(torch.arange(part.start, part.stop, device=t.device) * step + n // 2) % n]
    return new.reshape(t.shape)


def _like(tensor: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """In the strides of the old one, where they are of memory without holes or sharing."""
    if tensor.stride() == old.stride():
        return tensor
    if 0 in old.stride() and old.numel() > 1:  # shared elements: those of the first
        return torch.as_strided(tensor.contiguous(), old.size(), old.stride()) if _inside(tensor, old) else tensor
    return torch.empty_strided(old.shape, old.stride(), dtype=old.dtype, device=old.device).copy_(tensor)


def _inside(tensor: torch.Tensor, old: torch.Tensor) -> bool:
    return sum((n - 1) * stride for n, stride in zip(old.shape, old.stride())) < tensor.numel()


def _shared(result, args: tuple, kwargs: dict, tensors: list[torch.Tensor]) -> list[int]:
    """For each output the first value with the same memory: inputs, the model's tensors, outputs."""
    leaves = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    values = [*leaves, *tensors, *(t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor))]
    places = [t.untyped_storage().data_ptr() if t.numel() else -k - 1 for k, t in enumerate(values)]
    return [places.index(place) for place in places[len(leaves) + len(tensors) :]]


def _buffers(model: torch.nn.Module) -> list[torch.Tensor]:
    """Copies, those of reals of one module and type in one tensor: a mean that is 0 but for rounding is held to the
    scale of the variance beside it."""
    found: list[torch.Tensor] = []
    for module in model.modules():
        own = [buffer for buffer in module._buffers.values() if buffer is not None]
        for dtype in dict.fromkeys(buffer.dtype for buffer in own):
            same = [buffer.reshape(-1) for buffer in own if buffer.dtype == dtype]
            found += [torch.cat(same)] if dtype.is_floating_point else [buffer.clone() for buffer in same]
    return found


def aliases(result, args: tuple, kwargs: dict, tensors: list[torch.Tensor]) -> bool:
    """Whether an output is memory of an input or of the model."""
    n = len(tensors) + sum(isinstance(t, torch.Tensor) for t in pytree.tree_leaves((args, kwargs)))
    return any(place < n for place in _shared(result, args, kwargs, tensors))


class Reference:
    """What the module itself makes of each data set: of the first, which every alternative is held to, kept; of the
    others, which only the fastest are held to, computed when it is asked for. Results may be large beside the memory:
    one data set is there at a time, and results are compared a part at a time."""

    def __init__(self, model: torch.nn.Module, forward: Callable, args: tuple, kwargs: dict) -> None:
        self.model, self.forward = model, forward
        self.tensors = [*model.parameters(), *model.buffers()]
        self.device = next((t.device.type for t in [*_tensors((args, kwargs)), *self.tensors]), "cpu")
        self.given = args, kwargs
        self.first = self._run(forward, self.given)
        self.error = 0.0  # of the module itself against `exact`, or of TF32 where PyTorch's switch is on
        self.rounds = self._may_round()
        self.exact = self._exact()
        self.tolerance = _compare.Tolerance("current", ERRORS_APART * self.error)

    def call(self, k: int) -> tuple[tuple, dict]:
        return data_set(k, *self.given)

    def _run(self, function: Callable, call: tuple) -> tuple:
        args, kwargs = call
        with torch.no_grad(), _capture.kept_state(self.model):
            before = [(slot, slot.tensor) for slot in _capture.attributes(self.model)]
            result = _objects.held(function(*args, **kwargs))
            states = [slot.tensor for slot, was in before if slot.tensor is not was]
            sharing = _shared((result, states), args, kwargs, [*self.tensors, *(was for _, was in before)])
            strides = [t.stride() for t in _tensors((result, states))]
            result = pytree.tree_map(lambda t: t.clone() if isinstance(t, torch.Tensor) else t, result)
            return result, (sharing, strides), [*_buffers(self.model), *(t.clone() for t in states)]

    def _double(self, call: tuple):
        def double(t):
            return t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t

        model = copy.deepcopy(self.model).double()
        for slot in _capture.attributes(model):
            slot.table[slot.key] = double(slot.tensor)
        with torch.no_grad():
            args, kwargs = pytree.tree_map(double, call)
            return _objects.held(model(*args, **kwargs))

    def _settle(self, call: tuple, got, want) -> bool:
        """Puts the wanted values in the place of NaN and infinities that prove nothing, because the module has others
        in float64 by PyTorch's own kernels: its gelu of infinity, and convolutions of cuDNN, which multiply NaN by
        zeros of their own. False: it cannot compute in float64."""
        try:
            with torch.backends.cudnn.flags(enabled=False):
                exact = _floats(self._double(call))
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception:
            return False
        for three in zip(_floats(got), _floats(want), exact):
            if len({t.shape for t in three}) == 1:  # a wrong shape stays for the comparison
                for a, b, e in _parts(*three):
                    doubt = (e.isnan() != b.isnan()) | (e.isinf() != b.isinf())
                    a.copy_(torch.where(doubt, b.to(a.dtype), a))
        return True

    def _exact(self):
        """The outputs of the first data set in float64; None: the module cannot compute in it."""
        try:
            rounded = self._rounded(self.given) if self.rounds else []
            exact = _floats(self._double(self.given))
            self.error = max(_compare.error(each, exact) for each in (_floats(self.first[0]), rounded))
            if not self.error and any(not t.is_floating_point() for t in _tensors(self.given)):
                return None  # whole numbers become float32 in both
            return exact
        except Exception:
            return None

    def _may_round(self) -> bool:
        """Whether PyTorch may compute convolutions in TF32, and a plan too, whatever it does for this shape."""
        return self.device == "cuda" and _convolutions.allows_tf32()

    def _rounded(self, call: tuple) -> list[torch.Tensor]:
        """The outputs in float64 of operands rounded to TF32 where a convolution has them; `rounds` says from here on
        whether one has."""
        with _AsTF32() as mode:
            outputs = [t.float() for t in _floats(self._double(call))]  # TF32's errors are greater by far
        self.rounds = mode.found
        return outputs

    def _as_exact(self, k: int, call: tuple, got, want) -> bool:
        """Whether outputs on data that is hard to compute with are wrong by rounding alone: float64 finds them at most
        GREATEST_APART times as far off as the module's own, or as those of TF32 where PyTorch's switch is on."""
        try:
            rounded = self._rounded(call) if self.rounds else None
            exact = self.exact if k == 0 and self.exact is not None else _floats(self._double(call))
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception:
            return False
        return as_near(got, want, exact, exact if rounded is None else rounded)

    def wrong(self, function: Callable, sets: int | None = None, infinities: bool = True) -> str:
        """What is wrong with a function in the module's place; "" for nothing. infinities: whether it must have those
        of the module's where its inputs have some. OutOfMemoryError: of a GPU, which says nothing of the function."""
        for k in range(SETS if infinities else SETS - 1)[:sets]:
            if wrong := self._wrong_of(k, function):
                return wrong
        return ""

    def _wrong_of(self, k: int, function: Callable) -> str:
        """The same of one data set."""
        call = self.call(k)
        try:
            want, shared, own_buffers = self._run(self.forward, call) if k else self.first
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception:  # data that the module does not take, such as a probability of 3
            return ""
        try:
            got, sharing, buffers = self._run(function, call)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            return failure(error)
        if sharing[1] != shared[1]:
            return f"its outputs have the strides {sharing[1]}, not {shared[1]}"
        if sharing[0] != shared[0]:
            return "its outputs share other memory than the module's"
        if difference := self._differs(k, call, got, want):
            return difference
        changed = _compare.compare(_plain(buffers), _plain(own_buffers), self.tolerance, self.device)
        if changed.wrong:
            return f"a buffer or an attribute: {changed.wrong}"
        if k == 0 and self.exact is not None:
            own = _compare.error(_floats(got), self.exact)
            # An error above the values themselves is of values that are 0 but for rounding.
            if own > max((2 if self.error < 1 else ERRORS_APART) * self.error, ROUNDING):
                return f"its error against float64 is {own:.3g}, the module's own {self.error:.3g}"
        return ""

    def _differs(self, k: int, call: tuple, got, want) -> str:
        wrong = _compare.compare(_plain(got), _plain(want), self.tolerance, self.device).wrong
        if wrong and k >= SETS - 2 and self._settle(call, got, want):
            wrong = _compare.compare(_plain(got), _plain(want), self.tolerance, self.device).wrong
        return "" if wrong and self._as_exact(k, call, got, want) else wrong


def failure(error: Exception) -> str:
    if isinstance(error, torch.cuda.OutOfMemoryError):  # PyTorch's own sentence names all processes
        return "it fails: the GPU's memory does not suffice"
    return f"it fails: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def as_near(got, want, exact: list[torch.Tensor], rounded: list[torch.Tensor]) -> bool:
    """Whether outputs are wrong by rounding alone: at most GREATEST_APART times as far from float64's as `want` or
    `rounded` is."""
    pairs = list(zip(_tensors(got), _tensors(want)))
    if any(a.shape != b.shape or a.dtype != b.dtype for a, b in pairs):
        return False
    if not all(torch.equal(a, b) for a, b in pairs if not a.is_floating_point()):
        return False
    for four in zip(_floats(got), _floats(want), exact, rounded):
        if four[2].shape != four[1].shape:
            return False
        most = [0.0, 0.0, 0.0]
        for a, b, e, r in _parts(*four):
            there = e.isfinite() & a.isfinite() & b.isfinite()
            if not bool(((a == b) | (a.isnan() & b.isnan()) | there).all()):
                return False
            far = [float((x.double() - e).abs().where(there, 0.0).max()) for x in (a, b, r)]
            most = list(map(max, most, far))
        if most[0] > GREATEST_APART * max(most[1:]):
            return False
    return True


def _parts(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Cuts of tensors of one shape, as views whatever their strides: along the first dimension that is long enough."""
    one = tensors[0]
    if not one.dim() or not one.numel():
        return iter([tensors] if one.numel() else [])
    n = len(_compare.chunks(one.numel(), one.device.type))
    dim = next((k for k, size in enumerate(one.shape) if size >= n), one.shape.index(max(one.shape)))
    size = -(-one.shape[dim] // n)
    return zip(*(t.split(size, dim) for t in tensors))


def _plain(value):
    """Lists, tuples and dicts alone."""
    return list(pytree.tree_leaves(value))


def _tensors(value) -> list[torch.Tensor]:
    return [t for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def _floats(value) -> list[torch.Tensor]:
    return [t for t in _tensors(value) if t.is_floating_point()]
