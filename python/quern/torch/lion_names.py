# SPDX-License-Identifier: Apache-2.0
"""Lion under the names, and with the order of arguments, that users of other kernels know: lion_step, lion_foreach and
LionOptimizerStep. They are thin: the op is `lion_` (ops.py), which has all its options besides."""

from __future__ import annotations

from torch import Tensor, nn

from .._ops import op
from ._register import TorchOp
from .ops import library

_LION = op("lion")
_ROLES = {role.name: role for role in _LION.roles}
_PARAMS = [_LION.params[name] for name in ("lr", "beta1", "beta2", "weight_decay", "eps")]
_ORDER = {"param": "p", "momentum": "exp_avg", "grad": "grad"}

lion_step = TorchOp(
    library,
    "lion_step",
    _LION,
    _PARAMS,
    many=None,
    one=[(_ROLES[role], name) for role, name in _ORDER.items()],
    positional=True,
)
lion_foreach = TorchOp(
    library,
    "lion_foreach",
    _LION,
    _PARAMS,
    many=[(_ROLES[role], name + "s") for role, name in _ORDER.items()],
    one=None,
    positional=True,
)


class LionOptimizerStep(nn.Module):
    """lion_step as a layer. It has no state and no constructor of its own, so that it can take another's place."""

    can_torch_compile = True
    has_backward = False

    def forward(
        self,
        p: Tensor,
        exp_avg: Tensor,
        grad: Tensor,
        lr: float,
        beta1: float,
        beta2: float,
        weight_decay: float,
        eps: float,
    ) -> None:
        """One step: p and exp_avg are updated in place, grad is read; eps is accepted and ignored."""
        lion_step(p, exp_avg, grad, lr, beta1, beta2, weight_decay, eps)


__all__ = ["LionOptimizerStep", "lion_foreach", "lion_step"]
