# SPDX-License-Identifier: Apache-2.0
"""What the learned optimizers of quern.torch share: groups and their options, state, what is refused, and which
parameters are stepped together. Nothing is computed here, and a derived class has the constructor and what is its
own."""

from __future__ import annotations

import ctypes
import functools
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from .. import _lopt, _lopt_weights
from .._columns import overlapping
from ._calls import grads_of, is_capturing, place_of
from ._live import Hyper
from ._lopt_bound import factor_of, scaled
from ._lopt_list import Member, MemberList, plain
from ._lopt_loaded import check_loaded
from ._lopt_shards import check_placements, check_state, sharding_of, shards_of, state_like
from ._sharded import is_sharded, local
from ._watch import are_same

STATE = _lopt.STATE
_ENTRIES = tuple(enumerate(STATE))


PARAMS = "parameters, (name, parameter) pairs, or dicts of groups; of float32, of 0 to 5 dimensions"
CAPTURABLE = (
    "lr, weight_decay and the number of steps are read from device memory, so that a captured graph sees them change; "
    "see prepare()"
)
OPTIONS = {
    "width_mult": _lopt.Option(
        None,
        "divisor of the learning rate for muP, see MuLO; None: 1, or under weights of `quern meta-train`, such as "
        "those that come with quern, of a parameter of two or more dimensions its inputs over 32",
    ),
    "capturable": _lopt.Option(False, f"{CAPTURABLE}. Each group is then a call of its own"),
}
OF_ELO = {
    "clip_grad": _lopt.Option(
        None,
        "bound of the norm of the gradients of all groups together; None: none. Gradients are not changed: a step "
        "copies them",
    ),
    **OPTIONS,
}
LAST = "All but params and weights may be set per group. A parameter without a gradient is not changed."


def _number(value: Any) -> Any:
    """A learning rate may be a tensor of one element."""
    return value.item() if isinstance(value, Tensor) and value.numel() == 1 else value


def is_read_there(group: dict[str, Any]) -> bool:
    """Is the learning rate a tensor on a device, which a step reads there?"""
    lr = group["lr"]
    return bool(group.get("capturable")) and isinstance(lr, Tensor) and lr.numel() == 1 and lr.device.type != "cpu"


