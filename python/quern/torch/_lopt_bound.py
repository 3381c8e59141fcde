# SPDX-License-Identifier: Apache-2.0
"""A bound of the norm of all gradients together, as ELO's clip_grad has it. The gradients themselves are left alone,
and the host waits for no device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


@torch.no_grad()
def factor_of(lists: Sequence[tuple[Sequence[Tensor], Any]], bound: float) -> Tensor:
    """bound / max(norm, bound), of numbers: one element, where the first gradient is. Infinite norms give 0. Each list
    of gradients comes with the Shards that they are pieces of, or None where they are whole."""
    device = lists[0][0][0].device
    squares = torch.zeros((), dtype=torch.float64, device=device)
    for grads, shards in lists:
        own = torch.zeros((), dtype=torch.float64, device=grads[0].device)
        for grad in grads:
            own += torch.linalg.vector_norm(torch.nan_to_num(grad)).to(torch.float64) ** 2
        if shards is not None:
            shards.add(own)
        squares += own.to(device)
    return (bound / squares.sqrt().clamp(min=bound)).to(torch.float32)


@torch.no_grad()
def scaled(grad: Tensor, factor: Tensor) -> Tensor:
    """A copy, of numbers, times the factor."""
    return torch.nan_to_num(grad).mul_(factor.to(grad.device))


def bounded(grads: Sequence[Tensor], bound: float) -> list[Tensor]:
    """Copies whose norm over all of them is at most the bound."""
    factor = factor_of([(grads, None)], bound) if len(grads) else None
    return [scaled(grad, factor) for grad in grads]  # type: ignore[arg-type]
