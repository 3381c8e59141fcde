# SPDX-License-Identifier: Apache-2.0
"""Ops of the library as torch.library ops: schemas, kernels, fake implementations and refusals, and a callable that
torch.compile traces. Names of arguments, defaults and what is mutated come from the op's description (_schema.py);
what a call does is _launch.py's business."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental import symbolic_shapes

from .. import _abi
from .._ops import Op, Param, Role
from . import _launch
from ._schema import is_live, schema


def _is_never_known(value: float) -> bool:
    return False


# Is it known to torch.compile that a number stays? Before torch 2.7 nobody says; it may then change wherever
# torch.compile does not fix all floats.
has_static_value: Callable[[float], bool] = getattr(symbolic_shapes, "has_static_value", _is_never_known)

_TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
_LISTS_ARE_TRACED = _TORCH >= (2, 5)  # before, functionalization knew no op that mutates a list
_FLOATS_ARE_FIXED = _TORCH < (2, 5)  # then torch.compile compiles anew for each value of a float
_MOST_INT = (1 << 63) - 1


class Form:
    """One overload of a torch op: over lists (`many`) or one tensor a role, and with the numbers that may change from
    step to step as floats or (`live`) as tensors of one value."""

    def __init__(
        self,
        library: torch.library.Library,
        name: str,
        op: Op,
        roles: Sequence[tuple[Role, str]],
        params: Sequence[Param],
        positional: bool,
        overload: str,
        *,
        many: bool,
        live: bool,
    ) -> None:
        self.op, self.many = op, many
        self.arguments = tuple((role.index, argument) for role, argument in roles)
        self.names = (*(argument for _, argument in roles), *(param.name for param in params if positional))
        full = f"{name}.{overload}" if overload else name
        self._called = f"{library.ns}::{name}"
        library.define(schema(full, roles, params, many=many, positional=positional, live=live))
        # The last one is for empty lists, which have no device, and for devices that the call then refuses by name.
        for key in ("CPU", "CUDA", "CompositeExplicitAutograd"):
            library.impl(full, self._kernel, key)
        library.impl(full, self._refuse_vmap, "FuncTorchBatched")
        torch.library.register_fake(f"{library.ns}::{full}", self._fake, lib=library)
        self.call = getattr(getattr(getattr(torch.ops, library.ns), name), overload or "default")

    def _sort(self, args: tuple, given: dict[str, Any]) -> tuple[list[list[Tensor]], dict[str, Any]]:
        """What torch hands to a kernel, as lists by role, and settings by name; it leaves out what is at its
        default."""
        given.update(zip(self.names, args))
        lists: list[list[Tensor]] = [[] for _ in self.op.roles]
        for index, argument in self.arguments:
            value = given.pop(argument, None)
            if value is not None:
                lists[index] = value if self.many else [value]
        self._refuse_autograd(lists)
        return lists, given

    def _kernel(self, *args: Any, **kwargs: Any) -> None:
        lists, given = self._sort(args, kwargs)
        _launch.step(self.op, lists, given)

    def _fake(self, *args: Any, **kwargs: Any) -> None:
        lists, _ = self._sort(args, kwargs)
        _launch.same_length(self.op, lists)
        _launch.same_devices(self.op, lists)

    def _refuse_autograd(self, lists: Sequence[Sequence[Tensor]]) -> None:
        if not torch.is_grad_enabled():
            return
        for index, argument in self.arguments:
            for place, tensor in enumerate(lists[index]):
                if tensor.requires_grad:
                    which = f"{argument}[{place}]" if self.many else argument
                    raise RuntimeError(
                        f"{self._called} has no derivative, and {which} requires grad while gradients are recorded: "
                        "call it under torch.no_grad()"
                    )

    def _refuse_vmap(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(
            f"{self._called} updates tensors in place and has no rule for torch.vmap: call it outside of vmap, on the "
            "list of all tensors"
        )


class TorchOp:
    """One torch op over one of the library's; calling it is calling the op. `packet` is torch's own object, with the
    overloads `default`, `live`, `single` and `single_live` (see Form), less those that would be the same.

    library     a torch.library.Library, whose namespace it is put in
    many, one   roles of the overloads over lists and over single tensors, with the argument's name of each, in the
                arguments' order; None where there is no such overload
    params      what may be set
    positional  may params be given without their names"""

    def __init__(
        self,
        library: torch.library.Library,
        name: str,
        op: Op,
        params: Sequence[Param],
        *,
        many: Sequence[tuple[Role, str]] | None,
        one: Sequence[tuple[Role, str]] | None,
        positional: bool,
    ) -> None:
        self.op = op
        self.live_names = tuple(param.name for param in params if is_live(param))
        self._wide_names = tuple(param.name for param in params if param.type == _abi.PARAM_U64)
        self._per_tensor = {p.name: 1 for p in params if p.type == _abi.PARAM_HOST_U64}
        self._per_tensor.update({p.name: 2 for p in params if p.type == _abi.PARAM_DEVICE_I64})
        self.forms: dict[tuple[bool, bool], Form] = {}  # by (many, live)
        for is_many, roles in ((True, many), (False, one)):
            for live in (False, True) if self.live_names else (False,):
                if roles is not None:
                    single = () if is_many or many is None else ("single",)
                    overload = "_".join((*single, *(("live",) if live else ())))
                    self.forms[is_many, live] = Form(
                        library, name, op, roles, params, positional, overload, many=is_many, live=live
                    )
        self.packet = getattr(getattr(torch.ops, library.ns), name)

    def __call__(self, *args: Any, **settings: Any) -> None:
        """The op itself. Numbers that may change from step to step, such as the learning rate, may be tensors of one
        value: on the CPU, where they are read at once, or on the device of the list, where the kernel reads them.
        Under torch.compile one that changes is handed on as a tensor, because a float is compiled into the graph."""
        form = self._form(args, settings)
        if len(args) > len(form.names):
            raise TypeError(f"{form.call} takes {len(form.names)} arguments without names, {len(args)} were given")
        given = dict(zip(form.names, args))
        given.update(settings)
        compiling = torch.compiler.is_compiling()
        if not compiling:
            self._make_signed(given)
        live = self._make_live(given, compiling)
        if compiling and form.many and not _LISTS_ARE_TRACED and (False, live) in self.forms:
            self._one_by_one(form, self.forms[False, live], given)
        else:
            self.forms[form.many, live].call(**given)

    def _make_signed(self, given: dict[str, Any]) -> None:
        """Integers of 64 bits, which torch has with a sign only."""
        for name in self._wide_names:
            value = given.get(name, 0)
            if not 0 <= value < 1 << 64:
                raise ValueError(f"{self.op.name}: {name} is {value}, it must be in [0, 2^64)")
            if value > _MOST_INT:
                given[name] = value - (1 << 64)

    def _form(self, args: tuple, settings: Mapping[str, Any]) -> Form:
        """Of lists, if there is that form and the first argument is no tensor."""
        many, one = self.forms.get((True, False)), self.forms.get((False, False))
        if many is None or one is None:
            return many or one  # type: ignore[return-value]
        first = args[0] if args else settings.get(one.names[0])
        return one if isinstance(first, Tensor) else many

    def _make_live(self, given: dict[str, Any], compiling: bool) -> bool:
        """Whether a number is a tensor or must become one; then all that are given do."""
        may_change = compiling and not _FLOATS_ARE_FIXED
        live = False
        for name in self.live_names:
            value = given.get(name)
            if isinstance(value, Tensor):
                live = True
            elif may_change and isinstance(value, float) and not has_static_value(value):
                # A product of tensors is what torch.compile can make of it without fixing the number.
                given[name] = torch.ones((), dtype=torch.float64) * value
                live = True
        if live:
            for name in self.live_names:
                value = given.get(name)
                if value is not None and not isinstance(value, Tensor):
                    given[name] = torch.full((), value, dtype=torch.float64)
        return live

    def _one_by_one(self, many: Form, one: Form, given: dict[str, Any]) -> None:
        """A list as so many calls, each with its share of the settings that have one value (or two) a tensor."""
        lists: list[Any] = [()] * len(self.op.roles)
        for index, name in many.arguments:
            lists[index] = given.pop(name, None) or ()
        n = _launch.same_length(self.op, lists)
        if "tensor_id" in self._per_tensor and given.get("tensor_id") is None:
            given["tensor_id"] = list(range(n))
        names = dict(one.arguments)
        for place in range(n):
            settings = dict(given)
            for name, each in self._per_tensor.items():
                if settings.get(name) is not None:
                    settings[name] = settings[name][each * place : each * (place + 1)]
            for index, of_role in enumerate(lists):
                if of_role:
                    settings[names[index]] = of_role[place]
            one.call(**settings)
