# SPDX-License-Identifier: Apache-2.0
"""The keywords of an op's functions here: those of the op's other functions (_signature.py), with what JAX gives for
them, and as an inspect.Signature."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Sequence

from .. import _abi, _ops
from .._signature import Keyword
from .._signature import keywords as all_keywords

_KINDS = {
    _abi.PARAM_DOUBLE: "number",
    _abi.PARAM_U64: "integer",
    _abi.PARAM_BOOL: "bool",
    _abi.PARAM_DEVICE_F32: "f32 array of (), or None",
    _abi.PARAM_DEVICE_I64: "array of n x 2 integers of 64 bits (or as n x 4 uint32), or None",
    _abi.PARAM_HOST_U64: "one integer a leaf, in the tree's order, or None",
}


def keywords(op: _ops.Op) -> tuple[Keyword, ...]:
    """Those that set params. The hyper struct is no keyword: its members are."""
    return tuple(w for w in all_keywords(op) if w.params and w.params[0].type != _abi.PARAM_DEVICE_HYPER)


def split(op: _ops.Op, word: Keyword, value) -> dict[str, object]:
    """The params' values by their names. TypeError, ValueError where several are wanted and not given."""
    if len(word.params) == 1:
        return {word.params[0].name: word.params[0].default if value is word.default else value}
    try:
        values = tuple(value)
    except TypeError:
        raise TypeError(f"{op.name}: {word.name} is {value!r}, it must be {len(word.params)} numbers") from None
    if len(values) != len(word.params):
        raise ValueError(f"{op.name}: {word.name} has {len(values)} values, it must have {len(word.params)}")
    return {param.name: one for param, one in zip(word.params, values)}


def signature(words: Sequence[Keyword], roles: Sequence[_ops.Role] = (), **more) -> inspect.Signature:
    """Roles first, then numbers by place or name, then what is given by name only; `more` has defaults too."""
    places = [inspect.Parameter(r.plural, inspect.Parameter.POSITIONAL_OR_KEYWORD) for r in roles if not r.optional]
    names = {role.plural: None for role in roles if role.optional}
    for word in words:
        if word.positional:
            places.append(inspect.Parameter(word.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=word.default))
        else:
            names[word.name] = word.default
    names.update(more)
    named = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value) for name, value in names.items()]
    return inspect.Signature(places + named)


def entry(word: Keyword) -> str:
    """A keyword's line in a docstring."""
    first = word.params[0]
    kind = " | ".join(map(repr, first.values)) if first.values else _KINDS[first.type]
    if first.hyper_offset is not None:
        kind += " or array of ()" if first.type == _abi.PARAM_DOUBLE else " or integer array of ()"
    allowed = f", {first.range}" if first.range else ""
    return f"{word.name} ({kind}{allowed}): {'; '.join(param.doc for param in word.params)}"


def listing(lines: Sequence[str]) -> str:
    """Lines of a docstring, wrapped under their first words."""
    return "\n".join(textwrap.fill(line, 100, initial_indent="    ", subsequent_indent="        ") for line in lines)
