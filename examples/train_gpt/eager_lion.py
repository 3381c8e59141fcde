# SPDX-License-Identifier: Apache-2.0
"""Lion as one writes it in PyTorch: the peer that the example runs beside quern. Seven passes over each tensor, each
operation rounded to the tensor's type. `control.py` changes `update` to see what the example's checks notice."""

from __future__ import annotations

import torch
from torch import Tensor


class EagerLion(torch.optim.Optimizer):
    def __init__(self, params, lr: float = 1e-4, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["exp_avg"] = torch.zeros_like(parameter)
                self.update(parameter, parameter.grad, state["exp_avg"], group["lr"], *group["betas"],
                            group["weight_decay"])  # fmt: skip

    def update(self, p: Tensor, g: Tensor, m: Tensor, lr: float, beta1: float, beta2: float, decay: float) -> None:
        u = m * beta1
        u.add_(g, alpha=1 - beta1)
        u.sign_()
        p.mul_(1 - lr * decay)
        p.add_(u, alpha=-lr)
        m.mul_(beta2)
        m.add_(g, alpha=1 - beta2)
