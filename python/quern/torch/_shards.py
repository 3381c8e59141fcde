# SPDX-License-Identifier: Apache-2.0
"""Element-wise functions over DTensors: each rank works on its own shard, whatever the placements, as long as they are
the same and hold values, not parts of sums. Gradients go the same way back. Nothing is sent."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor

from ._sharded import is_sharded, placed


def are_sharded(*tensors: Any) -> bool:
    return any(map(is_sharded, tensors))


def on_shards(name: str, function: Callable[..., Tensor], *tensors: Any) -> Tensor:
    """function(*local shards) as a DTensor of the same placements. A plain tensor among DTensors is taken as whole and
    equal on all ranks, and gets their placements. ValueError for placements that differ or are sums in parts."""
    first: Any = next(tensor for tensor in tensors if is_sharded(tensor))
    mesh, placements, kind = first.device_mesh, first.placements, type(first)
    if any(placement.is_partial() for placement in placements):
        raise ValueError(f"{name}: a DTensor is a sum in parts ({placed(first)}): redistribute it first")
    modules = map(sys.modules.get, ("torch.distributed.tensor", "torch.distributed._tensor"))
    distribute: Any = next(m.distribute_tensor for m in modules if m and hasattr(m, "distribute_tensor"))
    spread = [tensor if is_sharded(tensor) else distribute(tensor, mesh, placements) for tensor in tensors]
    for tensor in spread:
        if tensor.device_mesh != mesh or tensor.placements != placements:
            raise ValueError(
                f"{name}: DTensors lie as {placed(first)} and as {placed(tensor)}: redistribute one of them, or all to "
                "the placements that the result is to have"
            )
        if tensor.shape != first.shape:
            raise ValueError(f"{name}: DTensors have shapes {tuple(first.shape)} and {tuple(tensor.shape)}")
    made = function(*(tensor.to_local() for tensor in spread))
    return kind.from_local(made, mesh, placements, run_check=False, shape=first.shape, stride=first.stride())
