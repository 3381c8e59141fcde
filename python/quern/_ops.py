# SPDX-License-Identifier: Apache-2.0
"""Ops as the library describes them: roles, types, params with their defaults, ranges and docs, and a ctypes struct
for each op's params that is built from the description. Signatures, documents, stubs and bindings are made from these;
no op is named here."""

from __future__ import annotations

import ctypes
import functools
import math
import operator
from collections.abc import Iterator, Sequence
from ctypes import POINTER, Structure, byref, c_double, c_int32, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass

from . import _abi
from ._library import DTYPE_NAMES, LibraryError, lib
from ._tensors import Tensors

_CTYPES = {
    _abi.PARAM_DOUBLE: c_double,
    _abi.PARAM_U64: c_uint64,
    _abi.PARAM_BOOL: c_int32,
    _abi.PARAM_ENUM: c_int32,
}  # all others are pointers


# Op.written accepts these in the place of a storage type: a type that is not known yet, and "at some places".
ANY_TYPE, PERHAPS = -1, -2

_TYPE_NAMES = {
    _abi.PARAM_DOUBLE: "float",
    _abi.PARAM_U64: "int",
    _abi.PARAM_BOOL: "bool",
    _abi.PARAM_ENUM: "enum",
    _abi.PARAM_HOST_U64: "host",
    _abi.PARAM_HOST_F64: "host",
    _abi.PARAM_HOST_STRUCT: "host",
}


@dataclass(frozen=True)
class Role:
    """A role of tensors. `name` is the library's, `framework_name` what training frameworks call it ("exp_avg")."""

    index: int
    name: str
    framework_name: str
    doc: str
    optional: bool
    written: bool  # by some row of the type table; Op.written says of a call what it writes
    alone: bool = False  # one tensor, of a shape of its own

    @property
    def plural(self) -> str:
        """The keyword under which a list of them is passed, or the one that there is."""
        return self.framework_name if self.alone else self.framework_name + "s"


@dataclass(frozen=True)
class Param:
    """A hyper-parameter: what the description says of it. `default` is a float, int, bool or the name of a value."""

    name: str
    doc: str
    type: int
    offset: int
    default: float | int | bool | str | None
    least: float
    most: float
    below_most: bool
    values: tuple[str, ...]
    hyper_offset: int | None  # in the struct in device memory that may take its place

    @property
    def type_name(self) -> str:
        """What it is, in a word: "float", "int", "bool", "enum"; a pointer says where to: "device", "host"."""
        return _TYPE_NAMES.get(self.type, "device")

    @property
    def is_pointer(self) -> bool:
        return self.type >= _abi.PARAM_DEVICE_F32

    @property
    def is_unlimited(self) -> bool:
        """A number of which any finite one will do: in a signature it may be left as None."""
        return self.type == _abi.PARAM_DOUBLE and math.isinf(self.least) and math.isinf(self.most)

    @property
    def range(self) -> str:
        """In words: ">= 0", "in [0, 1)"; "" where every value is allowed."""
        if self.type != _abi.PARAM_DOUBLE or self.is_unlimited:
            return ""
        if math.isinf(self.most):
            return f">= {self.least:g}"
        return f"in [{self.least:g}, {self.most:g}{')' if self.below_most else ']'}"


# ---- Python's values as the struct holds them; their errors say what a value must be ----
def _double(param: Param, value) -> float:
    if isinstance(value, (str, bytes)):  # which float() would read
        raise TypeError("a number")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError("a number") from None


def _u64(param: Param, value) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError("an integer") from None
    if not 0 <= number < 1 << 64:
        raise ValueError("in [0, 2^64)")
    return number


def _bool(param: Param, value) -> int:
    try:
        if value == 0 or value == 1:
            return int(value)
    except ValueError:  # an array, whose comparisons are arrays
        pass
    raise TypeError("True or False")


def _enum(param: Param, value) -> int:
    if value not in param.values:
        raise ValueError("one of " + ", ".join(map(repr, param.values)))
    return param.values.index(value)


def _pointer(param: Param, value) -> int | None:
    return None if value is None else operator.index(value)


_VALUES = {_abi.PARAM_DOUBLE: _double, _abi.PARAM_U64: _u64, _abi.PARAM_BOOL: _bool, _abi.PARAM_ENUM: _enum}


