# SPDX-License-Identifier: Apache-2.0
"""One call of the library inside an XLA program: the handlers' registration, and a list of arrays of one row of types
as one custom call whose results take the places of its operands. The convention is in include/quern/xla.h; trees,
keywords and hyper-parameters are not known here."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from .. import _abi, _ops
from .._library import DTYPES, lib
from .._tensors import Tensors

TARGET = "quern_step"
Fixed = Union[bool, int, float, str, tuple[int, ...]]  # a param that is compiled in
_STORAGE = {"float32": "f32", "bfloat16": "bf16", "float16": "f16", "float64": "f64"}


@functools.cache
def register() -> None:
    """Once a process, at the first call. On CUDA the kernels are compiled and loaded in the stage "initialize", so that
    the step itself can be captured into a graph."""
    cpu, cuda = (jax.ffi.pycapsule(function) for function in (lib.qn_xla_cpu_step, lib.qn_xla_cuda_step))
    jax.ffi.register_ffi_target(TARGET, cpu, platform="cpu")
    jax.ffi.register_ffi_target(TARGET, {"initialize": cuda, "execute": cuda}, platform="CUDA")


@dataclass(frozen=True)
class Call:
    """What is fixed when a program is compiled.

    op      its name
    n       tensors of each role, at least 1; those of a role have one dtype
    roles   indices of the roles that are given
    values  (name, value) of params: bool, int, float, a name of an enum, or one integer a tensor as a tuple
    arrays  names of the params that are operands, in the description's order"""

    op: str
    n: int
    roles: tuple[int, ...]
    values: tuple[tuple[str, Fixed], ...]
    arrays: tuple[str, ...]

    def written(self) -> tuple[bool, ...]:
        """By role: does the step write it?"""
        op = _ops.op(self.op)
        return op.written(tuple(_ops.ANY_TYPE if role.index in self.roles else None for role in op.roles))

    def _params(self):
        op = _ops.op(self.op)
        params, kept = op.defaults(), []
        for name, value in self.values:
            if isinstance(value, tuple):
                kept.append(np.array(value, np.uint64))
                setattr(params, name, kept[-1].ctypes.data)
            else:
                op.set(params, name, value)
        return params, kept

    def check(self, arrays: Sequence, values: Sequence[tuple[str, object]] = ()) -> None:
        """Asks the library what a step over such arrays would be refused for, without memory: each lies at an address
        of its own, which is not looked at. Raises the library's sentence. values: further params that are known."""
        op = _ops.op(self.op)
        params, kept = self._params()
        for name in self.arrays:
            if op.params[name].type != _abi.PARAM_DEVICE_HYPER:  # with which its members would not be checked
                setattr(params, name, 64)
        for name, value in values:
            op.set(params, name, value)
        tensors: list[Tensors | None] = [None] * len(op.roles)
        address = 1 << 16
        for place, role in enumerate(self.roles):
            mine = arrays[place * self.n : (place + 1) * self.n]
            addresses = []
            for array in mine:
                addresses.append(address)
                address += -(-array.size * array.dtype.itemsize // 64) * 64
            storage = DTYPES[storage_of(op, role, mine[0].dtype)]
            tensors[role] = Tensors(addresses, storage, [array.shape for array in mine])
        execution = _abi.sized(_abi.Exec)
        lib.qn_op_prepare(op.info, ctypes.byref(execution), ctypes.byref(params), self.n, op.roles_array(tensors))
        del kept

    def workspace_bytes(self) -> int:
        params, kept = self._params()
        wanted = _ops.op(self.op).workspace_bytes(params, self.n)
        del kept
        return wanted

    def attributes(self) -> dict:
        """As XLA takes them: 64 bits wide whatever jax's default width is."""
        op = _ops.op(self.op)
        made: dict = {"op": self.op}
        made.update((op.roles[role].name, np.int64(self.n)) for role in self.roles)
        made.update((name, np.bool_(True)) for name in self.arrays)
        for name, value in self.values:
            if isinstance(value, tuple):
                made[name] = np.array(value, np.uint64).view(np.int64)
            elif isinstance(value, (str, bool)):
                made[name] = value
            elif isinstance(value, int):
                made[name] = np.array(value & 0xFFFFFFFFFFFFFFFF, np.uint64).view(np.int64)[()]
            else:
                made[name] = np.float64(value)
        return made


def storage_of(op: _ops.Op, role: int, dtype) -> str:
    """The library's name of a dtype; TypeError for one that it has none for."""
    try:
        return _STORAGE[np.dtype(dtype).name]
    except KeyError:
        known = ", ".join(_STORAGE)
        name = op.roles[role].framework_name
        raise TypeError(f"{op.name}: {name} is {np.dtype(dtype).name}, it must be one of {known}") from None


def _custom_call(call: Call, arrays: Sequence[jax.Array]) -> list[jax.Array]:
    register()
    written = call.written()
    results: list[jax.ShapeDtypeStruct] = []
    aliases: dict[int, int] = {}  # operand: the result that takes its place
    for place, role in enumerate(call.roles):
        for k in range(place * call.n, (place + 1) * call.n):
            if written[role]:
                aliases[k] = len(results)
                results.append(jax.ShapeDtypeStruct(arrays[k].shape, arrays[k].dtype))
    made = len(results)
    if wanted := call.workspace_bytes():
        results.append(jax.ShapeDtypeStruct((wanted,), jnp.uint8))
    run = jax.ffi.ffi_call(TARGET, results, input_output_aliases=aliases)
    return list(run(*arrays, **call.attributes()))[:made]


def step(call: Call, arrays: Sequence[jax.Array]) -> list[jax.Array]:
    """The step as a function of arrays: role by role those of the roles given, then the params that are operands.
    Returns the new arrays of the roles that it writes, role by role. Not differentiable, not batched."""
    call.check(arrays)

    @custom_vmap
    def run(*arrays):
        return _custom_call(call, arrays)

    @run.def_vmap
    def _(axis_size, in_batched, *arrays):
        raise NotImplementedError(
            f"quern.jax.{call.op}: a step is not batched by vmap (here over {axis_size}); it takes a list or a tree of "
            "arrays of any shapes, so give it the whole arrays"
        )

    @jax.custom_jvp
    def once(*arrays):
        return run(*arrays)

    @once.defjvp
    def _(primals, tangents):
        raise TypeError(f"quern.jax.{call.op}: an optimizer's step is not differentiated; take gradients of the loss")

    return once(*arrays)
