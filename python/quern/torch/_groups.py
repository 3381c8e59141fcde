# SPDX-License-Identifier: Apache-2.0
"""A parameter group as it is stepped: its lists, and the params that the library is told, kept from step to step as
long as they fit. It does not know how lists are formed."""

from __future__ import annotations

from operator import is_
from typing import Any

import torch
from torch import Tensor

from .._ops import Op
from . import _options
from ._calls import is_capturing
from ._lists import ParameterList
from ._live import Hyper
from ._watch import are_same


class GroupPlan:
    """What was found out about a group at its last step that was not like the one before. `kind`: the options that
    decide how lists are formed. Raises what _options.fill does."""

    def __init__(self, op: Op, group: dict[str, Any], kind: tuple) -> None:
        self._op = op
        self._params = list(group["params"])
        self._absent = [param for param in self._params if param.grad is None]
        self._kind = kind
        self.values: dict[str, Any] = {}  # as they are in params; {}: params are not known to be right
        self._read: tuple = ()  # the objects that values are of; (): they may change by themselves
        self.lists: list[ParameterList] = []
        self.params = op.defaults()  # of all lists, but for the pointers

    def fits(self, group: dict[str, Any], kind: tuple) -> bool:
        """Can this group be stepped as it was last time? Gathers the gradients."""
        params = group["params"] if isinstance(group["params"], list) else list(group["params"])
        if kind != self._kind or not are_same(params, self._params):
            return False
        for param in self._absent:
            if param.grad is not None:
                return False
        for made in self.lists:  # noqa: SIM110 - a generator would be one more function in a step
            if not made.gather():
                return False
        return True

    def take_options(self, group: dict[str, Any]) -> None:
        """Puts the group's options into params where they have changed, if the library accepts them."""
        now = _options.read(group)
        if len(now) == len(self._read) and all(map(is_, now, self._read)):
            return
        self._read = ()
        values, self.on_device = _options.values_of(group)
        self.is_live = bool(self.on_device) or bool(group["capturable"])
        if values != self.values:
            self.values = {}
            self.params.hyper = None  # or the library would not look at the numbers
            _options.fill(self._op, self.params, values)
            self.values = values
            for made in self.lists:
                made.params_changed()
        if not any(isinstance(value, Tensor) for value in now):
            self._read = now

    def is_capturable(self, group: dict[str, Any]) -> bool:
        """May its step be captured into a graph? What runs on the CPU is not in one."""
        return bool(group["capturable"]) and all(made.place.device.type == "cuda" for made in self.lists)


class Numbers:
    """What lies in device memory for groups that want it there, and the step counter of each group, which stochastic
    rounding draws by: `group["step"]`, a number, or a tensor in that memory. It counts the group's steps from 1, those
    included of which a loss scaler's found_inf makes nothing, and those of a replayed graph."""

    def __init__(self, op: Op) -> None:
        self._op = op
        self._live: dict[tuple[int, torch.device], Hyper] = {}  # kept for ever: captured graphs read there

    def address(self, index: int, device: torch.device) -> int:
        """Of the group's numbers on a device."""
        return self._live[index, device].memory.data_ptr()

    def bring_up(self, index: int, group: dict[str, Any], plan: GroupPlan) -> None:
        """Device memory says what the group says. RuntimeError where a capture forbids to write what has changed."""
        if not plan.is_live:
            if isinstance(group["step"], Tensor):
                group["step"] = int(group["step"])
            return
        capturing = is_capturing()
        for device in {made.place.device for made in plan.lists}:
            self._settle_step(index, device, group, capturing)
        known = {**plan.values, **plan.on_device}
        values = {name: known[name] for name in self._op.hyper if name != "step"}
        for live in self._of(index):
            live.write("quern", values, capturing)

    def advance(self, index: int, group: dict[str, Any], plan: GroupPlan) -> None:
        """Counts a step."""
        if plan.is_live:
            for live in self._of(index):
                live.step.add_(1)
        else:
            group["step"] += 1
            plan.params.step = group["step"] & 0xFFFFFFFFFFFFFFFF

    def _of(self, index: int) -> list[Hyper]:
        return [live for (of, _), live in self._live.items() if of == index]

    def _settle_step(self, index: int, device: torch.device, group: dict[str, Any], capturing: bool) -> None:
        """The group's counter becomes a tensor in device memory, and stays the one that it is."""
        live = self._live.get((index, device))
        known = self._of(index)
        if live is not None and any(group["step"] is other.step for other in known):
            return
        if capturing:
            raise RuntimeError(
                f"quern: group {index} has no step counter on {device} yet, and a graph is being captured, which would "
                "set it anew at each replay: take a step, or call prepare(), before the capture"
            )
        if live is None:
            live = self._live[index, device] = Hyper(self._op, device)
            known.append(live)
        step = group["step"]
        for other in known:
            if other.step is not step:
                other.step.copy_(step) if isinstance(step, Tensor) else other.step.fill_(step)
        group["step"] = live.step


def scaler_of(optimizer: Any) -> Scaler | None:
    """None: no loss scaler is at work."""
    is_idle = getattr(optimizer, "grad_scale", None) is None and getattr(optimizer, "found_inf", None) is None
    return None if is_idle else Scaler(optimizer)


class Scaler:
    """A loss scaler's grad_scale and found_inf, as torch.amp.GradScaler hands them to an optimizer for one step, on the
    devices where they are read. None of them is read here."""

    def __init__(self, optimizer: Any) -> None:
        self._given = [getattr(optimizer, name, None) for name in ("grad_scale", "found_inf")]
        self._on: dict[torch.device, list[Tensor | None]] = {}

    def addresses(self, device: torch.device) -> list[int | None]:
        """Of the two on that device; valid as long as this object."""
        if device not in self._on:
            self._on[device] = [
                None if given is None else given.to(device, torch.float32, non_blocking=device.type == "cuda")
                for given in self._given
            ]
        return [None if tensor is None else tensor.data_ptr() for tensor in self._on[device]]