class Learned(Optimizer):
    """The base of the learned optimizers."""

    _family: _lopt.Family
    _row_shapes: Mapping[str, tuple[int, ...]] = {}  # of what else a parameter's state has, by name

    def _made(self, params: Iterable, weights: Mapping[str, Any], defaults: dict[str, Any]) -> None:
        """What a constructor of _lopt.constructor() calls."""
        weights, self._fan_in = _lopt.given_weights(self._family, weights)
        self._ties: dict[int, str] = {}  # by the group's id, what its state is of
        self._take_weights(
            {
                name: torch.frombuffer(
                    _lopt_weights.flat(self._family.weights[name], f"{self._family.title}: {name}", value),
                    dtype=torch.float32,
                ).clone()
                for name, value in weights.items()
            }
        )
        Optimizer.__init__(self, params, _lopt.with_decays(self._family, weights, defaults))

    def _take_weights(self, weights: dict[str, Tensor]) -> None:
        self._weights = weights  # flat, in host memory
        self._begin()

    def _begin(self) -> None:
        """What is derived from groups and state; never saved."""
        self._on_device: dict[torch.device, dict[str, Tensor]] = {}
        self._live: dict[tuple[int, torch.device], Hyper] = {}  # kept for ever: captured graphs read there
        self._lists: list[MemberList] = []
        self._known: tuple = ()

    def _weights_on(self, device: torch.device) -> dict[str, Tensor]:
        if device not in self._on_device:
            self._on_device[device] = {name: values.to(device) for name, values in self._weights.items()}
        return self._on_device[device]

    # ---- groups, copies and checkpoints ----
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        try:
            self._settle(self.param_groups[-1])
        except Exception:
            self.param_groups.pop()
            raise

    def _settle(self, group: dict[str, Any]) -> None:
        """Completes a group's options and refuses wrong ones."""
        group.setdefault("step", 0)
        if isinstance(group["step"], Tensor):
            group["step"] = int(group["step"])
        group[_lopt_weights.CHECKSUM] = self._checksum
        self._check_options(group)

    @functools.cached_property
    def _checksum(self) -> int:
        return _lopt_weights.checksum(
            ctypes.string_at(values.data_ptr(), 4 * values.numel()) for values in self._weights.values()
        )

    def _check_options(self, group: dict[str, Any]) -> None:
        title = self._family.title
        _lopt.check(self._family, self._options_of(group))
        if not isinstance(group["step"], Tensor):  # which is ours, in device memory
            _lopt.counter(title, "step", group["step"])
        if not isinstance(group.get("capturable", False), bool):
            raise TypeError(f"{title}: capturable is {group['capturable']!r}, it must be True or False")
        width = group["width_mult"]
        if width is not None and _lopt.number(title, "width_mult", width) <= 0:
            raise ValueError(f"{title}: width_mult is {group['width_mult']!r}, it must be above 0")
        _lopt.bound(title, "clip_grad", group.get("clip_grad"))
        self._check_ties(group)

    def _check_ties(self, group: dict[str, Any]) -> None:
        """What a group's state is of does not change."""
        were, ties = self._ties.setdefault(id(group), group["ties"]), group["ties"]
        if ties != were and any(self.state.get(param) for param in group["params"]):
            raise ValueError(
                f"{self._family.title}: ties is {ties!r}, and the group's state was made with {were!r}: it cannot "
                "change; make another optimizer"
            )
        self._ties[id(group)] = ties

    def _ties_of(self, group: dict[str, Any]) -> int:
        return self._family.ties[group["ties"]]

    def _options_of(self, group: dict[str, Any]) -> dict[str, Any]:
        lr = 0.0 if is_read_there(group) else _number(group["lr"])
        return {**{name: group[name] for name in self._family.defaults}, "lr": lr}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_weights": self._weights, "_fan_in": self._fan_in}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("_fan_in", None)
        self._ties = {}
        for options in (self.defaults, *self.param_groups):  # those of old have no such word
            options.setdefault("ties", self._family.defaults["ties"])
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)
            self._settle(group)
        for param in self.state:
            for name in STATE:
                entry = self.state[param].get(name)
                if isinstance(entry, Tensor) and not entry.is_contiguous():
                    self.state[param][name] = entry.contiguous()
        live = self.__dict__.get("_live", {})  # which captured graphs go on reading
        self._begin()
        self._live = live

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch.optim.Optimizer has it. ValueError where state is missing, shapes differ, its checksum is one of
        other network weights, or its groups' ties are others; then nothing is loaded."""
        handle = self.register_load_state_dict_pre_hook(check_loaded)
        try:
            super().load_state_dict(state_dict)
        finally:
            handle.remove()

    # ---- what may be stepped ----
    def _label(self, index: int, k: int) -> str:
        """How sentences call a parameter."""
        names = self.param_groups[index].get("param_names")
        return f"parameter {k} of group {index}" + (f", {names[k]!r}" if names else "")

    def _check_param(self, param: Tensor, grad: Tensor, label: str, compat: bool) -> None:
        title = self._family.title
        if is_sharded(param):
            check_placements(title, param, grad, label)
        if param.dtype is not torch.float32:
            raise TypeError(f"{title}: {label} is {param.dtype}, it must be torch.float32")
        if param.layout is not torch.strided:
            raise TypeError(f"{title}: {label} has the layout {param.layout}, it must be dense")
        _lopt.check_shape(title, f"the shape of {label}", param.shape)
        if compat and param.dim() > 2:
            raise ValueError(f"{title}: {label} has {param.dim()} dimensions, and pylo_cuda_compat is for up to 2")
        place_of(param.device)
        if grad.layout is not torch.strided:
            raise RuntimeError(
                f"{title}: the gradient of {label} is {grad.layout}, and sparse gradients are not supported, because "
                "every element is moved: make it dense"
            )
        if grad.device != param.device:
            raise ValueError(f"{title}: {label} is on {param.device} and its gradient on {grad.device}")
        if grad.dtype is not torch.float32:
            raise TypeError(f"{title}: the gradient of {label} is {grad.dtype}, it must be torch.float32")

    def _check_state(self, param: Tensor, label: str, group: dict[str, Any]) -> None:
        title, state = self._family.title, self.state.get(param, {})
        shapes = _lopt.state_shapes(self._family, self._ties_of(group), self._told(param, group))
        there = [name for name in STATE if name in state]
        if there and len(there) < len(STATE):
            absent = next(name for name in STATE if name not in state)
            raise ValueError(f"{title}: the state of {label} has {there[0]} and no {absent}")
        for index, name in _ENTRIES if there else ():
            value = state[name]
            if tuple(value.shape) != shapes[index]:
                raise ValueError(
                    f"{title}: the {name} of {label} has the shape {tuple(value.shape)}, for a parameter of "
                    f"{tuple(param.shape)} it must be {shapes[index]}"
                )
            if value.device != param.device:
                raise ValueError(f"{title}: {label} is on {param.device} and its {name} on {value.device}")
            if is_sharded(param):
                check_state(title, self._ties_of(group), param, label, index, value)
                value = local(value)
            if value.dtype is not torch.float32 or not value.is_contiguous():
                raise TypeError(f"{title}: the {name} of {label} must be of torch.float32 and contiguous")

    def _state_of(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """The state of a parameter of the group, zeros where there is none yet."""
        state = self.state[param]
        if STATE[0] not in state and is_capturing():
            raise RuntimeError(
                f"{self._family.title}: a parameter has no state yet, and a graph is being captured, which would make "
                "it anew at each replay: take a step, or call prepare(), before the capture"
            )
        if STATE[0] not in state and is_sharded(param):
            state.update(state_like(self._family, self._ties_of(group), param))
        elif STATE[0] not in state:
            shapes = _lopt.state_shapes(self._family, self._ties_of(group), self._told(param, group))
            for name, shape in zip(STATE, shapes):
                state[name] = torch.zeros(shape, dtype=torch.float32, device=param.device)
        return state

    # ---- which are stepped together ----
    def _with_grads(self) -> list[tuple[Tensor, int, str]]:
        """Each parameter that has a gradient, its group's number and its label; all have been checked."""
        found = []
        for index, group in enumerate(self.param_groups):
            for k, param in enumerate(group["params"]):
                if param.grad is None:
                    continue
                label = self._label(index, k)
                self._check_param(param, param.grad, label, bool(group.get("pylo_cuda_compat")))
                self._check_state(param, label, group)
                found.append((param, index, label))
        return found

    def _key(self, group: dict[str, Any]) -> tuple:
        """Equal where two groups may be stepped in one call, which has a learning rate for each tensor."""
        if group.get("capturable"):
            return (id(group),)
        options = self._options_of(group)
        del options["lr"]
        return (group["step"], *((tuple(v) if isinstance(v, list) else v) for v in options.values()))

    def _pattern(self) -> tuple[tuple[int, bool], ...]:
        """Of each group, the first one that it can be stepped with, and what decides which shapes may be."""
        keys = [self._key(group) for group in self.param_groups]
        return tuple((keys.index(key), self._shaping(group)) for key, group in zip(keys, self.param_groups))

    def _shaping(self, group: dict[str, Any]) -> bool:
        """What decides which shapes may be, or are told to the library."""
        return bool(group.get("pylo_cuda_compat"))

    def _told(self, param: Tensor, group: dict[str, Any]) -> Sequence[int]:
        """The shape that the library is told of a parameter of the group."""
        return param.shape

    def _fitting_lists(self) -> list[MemberList]:
        """The lists of this step, with their gradients. Everything has been checked then."""
        pattern = self._pattern()
        params = [param for group in self.param_groups for param in group["params"]]
        if self._is_known(pattern, params) and all(made.gather() for made in self._lists):
            return self._lists
        self._known, self._lists = (), []
        lists: dict[tuple, list[tuple[Tensor, int, str]]] = {}
        for param, index, label in self._with_grads():
            lists.setdefault((param.device, pattern[index], self._together(param)), []).append((param, index, label))
        made = [
            (self._list_of(together), list(map(local, grads_of([param for param, _, _ in together]))))
            for together in lists.values()
        ]
        # What a device refuses, it refuses before the processor's tensors have moved.
        made.sort(key=lambda one: one[0].place.device.type == "cpu")
        for one, grads in made:
            if not one.use([plain(grad) for grad in grads]):
                raise ValueError(f"{self._family.title}: a gradient is not of its parameter's shape and type")
        self._lists = [one for one, _ in made]
        self._check_overlap(self._lists)
        absent = [param for param in params if param.grad is None]
        self._known = (pattern, params, list(self.state.values()), absent)
        return self._lists

    def _is_known(self, pattern: tuple[tuple[int, bool], ...], params: list[Tensor]) -> bool:
        """Are groups, parameters and states those of the lists, and the others still without gradients?"""
        if not self._known or self._known[0] != pattern:
            return False
        _, were, states, absent = self._known
        same = are_same(params, were) and are_same(list(self.state.values()), states)
        return same and all(param.grad is None for param in absent)

    def _list_of(self, together: list[tuple[Tensor, int, str]]) -> MemberList:
        members = []
        for param, index, label in together:
            group = self.param_groups[index]
            state, whole = self._state_of(param, group), None
            if is_sharded(param):
                state, whole = {name: local(value) for name, value in state.items()}, state
            members.append(Member(local(param), state, index, label, whole, self._told(local(param), group)))
        return MemberList(self._family, members, shards_of([param for param, _, _ in together]))

    def _together(self, param: Tensor) -> Any:
        """Equal where two tensors, of one device and alike options, can be stepped in one call."""
        return sharding_of(param)

    def _check_overlap(self, lists: list[MemberList]) -> None:
        """Within a list the library looks; here lists of one device are held against each other."""
        for device in {made.place.device for made in lists}:
            found = overlapping(span for made in lists if made.place.device == device for span in made.spans())
            if found:
                raise ValueError(
                    f"{self._family.title}: {found[0][3]} and {found[1][3]} share memory, and one of them is written"
                )

    # ---- a step ----
    def _bound(self, lists: list[MemberList]) -> None:
        """Puts bounded copies of the gradients in their place, where a group says so."""
        bounds = [_lopt.bound(self._family.title, "clip_grad", group.get("clip_grad")) for group in self.param_groups]
        wanted = sorted({bound for bound in bounds if bound is not None})
        if not wanted or not lists:
            return
        grads = [(made.grads, made.shards) for made in lists]
        factors = {bound: factor_of(grads, bound) for bound in wanted}
        for made in lists:
            made.use(
                [
                    grad if bound is None else scaled(grad, factors[bound])
                    for grad, bound in zip(made.grads, (bounds[member.group] for member in made.members))
                ]
            )

    def _widths_of(self, made: MemberList) -> list[float]:
        """By what the learning rate of each parameter's group is divided for it."""
        if made.widths is None:
            made.widths = [
                _lopt.width_of(self._family.title, member.label, member.param.shape, self._fan_in)
                for member in made.members
            ]
        given = [group["width_mult"] for group in self.param_groups]
        return [
            width if given[member.group] is None else given[member.group]
            for member, width in zip(made.members, made.widths)
        ]

    def _params_of(self, made: MemberList) -> tuple[Any, array]:
        """The library's params for a list, and its tensors' learning rates."""
        rates = [
            1.0 if group.get("capturable") else _lopt.number(self._family.title, "lr", _number(group["lr"]))
            for group in self.param_groups
        ]
        widths = self._widths_of(made)
        index = self._group_of(made)
        group, live = self.param_groups[index], self._live.get((index, made.place.device))
        step = 0 if isinstance(group["step"], Tensor) else group["step"]
        params = _lopt.params_of(self._family, {**self._options_of(group), "lr": 1.0}, step)
        if group.get("capturable") and live is not None:
            params.hyper = live.memory.data_ptr()
        return params, array("d", [rates[member.group] / width for member, width in zip(made.members, widths)])

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step. closure: evaluates the model anew and returns the loss, which is returned.

        All parameters are checked before any is stepped. Where something is refused, ValueError, TypeError or
        RuntimeError says what and of which parameter, and no tensor has been changed."""
        if closure is not None and not callable(closure):
            raise TypeError(
                f"{self._family.title}: step was given {type(closure).__name__}, it takes a closure or nothing; VeLO "
                "alone takes the loss"
            )
        return self._run(closure, None)

    def _run(self, closure: Callable[[], Any] | None, loss: Any) -> Any:
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if torch.compiler.is_compiling():
            torch.compiler.disable(self._step_now)(loss)
        else:
            self._step_now(loss)
        return loss

    def _step_now(self, loss: Any) -> None:
        lists = self._ready()
        self._bound(lists)
        self._take(lists, loss)
        for index, group in enumerate(self.param_groups):
            if not isinstance(group["step"], Tensor):
                group["step"] += 1
            for (of, _), live in self._live.items():
                if of == index and group.get("capturable"):
                    live.step.add_(1)

    def prepare(self) -> None:
        """Makes the state of parameters that have a gradient, and with capturable writes lr and weight_decay to device
        memory where they have changed, and compiles kernels. To be called before a graph is captured, and between
        replays after such a number was changed here."""
        self._prepare(self._ready())

    def _ready(self) -> list[MemberList]:
        """The lists of this step; everything has been checked then, and device memory says what groups say."""
        title, capturing = self._family.title, is_capturing()
        if capturing and not all(group.get("capturable") for group in self.param_groups):
            raise RuntimeError(
                f"{title}: a graph is being captured, whose replays would repeat this moment's step number: make the "
                "optimizer with capturable=True"
                if "capturable" in self.defaults
                else f"{title}: a graph is being captured, and this optimizer's step cannot be"
            )
        for group in self.param_groups:
            self._check_options(group)
        lists = self._fitting_lists()
        for index, group in enumerate(self.param_groups):
            if group.get("capturable"):
                devices = [made.place.device for made in lists if self._group_of(made) == index]
                self._bring_up(index, group, devices, capturing)
            elif isinstance(group["step"], Tensor):
                group["step"] = int(group["step"])
        return lists

    def _group_of(self, made: MemberList) -> int:
        """Whose options a list's call has."""
        return made.members[0].group

    def _live_decay(self, group: dict[str, Any]) -> float:
        """The weight decay of a group's call, as device memory is told it."""
        return float(group["weight_decay"])

    def _bring_up(self, index: int, group: dict[str, Any], devices: list[torch.device], capturing: bool) -> None:
        """Device memory says what the group says."""
        title, told = self._family.title, isinstance(group["step"], Tensor)
        if capturing and any(device.type != "cuda" for device in devices):
            raise RuntimeError(f"{title}: a graph is being captured, and a parameter of group {index} is on no GPU")
        lr = group["lr"] if is_read_there(group) else float(_number(group["lr"]))
        for device in devices:
            live = self._live.get((index, device))
            if capturing and (live is None or not told):
                raise RuntimeError(
                    f"{title}: group {index} has no numbers in device memory yet, and a graph is being captured: take "
                    "a step, or call prepare(), before the capture"
                )
            if live is None:
                live = self._live[index, device] = Hyper(self._family.op, device, int(group["step"]))
            elif not told:
                live.step.fill_(group["step"])
            live.write(title, {"lr": lr, "weight_decay": self._live_decay(group)}, capturing)
        if devices and not told:
            group["step"] = self._live[index, devices[0]].step

    def _prepare(self, lists: list[MemberList]) -> None:
        for made in lists:
            params, rates = self._params_of(made)
            made.prepare(params, rates, self._weights_on(made.place.device))

    def _take(self, lists: list[MemberList], loss: Any) -> None:
        """The calls of the library, which has looked at all of it before the first."""
        if len(lists) > 1:
            self._prepare(lists)
        for made in lists:
            params, rates = self._params_of(made)
            made.step(params, rates, self._weights_on(made.place.device))
