# SPDX-License-Identifier: Apache-2.0
"""Learned optimizers over DTensors of which each process holds rows (FSDP2's fully_shard): what may be stepped so, how
the state lies, and the sums that the library has the processes add. The arithmetic is the library's."""

from __future__ import annotations

import ctypes
import sys
from array import array
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _abi, _lopt, _lopt_abi
from ._sharded import Sharding, check_grad, is_sharded, local, placed, sum_over_shards


def check_placements(title: str, param: Any, grad: Tensor, label: str) -> None:
    """ValueError where a DTensor is not held in rows, or whole."""
    for placement in param.placements:
        rows = type(placement).__name__ == "Shard" and placement.dim == 0
        if not rows and not placement.is_replicate():
            raise ValueError(
                f"{title}: {label} is placed as {placed(param)}, and a step is taken over rows, Shard(0), or over all "
                "of a tensor, Replicate(): redistribute it"
            )
    check_grad(param, grad, label)


def _placements(ties: int, param: Any, entry: int) -> list[Any]:
    """How a part of the state of a DTensor lies: as its rows do; whole where it has no such dimension."""
    axis = _lopt.first_axis(ties, entry, param.shape)
    whole = _replicate(param)
    return [
        type(placement)(axis) if placement.is_shard() and axis is not None else whole for placement in param.placements
    ]


def _replicate(param: Any) -> Any:
    modules = map(sys.modules.get, ("torch.distributed.tensor", "torch.distributed._tensor"))
    return next(module.Replicate for module in modules if module and hasattr(module, "Replicate"))()


def state_like(family: _lopt.Family, ties: int, param: Any) -> dict[str, Tensor]:
    """The state of a DTensor before its first step: zeros, DTensors over the same mesh."""
    state = {}
    held = local(param)
    for entry, shape in enumerate(_lopt.state_shapes(family, ties, param.shape)):
        axis = _lopt.first_axis(ties, entry, param.shape)
        own = [held.shape[0] if k == axis else extent for k, extent in enumerate(shape)]
        state[_lopt.STATE[entry]] = type(param).from_local(
            torch.zeros(own, dtype=torch.float32, device=held.device),
            param.device_mesh,
            _placements(ties, param, entry),
            run_check=False,
            shape=torch.Size(shape),
            stride=torch.empty(shape, device="meta").stride(),
        )
    return state


def check_state(title: str, ties: int, param: Any, label: str, entry: int, value: Any) -> None:
    """ValueError where a part of the state does not lie as the parameter's rows do."""
    name = _lopt.STATE[entry]
    wanted = _placements(ties, param, entry)
    if not hasattr(value, "placements"):
        raise ValueError(f"{title}: {label} is a DTensor ({placed(param)}) and its {name} a plain tensor")
    if list(value.placements) != wanted or value.device_mesh != param.device_mesh:
        raise ValueError(
            f"{title}: {label} is placed as {placed(param)} and its {name} as {placed(value)}, where "
            f"{', '.join(map(str, wanted))} is wanted"
        )


class _DeviceNumbers:
    """f64 numbers in a GPU's memory, which torch.as_tensor takes as they are."""

    def __init__(self, address: int, n: int) -> None:
        self.__cuda_array_interface__ = dict(shape=(n,), typestr="<f8", data=(address, False), version=3)


class Shards:
    """What one call of the library is told of the other processes. `extents`: of the whole tensors' first dimensions,
    one a tensor; `groups`: over which sums are taken, one after the other. `error`: what failed in one of them."""

    def __init__(self, extents: Sequence[int], groups: list[Any], device: torch.device) -> None:
        self._extents, self._groups, self._device = array("q", extents), groups, device
        self._add = _lopt_abi.ADD(self._called)
        self.error: BaseException | None = None
        self.told = _abi.sized(_lopt_abi.Shards)
        self.told.extents = self._extents.buffer_info()[0]
        self.told.add = ctypes.cast(self._add, ctypes.c_void_p)

    def add(self, numbers: Tensor) -> None:
        """In place: the sums over all processes."""
        sum_over_shards(numbers, self._groups)

    def _called(self, _user: Any, _execution: Any, address: int, n: int) -> int:
        try:
            if self._device.type == "cpu":
                # A backend's threads may hold what they add after the call, or after one that failed: memory of their
                # own, which lives as long as they want.
                told = torch.frombuffer((ctypes.c_double * n).from_address(address), dtype=torch.float64)
                numbers = told.clone()
                self.add(numbers)
                told.copy_(numbers)
            else:
                self.add(torch.as_tensor(_DeviceNumbers(address, n), device=self._device))
        except BaseException as error:  # nothing may pass through the library's frames
            self.error = error
            return _lopt_abi.DRIVER_ERROR
        return 0


def sharding_of(param: Tensor) -> Any:
    """Equal where two tensors are held by the same processes in rows; None: all of it is here."""
    if not is_sharded(param):
        return None
    key = Sharding(param).key
    return key if key[1] else None


def shards_of(params: list[Any]) -> Shards | None:
    """How the tensors of a list are held, of which those that are not whole are held by the same processes."""
    first = next((param for param in params if sharding_of(param) is not None), None)
    if first is None:
        return None
    extents = [-1 if sharding_of(param) is None else param.shape[0] for param in params]
    return Shards(extents, Sharding(first).groups, local(first).device)
