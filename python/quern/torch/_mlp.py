# SPDX-License-Identifier: Apache-2.0
"""The MLP of Llama's kind. Where its layers are PyTorch's own and unwatched, it is one node of autograd: eager PyTorch
has twelve, and a small module costs what its nodes cost the host. Else it is the composition of its layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.modules import module as of_modules

from .. import _fast
from .. import _swiglu as plain
from .._ops import op
from ._swiglu import swiglu

Numbers = tuple[float, float, str, float, float]  # the settings of plain.NAMES
_LIMITS: Any = tuple(op("swiglu").params[name].default for name in ("alpha", "limit"))
_APART, _FUSED = ("gate_proj", "up_proj", "down_proj"), ("gate_up_proj", "", "down_proj")
_linear_forward = nn.Linear.forward


def _is_plain(layer: nn.Module) -> bool:
    """Would a call of the layer be torch.nn.functional.linear of its parameters, and nothing else?"""
    own = layer.__dict__
    return (
        type(layer) is nn.Linear
        and "forward" not in own
        and "weight" in own["_parameters"]
        and "bias" in own["_parameters"]
        and own.get("_compiled_call_impl") is None
        and not (own["_forward_hooks"] or own["_forward_pre_hooks"])
        and not (own["_backward_hooks"] or own["_backward_pre_hooks"])
    )


def _are_unwatched() -> bool:
    """Nobody has hooks on all modules, nor another forward for linear layers."""
    return nn.Linear.forward is _linear_forward and not (
        of_modules._global_forward_hooks
        or of_modules._global_forward_pre_hooks
        or of_modules._global_backward_hooks
        or of_modules._global_backward_pre_hooks
    )


def _gated(a: Tensor, b: Tensor, numbers: Numbers) -> Tensor:
    c = plain.fast_forward(None, a, b, *numbers, None)
    if c is NotImplemented:
        c = plain.swiglu(a, b, *numbers[:2], activation=numbers[2], alpha=numbers[3], limit=numbers[4])
    return c


def _gated_backward(dc: Tensor, a: Tensor, b: Tensor, da: Tensor | None, db: Tensor | None, numbers: Numbers) -> Any:
    made = plain.fast_backward(dc, a, b, da, db, *numbers, None)
    if made is not NotImplemented:
        return made
    made = plain.swiglu_backward(dc, a, b, *numbers[:2], activation=numbers[2], alpha=numbers[3], limit=numbers[4])
    return made if da is None or db is None else (da.copy_(made[0]), db.copy_(made[1]))


def _halves(x: Tensor, layout: str) -> tuple[Tensor, Tensor]:
    return x.chunk(2, -1) if layout == "halves" else (x[..., ::2], x[..., 1::2])


def _forward(layout: str | None, numbers: Numbers, x: Tensor, gate, gate_bias, up, up_bias, down, down_bias) -> tuple:
    """(a or what holds both, b, c, result). With a layout, gate is of both and up None."""
    made = linear(x, gate, gate_bias)
    a, b = (made, linear(x, up, up_bias)) if layout is None else _halves(made, layout)
    c = _gated(a, b, numbers)
    return made, b if layout is None else None, c, linear(c, down, down_bias)


def _composed(layout: str | None, numbers: Numbers, x: Tensor, gate, gate_bias, up, up_bias, down, down_bias) -> Tensor:
    """The same result by functions that autograd records one by one."""
    b = linear(x, up, up_bias) if layout is None else None
    words: dict[str, Any] = {"activation": numbers[2], "alpha": numbers[3], "limit": numbers[4], "layout": layout}
    return linear(swiglu(linear(x, gate, gate_bias), b, *numbers[:2], **words), down, down_bias)


def _matrix(tensor: Tensor) -> Tensor:
    return tensor if tensor.dim() == 2 else tensor.reshape(-1, tensor.shape[-1])


class _MLP(torch.autograd.Function):
    """apply(layout, numbers, x, gate, its bias, up, its bias, down, its bias). a, b and c are saved; eager PyTorch
    saves the activation of a besides."""

    @staticmethod
    def forward(ctx: Any, layout: str | None, numbers: Numbers, *tensors: Tensor | None) -> Tensor:
        *made, y = _forward(layout, numbers, *tensors)
        ctx.layout, ctx.numbers = layout, numbers
        ctx.save_for_backward(*tensors, *made)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        *tensors, a, b, c = ctx.saved_tensors
        needed = ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():  # create_graph=True
            return None, None, *_again(ctx, dy, tensors, needed)
        if torch._C._is_any_autocast_enabled():  # which was not when it went forward
            with torch.autocast(dy.device.type, enabled=False):
                return None, None, *_backward(ctx, dy, tensors, needed, a, b, c)
        return None, None, *_backward(ctx, dy, tensors, needed, a, b, c)


def _backward(ctx: Any, dy: Tensor, tensors: list, needed: tuple, a: Tensor, b: Tensor | None, c: Tensor) -> tuple:
    x, gate, _, up, _, down, _ = tensors
    dy, c = _matrix(dy.contiguous() if 0 in dy.stride() else dy), _matrix(c)  # a sum's is one number, spread out
    dx = dgate = dgate_bias = dup = dup_bias = None
    if any(needed[:5]):
        da, db = _gradients(ctx, dy.mm(down), a, b)
        rows = _matrix(x)
        dgate, dgate_bias = _of_layer(needed[1], needed[2], da, rows)
        if db is not None:
            dup, dup_bias = _of_layer(needed[3], needed[4], db, rows)
        if needed[0]:
            dx = da.mm(gate) if db is None else da.mm(gate).addmm_(db, up)
            dx = dx.view(x.shape)
    return dx, dgate, dgate_bias, dup, dup_bias, *_of_layer(needed[5], needed[6], dy, c)


def _of_layer(weight: bool, bias: bool, dy: Tensor, x: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of a layer's weight and bias, where they are needed."""
    return dy.t().mm(x) if weight else None, dy.sum(0) if bias else None


