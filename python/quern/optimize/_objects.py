# SPDX-License-Identifier: Apache-2.0
"""Objects that PyTorch's trees do not know: those of a module's attributes, whose changes are found, and those among a
call's results, such as Transformers' caches and distributions, which are built anew at each call."""

from __future__ import annotations

import enum
import types
from collections.abc import Iterator

import torch
from torch.utils import _pytree as pytree

# Values that do not change, and may be shared.
FIXED = (int, float, complex, str, bytes, type(None), type, types.FunctionType, types.BuiltinFunctionType, enum.Enum,
         torch.dtype, torch.device)  # fmt: skip
_WHOLE = (*FIXED, types.ModuleType, types.MethodType)  # what is compared as it is
DEEPEST = 8  # objects in each other among results
_OWN = frozenset(vars(torch.nn.Module()))  # what every module has


# ---- attributes ----
def contents(model: torch.nn.Module) -> dict[str, dict[str, object]]:
    """Of each attribute of each module, by its dotted name: what is in it, by its place there."""
    seen = {id(module): module for module in model.modules()}
    found = {}
    for prefix, module in model.named_modules():
        own = {key: value for key, value in vars(module).items() if key not in _OWN}
        for key, value in {**own, **module._buffers}.items():
            plain = isinstance(value, torch.Tensor)  # whose changes in place are PyTorch's to find
            found[f"{prefix}.{key}" if prefix else key] = {"": value} if plain else dict(_inside(value, "", seen))
    return found


def _inside(value, place: str, seen: dict[int, object]) -> Iterator[tuple[str, object]]:
    """Tensors with their versions, values that do not change, and of all else what is in it: another list of the same
    tensors is no change. Of what was met before, nothing."""
    if isinstance(value, _WHOLE):
        yield place, value
    elif isinstance(value, torch.Tensor):
        yield place, (value, 0 if value.is_inference() else value._version)
    elif id(value) in seen:
        yield place, id(value)
    else:
        seen[id(value)] = value  # held, so that its number stays its own
        known = isinstance(value, (dict, list, tuple, set, frozenset)) or hasattr(value, "__dict__")
        yield place, type(value) if known else id(value)
        if isinstance(value, dict):
            for key, item in value.items():
                yield from _inside(item, f"{place}[{repr(key) if isinstance(key, FIXED) else id(key)}]", seen)
        elif isinstance(value, (list, tuple, set, frozenset)):
            yield f"{place}.len", len(value)
            for k, item in enumerate(value):
                yield from _inside(item, f"{place}[{k}]", seen)
        for key, item in getattr(value, "__dict__", {}).items():
            yield from _inside(item, f"{place}.{key}", seen)


def changed(before: dict[str, dict[str, object]], after: dict[str, dict[str, object]]) -> list[str]:
    """The names of attributes that are not as they were."""
    names = [*before, *(name for name in after if name not in before)]
    return [name for name in names if not _same(before.get(name), after.get(name))]


def _same(a, b) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[place], b[place]) for place in a)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return a is b or (isinstance(a, _WHOLE) and type(a) is type(b) and bool(a == b))


# ---- results ----
class _Object:
    """An object among results as a node of PyTorch's trees: `values` hold tensors, `fixed` none."""

    def __init__(self, kind: type, values: dict[str, object], fixed: dict[str, object]) -> None:
        self.kind, self.values, self.fixed = kind, values, fixed

    def build(self) -> object:
        made: object = object.__new__(self.kind)
        vars(made).update({key: _copy(value) for key, value in self.fixed.items()})
        vars(made).update({key: built(value) for key, value in self.values.items()})
        return made


def _flatten(node: _Object) -> tuple[list, tuple]:
    return list(node.values.values()), (node.kind, tuple(node.values), node.fixed)


def _unflatten(values, context: tuple) -> _Object:
    kind, names, fixed = context
    return _Object(kind, dict(zip(names, values)), fixed)


pytree.register_pytree_node(_Object, _flatten, _unflatten)


def _copy(value):
    """Of what `_is_fixed` says."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return type(value)(map(_copy, value)) if type(value) in (list, set) else value


def _is_fixed(value) -> bool:
    if type(value) is dict:
        return all(_is_fixed(item) for both in value.items() for item in both)
    if type(value) in (list, tuple, set, frozenset, torch.Size):
        return all(map(_is_fixed, value))
    return isinstance(value, FIXED)


def held(result, depth: int = 0):
    """A result with its objects as nodes of PyTorch's trees. An object that holds no tensor, or more than a copy by
    its attributes would give, stays as it is."""
    return pytree.tree_map(lambda leaf: _held(leaf, depth), result)


def built(result):
    """The result that was held."""
    return pytree.tree_map(lambda x: x.build() if _is(x) else x, result, is_leaf=_is)


def are_in(result) -> bool:
    """Whether there are some in a result that is held."""
    return any(map(_is, pytree.tree_leaves(result, is_leaf=_is)))


def _is(value) -> bool:
    return isinstance(value, _Object)


def _held(leaf, depth: int):
    if isinstance(leaf, (torch.Tensor, torch.nn.Module, *FIXED)) or not hasattr(leaf, "__dict__") or depth > DEEPEST:
        return leaf
    try:
        make, arguments, state, *items = leaf.__reduce_ex__(2)
    except Exception:  # it cannot be copied
        return leaf
    if make.__name__ != "__newobj__" or arguments != (type(leaf),) or any(item is not None for item in items):
        return leaf
    values = vars(leaf)
    if type(state) is not dict or state.keys() != values.keys() or any(state[key] is not values[key] for key in state):
        return leaf
    fixed = {key: value for key, value in values.items() if _is_fixed(value)}
    rest = {key: held(value, depth + 1) for key, value in values.items() if key not in fixed}
    if not rest or not all(isinstance(x, (torch.Tensor, *FIXED)) for x in pytree.tree_leaves(rest)):
        return leaf
    return _Object(type(leaf), rest, fixed)
