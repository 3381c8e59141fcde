# SPDX-License-Identifier: Apache-2.0
"""SwiGLU whose backward writes the gradients over a and b, as Liger's function does: it saves the two tensors that
training would otherwise hold besides. What was overwritten is refused to a second backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _swiglu as plain
from ._shards import are_sharded, on_shards

_AGAIN = (
    "quern.torch.SiLUMul: the backward wrote the gradients over a and b, so there is nothing left to {} from; "
    "quern.torch.swiglu keeps them"
)


class _SiLUMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, gate_multiplier: float, down_multiplier: float) -> Tensor:
        a, b = a.contiguous(), b.contiguous()
        ctx.save_for_backward(a, b)
        ctx.numbers, ctx.overwritten = (gate_multiplier, down_multiplier), False
        return plain.swiglu(a.detach(), b.detach(), gate_multiplier, down_multiplier)

    @staticmethod
    def backward(ctx: Any, dc: Tensor) -> tuple:
        if ctx.overwritten:
            raise RuntimeError(_AGAIN.format("go backward a second time"))
        if torch.is_grad_enabled():  # create_graph=True
            raise RuntimeError(_AGAIN.format("take a second derivative"))
        a, b = (tensor.detach() for tensor in ctx.saved_tensors)
        ctx.overwritten = True
        # The call counts the tensors' versions up: whoever else has kept them for a backward is told by PyTorch.
        da, db = plain.swiglu_backward(dc, a, b, *ctx.numbers, in_place=True)
        return da, db, None, None


class SiLUMul:
    """SiLUMul.apply(a, b, gate_multiplier=1.0, down_multiplier=1.0): silu(a * gate_multiplier) * b * down_multiplier,
    a replacement of Liger's LigerSiLUMulFunction. The backward writes the gradients over a and b (over their copies
    where they are not row-major), which are lost. A second backward, or a second derivative, is a RuntimeError.
    DTensors are processed shard by shard."""

    @staticmethod
    def apply(a: Tensor, b: Tensor, gate_multiplier: float = 1.0, down_multiplier: float = 1.0) -> Tensor:
        numbers = float(gate_multiplier), float(down_multiplier)
        if are_sharded(a, b):
            return on_shards("quern.torch.SiLUMul", lambda a, b: _SiLUMul.apply(a, b, *numbers), a, b)
        return _SiLUMul.apply(a, b, *numbers)


__all__ = ["SiLUMul"]
