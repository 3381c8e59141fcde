# SPDX-License-Identifier: Apache-2.0
"""quern.torch.Lion, an optimizer as torch.optim has them: its arguments, its state, and which parameters are stepped
together. How a list is stepped is _lists.py's business; the arithmetic is the library's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ctypes import Structure
from typing import Any

import torch
from torch import Tensor
from torch.autograd import profiler
from torch.optim import Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from . import _options, _state, _traced
from ._calls import increment_version, is_capturing
from ._groups import GroupPlan, Numbers, Scaler, scaler_of
from ._lists import Member, ParameterList
from ._sharded import Sharding, check_grad, first_element, is_sharded
from ._state import ENTRIES, LION
from ._watch import are_same

_DEFAULT: dict[str, Any] = {name: param.default for name, param in LION.params.items()}


def _is_watched(of: Optimizer) -> bool:
    """Are there hooks of steps, or is a profiler at work?"""
    return bool(
        of._optimizer_step_pre_hooks
        or of._optimizer_step_post_hooks
        or _global_optimizer_pre_hooks
        or _global_optimizer_post_hooks
        or profiler._is_profiler_enabled
    )


class Lion(Optimizer):
    __doc__ = _options.class_doc(LION)

    _step_supports_amp_scaling = True  # GradScaler hands over grad_scale and found_inf, which the kernel reads

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = _DEFAULT["lr"],
        betas: tuple[float | Tensor, float | Tensor] = (_DEFAULT["beta1"], _DEFAULT["beta2"]),
        weight_decay: float = _DEFAULT["weight_decay"],
        *,
        eps: float | None = None,
        decay: str = _DEFAULT["decay"],
        reference_lr: float | None = None,
        maximize: bool = _DEFAULT["maximize"],
        cautious: bool = _DEFAULT["cautious"],
        stochastic_rounding: bool = False,
        momentum_rounding: str = _DEFAULT["momentum_rounding"],
        momentum_dtype: torch.dtype | str | None = None,
        master_weights: bool = False,
        seed: int = _DEFAULT["seed"],
        capturable: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        differentiable: bool = False,
    ) -> None:
        if differentiable:
            raise ValueError("quern: differentiable=True, and autograd cannot go through the step of a fused kernel")
        defaults = dict(
            lr=lr,
            betas=betas,
            weight_decay=weight_decay,
            eps=eps,
            decay=decay,
            reference_lr=reference_lr,
            maximize=maximize,
            cautious=cautious,
            stochastic_rounding=stochastic_rounding,
            momentum_rounding=momentum_rounding,
            momentum_dtype=momentum_dtype,
            master_weights=master_weights,
            seed=seed,
            capturable=capturable,
            foreach=foreach,
            fused=fused,
            differentiable=False,
        )
        self._begin()
        super().__init__(params, defaults)

    def _begin(self) -> None:
        """What is derived from groups and state; never saved."""
        self._plans: dict[int, GroupPlan] = {}
        self._known_states: list[dict] = []
        self._numbers = Numbers(LION)
        self._number = _traced.enlist(self)
        self.all_params: list[Tensor] = []

    # ---- groups and state ----
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        try:
            _options.settle(LION, self.param_groups[-1])
            _state.check_momentum(self.param_groups[-1], len(self.param_groups) - 1)
        except Exception:
            self.param_groups.pop()
            raise
        self._enumerate()

    def _enumerate(self) -> None:
        """torch.compile guards every number of param_groups where they are so much as named; it reads this list."""
        self.all_params = [param for group in self.param_groups for param in group["params"]]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)
            _options.settle(LION, group)
        _state.put_in_place(self)
        if "_numbers" not in self.__dict__:  # a copy, or out of a pickle
            self._begin()
        self._plans.clear()
        self._enumerate()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a state as torch.optim.Optimizer does, but keeps its storage types: an f32 momentum or master copy of
        bf16 parameters is not rounded to bf16. Raises ValueError, with nothing loaded, where shapes differ or an option
        is refused."""
        before: Any = {name: self.__dict__[name] for name in ("state", "param_groups")}
        try:
            with _state.kept_whole(self):
                super().load_state_dict(state_dict)
        except Exception:
            self.__dict__.update(before)
            raise

    def _state_of(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """The parameter's state, made where there is none yet."""
        state = self.state[param]
        missing = [name for name in _state.needed(group, param) if name not in state]
        if missing and is_capturing():
            raise RuntimeError(
                f"quern: a parameter has no {' and no '.join(missing)} yet, and a graph is being captured, which would "
                "make it anew at each replay: take a step, or call prepare(), before the capture"
            )
        for name in missing:
            state[name] = _state.begin(name, group, param)
        return state

    # ---- which parameters are stepped together ----
    def _label(self, index: int, k: int) -> str:
        """How errors call a parameter."""
        names = self.param_groups[index].get("param_names")
        return f"parameter {k} of group {index}" + (f", {names[k]!r}" if names else "")

    def _members(self, index: int) -> Iterable[tuple[Sharding | None, list[Member]]]:
        """A group's parameters that have a gradient, by what one call takes together."""
        lists: dict[tuple, tuple[Sharding | None, list[Member]]] = {}
        before = sum(len(group["params"]) for group in self.param_groups[:index])
        group = self.param_groups[index]
        for k, param in enumerate(group["params"]):
            grad = param.grad
            if grad is None:
                continue
            label = self._label(index, k)
            if grad.layout is not torch.strided:
                raise RuntimeError(
                    f"quern: the gradient of {label} is {grad.layout}, and sparse gradients are not supported, because "
                    "Lion moves every element: make it dense"
                )
            if grad.device != param.device:
                raise ValueError(f"quern: {label} is on {param.device} and its gradient on {grad.device}")
            sharding = None
            if is_sharded(param):
                check_grad(param, grad, label)
                sharding = Sharding(param)
            state = self._state_of(param, group)
            for name in ENTRIES.values():
                if name in state and state[name].device != param.device:
                    raise ValueError(f"quern: {label} is on {param.device} and its {name} on {state[name].device}")
            stored = tuple((name, state[name].dtype) for name in ENTRIES.values() if name in state)
            key = (param.device, param.dtype, grad.dtype, stored, sharding and sharding.key)
            lists.setdefault(key, (sharding, []))[1].append(
                Member(param, state, before + k, label, first_element(param))
            )
        return lists.values()

    def _plan_of(self, index: int, group: dict[str, Any]) -> GroupPlan:
        """The group's plan, made anew where the one before does not fit any more; what is refused is raised."""
        kind = (group["momentum_dtype"], group["master_weights"])
        plan = self._plans.pop(index, None)
        if plan is None or not plan.fits(group, kind):
            plan = GroupPlan(LION, group, kind)
            plan.take_options(group)
            for sharding, members in self._members(index):
                entries = {role: name for role, name in ENTRIES.items() if name in members[0].state}
                plan.lists.append(ParameterList(LION, plan.params, members, entries, sharding))
        plan.take_options(group)
        return plan

    def _fitting_plans(self) -> list[GroupPlan]:
        """A plan for each group. Everything has been checked then, and nothing been changed."""
        are_known = are_same(list(self.state.values()), self._known_states)
        if not are_known:
            self._plans.clear()
        plans = []
        for index, group in enumerate(self.param_groups):
            plans.append(self._plan_of(index, group))
        self._plans = dict(enumerate(plans))
        if not are_known or len(self.state) != len(self._known_states):  # plans make the states that they lack
            self._known_states = list(self.state.values())
        if is_capturing() and not all(plan.is_capturable(group) for plan, group in zip(plans, self.param_groups)):
            raise RuntimeError(
                "quern: a graph is being captured, and capturable is False or a parameter not on a GPU: replays would "
                "repeat this moment's numbers; make the optimizer with capturable=True"
            )
        for index, (plan, group) in enumerate(zip(plans, self.param_groups)):
            self._numbers.bring_up(index, group, plan)
        return plans

    def _point(self, index: int, plan: GroupPlan, device: torch.device, scaler: Scaler | None) -> Structure:
        """The group's params with what lies on a list's device."""
        params = plan.params
        params.grad_scale, params.found_inf = scaler.addresses(device) if scaler else (None, None)
        params.hyper = self._numbers.address(index, device) if plan.is_live else None
        return params

    # ---- a step ----
    def prepare(self) -> None:
        """Makes the state of parameters that have a gradient, compiles their kernels, and, with capturable, writes
        changed lr, betas and weight_decay to device memory. Call it before a graph is captured, and between replays
        after such a number was changed."""
        scaler = scaler_of(self)
        for index, plan in enumerate(self._fitting_plans()):
            for made in plan.lists:
                made.prepare(self._point(index, plan, made.place.device, scaler))

    def _step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if not torch.compiler.is_compiling():
            self.step_now()
        elif _traced.TRACES_LISTS:
            _traced.step(self.all_params, self._number)
        else:
            torch.compiler.disable(self.step_now)()
        return loss

    # Runs hooks and gives a profiler its range. Optimizer puts it round every step() that is not said to have it.
    _watched_step = Optimizer.profile_hook_step(_step)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step. closure: evaluates the model again and returns the loss, which step returns.

        All parameters are checked before any is stepped. A refusal raises ValueError, TypeError or RuntimeError, names
        the parameter, and has changed no tensor."""
        is_own = type(self).step is Lion.step  # that of a class derived from this one has Optimizer's wrapper
        if is_own and _is_watched(self):
            return self._watched_step(closure)
        return self._step(closure)

    step.hooked = True  # type: ignore[attr-defined]  # the wrapper costs a fifth of a step of 148 tensors, and mostly nobody watches

    def step_now(self) -> None:
        """The step itself, for torch.compile's op; step() is for users."""
        plans = self._fitting_plans()
        scaler = scaler_of(self)
        for index, (plan, group) in enumerate(zip(plans, self.param_groups)):
            self._numbers.advance(index, group, plan)
            for made in plan.lists:
                made.step(self._point(index, plan, made.place.device, scaler))
                increment_version(made.written)
