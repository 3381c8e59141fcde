# SPDX-License-Identifier: Apache-2.0
"""A group's learning rate, weight decay and number of steps in the memory of a device (qn_lopt_hyper), where a captured
graph sees them change, and where a learning rate that is a tensor there is read without the host waiting for it."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from .. import _lopt_abi

_AT = {name: getattr(_lopt_abi.Hyper, name).offset // 8 for name, _ in _lopt_abi.Hyper._fields_}


class Hyper:
    """Of one group on one device. `step` is the number of steps taken, a view of that memory."""

    def __init__(self, device: torch.device, step: int) -> None:
        self.memory = torch.zeros(ctypes.sizeof(_lopt_abi.Hyper) // 8, dtype=torch.float64, device=device)
        self.step = self.memory.view(torch.int64)[_AT["step"]]
        self.step.fill_(step)
        self._numbers: dict[str, float] = {}  # what was written last

    def write(self, title: str, values: dict[str, Any], capturing: bool) -> None:
        """Brings the memory up to date, in the current stream's order. A tensor on a device is copied each time, a
        number when it has changed; in a capture it must not have, or the graph would hold it for ever."""
        for name, value in values.items():
            place = self.memory[_AT[name]]
            if isinstance(value, Tensor):
                place.copy_(value.detach().reshape(()), non_blocking=True)
                self._numbers.pop(name, None)
            elif self._numbers.get(name) != value:
                if capturing:
                    raise RuntimeError(
                        f"{title}: {name} is {value:g}, which device memory has not been told, and a graph is being "
                        "captured, which would tell it this number at each replay: call prepare() before it"
                    )
                place.fill_(value)
                self._numbers[name] = value
