# SPDX-License-Identifier: Apache-2.0
"""Hyper-parameters in the tensors' device memory (the op's `hyper` struct), where a captured graph sees them
change, and where a learning rate that is a tensor on the device is read without the host waiting for it."""

from __future__ import annotations

import torch
from torch import Tensor

from .._ops import Op


class Live:
    """One group's numbers on one device. `step` is the counter, a view of that memory."""

    def __init__(self, op: Op, device: torch.device) -> None:
        self._at = {name: offset // 8 for name, offset in op.hyper.items()}
        self.memory = torch.zeros(op.hyper_bytes // 8, dtype=torch.float64, device=device)
        self.step = self.memory.view(torch.int64)[self._at["step"]]
        self._numbers: dict[str, float] = {}  # what was written last

    def write(self, values: dict[str, float], on_device: dict[str, Tensor], capturing: bool) -> None:
        """Brings the memory up to date, in the current stream's order. Tensors are read on the device each time;
        numbers are written when they have changed, and in a capture they must not have: the graph would hold them
        for ever."""
        for name, at in self._at.items():
            if name in on_device:
                self.memory[at].copy_(on_device[name].detach().reshape(()), non_blocking=True)
                self._numbers.pop(name, None)
            elif name != "step" and self._numbers.get(name) != values[name]:
                if capturing:
                    raise RuntimeError(
                        f"quern: {name} is {values[name]:g}, which device memory has not been told, and a graph "
                        "is being captured, which would tell it this number at each replay: call prepare() before it"
                    )
                self.memory[at].fill_(values[name])
                self._numbers[name] = values[name]
