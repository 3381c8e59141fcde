# SPDX-License-Identifier: Apache-2.0
"""The keywords of an op's functions, with their defaults and docs, made from the op's description: trees of arrays for
the roles, then the params. Params that are numbered (beta1, beta2) are one keyword that takes them together (betas)."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import dataclass

from .. import _abi, _ops

REQUIRED = inspect.Parameter.empty
_KINDS = {
    _abi.PARAM_DOUBLE: "number or array of ()",
    _abi.PARAM_U64: "integer",
    _abi.PARAM_BOOL: "bool",
    _abi.PARAM_DEVICE_F32: "f32 array of (), or None",
    _abi.PARAM_DEVICE_I64: "array of n x 2 integers of 64 bits (or as n x 4 uint32), or None",
    _abi.PARAM_HOST_U64: "one integer a tensor, in the order of the tree's leaves, or None",
}


@dataclass(frozen=True)
class Keyword:
    """One keyword of a function: the params that it sets."""

    name: str
    params: tuple[_ops.Param, ...]

    @property
    def default(self):
        defaults = tuple(param.default for param in self.params)
        return defaults if len(defaults) > 1 else defaults[0]

    def split(self, op: _ops.Op, value) -> dict[str, object]:
        """The params' values by their names. TypeError, ValueError where several are wanted and not given."""
        if len(self.params) == 1:
            return {self.params[0].name: value}
        try:
            values = tuple(value)
        except TypeError:
            raise TypeError(f"{op.name}: {self.name} is {value!r}, it must be {len(self.params)} numbers") from None
        if len(values) != len(self.params):
            raise ValueError(f"{op.name}: {self.name} has {len(values)} values, it must have {len(self.params)}")
        return {param.name: one for param, one in zip(self.params, values)}

    def doc(self) -> str:
        first = self.params[0]
        kind = " | ".join(map(repr, first.values)) if first.values else _KINDS[first.type]
        if first.type == _abi.PARAM_U64 and first.hyper_offset is not None:
            kind += " or integer array of ()"
        what = "; ".join(param.doc for param in self.params)
        allowed = f", {first.range}" if first.range else ""
        return f"{self.name} ({kind}{allowed}): {what}"


def keywords(op: _ops.Op) -> tuple[Keyword, ...]:
    """In the description's order. The hyper struct is no keyword: its members are."""
    grouped: dict[str, list[_ops.Param]] = {}
    for param in op.params.values():
        if param.type != _abi.PARAM_DEVICE_HYPER:
            stem = param.name.rstrip("0123456789")
            grouped.setdefault(stem + "s" if stem != param.name else stem, []).append(param)
    return tuple(Keyword(name, tuple(params)) for name, params in grouped.items())


def signature(
    op: _ops.Op, settings: tuple[Keyword, ...], roles: tuple[_ops.Role, ...] = (), **more
) -> inspect.Signature:
    """Roles first, then the first param by place or name, then what is given by name only; `more` has defaults too."""
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    made = [inspect.Parameter(role.plural, positional) for role in roles if not role.optional]
    by_name = {role.plural: None for role in roles if role.optional}
    by_name.update((keyword.name, keyword.default) for keyword in settings[1:])
    by_name.update(more)
    made.append(inspect.Parameter(settings[0].name, positional, default=settings[0].default))
    made += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value) for name, value in by_name.items()]
    return inspect.Signature(made)


def listing(lines: list[str]) -> str:
    """Lines of a docstring, wrapped under their first words."""
    return "\n".join(textwrap.fill(line, 100, initial_indent="    ", subsequent_indent="        ") for line in lines)