def _default_of(info, raw: _abi.OpParam, values: tuple[str, ...]) -> float | int | bool | str | None:
    number = lib.qn_op_param_default(info, byref(raw))
    if raw.type == _abi.PARAM_DOUBLE:
        return number
    if raw.type == _abi.PARAM_U64:
        return int(number)
    if raw.type == _abi.PARAM_BOOL:
        return bool(number)
    return values[int(number)] if raw.type == _abi.PARAM_ENUM else None


def _param_of(info, raw: _abi.OpParam) -> Param:
    values = tuple(raw.values.decode().split("|")) if raw.values else ()
    return Param(
        name=raw.name.decode(),
        doc=raw.doc.decode(),
        type=raw.type,
        offset=raw.offset,
        default=_default_of(info, raw, values),
        least=raw.least,
        most=raw.most,
        below_most=bool(raw.below_most),
        values=values,
        hyper_offset=raw.hyper_offset - 1 if raw.hyper_offset else None,
    )


def _struct(name: str, members: Sequence[tuple[str, object, int]], total_bytes: int) -> type[Structure]:
    """A ctypes struct with these (name, type, offset); it must come out as the library's compiler laid it out."""
    members = sorted(members, key=lambda member: member[2])
    made = type(name, (Structure,), {"_fields_": [(member, kind) for member, kind, _ in members]})
    for member, _, offset in members:
        if getattr(made, member).offset != offset:
            raise LibraryError(
                f"quern: {name}.{member} is at {getattr(made, member).offset} here, the library says {offset}"
            )
    if ctypes.sizeof(made) != total_bytes:
        raise LibraryError(f"quern: {name} has {ctypes.sizeof(made)} bytes here, the library says {total_bytes}")
    return made