def _gradients(ctx: Any, dc: Tensor, a: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """(da, db) as matrices; with a layout (what holds both, None)."""
    if b is not None:
        return _gated_backward(dc, _matrix(a), _matrix(b), None, None, ctx.numbers)
    a = _matrix(a)
    both = torch.empty_like(a)
    _gated_backward(dc, *_halves(a, ctx.layout), *_halves(both, ctx.layout), ctx.numbers)
    return both, None


def _again(ctx: Any, dy: Tensor, tensors: list, needed: tuple) -> list:
    """Gradients that autograd can differentiate once more, as far as the composition's can be."""
    # Views of their own: x may have come from the weights, and two weights may be one; each gradient is of one place.
    given = [one.view_as(one) if is_needed else one for one, is_needed in zip(tensors, needed)]
    wanted = [one for one, is_needed in zip(given, needed) if is_needed]
    y = _composed(ctx.layout, ctx.numbers, *given)
    made = iter(torch.autograd.grad(y, wanted, dy, create_graph=True))
    return [next(made) if is_needed else None for is_needed in needed]


class SwiGLUMLP(nn.Module):
    """down(swiglu(gate(x), up(x))): the feed-forward layer of Llama and its kin; names of parameters as Hugging Face
    has them (gate_proj, up_proj, down_proj). fused: one projection to both, gate_up_proj, whose result is not parted;
    its first rows are the gate's with layout "halves", its even ones with "interleaved".

    Layers that are replaced, parametrized, hooked or sharded are called, as are all under autocast, torch.compile and
    transforms of torch.func; else the module is one node of autograd."""

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        *,
        bias: bool = False,
        activation: str = "swiglu",
        gate_multiplier: float = 1.0,
        down_multiplier: float = 1.0,
        fused: bool = False,
        layout: str = "halves",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        where = {"bias": bias, "device": device, "dtype": dtype}
        self.layout = layout if fused else None
        if fused:
            self.gate_up_proj = nn.Linear(hidden_size, 2 * intermediate_size, **where)
        else:
            self.gate_proj = nn.Linear(hidden_size, intermediate_size, **where)
            self.up_proj = nn.Linear(hidden_size, intermediate_size, **where)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, **where)
        self.activation = activation
        self.gate_multiplier, self.down_multiplier = gate_multiplier, down_multiplier

    def forward(self, x: Tensor) -> Tensor:
        made = NotImplemented if torch.compiler.is_compiling() else self._as_one(x)
        if made is not NotImplemented:
            return made
        a, b = (self.gate_up_proj(x), None) if self.layout else (self.gate_proj(x), self.up_proj(x))
        made = swiglu(a, b, self.gate_multiplier, self.down_multiplier, activation=self.activation, layout=self.layout)
        return self.down_proj(made)

    def _as_one(self, x: Tensor) -> Any:
        """NotImplemented where the layers must be called."""
        if torch._C._is_any_autocast_enabled() or not _are_unwatched() or type(self.activation) is not str:
            return NotImplemented
        own, tensors = self._modules, [x]
        for name in _FUSED if self.layout else _APART:
            layer = own.get(name)
            if name and (layer is None or not _is_plain(layer)):
                return NotImplemented
            tensors += (layer._parameters["weight"], layer._parameters["bias"]) if name else (None, None)
        state = _fast.torch_state(*tensors)
        if state not in (_fast.PLAIN, _fast.RECORDS):
            return NotImplemented
        numbers = float(self.gate_multiplier), float(self.down_multiplier), self.activation, *_LIMITS
        if state == _fast.RECORDS:
            return _MLP.apply(self.layout, numbers, *tensors)
        return _forward(self.layout, numbers, *tensors)[-1]

    def extra_repr(self) -> str:
        return f"activation={self.activation!r}" + (f", layout={self.layout!r}" if self.layout else "")


__all__ = ["SwiGLUMLP"]
