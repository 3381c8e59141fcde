# SPDX-License-Identifier: Apache-2.0
"""Each op of the library as a pure function of arrays or trees of arrays: what is fixed when a program is compiled is
told from what may change, leaves are put together by their types, and all becomes one custom call a group."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from .. import _abi, _ops
from . import _hyper
from ._ffi import Call, Fixed, step, storage_of
from ._keywords import Keyword, entry, keywords, listing, signature, split


@dataclass(frozen=True)
class Program:
    """What jit keys a compiled step by: for each group of leaves its call and the leaves' places, and which
    hyper-parameters are arrays."""

    op: str
    groups: tuple[tuple[Call, tuple[int, ...]], ...]
    n_leaves: int
    live: tuple[str, ...]


def _is_none(leaf) -> bool:
    return leaf is None


def _leaves(op: _ops.Op, trees: dict[int, object]) -> tuple[dict[int, list], object]:
    """By role the leaves of its tree, None where there is none; and the trees' structure, which all share."""
    leaves, structure = {}, None
    for role, tree in trees.items():
        leaves[role], mine = jax.tree.flatten(tree, is_leaf=_is_none)
        structure = structure or mine
        if mine != structure:
            raise ValueError(
                f"{op.name}: {op.roles[role].plural} has the structure {mine}, and {op.roles[0].plural} {structure}"
            )
        leaves[role] = [
            leaf if leaf is None or isinstance(leaf, jax.Array) else jnp.asarray(leaf) for leaf in leaves[role]
        ]
    return leaves, structure


def _groups(op: _ops.Op, leaves: dict[int, list]) -> dict[tuple, list[int]]:
    """Places of leaves by what their roles are stored as (None: not given), in order of their first leaf."""
    groups: dict[tuple, list[int]] = {}
    for place in range(len(leaves[0])):
        if leaves[0][place] is None:
            continue
        key = []
        for role in op.roles:
            leaf = leaves[role.index][place] if role.index in leaves else None
            if leaf is None and not role.optional:
                raise ValueError(
                    f"{op.name}: leaf {place} of {role.plural} is None, and that of {op.roles[0].plural} is not"
                )
            key.append(None if leaf is None else storage_of(op, role.index, leaf.dtype))
        groups.setdefault(tuple(key), []).append(place)
    return groups


class Values:
    """A call's params, sorted by how they reach the library."""

    def __init__(self, op: _ops.Op, given: dict[str, object]) -> None:
        self.fixed: dict[str, Fixed] = {}  # attributes: compiled in
        self.known: dict[str, object] = {}  # of the hyper struct, numbers on the host
        self.live: dict[str, jax.Array] = {}  # of the hyper struct, arrays
        self.arrays: dict[str, jax.Array] = {}  # operands of their own
        self.lists: dict[str, np.ndarray] = {}  # on the host, one a leaf
        for name, value in given.items():
            param = op.params[name]
            if param.hyper_offset is not None:
                if _hyper.is_number(value):
                    self.known[name] = value
                else:
                    self.live[name] = _hyper.checked(op, name, value)
            elif param.type == _abi.PARAM_HOST_U64:
                if value is not None:
                    self.lists[name] = np.asarray(value, np.uint64)
            elif param.is_pointer:
                if value is not None:
                    single = param.type == _abi.PARAM_DEVICE_F32
                    self.arrays[name] = jnp.asarray(value, jnp.float32) if single else jnp.asarray(value)
            elif isinstance(value, jax.Array):
                raise TypeError(f"{op.name}: {name} is an array; it is compiled in, so it must be known on the host")
            else:
                self.fixed[name] = _fixed(op, param, value)


def _fixed(op: _ops.Op, param: _ops.Param, value) -> Fixed:
    """A param that is compiled in, as a value that can be hashed. TypeError, ValueError as Op.set."""
    params = op.defaults()
    op.set(params, param.name, value)
    held = getattr(params, param.name)
    return {_abi.PARAM_BOOL: bool(held), _abi.PARAM_ENUM: value}.get(param.type, held)


def _program(op: _ops.Op, leaves: dict[int, list], values: Values) -> Program:
    groups = _groups(op, leaves)
    n_leaves = len(leaves[0])
    for name, numbers in values.lists.items():
        if numbers.shape != (n_leaves,):
            raise ValueError(f"{op.name}: {name} has the shape {numbers.shape}, and there are {n_leaves} leaves")
    lists = dict(values.lists)
    if len(groups) > 1 and "tensor_id" in op.params:  # a leaf's number must not depend on its group
        lists.setdefault("tensor_id", np.arange(n_leaves, dtype=np.uint64))
    made = []
    for key, places in groups.items():
        fixed = dict(values.fixed)
        fixed.update((name, tuple(int(numbers[place]) for place in places)) for name, numbers in lists.items())
        roles = tuple(role for role, storage in enumerate(key) if storage is not None)
        arrays = tuple(
            name for name, p in op.params.items() if name in values.arrays or p.type == _abi.PARAM_DEVICE_HYPER
        )
        call = Call(op.name, len(places), roles, tuple(sorted(fixed.items())), arrays)
        _check_numbers(call, [leaves[role][places[0]] for role in roles], values)
        made.append((call, tuple(places)))
    return Program(op.name, tuple(made), n_leaves, tuple(values.live))


