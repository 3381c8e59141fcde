# SPDX-License-Identifier: Apache-2.0
"""Gated activations for PyTorch: an op with a gradient, whole in a compiled graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _fast
from .. import _swiglu as plain
from .._function import function as Function
from .._ops import op
from . import _functions
from ._shards import are_sharded, on_shards


def _forward(
    a: Any, b: Any, gate_multiplier: float, down_multiplier: float, activation: str, alpha: float, limit: float
) -> Any:
    return plain.swiglu(a, b, gate_multiplier, down_multiplier, activation=activation, alpha=alpha, limit=limit)


def _vjp(primals: Any, cotangents: Any, outputs: Any) -> tuple:
    a, b, gate_multiplier, down_multiplier, activation, alpha, limit = primals
    da, db = plain.swiglu_backward(
        cotangents, a, b, gate_multiplier, down_multiplier, activation=activation, alpha=alpha, limit=limit
    )
    return da, db, None, None, None, None, None


_forward.__name__ = "swiglu"
_f = Function(_forward, vjp=_vjp)


def _record(c: None, a: Tensor, b: Tensor, *rest: Any) -> Tensor:
    return _functions.Recorded.apply(_f, rest[:-1], a, b)


_fast_call = _fast.create(op("swiglu"), plain.NAMES, ["c"], only_torch=True, record=_record)
_op = _functions.registered(
    "swiglu",
    _f,
    lambda a, b, *numbers: [a.shape],
    n_outputs=1,
    fast=lambda *arguments: plain.fast_forward(*arguments, None),
    fast_recorded=lambda *arguments: _fast_call(*arguments, None),
    vjp_fast=lambda _, a, b, *rest: plain.fast_backward(rest[-2][0], a, b, None, None, *rest[:-2], None),
)


def _forward_of_one(
    x: Any, layout: str, gate_multiplier: float, down_multiplier: float, activation: str, alpha: float, limit: float
) -> Any:
    words = {"activation": activation, "alpha": alpha, "limit": limit}
    return plain.swiglu(x, None, gate_multiplier, down_multiplier, layout=layout, **words)


def _vjp_of_one(primals: Any, cotangents: Any, outputs: Any) -> tuple:
    x, layout, gate_multiplier, down_multiplier, activation, alpha, limit = primals
    words = {"activation": activation, "alpha": alpha, "limit": limit}
    dx = plain.swiglu_backward(cotangents, x, None, gate_multiplier, down_multiplier, layout=layout, **words)
    return dx, None, None, None, None, None, None


_forward_of_one.__name__ = "swiglu_of_one"
_f_of_one = Function(_forward_of_one, vjp=_vjp_of_one)


def _fast_of_one(c: Tensor | None, x: Tensor, layout: str, *numbers: Any) -> Any:
    state = _fast.torch_state(x)
    if state == _fast.RECORDS and type(numbers[2]) is str:
        return _functions.Recorded.apply(_f_of_one, (layout, *numbers), x)
    if state != _fast.PLAIN:
        return NotImplemented
    return _fast_call(c, *plain.split("quern.torch.swiglu", x, layout), *numbers, None)


def _fast_vjp_of_one(_: None, x: Tensor, layout: str, *rest: Any) -> Any:
    numbers, (dc,) = rest[:-2], rest[-2]
    if _fast.torch_state(x, dc) != _fast.PLAIN:
        return NotImplemented
    dx = torch.empty_like(x, memory_format=torch.contiguous_format)
    parts = *plain.split("quern.torch.swiglu", x, layout), *plain.split("quern.torch.swiglu", dx, layout)
    return NotImplemented if plain.fast_backward(dc, *parts, *numbers, None) is NotImplemented else [dx]


_op_of_one = _functions.registered(
    "swiglu_of_one",
    _f_of_one,
    lambda x, *others: [(*x.shape[:-1], x.shape[-1] // 2)],
    n_outputs=1,
    fast=_fast_of_one,
    vjp_fast=_fast_vjp_of_one,
)


def swiglu(
    a: Tensor,
    b: Tensor | None = None,
    gate_multiplier: float = 1.0,
    down_multiplier: float = 1.0,
    *,
    activation: str = "swiglu",
    alpha: float = 1.702,
    limit: float = 7.0,
    layout: str | None = None,
    out_dtype: Any = None,
    scale: Tensor | None = None,
) -> Any:
    """activation(a * gate_multiplier) * b * down_multiplier, as quern.swiglu computes it, with its gradient by
    quern.swiglu_backward, recomputed from a and b. Both on one device and of one floating type; autograd, torch.compile
    (one node of the graph) and autocast's casts before it work as for PyTorch's own ops. DTensors are worked on shard
    by shard. A second derivative is refused with a sentence.

    layout: of one tensor a that holds both in its last dimension, with no b: "halves" (what one projection to both
    gives) or "interleaved" (gpt-oss). It is read, and its one gradient written, without a copy.

    out_dtype: torch.float8_e4m3fn: the result in it, with scale (float32, one element or one a row) or, without, a pair
    of it and the computed scales, as quern.swiglu has it. There is no gradient then, nor a node of a compiled graph."""
    if layout is out_dtype is scale is None and not torch.compiler.is_compiling():
        made = _fast_call(None, a, b, gate_multiplier, down_multiplier, activation, alpha, limit, None)
        if made is not NotImplemented:
            return made
    words: dict[str, Any] = {"activation": activation, "alpha": alpha, "limit": limit, "layout": layout}
    if out_dtype is not None or scale is not None:
        if are_sharded(a, *(() if b is None else (b,))):
            raise TypeError("quern.torch.swiglu: out_dtype is for tensors that are not sharded")
        if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (a, b)):
            raise TypeError("quern.torch.swiglu: a result in float8_e4m3fn has no gradient; give .detach() of a and b")
        return plain.swiglu(a, b, gate_multiplier, down_multiplier, out_dtype=out_dtype, scale=scale, **words)
    numbers = float(gate_multiplier), float(down_multiplier), activation, float(alpha), float(limit)
    if b is None:
        return _of_one(a, layout, *numbers)
    if layout is not None:
        raise TypeError(f"quern.torch.swiglu: layout is {layout!r}, which is for one tensor that holds a and b")
    if are_sharded(a, b):
        return on_shards("quern.torch.swiglu", lambda a, b: swiglu(a, b, *numbers[:2], **words), a, b)
    return _op(a, b, *numbers)


def _of_one(x: Tensor, layout: Any, *numbers: Any) -> Tensor:
    plain.split("quern.torch.swiglu", x, layout)
    made = NotImplemented if torch.compiler.is_compiling() else _fast_of_one(None, x, layout, *numbers)
    return _op_of_one(x, layout, *numbers) if made is NotImplemented else made


__all__ = ["swiglu"]
