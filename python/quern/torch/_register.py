# SPDX-License-Identifier: Apache-2.0
"""Ops of the library as torch.library ops: schema, kernels, fake implementation and refusals, and a callable that
torch.compile traces. Names of arguments, defaults and what is mutated come from the op's description (_schema.py);
what a call does is _launch.py's business."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._ops import Op, Param, Role
from . import _launch
from ._schema import is_live, schema

try:
    from torch.fx.experimental.symbolic_shapes import has_static_value
except ImportError:  # before torch 2.7; a number that changes is taken for one that may

    def has_static_value(value: float) -> bool:
        """Is it known to torch.compile that the number stays?"""
        return False


# Before torch 2.5 functionalization, hence torch.compile, knows no op that mutates a list.
LISTS_CAN_BE_TRACED = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 5)


class TorchOp:
    """One torch op over one of the library's, to be called as a function. `packet` is torch's own object, with an
    overload "default" and, where the op has numbers that may change from step to step, one "live" that takes them as
    tensors of one value: on the CPU, where they are read at once, or on the list's device, where the kernel reads them.

    library    a torch.library.Library, whose namespace it is put in
    roles      with the argument's name of each, in the arguments' order
    params     what may be set
    many       lists of tensors; else one tensor each
    positional may params be given without their names"""

    def __init__(
        self,
        library: torch.library.Library,
        name: str,
        op: Op,
        roles: Sequence[tuple[Role, str]],
        params: Sequence[Param],
        *,
        many: bool,
        positional: bool,
    ) -> None:
        self.op, self.many = op, many
        self.name = f"{library.ns}::{name}"
        self._roles = tuple((role.index, argument) for role, argument in roles)
        self.argument_names = tuple(argument for _, argument in roles)
        self.setting_names = tuple(param.name for param in params) if positional else ()
        self.live_names = tuple(param.name for param in params if is_live(param))
        for live in (False, True) if self.live_names else (False,):
            self._register(
                library, name + (".live" if live else ""), schema(name, roles, params, many, positional, live)
            )
        self.packet = getattr(getattr(torch.ops, library.ns), name)
        self._default = self.packet.default
        self._live = self.packet.live if self.live_names else None

    def _register(self, library: torch.library.Library, overload: str, text: str) -> None:
        library.define(text)
        # The last one is for empty lists, which have no device, and for devices that the call then refuses by name.
        for key in ("CPU", "CUDA", "CompositeExplicitAutograd"):
            library.impl(overload, self._kernel, key)
        library.impl(overload, self._refuse_vmap, "FuncTorchBatched")
        torch.library.register_fake(f"{library.ns}::{overload}", self._fake, lib=library)

    def _sort(self, args: tuple, kwargs: dict[str, Any]) -> tuple[list[list[Tensor]], dict[str, Any]]:
        """What torch hands to a kernel, as lists by role and settings by name. torch leaves out what is at its
        default."""
        given = dict(zip(self.argument_names + self.setting_names, args))
        given.update(kwargs)
        lists: list[list[Tensor]] = [[] for _ in self.op.roles]
        for index, argument in self._roles:
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

    def _refuse_autograd(self, lists: Sequence[Sequence[Tensor]]) -> None:
        if not torch.is_grad_enabled():
            return
        for index, argument in self._roles:
            for place, tensor in enumerate(lists[index]):
                if tensor.requires_grad:
                    which = f"{argument}[{place}]" if self.many else argument
                    raise RuntimeError(
                        f"{self.name} has no derivative, and {which} requires grad while gradients are recorded: "
                        "call it under torch.no_grad()"
                    )

    def _refuse_vmap(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(
            f"{self.name} updates tensors in place and has no rule for torch.vmap: call it outside of vmap, on "
            "the list of all tensors"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """The op itself. Under torch.compile a learning rate that changes is handed on as a tensor, because a float
        would be compiled into the graph."""
        given = dict(zip(self.argument_names + self.setting_names, args))
        if len(args) > len(given):
            raise TypeError(f"{self.name} takes {len(given)} arguments without names, and {len(args)} were given")
        given.update(kwargs)
        as_tensors = False
        for name in self.live_names:
            value = given.get(name)
            if isinstance(value, Tensor):
                as_tensors = True
            elif torch.compiler.is_compiling() and isinstance(value, float) and not has_static_value(value):
                # A product of tensors is what torch.compile can make of it without fixing the number.
                given[name] = torch.ones((), dtype=torch.float64) * value
                as_tensors = True
        if as_tensors:
            for name in self.live_names:
                value = given.get(name)
                if value is not None and not isinstance(value, Tensor):
                    given[name] = torch.full((), value, dtype=torch.float64)
            self._live(**given)
        else:
            self._default(**given)
