# SPDX-License-Identifier: Apache-2.0
"""A parameter group's options: what they are called, what the library is told for them, and that they are right
when they are given. Ranges, defaults and most of the documentation are the op's description."""

from __future__ import annotations

import ctypes
import functools
import operator
import textwrap
from ctypes import Structure, byref
from typing import Any

import torch
from torch import Tensor

from .. import _abi
from .._library import DTYPES, lib
from .._ops import Op
from .._tensors import Tensors

MOMENTUM_DTYPES = ("float32", "bfloat16", "float16", "param")


# ---- from a group to the library's params ----
_READ = operator.itemgetter(
    "lr", "weight_decay", "eps", "decay", "reference_lr", "maximize", "cautious", "stochastic_rounding",
    "momentum_rounding", "seed", "capturable",
)  # fmt: skip


def read(group: dict[str, Any]) -> tuple:
    """The very objects that values_of() reads."""
    return (*_READ(group), *group["betas"])


def values_of(group: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """By the op's names for them: what is known here, tensors in host memory included, and what is a tensor on a
    device, which stays there so that the host need not wait for it."""
    beta1, beta2 = group["betas"]
    reference_lr = group["reference_lr"]
    values = {
        "lr": group["lr"],
        "beta1": beta1,
        "beta2": beta2,
        "weight_decay": group["weight_decay"],
        "eps": group["eps"] or 0.0,
        "decay": group["decay"],
        "reference_lr": 1.0 if reference_lr is None else reference_lr,
        "maximize": group["maximize"],
        "cautious": group["cautious"],
        "rounding": "stochastic" if group["stochastic_rounding"] else "nearest",
        "momentum_rounding": group["momentum_rounding"],
        "seed": group["seed"],
    }
    on_device: dict[str, Tensor] = {}
    for name, value in values.items():
        if isinstance(value, Tensor):
            if value.device.type == "cpu":
                values[name] = value.item()
            else:
                on_device[name] = value
    for name in on_device:
        del values[name]
    return values, on_device


def fill(op: Op, params: Structure, values: dict[str, Any]) -> None:
    """Puts the values into params. ValueError or TypeError, with the library's sentence, for what is not in its range;
    params may have changed then."""
    for name, value in values.items():
        op.set(params, name, value)
    one = _one(op.name)
    lib.qn_op_prepare(op.info, byref(one.execution), byref(params), 1, one.roles)


class _One:
    """A list of one f32 element in host memory, which is prepared for and never stepped: through it the library says
    what it thinks of params, with no tensor at hand."""

    def __init__(self) -> None:
        self._memory = (ctypes.c_float * _abi.MAX_TENSORS)()
        at = ctypes.addressof(self._memory)
        self._tensors = [Tensors([at + 4 * k], DTYPES["f32"], [(1,)]) for k in range(3)]
        self.roles = _abi.Roles(*(tensors.address for tensors in self._tensors))
        self.execution = _abi.sized(_abi.Exec)


@functools.cache
def _one(name: str) -> _One:
    return _One()


# ---- when a group is added or loaded ----
def _settle_numbers(group: dict[str, Any]) -> None:
    for name in ("lr", "weight_decay"):
        value = group[name]
        if isinstance(value, Tensor) and value.numel() != 1:
            raise ValueError(f"quern: {name} is a tensor of {value.numel()} elements, it must have one")
    betas = group["betas"]
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise ValueError(f"quern: betas is {betas!r}, it must be two numbers")


def _settle_momentum_dtype(group: dict[str, Any]) -> None:
    """Kept as a name: a checkpoint that is loaded with weights_only may hold names."""
    dtype = group["momentum_dtype"]
    name = str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype) else dtype
    if name is not None and name not in MOMENTUM_DTYPES:
        names = ", ".join(map(repr, MOMENTUM_DTYPES))
        raise ValueError(f"quern: momentum_dtype is {dtype!r}, it must be None (float32) or one of {names}")
    group["momentum_dtype"] = name


def settle(op: Op, group: dict[str, Any]) -> None:
    """Completes a group's options and refuses wrong ones. The learning rate that other decays are relative to is,
    unless said, the one that the group begins with."""
    _settle_numbers(group)
    _settle_momentum_dtype(group)
    group.setdefault("step", 0)
    if group["reference_lr"] is None and group["decay"] != op.params["decay"].default:
        group["reference_lr"] = float(group["lr"])
    values, on_device = values_of(group)
    fill(op, op.defaults(), {**values, **{name: value.item() for name, value in on_device.items()}})


# ---- the class's document ----
def _entry(op: Op, name: str, *params: str) -> str:
    said = [op.params[param] for param in params or (name,)]
    text = "; ".join(param.doc + (f", {param.range}" if param.range else "") for param in said)
    values = f" ({' | '.join(map(repr, said[0].values))})" if said[0].values else ""
    return f"{name}: {text}{values}"


_OWN = """\
stochastic_rounding: reproducible, of 16-bit parameters; rounded to nearest, most of them never move
momentum_dtype: type of new state: None or torch.float32; of 16-bit parameters also torch.bfloat16, or with \
master_weights only their own type, "param"
master_weights: 16-bit parameters get an f32 original in the state, which is trained; loading other weights into the \
model later does not change it
capturable: the numbers are read from device memory, so that a captured graph follows their changes; see prepare()
foreach, fused: accepted and ignored; there is one implementation
differentiable: refused"""


def class_doc(op: Op) -> str:
    """What help(Lion) says, from the op's description."""
    entries = [
        "params: parameters, (name, parameter) pairs, or dicts of groups",
        _entry(op, "lr") + "; a number, or a tensor of one element, which on a device is read there",
        _entry(op, "betas", "beta1", "beta2"),
        *(_entry(op, name) for name in ("weight_decay", "eps", "decay")),
        _entry(op, "reference_lr") + "; None: the lr that the group begins with",
        *(_entry(op, name) for name in ("maximize", "cautious", "momentum_rounding", "seed")),
        *_OWN.splitlines(),
    ]
    parts = [textwrap.fill(f"{op.brief[0].upper()}{op.brief[1:]}. {op.doc}", 100)]
    parts.append("\n".join(textwrap.fill(entry, 100, subsequent_indent="    ") for entry in entries))
    return "\n\n".join(parts)
