# SPDX-License-Identifier: Apache-2.0
"""VeLO as plain PyTorch computes it: the LSTM over all tensors at once, and then every input of each tensor's network
in memory, one tensor after the other. It is written from the contract (src/op/velo/README.md) and shares nothing with
the library; see materialised.py, whose means and factors it has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

from .materialised import State, normalised

_DONE = (0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.1)
_DECAYS = ((0.9, 0.99, 0.999), 0.999, (0.9, 0.99, 0.999))
_BANKS = 256


class Loss:
    """The running means of the loss, and what the LSTM sees of them."""

    def __init__(self, num_steps: int) -> None:
        exponents = torch.linspace(1, math.log10(num_steps), 10, dtype=torch.float64)
        self.decays = torch.exp(-(10.0**-exponents))
        self.means = torch.zeros(10, dtype=torch.float64)
        self.least = torch.full((10,), 999999999999.0, dtype=torch.float64)
        self.count = 0

    def take(self, loss: float) -> Tensor:
        """Nine numbers."""
        scale = 1 - self.decays ** (self.count + 1)
        most = float((self.means / scale).max()) if self.count else loss
        self.means = self.decays * self.means + (1 - self.decays) * min(2 * abs(most), loss)
        now = self.means / scale
        self.least = torch.minimum(self.least, now)
        self.count += 1
        if self.count <= 2:
            return torch.zeros(9, dtype=torch.float64)
        above = (now[1:] - self.least[:-1]).clamp(min=1e-8)
        return ((now[:-1] - self.least[:-1]) / above - 1).clamp(-1, 1)


class Session:
    """A list of tensors as VeLO sees it from step to step. Weights are of the tensors' type and device."""

    def __init__(self, mlp: Mapping[str, Tensor], rnn: Mapping[str, Tensor], params: Sequence[Tensor], num_steps: int):
        self.mlp, self.rnn, self.num_steps, self.taken = mlp, rnn, num_steps, 0
        self.params = list(params)
        self.states = [State(param, velo=True) for param in params]
        self.hidden, self.cell = (rnn[f"lstm_init_state.{k}"].repeat(len(self.params), 1) for k in range(2))
        self.loss = Loss(num_steps)

    def _summary(self, param: Tensor, state: State, seen: Tensor) -> Tensor:
        """The LSTM's 30 inputs for a tensor."""

        def shown(x: Tensor) -> Tensor:
            return 0.5 * (1e-8 + (10 * x).abs()).log().clamp(-5, 5)

        scale = (param**2).mean().clamp(min=1e-9).rsqrt()
        m, v = (scale * state.m).reshape(-1, 3), (scale * state.v).reshape(-1, 1)
        done = torch.tensor(_DONE, dtype=param.dtype, device=param.device)
        rank = torch.zeros(5, dtype=param.dtype, device=param.device)
        rank[sum(extent > 1 for extent in param.shape)] = 1
        mean = m.mean(0)
        parts = [torch.tanh(10 * (self.taken / self.num_steps - done)), seen, shown(v.mean())[None], rank]
        return torch.cat([*parts, shown(((m - mean) ** 2).mean(0)), shown(((v - mean) ** 2).mean(0))])

    def _layer(self, name: str, values: Tensor) -> Tensor:
        return linear(values, self.rnn[f"{name}.weight"], self.rnn[f"{name}.bias"])

    def _recur(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Controls and learning rates by tensor."""
        x = torch.stack([self._summary(p, s, seen) for p, s in zip(self.params, self.states)])
        z = self._layer("final_mix_layer", x) + self._layer("mix_layer2", x).relu().max(0).values
        i, g, f, o = self._layer("lstm.linear", torch.cat([z, self.hidden], -1)).chunk(4, -1)
        self.cell = torch.sigmoid(f + 1) * self.cell + torch.sigmoid(i) * torch.tanh(g)
        self.hidden = torch.sigmoid(o) * torch.tanh(self.cell)
        return self._layer("rnn_to_controls", self.hidden), self._layer("step_size", self.hidden)[:, 0]

    def _network(self, control: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """(direction, magnitude) of every element, by the banks' mixture for a tensor."""

        def mixed(name: str) -> Tensor:
            return torch.tensordot(control, self.mlp[name], 1) * (100 / _BANKS)

        values = linear(values, mixed("input_weights_"), mixed("input_bias_")).relu()
        values = linear(values, mixed("hidden_weights_.0"), mixed("hidden_bias_.0")).relu()
        out = linear(values, mixed("output_weights_"), mixed("output_bias_"))
        return out[..., 0], out[..., 1]

    @torch.no_grad()
    def step(self, grads: Sequence[Tensor], loss: float, lrs: Sequence[float], weight_decays: Sequence[float]) -> None:
        """One step in place; a learning rate and a decay for each tensor."""
        seen = self.loss.take(loss).to(self.params[0])
        controls, rates = self._recur(seen)
        for k, (param, given, state) in enumerate(zip(self.params, grads, self.states)):
            grad = given.clamp(-1000, 1000)
            state.update(grad, _DECAYS)
            direction, magnitude = self._network(controls[k], _inputs(param, grad, state))
            size = ((param**2).mean() + 1e-9).sqrt()
            param -= lrs[k] * rates[k] * size * direction * (magnitude * 0.001).exp() * 0.001
            param -= weight_decays[k] * lrs[k] * param
        self.taken += 1


def _inputs(param: Tensor, grad: Tensor, state: State) -> Tensor:
    """The network's 30 inputs of every element, in the last dimension."""
    of_grad, of_means = state.factors()
    scale = (state.v + 1e-6).rsqrt()[..., None]
    whole = (*param.shape, 3)
    parts = [torch.stack([grad, grad.clamp(-0.1, 0.1), param], -1), state.m, state.v[..., None], state.m * scale, scale]
    parts += [grad[..., None] * of_grad, grad[..., None] * scale, state.row.expand(whole), state.column.expand(whole)]
    parts += [(state.row + 1e-8).rsqrt().expand(whole), (state.column + 1e-8).rsqrt().expand(whole)]
    return normalised(torch.cat([*parts, state.m * of_means], -1))
