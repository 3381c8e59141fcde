# SPDX-License-Identifier: Apache-2.0
"""Parameters that are DTensors (FSDP2's fully_shard, tensor parallelism): what this process holds of them, which
element of the whole a shard begins with, and sums over shards. torch.distributed is used only where it is already
in use."""

from __future__ import annotations

import sys
from typing import Any

from torch import Tensor


def is_sharded(tensor: Tensor) -> bool:
    """Is it a DTensor? Without importing what would be needed to make one."""
    for name in ("torch.distributed.tensor", "torch.distributed._tensor"):
        kind = getattr(sys.modules.get(name), "DTensor", None)
        if kind is not None and isinstance(tensor, kind):
            return True
    return False


def local(tensor: Tensor) -> Tensor:
    """What this process holds; a plain tensor is held whole."""
    held = getattr(tensor, "_local_tensor", tensor)
    return held.trigger_wait() if hasattr(held, "trigger_wait") else held  # the result of a collective under way


def check_grad(param: Any, grad: Any, label: str) -> None:
    """ValueError where a gradient is not sharded as its parameter is."""
    if not is_sharded(grad):
        raise ValueError(f"quern: {label} is a DTensor ({placed(param)}) and its gradient a plain tensor")
    if grad.placements == param.placements and grad.device_mesh == param.device_mesh:
        return
    if any(placement.is_partial() for placement in grad.placements):
        raise ValueError(
            f"quern: the gradient of {label} is partial ({placed(grad)}): the sum over its mesh is still to be taken; "
            f"redistribute it to {placed(param)} first"
        )
    raise ValueError(f"quern: {label} is placed as {placed(param)} and its gradient as {placed(grad)}: redistribute it")


def placed(tensor: Any) -> str:
    return ", ".join(map(str, tensor.placements))


class Sharding:
    """How a DTensor is sharded. `key` is equal where two can be stepped together; `groups`: over which the sums of a
    tensor's shards are taken, one after the other."""

    def __init__(self, param: Any) -> None:
        mesh = param.device_mesh
        dims = [dim for dim, placement in enumerate(param.placements) if placement.is_shard()]
        self.key = (mesh, tuple(dims))
        self.groups = [mesh.get_group(dim) for dim in dims]


def first_element(param: Any) -> int:
    """The index in the whole tensor of the first element held here, so that a shard draws the random numbers that the
    whole would. So for shards along the first dimension; shards along others do not lie in one piece in the whole, and
    draw numbers of their own that no other shard draws."""
    if not is_sharded(param):
        return 0
    mesh, shape = param.device_mesh, param.shape
    coordinate = mesh.get_coordinate() or [0] * mesh.ndim
    dims = [dim for dim, placement in enumerate(param.placements) if placement.is_shard()]
    plain = all(type(param.placements[dim]).__name__ == "Shard" and param.placements[dim].dim == 0 for dim in dims)
    if not plain:
        number = 0
        for dim in dims:
            number = number * mesh.size(dim) + coordinate[dim]
        return number * param.numel()
    begin, extent = 0, shape[0] if shape else 1
    for dim in dims:  # as torch.chunk cuts
        chunk = -(-extent // mesh.size(dim))
        start = min(coordinate[dim] * chunk, extent)
        begin, extent = begin + start, min(chunk, extent - start)
    return begin * (param.numel() // shape[0]) if shape and shape[0] else 0


def sum_over_shards(counts: Tensor, groups: list[Any]) -> None:
    """In place."""
    import torch.distributed as distributed

    for group in groups:
        distributed.all_reduce(counts, group=group)
