# SPDX-License-Identifier: Apache-2.0
"""A call of an op on arrays: its numbers are put into the params struct, its lists parted into groups, all of them
checked, and then run, each on its device and stream. The function that a user calls is made here from the op's
description. No op is named here, and nothing is computed."""

from __future__ import annotations

import ctypes
import operator
import re
import sys
from array import array
from collections.abc import Iterator, Sequence
from ctypes import byref, sizeof

from . import _abi, _arrays, _fast, _signature, _streams, _threads
from ._columns import Column, Group, check_overlap, groups_of
from ._library import lib
from ._ops import ANY_TYPE, PERHAPS, Op, Param, op
from ._versions import count_writes
from ._workspace import Workspace

_EXEC_BYTES = sizeof(_abi.Exec)
_NONE = _arrays.DTYPES["none"]
_PER_TENSOR = 2  # numbers a tensor in an int64 array of the params: what the engine's counting phase makes


_PLACE = "tensor_id"  # the engine's name for a tensor's number, which is its place in the list where none is given


class Call:
    """One op, ready to be called."""

    def __init__(self, op: Op) -> None:
        self.op = op
        words = _signature.keywords(op)
        of_role = {word.role.index: word for word in words if word.role is not None}
        self.roles = [of_role[role.index] for role in op.roles]
        self.words = [word for word in words if word.params]
        self.types = [frozenset(row[role.index][0] for row in op.rows) - {_NONE} for role in op.roles]
        self._defaults = bytes(op.defaults())
        indexed = [role.name for role in op.roles] + [
            param.name for param in op.params.values() if param.type == _abi.PARAM_HOST_U64
        ]
        self.indexed = re.compile(rf"\b({'|'.join(indexed)})\[(\d+)\]")

    # ---- params ----
    def _numbers(self, values: Sequence[object]) -> tuple[ctypes.Structure, dict[str, object], bool]:
        """The params struct with all that is no pointer, the pointers' arguments, and whether any choice was made:
        workspace depends on choices, never on numbers."""
        params = self.op.Params.from_buffer_copy(self._defaults)
        pointers: dict[str, object] = {}
        chosen = False
        for word, value in zip(self.words, values):
            if value is word.default:
                continue
            if len(word.params) > 1:
                self._set_numbered(params, word, value)
                continue
            param = word.params[0]
            if param.is_pointer:
                pointers[param.name] = value
            else:
                self.op.set(params, param.name, value)
            chosen |= param.type != _abi.PARAM_DOUBLE
        return params, pointers, chosen

    def _set_numbered(self, params: ctypes.Structure, word: _signature.Keyword, value: object) -> None:
        n = len(word.params)
        try:
            numbers: tuple[object, ...] = tuple(value)  # type: ignore[arg-type]  # what cannot be is refused
        except TypeError:
            raise TypeError(f"{self.op.name}: {word.name} is {value!r}, it must be {n} numbers") from None
        if len(numbers) != n:
            raise ValueError(f"{self.op.name}: {word.name} has {len(numbers)} numbers, it must have {n}")
        for param, number in zip(word.params, numbers):
            self.op.set(params, param.name, number)

    def _on_host(self, name: str, values: object, n: int) -> array:
        """One unsigned integer a tensor."""
        try:
            numbers = [operator.index(value) for value in values]  # type: ignore[attr-defined]  # refused as well
        except TypeError:
            raise TypeError(f"{self.op.name}: {name} must be a sequence of integers, one an array") from None
        if len(numbers) != n:
            raise ValueError(f"{self.op.name}: {name} has {len(numbers)} numbers, and there are {n} arrays")
        if numbers and not (min(numbers) >= 0 and max(numbers) < 1 << 64):
            wrong = next(number for number in numbers if not 0 <= number < 1 << 64)
            raise ValueError(f"{self.op.name}: {name} has {wrong} in it; its numbers lie in [0, 2^64)")
        return array("Q", numbers)

    def _on_device(self, param: Param, value: object, n: int, order: _streams.Order) -> _arrays.View:
        """An array in the memory of the tensors' device that a pointer of the params names."""
        view = _arrays.view(f"{self.op.name}: {param.name}", value, order, False)
        if isinstance(view, _arrays.Later):
            view = view.view(order)
        wanted, n_bytes = {
            _abi.PARAM_DEVICE_F32: ("float32", 4),
            _abi.PARAM_DEVICE_I64: ("int64", 8 * _PER_TENSOR * n),
            _abi.PARAM_DEVICE_HYPER: (view.dtype, self.op.hyper_bytes),
        }[param.type]
        if view.dtype != wanted:
            raise TypeError(f"{self.op.name}: {param.name} is {view.dtype}, it must be {wanted}")
        if view.nbytes != n_bytes:
            raise ValueError(f"{self.op.name}: {param.name} has {view.nbytes} bytes, it must have {n_bytes}")
        if not _arrays.is_row_major(view.shape, view.strides):
            raise ValueError(f"{self.op.name}: {param.name} is not contiguous")
        return view

    def _check_pointers(self, views: dict[str, _arrays.View], groups: Sequence[Group]) -> None:
        for name, view in views.items():
            for group in groups:
                if view.device != group.device:
                    raise ValueError(
                        f"{self.op.name}: {name} is on {_arrays.place_name(view.device)} and arrays are on "
                        f"{_arrays.place_name(group.device)}"
                    )
            if self.op.params[name].type == _abi.PARAM_DEVICE_I64 and len(groups) > 1:
                raise ValueError(
                    f"{self.op.name}: {name} is given, and the list has {len(groups)} kinds of storage types: "
                    "call once for each kind"
                )

    # ---- the call ----
    def __call__(self, arguments: Sequence[object], values: Sequence[object], stream: object) -> None:
        """The longer way, which takes whatever there is, and refuses with a sentence."""
        _fast.bind()
        order = _streams.Order(stream)
        params, pointers, chosen = self._numbers(values)
        columns = self._columns(arguments, order)
        n = len(_first(columns))
        on_host = {name: self._on_host(name, value, n) for name, value in pointers.items() if self._is_host(name)}
        views = {
            name: self._on_device(self.op.params[name], value, n, order)
            for name, value in pointers.items()
            if not self._is_host(name)
        }
        for column, types in zip(columns, self.types):
            if column is not None:
                column.settle(types, order)
        groups = groups_of(columns)
        for group in groups:
            group.see_written(self.op, columns)
        self._check_pointers(views, groups)
        if order.explicit is not None:
            self._check_stream({group.device for group in groups})
        for name, view in views.items():
            setattr(params, name, view.address)
        self._run(columns, groups, params, on_host, order, chosen)

    def _check_stream(self, devices: set[tuple[int, int]]) -> None:
        """One that the caller gave; the driver would find out only when parts of the list had been written."""
        if any(kind != _arrays.CUDA for kind, _ in devices):
            raise ValueError(f"{self.op.name}: stream is given, and not all arrays are on a GPU")
        if len(devices) > 1:
            places = ", ".join(map(_arrays.place_name, sorted(devices)))
            raise ValueError(f"{self.op.name}: stream is given, and arrays are on {places}: a stream is of one device")

    def _is_host(self, name: str) -> bool:
        return self.op.params[name].type == _abi.PARAM_HOST_U64

    def _columns(self, arguments: Sequence[object], order: _streams.Order) -> list[Column | None]:
        written = self.op.written(tuple(map(_given, self.roles, arguments)))
        columns = [
            None if argument is None and not word.required else Column(self.op.name, role, argument, order, writes)
            for role, word, argument, writes in zip(self.op.roles, self.roles, arguments, written)
        ]
        one = _first(columns)
        for other in columns[1:]:
            if other is not None and len(other) != len(one):
                raise ValueError(
                    f"{self.op.name}: {one.role.plural} has {len(one)} arrays and {other.role.plural} {len(other)}"
                )
        return columns

    def _run(self, columns, groups, params, on_host, order, chosen) -> None:
        framework = _framework(columns)
        devices = {group.device for group in groups}
        pool = None
        if _arrays.CPU_DEVICE in devices:
            pool = _threads.pool_for(framework)
        steps = [_Step(self, group, params, on_host, order, pool) for group in groups]
        try:
            if len(steps) > 1:  # nothing is written before all of it is known to be right
                for step in steps:
                    step.call(lib.qn_op_prepare)
                check_overlap(self.op.name, columns, groups)
            if chosen or self.op.alone:
                for step in steps:
                    step.lend_workspace(framework)
            followed = [index for kind, index in devices if kind == _arrays.CUDA and order.wait_for_others(index)]
            for step in steps:
                step.call(lib.qn_op_step)
            for index in followed:
                order.finish(index)
        finally:
            for step in steps:
                step.close()
        count_writes(_written(columns, groups))