class Op:
    """One op of the registry."""

    def __init__(self, info) -> None:
        raw = info.contents
        self.info = info
        self.name: str = raw.name.decode()
        self.brief: str = raw.brief.decode()
        self.doc: str = raw.doc.decode()
        self.rows = [
            tuple((entry.dtype, entry.access) for entry in raw.types[row].tensor[: raw.n_tensors])
            for row in range(raw.n_types)
        ]
        tensors = raw.tensors[: raw.n_tensors]
        # The tensors of a place have one shape, and the op works element by element.
        self.alike = all(tensor.shape is None for tensor in tensors)
        # A call has one tensor a role, not a list.
        self.alone = all(tensor.single for tensor in tensors)
        self._optional = tuple(bool(tensor.optional) for tensor in tensors)
        self._written: dict[tuple[int | None, ...], tuple[bool, ...]] = {}
        self.roles = tuple(self._role(raw.tensors[index], index) for index in range(raw.n_tensors))
        self.params = {param.name: param for param in (_param_of(info, raw.params[k]) for k in range(raw.n_params))}
        self.Params = _struct(
            f"qn_{self.name}_params",
            [("size", c_size_t, 0)] + [(p.name, _CTYPES.get(p.type, c_void_p), p.offset) for p in self.params.values()],
            raw.params_bytes,
        )
        live = [(p.name, _CTYPES[p.type], p.hyper_offset) for p in self.params.values() if p.hyper_offset is not None]
        self.Hyper = _struct(f"qn_{self.name}_hyper", live, raw.hyper_bytes) if live else None
        self.hyper_bytes: int = raw.hyper_bytes
        # What the struct in device memory holds, name: offset in bytes, in its order; {}: the op has no such struct.
        self.hyper = {name: offset for name, _, offset in sorted(live, key=lambda member: member[2])}

    def _role(self, raw: _abi.OpTensor, index: int) -> Role:
        name = raw.name.decode()
        return Role(
            index=index,
            name=name,
            framework_name=raw.framework_name.decode() if raw.framework_name else name,
            doc=raw.doc.decode(),
            optional=any(row[index][1] == _abi.ABSENT for row in self.rows) or self._optional[index],
            written=any(row[index][1] & _abi.WRITE for row in self.rows),
            alone=bool(raw.single),
        )

    def _fits(self, row: Sequence[tuple[int, int]], given: Sequence[int | None]) -> bool:
        for role, ((dtype, access), code) in enumerate(zip(row, given)):
            if code is None and access != _abi.ABSENT and not self._optional[role]:
                return False
            if code == ANY_TYPE and access == _abi.ABSENT:
                return False
            if code is not None and code >= 0 and code != dtype:
                return False
        return True

    def written(self, given: tuple[int | None, ...]) -> tuple[bool, ...]:
        """By role, whether a call writes it, which depends on what else is given. given: by role the storage type,
        ANY_TYPE, PERHAPS given, None: not given."""
        known = self._written.get(given)
        if known is None:
            rows = [row for row in self.rows if self._fits(row, given)]
            known = tuple(any(row[role.index][1] & _abi.WRITE for row in rows) for role in self.roles)
            self._written[given] = known
        return known

    @property
    def types(self) -> list[tuple[str, ...]]:
        """The supported rows as names of storage types, by role; "none" where the role is not given."""
        return [tuple(DTYPE_NAMES[dtype] for dtype, _ in row) for row in self.rows]

    def variants(self) -> Iterator[_abi.Variant]:
        """CPU tiers and device kernels, in the library's order."""
        for k in range(lib.qn_op_variant_count(self.info)):
            variant = _abi.sized(_abi.Variant)
            lib.qn_op_variant_at(self.info, k, byref(variant))
            yield variant

    def defaults(self) -> Structure:
        """A fresh params struct with the library's defaults."""
        params = self.Params()
        lib.qn_op_defaults(self.info, byref(params), ctypes.sizeof(params))
        return params

    def set(self, params: Structure, name: str, value) -> None:
        """Puts a Python value into the params struct; the ranges of doubles are the library's to check. An enum takes a
        value's name, a pointer an address or None. Raises TypeError for what is no such value, and ValueError for a
        name that is none of the enum's and an integer that does not fit."""
        param = self.params[name]
        try:
            setattr(params, name, _VALUES.get(param.type, _pointer)(param, value))
        except (TypeError, ValueError) as error:
            raise type(error)(f"{self.name}: {name} is {value!r}, it must be {error}") from None

    def roles_array(self, tensors: Sequence[Tensors | None]) -> ctypes.Array:
        """The library's `tensors` argument: by role, None where it is not given. It borrows them: they must outlive the
        call."""
        made = _abi.Roles()
        for index, role in enumerate(tensors):
            if role is not None:
                made[index] = role.address
        return made

    def step(self, execution: _abi.Exec, params: Structure, n: int, roles: ctypes.Array) -> None:
        """One step over the list; see qn_op_step."""
        lib.qn_op_step(self.info, byref(execution), byref(params), n, roles)

    def workspace_bytes(self, params: Structure, n: int) -> int:
        """Device memory that a step over n tensors needs, in bytes."""
        return lib.qn_op_workspace_bytes(self.info, byref(params), n)

    def call_workspace_bytes(self, execution: _abi.Exec, params: Structure, n: int, roles: ctypes.Array) -> int:
        """The same for this very step, which for tensors with shapes of their own is the one that knows."""
        return lib.qn_op_call_workspace_bytes(self.info, byref(execution), byref(params), n, roles)


class Plan:
    """A list that was checked once (op.h). It is destroyed with this object; steps in flight are not disturbed."""

    def __init__(self, op: Op, execution: _abi.Exec, params: Structure, n: int, roles: ctypes.Array) -> None:
        self._plan = c_void_p()
        lib.qn_op_plan_create(byref(self._plan), op.info, byref(execution), byref(params), n, roles)

    def step(self, execution: _abi.Exec, params: Structure, moved: ctypes.Array | None) -> None:
        """moved: an array as Op.roles_array makes it of the roles whose pointers moved; None: nothing moved."""
        lib.qn_op_plan_step(self._plan, byref(execution), byref(params), moved)

    def __del__(self) -> None:
        if lib is not None and self._plan:
            lib.qn_plan_destroy(byref(self._plan))


def all_ops() -> Iterator[Op]:
    """Every op of the library, in its order."""
    for k in range(lib.qn_op_count()):
        yield Op(lib.qn_op_at(k))


@functools.cache
def op(name: str) -> Op:
    """The op of that name; ValueError suggests the nearest one."""
    found = POINTER(_abi.OpInfo)()
    lib.qn_op_find(name.encode(), byref(found))
    return Op(found)


def ops() -> tuple[Op, ...]:
    """The library's ops of lists of tensors alike, in its order: those whose functions, signatures and stubs are made
    from what they say of themselves."""
    return tuple(op(made.name) for made in all_ops() if made.alike)
