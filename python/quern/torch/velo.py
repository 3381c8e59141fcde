# SPDX-License-Identifier: Apache-2.0
"""quern.torch.VeLO as torch.optim has optimizers. All that it trains is one list, because each tensor's step depends on
all of them; besides the tensors' states there are rows of an LSTM's and a buffer of the loss. The arithmetic is the
library's."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import _lopt, _lopt_abi, _lopt_weights
from .._library import DTYPES
from .._tensors import Tensors
from ._calls import increment_version, is_capturing
from ._live import Live
from ._lopt import CAPTURABLE, PARAMS, Learned, is_read_there
from ._lopt_list import MemberList
from ._lopt_shards import sharding_of

ROWS = _lopt.ROWS
# How many numbers a tensor has in the LSTM's two states, and how many the loss's buffer has.
HIDDEN, LOSS_BUFFER = (_lopt.role_shape(_lopt.VELO, _lopt.VELO.shared[k], 1, ())[-1] for k in (1, 3))
_MEANS = ("m_decays", "v_decay", "factor_decays")
_OF_ALL = ("num_steps", "step_mult", "exp_mult", *_MEANS, "pylo_cuda_compat", "ties", "capturable", "step")


def _plain(value: Any) -> Any:
    """A checkpoint may hold lists where tuples were."""
    return tuple(value) if isinstance(value, list) else value


_PARAMS = f"{PARAMS}, at most four of which are above 1, on one device: all that is trained"
_OPTIONS = {
    "width_mult": _lopt.Option(1.0, "divisor of the learning rate"),
    "capturable": _lopt.Option(
        False,
        f"{CAPTURABLE}. Groups have one lr then, and the loss of a step that is captured lies on its device",
    ),
}
_LAST = """lr, weight_decay and width_mult may be set per group. A step requires the loss, step(loss) or step(closure),
    and a gradient of every parameter; over DTensors all processes must pass the same loss. A NaN or infinite loss skips
    the step: skipped_steps counts those. A step past num_steps is said once through logging, but with capturable, where
    the number of steps lies on the device."""


class VeLO(Learned):
    _family = _lopt.VELO
    __init__ = _lopt.constructor(_family, "params", _OPTIONS)
    __doc__ = _lopt.document(_family, "params", _PARAMS, _OPTIONS, _LAST)
    _row_shapes = dict.fromkeys(ROWS, (HIDDEN,))

    def _begin(self) -> None:
        super()._begin()
        self._rows: dict[str, Tensor] = {}  # each row is a view of a parameter's state
        # With capturable, where groups differ in weight_decay: each one's in device memory, kept for ever.
        self._decays: dict[tuple[int, torch.device], Live] = self.__dict__.get("_decays", {})
        self._apart: bool | None = None  # do they? None: no step has been taken
        self._is_past_end = False  # has it been said that the training was to have ended?

    # ---- options ----
    def _settle(self, group: dict[str, Any]) -> None:
        first = self.param_groups[0]
        if first is not group:
            group.setdefault("step", first["step"])
        super()._settle(group)

    def _check_alike(self) -> None:
        first = self.param_groups[0]
        for index, group in enumerate(self.param_groups):
            for name in _OF_ALL:
                one, other = first[name], group[name]
                if one is not other and _plain(one) != _plain(other):
                    raise ValueError(
                        f"VeLO: {name} is {one!r} in group 0 and {other!r} in group {index}: all that is trained is "
                        "stepped together, and groups differ in lr, weight_decay and width_mult alone"
                    )
        if first["pylo_cuda_compat"] and len({group["weight_decay"] for group in self.param_groups}) > 1:
            raise ValueError("VeLO: pylo_cuda_compat is for groups of one weight_decay")
        decays = {float(group["weight_decay"]) for group in self.param_groups}
        if first["capturable"] and self._apart is False and len(decays) > 1:
            raise ValueError(
                "VeLO: groups differ in weight_decay, and when the first step was taken they did not: with capturable, "
                "where a captured graph might not see it, that remains so"
            )
        for index, group in enumerate(self.param_groups if first["capturable"] else ()):
            one, other = first["lr"], group["lr"]
            if one is not other and (is_read_there(first) or is_read_there(group) or float(one) != float(other)):
                raise ValueError(
                    f"VeLO: lr is {one!r} in group 0 and {other!r} in group {index}: with capturable groups have one, "
                    "the same number or the same tensor, and differ by width_mult"
                )

    def _check_options(self, group: dict[str, Any]) -> None:
        super()._check_options(group)
        if group is self.param_groups[-1]:
            self._check_alike()

    def _key(self, group: dict[str, Any]) -> tuple:
        return ()

    # ---- what is stepped ----
    def _with_grads(self) -> list[tuple[Tensor, int, str]]:
        for index, group in enumerate(self.param_groups):
            for k, param in enumerate(group["params"]):
                if param.grad is None and param.requires_grad and param.numel():
                    raise ValueError(
                        f"VeLO: {self._label(index, k)} has no gradient, and every parameter takes part in every step: "
                        "give it one, zeros if need be, or leave it out of the optimizer"
                    )
        found = super()._with_grads()
        devices = {param.device for param, _, _ in found}
        if len(devices) > 1:
            places = " and ".join(sorted(map(str, devices)))
            raise ValueError(
                f"VeLO: parameters are on {places}: all that is trained is stepped together, on one device"
            )
        held = {key for key in (sharding_of(param) for param, _, _ in found) if key is not None}
        if len(held) > 1:
            raise ValueError(
                f"VeLO: parameters are held in {len(held)} different ways (meshes, or dimensions of them): all that is "
                "trained is stepped together"
            )
        return found

    def _together(self, param: Tensor) -> Any:
        return None

    # ---- state ----
    def _check_state(self, param: Tensor, label: str, group: dict[str, Any]) -> None:
        super()._check_state(param, label, group)
        state = self.state.get(param, {})
        for name in ROWS if state else ():
            value = state.get(name)
            if value is None or tuple(value.shape) != (HIDDEN,) or value.dtype is not torch.float32:
                raise ValueError(
                    f"VeLO: the {name} of {label} must be a tensor of torch.float32 and the shape ({HIDDEN},)"
                )
            if value.device != param.device:
                raise ValueError(f"VeLO: {label} is on {param.device} and its {name} on {value.device}")

    def _state_of(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        state = super()._state_of(param, group)
        for name, weight in ROWS.items():
            if name not in state:
                first = self._weights["rnn"][_lopt_weights.place(_lopt_abi.VELO_RNN, weight)]
                state[name] = first.to(param.device, copy=True)
        return state

    def _gathered(self, name: str, made: MemberList) -> Tensor:
        """The rows of all parameters as one matrix, whose rows their states are from now on."""
        states = [member.state for member in made.members]
        matrix = self._rows.get(name)
        row_bytes = 4 * HIDDEN
        is_whole = matrix is not None and all(
            state[name].data_ptr() == matrix.data_ptr() + k * row_bytes for k, state in enumerate(states)
        )
        if matrix is None or not is_whole or len(matrix) != len(states):
            if is_capturing():
                raise RuntimeError(
                    f"VeLO: a graph is being captured, and the {name} rows of all parameters do not lie together yet, "
                    "which each replay would do anew: take a step, or call prepare(), before the capture"
                )
            for member in made.members:
                self._check_state(member.param, member.label, self.param_groups[member.group])
            matrix = self._rows[name] = torch.stack([state[name] for state in states])
            for k, state in enumerate(states):
                state[name] = matrix[k]
                whole = made.members[k].whole
                if whole is not None:
                    whole[name] = matrix[k]
        return matrix

    def _buffer(self, device: torch.device) -> Tensor:
        """The loss's: means, least values and counts (quern/velo.h), kept in the first group."""
        first = self.param_groups[0]
        kept = first.get("loss_buffer")
        if is_capturing() and not (isinstance(kept, Tensor) and kept.device == device):
            raise RuntimeError(
                f"VeLO: a graph is being captured, and the loss_buffer is not on {device} yet: take a step, or call "
                "prepare(), before the capture"
            )
        if kept is None:
            kept = torch.zeros(LOSS_BUFFER, dtype=torch.float64, device=device)
        if not isinstance(kept, Tensor) or kept.dtype is not torch.float64 or kept.shape != (LOSS_BUFFER,):
            raise ValueError(f"VeLO: the loss_buffer must be a tensor of torch.float64 and {LOSS_BUFFER}")
        first["loss_buffer"] = kept = kept.to(device).contiguous()
        return kept

    @property
    def skipped_steps(self) -> int:
        """How many steps were skipped because their loss was NaN or infinite. Waits for a device."""
        kept = self.param_groups[0].get("loss_buffer")
        return 0 if kept is None else int(kept[_lopt_abi.LOSS_SKIPPED])

    # ---- a step ----
    def step(self, closure: Callable[[], Any] | Tensor | float | None = None, *, loss: Any = None) -> Any:
        """One step. closure: the loss that the gradients are of, a number or a tensor of one element, which on a device
        is read there; or a function that evaluates the model anew and returns the loss. The loss is returned.

        All is checked before anything is stepped. Where something is refused, ValueError, TypeError or RuntimeError
        says what and of which parameter, and no tensor has been changed."""
        if closure is not None and not callable(closure):
            closure, loss = None, closure
        return self._run(closure, loss)

    def _group_of(self, made: MemberList) -> int:
        return 0

    def _live_decay(self, group: dict[str, Any]) -> float:
        if self._apart is None:
            self._apart = len({float(each["weight_decay"]) for each in self.param_groups}) > 1
        return 0.0 if self._apart else super()._live_decay(group)

    def _ready(self) -> list[MemberList]:
        lists, first = super()._ready(), self.param_groups[0]
        if not lists or not first["capturable"]:
            return lists
        device = lists[0].place.device
        for index, group in enumerate(self.param_groups):
            group["step"] = first["step"]
            if self._apart:
                if (index, device) not in self._decays:
                    self._decays[index, device] = Live(device, {"weight_decay": 0}, 1)
                live = self._decays[index, device]
                live.write("VeLO", {"weight_decay": group["weight_decay"]}, is_capturing(), f"{{}} of group {index}")
        return lists

    def _amounts(self, made: MemberList, rates: array) -> dict[int, Any]:
        """Of each group, by how much its parameters decay, where groups differ in that; where they do not, the library
        does it, and there is nothing here."""
        by_group = {member.group: rate for member, rate in zip(made.members, rates)}
        if self.param_groups[0]["capturable"]:
            device = made.place.device
            lr = self._live[0, device].of("lr")
            apart = by_group if self._apart else ()
            decays: dict[int, Any] = {k: self._decays[k, device].of("weight_decay") * lr for k in apart}
        else:
            decays = {k: self.param_groups[k]["weight_decay"] for k in by_group}
            decays = decays if len(set(decays.values())) > 1 else {}
        return {k: decay * by_group[k] for k, decay in decays.items()}

    def _besides(self, made: MemberList, loss: Tensor, buffer: Tensor) -> list[Tensors]:
        """What the library's step takes beside the six roles."""
        rows = [self._gathered(name, made) for name in ROWS]
        given = [(loss, "f32"), *((matrix, "f32") for matrix in rows), (buffer, "f64")]
        key = made.place.key
        return [Tensors([each.data_ptr()], DTYPES[dtype], [each.shape], None, key) for each, dtype in given]

    def _take(self, lists: list[MemberList], loss: Any) -> None:
        if not lists:
            return
        (made,) = lists
        device = made.place.device
        value = self._loss_of(loss, device)
        buffer = self._buffer(device)
        besides = self._besides(made, value, buffer)
        params, rates = self._params_of(made)
        first = self.param_groups[0]
        if not self._is_past_end and not isinstance(first["step"], Tensor):
            self._is_past_end = _lopt.past_end("VeLO", first["step"], first["num_steps"])
        amounts = self._amounts(made, rates)
        if amounts:
            params.weight_decay = 0.0
        made.step(params, rates, self._weights_on(device), besides)
        increment_version([*(self._rows[name] for name in ROWS), buffer])
        if amounts:
            _decay(made, amounts, value)

    def _prepare(self, lists: list[MemberList]) -> None:
        """A step with a loss that is NaN, which is skipped, and counted in a buffer of its own."""
        for made in lists:
            device = made.place.device
            self._buffer(device)
            loss = torch.full((1,), float("nan"), device=device)
            buffer = torch.zeros(LOSS_BUFFER, dtype=torch.float64, device=device)
            besides = self._besides(made, loss, buffer)
            if made.shards is None:  # in pieces all processes would have to take it
                made.step_to_nothing(*self._params_of(made), self._weights_on(device), besides)

    def _loss_of(self, loss: Any, device: torch.device) -> Tensor:
        if loss is None:
            raise ValueError("VeLO: the loss is missing: step(loss), or step(closure) of one that returns it")
        if not isinstance(loss, Tensor):
            try:
                if isinstance(loss, (str, bytes, bool)):
                    raise TypeError
                loss = torch.tensor(float(loss))
            except (TypeError, ValueError):
                raise TypeError(f"VeLO: the loss is {loss!r}, it must be a number") from None
        if loss.is_complex() or loss.dtype is torch.bool:
            raise TypeError(f"VeLO: the loss is of {loss.dtype}, it must be a real number")
        if loss.numel() != 1:
            raise ValueError(f"VeLO: the loss has the shape {tuple(loss.shape)}, it must be one number")
        if loss.device != device and is_capturing():
            raise RuntimeError(
                f"VeLO: a graph is being captured, and the loss is not on {device}, so that each replay would repeat "
                "this one: give the tensor that the model's loss is"
            )
        return loss.detach().reshape(1).to(device, torch.float32)


@torch.no_grad()
def _decay(made: MemberList, amounts: dict[int, Any], loss: Tensor) -> None:
    """Weight decay of groups that differ in it, where the library's call has one for all: behind the step, and none
    where the loss has skipped it, which is seen on the device."""
    taken = torch.isfinite(loss[0])
    for group, amount in amounts.items():
        if isinstance(amount, Tensor) or amount:
            factor = torch.where(taken, 1.0 - amount, 1.0).to(torch.float32)
            torch._foreach_mul_([member.param for member in made.members if member.group == group], factor)
