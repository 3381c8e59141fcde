# SPDX-License-Identifier: Apache-2.0
"""Learned optimizers as plain PyTorch computes them: every input of the network of every element in memory at once, one
tensor after the other. It is written from the contract (src/op/small_fc_lopt/README.md), shares nothing with the
library, and is what benchmarks hold quern against; in float64 it is the tests' oracle. It is not meant to be used for
training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_TIMES = (1, 3, 10, 30, 100, 300, 1000, 3000, 10000, 30000, 100000)


def largest_two(shape: Sequence[int], velo: bool = False) -> tuple[int, int] | None:
    """(d0, d1): the largest dimension and the second largest, of equal ones the later; None for fewer than two. VeLO
    takes the earlier one of two equal ones, but for the first two of four."""
    if len(shape) < 2:
        return None
    d1, d0 = sorted(range(len(shape)), key=lambda d: (shape[d], d))[-2:]
    if velo and shape[d0] == shape[d1] and (len(shape), d0, d1) != (4, 1, 0):
        return d1, d0
    return d0, d1


@dataclass(frozen=True)
class Rule:
    """What tells the optimizers of this network apart. `decays`: of the means of the gradient, of its square, and of
    row and column."""

    decays: tuple[Sequence[float], float, Sequence[float]]
    step_mult: float = 0.01
    exp_mult: float = 0.001
    elo: bool = False


def _learned(decay: float, offset: float) -> float:
    return float(1 - (1 - decay) * torch.tensor(10 * offset, dtype=torch.float64).exp())


_INITIAL = (0.9, 0.99, 0.999)
SMALL_FC = Rule(
    (
        [_learned(d, o) for d, o in zip(_INITIAL, (0.15216392, 0.14245212, 0.06812963))],
        _learned(0.999, 0.01079706),
        [_learned(d, o) for d, o in zip(_INITIAL, (0.18621896, -0.10864615, -0.06185547))],
    )
)
ELO = Rule((_INITIAL, 0.999, _INITIAL), step_mult=1.0, elo=True)


class State:
    """The means of one tensor, zeros at first; the decays' axis is the last."""

    def __init__(self, param: Tensor, velo: bool = False, dims: tuple[int, int] | None = None) -> None:
        self.dims = dims or largest_two(param.shape, velo)
        self.of_means = 0.0 if velo else 1e-6  # where nothing is factored
        self.m = param.new_zeros((*param.shape, 3))
        self.v = param.new_zeros(param.shape)
        if self.dims is None:
            self.row = self.column = param.new_zeros((*param.shape, 3))
        else:
            self.row, self.column = (
                param.new_zeros((*(1 if d == dim else n for d, n in enumerate(param.shape)), 3)) for dim in self.dims
            )

    def update(self, grad: Tensor, decays: tuple) -> None:
        of_m, of_v, of_factors = (torch.as_tensor(d, dtype=grad.dtype, device=grad.device) for d in decays)
        self.m = of_m * self.m + (1 - of_m) * grad[..., None]
        self.v = of_v * self.v + (1 - of_v) * grad**2
        squares = (grad**2 + 1e-30)[..., None]
        if self.dims is None:
            self.row = self.column = of_factors * self.row + (1 - of_factors) * squares
            return
        d0, d1 = self.dims
        self.row = of_factors * self.row + (1 - of_factors) * squares.mean(d0, keepdim=True)
        self.column = of_factors * self.column + (1 - of_factors) * squares.mean(d1, keepdim=True)

    def factors(self) -> tuple[Tensor, Tensor]:
        """What the gradient and its means are multiplied by."""
        if self.dims is None:
            return (self.row + 1e-9).clamp(min=1e-9).rsqrt(), (self.row + self.of_means).rsqrt()
        mean = self.row.mean(self.dims[1], keepdim=True)
        both = (self.row / (mean + 1e-9)).clamp(min=1e-9).rsqrt() * self.column.clamp(min=1e-9).rsqrt()
        return both, both


def normalised(values: Tensor) -> Tensor:
    """Each channel of the last dimension, divided by the root of its mean square."""
    over = tuple(range(values.dim() - 1))
    squares = (values**2).mean(over, keepdim=True) if over else values**2
    return values * (squares + 1e-5).rsqrt()


def inputs(param: Tensor, grad: Tensor, state: State, step: int) -> Tensor:
    """The network's 39 inputs of every element, in the last dimension."""
    of_grad, of_means = state.factors()
    scale = (state.v + 1e-6).rsqrt()[..., None]
    whole = (*param.shape, 3)
    parts = [grad[..., None], param[..., None], state.m, state.v[..., None], state.m * scale, scale]
    parts += [grad[..., None] * of_grad, state.row.expand(whole), state.column.expand(whole)]
    parts += [(state.row + 1e-8).rsqrt().expand(whole), (state.column + 1e-8).rsqrt().expand(whole)]
    made = normalised(torch.cat([*parts, state.m * of_means], -1))
    times = torch.tensor(_TIMES, dtype=param.dtype, device=param.device)
    return torch.cat([made, torch.tanh(step / times - 1).expand(*param.shape, len(_TIMES))], -1)


def network(weights: Mapping[str, Tensor], values: Tensor) -> tuple[Tensor, Tensor]:
    """(direction, magnitude) of every element."""
    linear = torch.nn.functional.linear
    for layer in ("input", "linear_0"):
        values = linear(values, weights[f"network.{layer}.weight"], weights[f"network.{layer}.bias"]).relu()
    out = linear(values, weights["network.output.weight"], weights["network.output.bias"])
    return out[..., 0], out[..., 1]


@torch.no_grad()
def step(
    rule: Rule,
    weights: Mapping[str, Tensor],
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    states: Sequence[State],
    taken: int,
    lr: float,
    weight_decay: float = 0.0,
) -> None:
    """One step in place over a list; `taken`: steps before this one. Weights are of the tensors' type and device."""
    for param, given, state in zip(params, grads, states):
        grad = torch.nan_to_num(given) if rule.elo else given
        if not param.numel():
            continue
        state.update(grad, rule.decays)
        direction, magnitude = network(weights, inputs(param, grad, state, taken))
        moved = direction * (magnitude * rule.exp_mult).exp() * rule.step_mult
        if rule.elo:
            param -= lr * (moved + weight_decay * param)
        else:
            param -= lr * moved
            param -= weight_decay * lr * param
