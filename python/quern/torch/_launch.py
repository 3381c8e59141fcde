# SPDX-License-Identifier: Apache-2.0
"""One step of any op over lists of torch's tensors: settings to the params struct, lists to the library's arrays, and
the call, on the tensors' own devices and those devices' current streams. Nothing is kept from call to call, nothing
waits for a device, and where anything is refused no tensor has been changed."""

from __future__ import annotations

import ctypes
import functools
from array import array
from collections.abc import Mapping, Sequence
from ctypes import Structure
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from .. import _abi
from .._library import DTYPES
from .._ops import Op, Param, Plan
from .._tensors import Tensors
from ._calls import Place, as_real, code_of, increment_version, tensors_of
from ._watch import CHANGED, MOVED, has_table, watch

device_of, dtype_of = attrgetter("device"), attrgetter("dtype")
data_ptr, size, is_contiguous, get_device = Tensor.data_ptr, Tensor.size, Tensor.is_contiguous, Tensor.get_device

_64_BITS = (1 << 64) - 1
Lists = Sequence[list[Tensor]]  # by role; an empty one is not given. Lists, since that is what the library reads


def same_length(op: Op, lists: Lists) -> int:
    """The number of tensors in each list. ValueError where they differ."""
    n = len(lists[0])
    for role, of_role in zip(op.roles, lists):
        if len(of_role) != n and not (role.optional and not of_role):
            first = op.roles[0].plural
            raise ValueError(f"{op.name}: {first} has {n} tensors and {role.plural} {len(of_role)}, one each is needed")
    return n


def same_devices(op: Op, lists: Lists) -> None:
    """ValueError where the tensors that belong together are not on one device."""
    first = op.roles[0].plural
    for role, of_role in zip(op.roles, lists):
        for place, (one, other) in enumerate(zip(of_role, lists[0])):
            if one.device != other.device:
                where = f"{role.plural}[{place}] is on {one.device} and {first}[{place}] on {other.device}"
                raise ValueError(f"{op.name}: {where}")


def _pointer(op: Op, param: Param, value: Any, n: int, device: torch.device | None) -> Any:
    """What a pointer param points to, as an object that has its address: a tensor, or an array of one number a
    tensor."""
    if param.type == _abi.PARAM_HOST_U64:
        if len(value) != n:
            raise ValueError(f"{op.name}: {param.name} has {len(value)} numbers for {n} tensors")
        return array("Q", [number & _64_BITS for number in value])
    if device is not None and value.device != device:
        raise ValueError(f"{op.name}: {param.name} is on {value.device} and a tensor of the list on {device}")
    if param.type == _abi.PARAM_DEVICE_HYPER:
        right = value.nbytes == op.hyper_bytes
        needed = f"{op.hyper_bytes} bytes"
    elif param.type == _abi.PARAM_DEVICE_I64:
        right = value.dtype is torch.int64 and value.numel() == 2 * n
        needed = f"{2 * n} values of int64"
    else:
        right = value.dtype is torch.float32 and value.numel() == 1
        needed = "one value of float32"
    if not right or not value.is_contiguous():
        shape = tuple(value.shape)
        raise ValueError(f"{op.name}: {param.name} is {value.dtype} of shape {shape}; it must be {needed}, contiguous")
    return value