class _Step:
    """The op on one group."""

    def __init__(self, call: Call, group: Group, params, on_host, order: _streams.Order, pool) -> None:
        self.op, self.group, self.pool = call.op, group, pool
        self.indexed = call.indexed
        self.params = params if group.places is None else type(params).from_buffer_copy(params)
        self.numbers = dict(on_host)
        if group.places is not None:
            self.numbers = {name: array("Q", [all_[k] for k in group.places]) for name, all_ in on_host.items()}
            if _PLACE in self.op.params and _PLACE not in on_host:  # its default is the place in the list
                self.numbers[_PLACE] = array("Q", group.places)
        for name, numbers in self.numbers.items():
            setattr(self.params, name, numbers.buffer_info()[0])
        self.execution = _abi.Exec(_EXEC_BYTES, _abi.Device(*group.device))
        if group.device[0] == _arrays.CUDA:
            self.execution.stream = order.stream(group.device[1])
        elif pool is not None:
            self.execution.pool = pool.handle
        self.roles = call.op.roles_array(group.tensors)
        self.workspace: Workspace | None = None

    def lend_workspace(self, framework: str | None) -> None:
        if not self.op.alone:
            n_bytes = self.op.workspace_bytes(self.params, self.group.n)
        else:
            n_bytes = self.op.call_workspace_bytes(self.execution, self.params, self.group.n, self.roles)
        if n_bytes:
            self.workspace = Workspace(n_bytes, self.group.device, self.execution.stream or 0, framework)
            self.execution.workspace, self.execution.workspace_bytes = self.workspace.address, n_bytes

    def call(self, function) -> None:
        """qn_op_step or qn_op_prepare. Sentences speak of places in the user's list."""
        try:
            function(self.op.info, byref(self.execution), byref(self.params), self.group.n, self.roles)
        except (ValueError, TypeError, RuntimeError) as error:
            places = self.group.places
            if places is None:
                raise
            sentence = self.indexed.sub(lambda found: f"{found[1]}[{places[int(found[2])]}]", str(error))
            raise type(error)(sentence) from None

    def close(self) -> None:
        if self.workspace is not None:
            self.workspace.close()


