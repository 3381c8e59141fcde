# SPDX-License-Identifier: Apache-2.0
"""The matrix product with what follows it, for PyTorch: one op with a gradient, whole in a compiled graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _fast
from .. import _gemm as plain
from .._ops import op
from . import _dispatch, _gemm_backward
from ._functions import no_second
from ._namespace import NAMESPACE

_TENSORS = "Tensor x, Tensor weight, Tensor? bias, Tensor? bias2, Tensor? gamma, Tensor? beta"
_SETTINGS = "int groups, float lo, float hi, float eps, bool clamp, str activation, str norm, str precision"
_N_TENSORS = 6


def _kernel(*arguments: Any) -> Tensor:
    tensors, settings = arguments[:_N_TENSORS], dict(zip(plain.NAMES, arguments[_N_TENSORS:]))
    return plain.gemm_norm(*(None if tensor is None else tensor.detach() for tensor in tensors), **settings)


def _gradients(dy: Tensor, *arguments: Any) -> list[Tensor]:
    """Of the tensors that need one, in their order."""
    return [one for one in _gemm_backward.gradients(dy, *arguments) if one is not None]


def _fake(x, weight, *rest) -> Tensor:
    return x.new_empty(plain.result_shape(x, weight))


def _fake_gradients(dy, *arguments) -> list[Tensor]:
    return [one.new_empty(one.shape) for one, needed in zip(arguments, arguments[-1]) if needed]


# ---- autograd ----
def _keep(ctx: Any, inputs: tuple, output: Any) -> None:
    ctx.save_for_backward(*inputs[:_N_TENSORS])
    ctx.settings = inputs[_N_TENSORS:]


def _backward(ctx: Any, dy: Tensor) -> tuple:
    needed = list(ctx.needs_input_grad[:_N_TENSORS])
    made = iter(_op_backward(dy, *ctx.saved_tensors, *ctx.settings, needed))
    return (*(next(made) if one else None for one in needed), *(None for _ in ctx.settings))


def _refuse(ctx: Any, *slopes: Any) -> Any:
    raise no_second("gemm_norm")


class _Recorded(torch.autograd.Function):
    """apply(settings, *tensors): without the dispatcher."""

    @staticmethod
    def forward(ctx: Any, settings: tuple, *tensors: Tensor | None) -> Tensor:
        _keep(ctx, (*tensors, *settings), None)
        made = plain.fast(None, *tensors, *settings, None)
        return _kernel(*tensors, *settings) if made is NotImplemented else made

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple:
        needed = ctx.needs_input_grad[1:]
        if torch.is_grad_enabled():  # create_graph=True
            made = iter(_op_backward(dy, *ctx.saved_tensors, *ctx.settings, list(needed)))
            return (None, *(next(made) if one else None for one in needed))
        arguments: Any = (dy, *ctx.saved_tensors, *ctx.settings, needed)
        return (None, *_gemm_backward.gradients(*arguments))


def _record(y: None, *arguments: Any) -> Tensor:
    return _Recorded.apply(arguments[_N_TENSORS:-1], *arguments[:_N_TENSORS])


_fast_call = _fast.create(op("gemm_norm"), plain.NAMES, ["y"], only_torch=True, record=_record)
_op_backward = _dispatch.define(
    f"{NAMESPACE}::gemm_norm_backward",
    f"(Tensor dy, {_TENSORS}, {_SETTINGS}, bool[] needed) -> Tensor[]",
    _gradients,
    _fake_gradients,
    _refuse,
)
_op = _dispatch.define(
    f"{NAMESPACE}::gemm_norm",
    f"({_TENSORS}, {_SETTINGS}) -> Tensor",
    _kernel,
    _fake,
    _backward,
    _keep,
    fast=lambda *arguments: plain.fast(*arguments, None),
    fast_recorded=lambda *arguments: _fast_call(*arguments, None),
)


def gemm_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    bias2: Tensor | None = None,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    groups: int = 1,
    lo: float = -1.0,
    hi: float = 1.0,
    eps: float = 1e-5,
    clamp: bool = True,
    activation: str = "mish",
    norm: str = "group",
    precision: str = "fp32",
) -> Tensor:
    """As quern.gemm_norm, for tensors of one device: norm(activation(clamp(x @ weight.T + bias + bias2, lo, hi))) *
    gamma + beta. torch.compile sees one op. The gradient recomputes the product and is made of products of the same
    precision. A second derivative and forward mode are refused."""
    if not torch.compiler.is_compiling():
        made = _fast_call(
            None, x, weight, bias, bias2, gamma, beta, groups, lo, hi, eps, clamp, activation, norm, precision, None
        )  # fmt: skip
        if made is not NotImplemented:
            return made
    return _op(x, weight, bias, bias2, gamma, beta, groups, lo, hi, eps, clamp, activation, norm, precision)


__all__ = ["gemm_norm"]