def _check_numbers(call: Call, firsts: list, values: Values) -> None:
    """What is known on the host is refused on the host: types and numbers, on one element a role."""
    scalars = [jax.ShapeDtypeStruct((), array.dtype) for array in firsts]
    fixed = tuple((name, value) for name, value in call.values if not isinstance(value, tuple))
    dataclasses.replace(call, n=1, values=fixed).check(scalars, tuple(values.known.items()))


def _run(program: Program, written, read, base, live, arrays):
    """Under jit. written, read: by role its leaves (None: not given). Returns the leaves of the written roles."""
    op = _ops.op(program.op)
    hyper = _hyper.fill(op, base, program.live, live)
    results = {role: list(leaves) for role, leaves in written.items()}
    leaves = {**written, **read}
    for call, places in program.groups:
        operands = [leaves[role][place] for role in call.roles for place in places]
        for name in call.arrays:
            if op.params[name].type == _abi.PARAM_DEVICE_HYPER:
                operands.append(hyper)
            elif op.params[name].type == _abi.PARAM_DEVICE_I64 and len(program.groups) > 1:
                operands.append(arrays[name].reshape(program.n_leaves, -1)[np.array(places)])
            else:
                operands.append(arrays[name])
        made, writes = iter(step(call, operands)), call.written()
        for role in call.roles:
            if writes[role]:
                for place in places:
                    results[role][place] = next(made)
    return results


_keeping = jax.jit(_run, static_argnums=0)
_donating = jax.jit(_run, static_argnums=0, donate_argnums=1)


def _given(leaves: list | None) -> int | None:
    """Whether a role is given, as Op.written asks for it."""
    if leaves is None:
        return None
    return _ops.PERHAPS if any(leaf is None for leaf in leaves) else _ops.ANY_TYPE


def apply(op: _ops.Op, trees: dict[int, object], given: dict[str, object], donate: bool) -> tuple:
    """One step. trees: by role; given: every param by its own name. Returns the trees of the written roles."""
    leaves, structure = _leaves(op, trees)
    values = Values(op, given)
    program = _program(op, leaves, values)
    there = tuple(_given(leaves.get(role.index)) for role in op.roles)
    writes = {role for role, is_written in enumerate(op.written(there)) if is_written}
    written = {role: mine for role, mine in leaves.items() if role in writes}
    read = {role: mine for role, mine in leaves.items() if role not in writes}
    run = _donating if donate else _keeping
    live = tuple(values.live.values())
    results = run(program, written, read, _hyper.base(op, values.known), live, values.arrays)
    return tuple(jax.tree.unflatten(structure, results[role]) for role in sorted(results))


def _doc(op: _ops.Op, settings: tuple[Keyword, ...]) -> str:
    roles = [f"{role.plural}: {role.doc}{' (optional)' if role.optional else ''}" for role in op.roles]
    written = ", ".join(role.plural for role in op.roles if role.written)
    live = f"\n{', '.join(op.hyper)} are operands: another value compiles nothing again." if op.hyper else ""
    rows = ", ".join("/".join(name for name in row if name != "none") for row in op.types)
    return f"""{op.brief[0].upper()}{op.brief[1:]}.

{op.doc}

One array or a tree of arrays a role, all trees of one structure:
{listing(roles)}
Types, in that order: {rows}.

{listing([entry(word) for word in settings])}
    donate (bool): the arrays of the roles that are written may be used up, so that the step is in place and nothing is
        copied. Inside a jit of your own this has no effect: there `donate_argnums` of that jit does it.

Returns the new trees of what this call writes, in this order: {written}. Nothing is changed in place that was not
donated.{live}

Raises ValueError and TypeError, with the library's sentence, for what is known before the program runs. Numbers in
arrays are checked on the CPU when the step runs (ValueError or jax.errors.JaxRuntimeError), and not on a GPU."""


def function(op: _ops.Op) -> Callable:
    """The op as a function of this module's package."""
    settings = keywords(op)
    accepted = signature(settings, op.roles, donate=False)

    def run(*args: object, **kwargs: object) -> tuple:
        bound = accepted.bind(*args, **kwargs)
        bound.apply_defaults()
        said = bound.arguments
        given: dict[str, object] = {}
        for word in settings:
            given.update(split(op, word, said[word.name]))
        trees = {
            role.index: said[role.plural] for role in op.roles if not role.optional or said[role.plural] is not None
        }
        return apply(op, trees, given, said["donate"])

    run.__name__ = run.__qualname__ = op.name
    run.__module__ = __package__
    run.__signature__ = accepted  # type: ignore[attr-defined]  # inspect looks for it; functions do not have it
    run.__doc__ = _doc(op, settings)
    return run
