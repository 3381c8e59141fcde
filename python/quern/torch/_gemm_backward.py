# SPDX-License-Identifier: Apache-2.0
"""The gradients of gemm_norm. The product is taken again and its epilogue gone back through by PyTorch's element-wise
functions in float32; the two products that follow are the library's own, of the class of the first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from .. import _gemm as plain

_aten = torch.ops.aten
# (activation of u, slope of u and the activation's value from the slope of the value)
_ACTIVATIONS: dict[str, tuple[Callable, Callable]] = {
    "none": (lambda u: u, lambda dv, u, v: dv),
    "relu": (torch.relu, lambda dv, u, v: _aten.threshold_backward(dv, u, 0)),
    "gelu": (functional.gelu, lambda dv, u, v: _aten.gelu_backward(dv, u)),
    "gelu_tanh": (
        lambda u: functional.gelu(u, approximate="tanh"),
        lambda dv, u, v: _aten.gelu_backward(dv, u, approximate="tanh"),
    ),
    "silu": (functional.silu, lambda dv, u, v: _aten.silu_backward(dv, u)),
    "mish": (functional.mish, lambda dv, u, v: _aten.mish_backward(dv, u)),
    "sigmoid": (torch.sigmoid, lambda dv, u, v: _aten.sigmoid_backward(dv, v)),
    "tanh": (torch.tanh, lambda dv, u, v: _aten.tanh_backward(dv, v)),
}


def _product(x: Tensor, weight: Tensor, precision: str, *biases: Tensor | None) -> Tensor:
    """x @ weight.T of a class, plus biases."""
    if not x.numel() or not weight.numel():
        return x.new_zeros(len(x), len(weight))
    return plain.gemm_norm(x, weight, *biases, clamp=False, activation="none", norm="none", precision=precision)


def _normed(v: Tensor, dn: Tensor, groups: int, eps: float, is_centred: bool) -> tuple[Tensor, Tensor]:
    """(norm of v, slope of v) from the slope of the norm; over `groups` parts of each row."""
    parts, slopes = (one.reshape(len(v), groups, -1) for one in (v, dn))
    if is_centred:
        parts = parts - parts.mean(-1, keepdim=True)
    scale = (parts.square().mean(-1, keepdim=True) + eps).rsqrt()
    normed = parts * scale
    dv = slopes - normed * (slopes * normed).mean(-1, keepdim=True)
    if is_centred:
        dv = dv - slopes.mean(-1, keepdim=True)
    return normed.reshape(v.shape), (dv * scale).reshape(v.shape)


def gradients(
    dy: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    bias2: Tensor | None,
    gamma: Tensor | None,
    beta: Tensor | None,
    groups: int,
    lo: float,
    hi: float,
    eps: float,
    clamp: bool,
    activation: str,
    norm: str,
    precision: str,
    needed: Sequence[bool],
) -> list[Tensor | None]:
    """Of x, weight, bias, bias2, gamma and beta; None of those that are not needed."""
    with torch.no_grad(), torch.autocast(dy.device.type, enabled=False):
        rows, dn = x.detach().reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1]).float()
        dbeta = dn.sum(0) if needed[5] else None
        weight, biases = weight.detach(), [None if one is None else one.detach() for one in (bias, bias2)]
        z = _product(rows, weight, precision, *biases).float()
        u = z.clamp(lo, hi) if clamp else z
        function, slope = _ACTIVATIONS[activation]
        v = function(u)
        dm = dn if gamma is None else dn * gamma
        normed, dv = v, dm
        if norm != "none" and len(rows):
            normed, dv = _normed(v, dm, groups if norm == "group" else 1, eps, norm != "rms")
        dgamma = (dn * normed).sum(0) if needed[4] else None
        dz = slope(dv, u, v)
        if clamp:
            dz = dz * (z == u)
        dbias = dz.sum(0) if needed[2] or needed[3] else None
        dz = dz.to(x.dtype)
        dx = _product(dz, weight.t(), precision).view(x.shape) if needed[0] else None
        dweight = _product(dz.t(), rows.t(), precision) if needed[1] else None
        dbias2 = dbias if needed[3] else None
        if dbias is not None and needed[2] and needed[3]:
            dbias2 = dbias.clone()  # each its own tensor, as autograd requires of what it may write to
        return [dx, dweight, dbias if needed[2] else None, dbias2, dgamma, dbeta]
