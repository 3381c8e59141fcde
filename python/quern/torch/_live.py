# SPDX-License-Identifier: Apache-2.0
"""A group's hyper-parameters and number of steps in the memory of a device, in the op's struct for it: a captured graph
sees them change, and a learning rate that is a tensor there is read without the host waiting for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .._ops import Op


class Live:
    """Numbers by name in a device's memory, f64 each, at `places`."""

    def __init__(self, device: torch.device, places: Mapping[Any, int], length: int) -> None:
        self.memory = torch.zeros(length, dtype=torch.float64, device=device)
        self._places = places
        self._numbers: dict[Any, float] = {}  # what was written last

    def of(self, name: Any) -> Tensor:
        """The number, where it lies."""
        return self.memory[self._places[name]]

    def write(self, title: str, values: dict[Any, Any], capturing: bool, called: str = "{}") -> None:
        """Brings the memory up to date, in the current stream's order. A tensor on a device is copied each time, a
        number when it has changed; in a capture it must not have, or the graph would hold it for ever. `called`: what
        sentences call a number, around its name."""
        for name, value in values.items():
            place = self.of(name)
            if isinstance(value, Tensor):
                place.copy_(value.detach().reshape(()), non_blocking=True)
                self._numbers.pop(name, None)
            elif self._numbers.get(name) != value:
                if capturing:
                    raise RuntimeError(
                        f"{title}: {called.format(name)} is {value:g}, which device memory has not been told, and a "
                        "graph is being captured, which would tell it this number at each replay: call prepare() "
                        "before it"
                    )
                place.fill_(value)
                self._numbers[name] = value


class Hyper(Live):
    """Of one group on one device. `step` is the number of steps taken, a view of that memory."""

    def __init__(self, op: Op, device: torch.device, step: int = 0) -> None:
        places = {name: offset // 8 for name, offset in op.hyper.items()}
        super().__init__(device, places, op.hyper_bytes // 8)
        self.step = self.memory.view(torch.int64)[places["step"]]
        self.step.fill_(step)