def _first(columns: Sequence[Column | None]) -> Column:
    """The first role's, which every op wants."""
    first = columns[0]
    assert first is not None
    return first


def _framework(columns: Sequence[Column | None]) -> str | None:
    """Whose allocator and number of threads are used: the first array's."""
    first = _first(columns).arrays[:1]
    for name, kind in (("torch", "Tensor"), ("cupy", "ndarray")):
        module = sys.modules.get(name)
        if module is not None and first and isinstance(first[0], getattr(module, kind)):
            return name
    return None


def _given(word: _signature.Keyword, argument: object) -> int | None:
    """Whether a role is given, as Op.written asks for it."""
    if word.required:
        return ANY_TYPE
    if argument is None:
        return None
    in_part = isinstance(argument, (list, tuple)) and any(one is None for one in argument)
    return PERHAPS if in_part else ANY_TYPE


def _written(columns: Sequence[Column | None], groups: Sequence[Group]) -> Iterator[object]:
    """The arrays that a call has changed."""
    for group in groups:
        for column, written in zip(columns, group.written):
            if column is not None and written:
                arrays = column.arrays
                yield from arrays if group.places is None else [arrays[k] for k in group.places]


# ---- the function ----
def function(name: str):
    """What a user calls for the op of that name: `name`_, with the signature and document of its description."""
    made = op(name)
    words = _signature.keywords(made)
    call = Call(made)
    defaults = {f"_{word.name}": word.default for word in words}
    signature = ", ".join(
        _signature.parameters(words, lambda word: word.name if word.required else f"{word.name}=_{word.name}")
    )
    roles = ", ".join(word.name for word in call.roles)
    values = ", ".join(word.name for word in call.words)
    all_given = ", ".join(filter(None, (roles, values, "stream")))
    source = (
        f"def {name}_({signature}):\n"
        f"    if _fast({all_given}) is NotImplemented:\n"
        f"        _call(({roles},), ({values},), stream)\n"
    )
    fast = _fast.create(made, [word.name for word in call.words])
    space: dict[str, object] = {"_call": call, "_fast": fast, "__name__": "quern", **defaults}
    exec(source, space)  # as dataclasses do: a real signature, whose mistakes Python itself reports
    given = space[f"{name}_"]
    given.__doc__ = _signature.document(made)  # type: ignore[attr-defined]
    return given
