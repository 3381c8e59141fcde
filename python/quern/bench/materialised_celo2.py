# SPDX-License-Identifier: Apache-2.0
"""CELO2 as plain PyTorch computes it: every input of the network of every element of a matrix in memory, then the
Newton-Schulz products as optimizers of Muon's kind have them, one tensor after the other. It is written from the
contract (src/op/celo2/README.md) and shares nothing with the library; see materialised.py, whose means and factors it
has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from .materialised import State

_DECAYS = ((0.9, 0.99, 0.999), 0.95, (0.9, 0.99, 0.999))


def normalised(x: Tensor) -> Tensor:
    """Each matrix, divided by the root of its mean square."""
    return x * ((x**2).mean((-2, -1), keepdim=True) + 1e-9).rsqrt()


def orthogonal(x: Tensor) -> Tensor:
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (torch.linalg.norm(x, dim=(-2, -1), keepdim=True) + 1e-8)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.mT if tall else x


def inputs(param: Tensor, grad: Tensor, state: State) -> Tensor:
    """The network's 30 inputs of every element, in the last dimension."""
    factor, _ = state.factors()
    scale = (state.v + 1e-8).rsqrt()[..., None]
    whole, g = (*param.shape, 3), grad[..., None]
    parts = [g, g.clamp(-0.1, 0.1), param[..., None], state.m, state.v[..., None], state.m * scale, scale]
    parts += [g * factor, g * scale, state.row.expand(whole), state.column.expand(whole)]
    parts += [(state.row + 1e-8).rsqrt().expand(whole), (state.column + 1e-8).rsqrt().expand(whole)]
    made = torch.cat([*parts, state.m * factor], -1)
    return made * ((made**2).mean((-3, -2), keepdim=True) + 1e-9).rsqrt()


class Session:
    """A list of tensors from step to step. Weights are of the tensors' type and device; `adam`: tensors that AdamW
    moves besides those of fewer than two dimensions; `dims`: a tensor's (d0, d1), None for PyLO's choice."""

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        params: Sequence[Tensor],
        adam: Sequence[int] = (),
        dims: Sequence[tuple[int, int] | None] | None = None,
    ) -> None:
        self.weights, self.params, self.taken = weights, list(params), 0
        self.first = torch.cat([weights[f"w0.{k}"] for k in range(14)])
        self.matrix = [p.dim() >= 2 and k not in adam for k, p in enumerate(self.params)]
        self.states = [State(p, dims=dims[k] if dims else None) for k, p in enumerate(self.params)]
        self.means = [(torch.zeros_like(p), torch.zeros_like(p)) for p in self.params]

    def _outputs(self, values: Tensor, exp_mult: float) -> Tensor:
        h = torch.relu(values @ self.first + self.weights["b0"])
        h = torch.relu(h @ self.weights["dense_w.0"] + self.weights["dense_b.0"])
        out = h @ self.weights["dense_w.1"] + self.weights["dense_b.1"]
        return out[..., 0] * (exp_mult * out[..., 1]).exp()

    def _adam(self, k: int, grad: Tensor) -> Tensor:
        m, v = self.means[k]
        m.lerp_(grad, 0.1)
        v.mul_(0.95).addcmul_(grad, grad, value=0.05)
        return m / (1 - 0.9**self.taken) / ((v / (1 - 0.95**self.taken)).sqrt() + 1e-8)

    @torch.no_grad()
    def step(
        self,
        grads: Sequence[Tensor],
        lr: float,
        weight_decay: float = 0.0,
        adam_weight_decay: float = 0.0,
        adam_lr_mult: float = 1.0,
        exp_mult: float = 0.0,
        rms_mult: float = 1.0,
        orthogonalize: bool = True,
    ) -> None:
        """One step in place."""
        self.taken += 1
        for k, (param, given) in enumerate(zip(self.params, grads)):
            grad = given.clamp(-1000, 1000)
            if not self.matrix[k]:
                param -= lr * adam_lr_mult * (self._adam(k, grad) + adam_weight_decay * param)
            elif param.numel():
                self.states[k].update(grad, _DECAYS)
                moved = self._outputs(inputs(param, grad, self.states[k]), exp_mult)
                moved = rms_mult * normalised(orthogonal(moved) if orthogonalize else moved)
                param -= lr * (moved + weight_decay * param)
