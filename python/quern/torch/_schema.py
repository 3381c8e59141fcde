# SPDX-License-Identifier: Apache-2.0
"""Schemas for torch.library, written from an op's description: lists (or single tensors) of every role, with what the
op writes marked as mutated, and every param with its name and default. No op is named here, and nothing is
registered."""

from __future__ import annotations

from collections.abc import Sequence

from .. import _abi
from .._ops import Param, Role

# By the description's type. A device pointer is a tensor on the list's device; one number a tensor is a list of ints.
_TYPES = {
    _abi.PARAM_DOUBLE: "float",
    _abi.PARAM_U64: "SymInt",  # so that a counter that moves does not make torch.compile compile again
    _abi.PARAM_BOOL: "bool",
    _abi.PARAM_ENUM: "str",
    _abi.PARAM_DEVICE_F32: "Tensor?",
    _abi.PARAM_DEVICE_I64: "Tensor?",
    _abi.PARAM_DEVICE_HYPER: "Tensor?",
    _abi.PARAM_HOST_U64: "int[]?",
}


def is_live(param: Param) -> bool:
    """A number that may change from step to step: the overload "live" takes a tensor in its place."""
    return param.type == _abi.PARAM_DOUBLE and param.hyper_offset is not None


def _default(param: Param) -> str:
    return f'"{param.default}"' if isinstance(param.default, str) else repr(param.default)


def _setting(param: Param, live: bool) -> str:
    if live and is_live(param):
        return f"Tensor? {param.name}=None"
    return f"{_TYPES[param.type]} {param.name}={_default(param)}"


def _tensors(roles: Sequence[tuple[Role, str]], many: bool) -> list[str]:
    made = []
    for place, (role, name) in enumerate(roles):
        mark = f"({chr(ord('a') + place)}!)" if role.written else ""
        last = all(later.optional for later, _ in roles[place:])
        kind = f"Tensor{mark}{'[]' if many else ''}{'?' if role.optional else ''}"
        made.append(f"{kind} {name}{'=None' if last else ''}")
    return made


def schema(
    name: str, roles: Sequence[tuple[Role, str]], params: Sequence[Param], *, many: bool, positional: bool, live: bool
) -> str:
    """What Library.define takes. roles: with the argument's name of each; many: lists of tensors; positional: may
    params be given without their names; live: the overload of that name."""
    settings = [_setting(param, live) for param in params]
    arguments = _tensors(roles, many) + ([] if positional else ["*"]) + settings
    return f"{name}({', '.join(arguments)}) -> ()"
