# SPDX-License-Identifier: Apache-2.0
"""Gated activations for PyTorch: an op with a gradient, whole in a compiled graph, and the MLP of Llama's kind."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .. import _swiglu as plain
from .._function import function as Function
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
_op = _functions.register(
    "quern::swiglu", Function(_forward, vjp=_vjp), output_shapes=lambda a, b, *numbers: [a.shape], n_outputs=1
)


def swiglu(
    a: Tensor,
    b: Tensor,
    gate_multiplier: float = 1.0,
    down_multiplier: float = 1.0,
    *,
    activation: str = "swiglu",
    alpha: float = 1.702,
    limit: float = 7.0,
) -> Tensor:
    """activation(a * gate_multiplier) * b * down_multiplier, as quern.swiglu computes it, with its gradient by
    quern.swiglu_backward, recomputed from a and b. Both on one device and of one floating type; autograd, torch.compile
    (one node of the graph) and autocast's casts before it work as for PyTorch's own ops. DTensors are worked on shard
    by shard. A second derivative is refused with a sentence."""
    numbers = float(gate_multiplier), float(down_multiplier), activation, float(alpha), float(limit)
    if are_sharded(a, b):
        return on_shards("quern.torch.swiglu", lambda a, b: _op(a, b, *numbers), a, b)
    return _op(a, b, *numbers)


class SwiGLUMLP(nn.Module):
    """down(swiglu(gate(x), up(x))): the feed-forward layer of Llama and its kin; names of parameters as Hugging Face
    has them (gate_proj, up_proj, down_proj)."""

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        *,
        bias: bool = False,
        activation: str = "swiglu",
        gate_multiplier: float = 1.0,
        down_multiplier: float = 1.0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        where = {"bias": bias, "device": device, "dtype": dtype}
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, **where)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, **where)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, **where)
        self.activation = activation
        self.gate_multiplier, self.down_multiplier = gate_multiplier, down_multiplier

    def forward(self, x: Tensor) -> Tensor:
        product = swiglu(
            self.gate_proj(x), self.up_proj(x), self.gate_multiplier, self.down_multiplier, activation=self.activation
        )
        return self.down_proj(product)

    def extra_repr(self) -> str:
        return f"activation={self.activation!r}"


__all__ = ["SwiGLUMLP", "swiglu"]