def _hyper(op: Op, values: Mapping[str, float | Tensor], step: int, device: torch.device) -> Tensor:
    """The op's hyper struct in the device's memory, of numbers that are there already and numbers of the host's; made
    in the current stream's order, without the host waiting."""
    made = torch.empty(op.hyper_bytes // 8, dtype=torch.float64, device=device)
    for name, offset in op.hyper.items():
        at = made[offset // 8]
        if op.params[name].type == _abi.PARAM_DOUBLE:
            value = values[name]
            at.copy_(value) if isinstance(value, Tensor) else at.fill_(value)
        else:
            at.view(torch.int64).fill_(step)
    return made


class Settings:
    """An op's params as a caller gave them. Numbers are in the struct; pointers are put there for each device's
    list."""

    def __init__(self, op: Op, given: Mapping[str, Any]) -> None:
        self.op = op
        self.params: Structure = op.defaults()
        self._pointers: dict[str, Any] = {}
        self._on_device: dict[str, Tensor] = {}
        for name, value in given.items():
            if value is None:
                continue
            if op.params[name].is_pointer:
                self._pointers[name] = value
            elif isinstance(value, Tensor):
                self._number(name, value)
            elif op.params[name].type == _abi.PARAM_U64:
                op.set(self.params, name, value & _64_BITS)  # torch's ints are signed
            else:
                op.set(self.params, name, value)

    def _number(self, name: str, value: Tensor) -> None:
        if value.numel() != 1 or value.is_complex():
            raise ValueError(
                f"{self.op.name}: {name} is {value.dtype} of shape {tuple(value.shape)}, it must be one number"
            )
        if value.device.type == "cpu":
            self.op.set(self.params, name, value.item())
        else:
            self._on_device[name] = value.reshape(())

    def number(self, n: int) -> None:
        """Says of every tensor of a list of n that its place in the list is its number, where no caller gave
        numbers."""
        if "tensor_id" in self.op.params:
            self._pointers.setdefault("tensor_id", range(n))

    def point(self, n: int, device: torch.device | None, places: Sequence[int] | None) -> list[Any]:
        """Sets the pointers for a list of n tensors on that device; places: which of all the caller's, None: all.
        Returns what must live until the call has been made."""
        held = []
        if self._on_device and device is not None:
            held.append(self._live(device))
        for name, value in self._pointers.items():
            param = self.op.params[name]
            if places is not None:
                if param.type == _abi.PARAM_DEVICE_I64:
                    raise ValueError(f"{self.op.name}: {name} goes with tensors of one device and one choice of types")
                if param.type == _abi.PARAM_HOST_U64:
                    value = [value[place] for place in places]
            memory = _pointer(self.op, param, value, n, device)
            address = memory.buffer_info()[0] if isinstance(memory, array) else memory.data_ptr()
            setattr(self.params, name, address)
            held.append(memory)
        return held

    def _live(self, device: torch.device) -> Tensor:
        for name, value in self._on_device.items():
            if value.device != device:
                raise ValueError(f"{self.op.name}: {name} is on {value.device} and a tensor of the list on {device}")
        values = {name: self._on_device.get(name, getattr(self.params, name)) for name in self.op.hyper}
        memory = _hyper(self.op, values, self.params.step, device)
        pointer = next(p.name for p in self.op.params.values() if p.type == _abi.PARAM_DEVICE_HYPER)
        setattr(self.params, pointer, memory.data_ptr())
        return memory


@functools.lru_cache(maxsize=64)
def _row_major(sizes: tuple[torch.Size, ...], place: tuple[int, int]) -> Tensors:
    """Tensors of these sizes on that device, but for where they are and how they are stored. Reading a model's shapes
    costs as much as all the rest of a call, and they are the same at every step."""
    return Tensors([0] * len(sizes), DTYPES["f32"], sizes, None, place)


class _Part:
    """Tensors of one device whose roles are each of one storage type: what one call of the library takes. `watched`: it
    will be asked whether other lists are like these."""

    def __init__(self, op: Op, lists: Lists, places: Sequence[int] | None = None, watched: bool = False) -> None:
        self.op, self.n, self.watched = op, len(lists[0]), watched
        self.place = Place(lists[0][0].device)
        self._places = places
        arrays = [self._array(role.plural, of_role) if of_role else None for role, of_role in zip(op.roles, lists)]
        self._arrays = arrays
        self._watches = [watch(a, of_role) if watched and a else None for a, of_role in zip(arrays, lists)]
        self.plan: Plan | None = None
        self._moved: ctypes.Array[ctypes.c_void_p] | None = None
        self._roles = _abi.Roles()
        for index, made in enumerate(arrays):
            self._roles[index] = None if made is None else made.address
        self._written = op.written(tuple([None if made is None else made.dtype for made in arrays]))

    def count_writes(self, lists: Lists) -> None:
        """Autograd must know which of the caller's tensors have changed, and of no others."""
        changed: list[Tensor] = []
        for of_role, written in zip(lists, self._written):
            if written:
                changed += of_role if self._places is None else [of_role[place] for place in self._places]
        increment_version(changed)

    def bind(self, settings: Settings) -> None:
        """The next step's settings. Each part has pointers of its own, and the struct is shared."""
        self._held = settings.point(self.n, self.place.device, self._places)
        self._params = type(settings.params).from_buffer_copy(settings.params)

    def follow(self, lists: Lists) -> bool:
        """Are these tensors like those that it was made of, wherever they are? Then it is about them from now on."""
        moved = _abi.Roles()
        try:
            for index, (of_role, watching) in enumerate(zip(lists, self._watches)):
                if watching is None:
                    if of_role:
                        return False
                    continue
                found = watching.follow(of_role) if len(of_role) == self.n else CHANGED
                if found == CHANGED:
                    return False
                if found == MOVED:
                    moved[index] = self._roles[index]
        except (AttributeError, TypeError, RuntimeError, BufferError):  # none that can be described at all
            return False
        self._moved = moved
        return True

    def _array(self, name: str, tensors: Sequence[Tensor]) -> Tensors:
        if tensors[0].is_complex():
            tensors = list(map(as_real, tensors))
        code = code_of(tensors[0].dtype, name)
        try:
            if not all(map(is_contiguous, tensors)):
                return tensors_of(tensors, code, self.place.key)
            return _row_major(tuple(map(size, tensors)), self.place.key).like(list(map(data_ptr, tensors)), code)
        except (RuntimeError, NotImplementedError):  # no storage, or no strides
            for place, tensor in enumerate(tensors):
                if tensor.layout is not torch.strided:
                    said = f"{self.op.name}: {name}[{place}] is {tensor.layout}; it must be dense"
                    raise TypeError(said) from None
            raise

    def check(self) -> None:
        """Has the library check all of it now; the step then looks only at what has moved since."""
        self.plan = Plan(self.op, self.place.current(), self._params, self.n, self._roles)
        self._moved = None

    def step(self) -> None:
        execution = self.place.current()
        lent = self.place.lend(self.op.workspace_bytes(self._params, self.n))
        if self.plan is None:
            self.op.step(execution, self._params, self.n, self._roles)
        else:
            self.plan.step(execution, self._params, self._moved)
        del lent, self._held  # torch gives memory to later work of the same stream only


def _parts(op: Op, lists: Lists) -> list[_Part]:
    """The list cut by device and types."""
    kinds = [(set(map(get_device, of_role)), set(map(dtype_of, of_role))) for of_role in lists if of_role]
    if all(devices == kinds[0][0] and len(devices) == len(dtypes) == 1 for devices, dtypes in kinds):
        return [_Part(op, lists, watched=all(has_table(of_role) for of_role in lists))]
    same_devices(op, lists)
    groups: dict[tuple, list[int]] = {}
    for place, tensors in enumerate(zip(*(of_role for of_role in lists if of_role))):
        groups.setdefault((tensors[0].device, *map(dtype_of, tensors)), []).append(place)
    return [
        _Part(op, [[of_role[place] for place in places] if of_role else of_role for of_role in lists], places)
        for places in groups.values()
    ]


# By op, number of tensors and the first one's object: what is likely to come again. A call takes its part out for as
# long as it runs, so that no two threads use it at once.
_kept: dict[tuple[str, int, int], _Part] = {}
_MOST_KEPT = 64


def _step_whole(part: _Part, settings: Settings, key: tuple[str, int, int], again: bool) -> None:
    """A list of one device and one choice of types. A plan pays from the second step on."""
    part.bind(settings)
    if again and part.plan is None:
        part.check()
    part.step()
    if part.watched:
        while len(_kept) >= _MOST_KEPT:
            _kept.pop(next(iter(_kept)), None)
        _kept[key] = part


def _step_cut(parts: list[_Part], settings: Settings, n: int) -> None:
    """A list of several. Each tensor keeps its number in the whole list: what stochastic rounding draws does not depend
    on the cut."""
    settings.number(n)
    for part in parts:
        part.bind(settings)
        part.check()  # all of them before the first is stepped
    for part in parts:
        part.step()


def step(op: Op, lists: Lists, given: Mapping[str, Any]) -> None:
    """One step of the op. lists: by role; given: settings by name, None for what is left at its default. Raises
    ValueError, TypeError or RuntimeError with a sentence, and then nothing has been written."""
    n = same_length(op, lists)
    settings = Settings(op, given)
    if not n:
        settings.point(0, None, None)
        op.step(_abi.sized(_abi.Exec), settings.params, 0, _abi.Roles())
        return
    key = (op.name, n, id(lists[0][0]))
    part = _kept.pop(key, None)
    if part is not None and part.follow(lists):
        parts = [part]
        _step_whole(part, settings, key, again=True)
    else:
        parts = _parts(op, lists)
        if len(parts) == 1:
            _step_whole(parts[0], settings, key, again=False)
        else:
            _step_cut(parts, settings, n)
    for part in parts:
        part.count_writes(lists)
