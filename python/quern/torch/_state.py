# SPDX-License-Identifier: Apache-2.0
"""The state of parameters: how it begins, and how it is kept whole where torch.optim.Optimizer.load_state_dict
would round it to the parameter's type. It does not know what is done with it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from .._library import DTYPES
from .._ops import op
from ._calls import CODES
from ._lists import same_layout
from ._sharded import is_sharded

LION = op("lion")
# The state's entries that the op writes, by the names that frameworks have for its roles.
ENTRIES = {role.name: role.framework_name for role in LION.roles if role.written and role.name != "param"}
EXP_AVG, MASTER = ENTRIES["momentum"], ENTRIES["master"]


def needed(group: dict[str, Any], param: Tensor) -> list[str]:
    """The entries of the parameter's state. What is f32 already has no f32 original."""
    has_master = group["master_weights"] and param.dtype in (torch.bfloat16, torch.float16)
    return [EXP_AVG, MASTER] if has_master else [EXP_AVG]


def dtype_of(name: str, group: dict[str, Any], param: Tensor) -> torch.dtype:
    """In which type an entry of the state is kept."""
    if name == MASTER:
        return torch.float32
    said = group["momentum_dtype"] or "float32"
    if said == "param" or param.dtype == torch.complex64 and said == "float32":
        return param.dtype
    return getattr(torch, said)


def check_momentum(group: dict[str, Any], index: int) -> None:
    """ValueError where no step of the library takes a parameter with the momentum that the group says; gradients, whose
    types are not known yet, may be of any."""
    rows = [dict(zip((role.name for role in LION.roles), row)) for row in LION.types]
    for k, param in enumerate(group["params"]):
        has_master = MASTER in needed(group, param)
        own = CODES.get(param.dtype.to_real() if param.is_complex() else param.dtype)
        fitting = [row for row in rows if DTYPES[row["param"]] == own and (row["master"] != "none") == has_master]
        momenta = {DTYPES[row["momentum"]] for row in fitting}
        kept = dtype_of(EXP_AVG, group, param)
        if param.requires_grad and momenta and CODES.get(kept.to_real() if kept.is_complex else kept) not in momenta:
            names = " or ".join(sorted(str(dtype) for dtype, code in CODES.items() if code in momenta))
            master = "with" if has_master else "without"
            raise ValueError(
                f"quern: momentum_dtype is {group['momentum_dtype']!r}, and parameter {k} of group {index} is "
                f"{param.dtype}: {master} master_weights its momentum may be {names}"
            )


@torch.no_grad()
def begin(name: str, group: dict[str, Any], param: Tensor) -> Tensor:
    """A new entry of the state: an f32 original is a copy, a momentum is zero. Laid out as the parameter is."""
    dtype = dtype_of(name, group, param)
    if name == MASTER:
        return torch.empty_like(param, dtype=dtype, requires_grad=False).copy_(param)
    return torch.zeros_like(param, dtype=dtype, requires_grad=False)


class _Whole:
    """A tensor that the base class's load_state_dict hands through as it is."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def _wrapped(optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    """The hook: wraps the tensors, and refuses those that fit no parameter while nothing has been changed yet."""
    saved = [key for group in state_dict["param_groups"] for key in group["params"]]
    params = [param for group in optimizer.param_groups for param in group["params"]]
    for key, param in zip(saved, params) if len(saved) == len(params) else ():
        for name, value in state_dict["state"].get(key, {}).items():
            if name in ENTRIES.values() and is_sharded(value) != is_sharded(param):
                raise ValueError(
                    f"quern: of parameter {key} and its {name} in the state that is loaded one is a DTensor and the "
                    "other is not: use torch.distributed.checkpoint.state_dict, which goes between the two"
                )
            if name in ENTRIES.values() and value.shape != param.shape:
                raise ValueError(
                    f"quern: parameter {key} has the shape {tuple(param.shape)} and its {name} in the state that is "
                    f"loaded {tuple(value.shape)}"
                )
    state = {
        key: {name: _Whole(value) if isinstance(value, Tensor) else value for name, value in entries.items()}
        if isinstance(entries, dict)
        else entries
        for key, entries in state_dict["state"].items()
    }
    return {**state_dict, "state": state}


@contextlib.contextmanager
def kept_whole(optimizer: Optimizer) -> Iterator[None]:
    """During a load_state_dict: tensors of the state reach __setstate__ as they were saved. The hook comes last, so
    that users' hooks see the dictionary as it is."""
    handle = optimizer.register_load_state_dict_pre_hook(_wrapped)
    try:
        yield
    finally:
        handle.remove()


@torch.no_grad()
def _placed(tensor: Tensor, name: str, group: dict[str, Any], param: Tensor) -> Tensor:
    """A loaded entry on the parameter's device, in the type that the group says, laid out as the parameter."""
    placed = tensor.to(device=param.device, dtype=dtype_of(name, group, param))
    if same_layout(placed, param):
        return placed
    return torch.empty_like(param, dtype=placed.dtype, requires_grad=False).copy_(placed)


def put_in_place(optimizer: Optimizer) -> None:
    """After a load: what kept_whole() handed through becomes the parameters' state."""
    for group in optimizer.param_groups:
        for param in group["params"]:
            entries = optimizer.state.get(param, {})
            for name, value in entries.items():
                if isinstance(value, _Whole):
                    is_ours = name in ENTRIES.values()
                    entries[name] = _placed(value.tensor, name, group, param) if is_ours else value.tensor
