# SPDX-License-Identifier: Apache-2.0
"""Parameters that one call of a learned optimizer steps together, because they lie on one device and share all options
but the learning rate. What was found out about them is kept from step to step as long as it fits; the library looks at
all of it anew at each call. It does not know where state comes from, nor what options mean."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from ctypes import Structure, addressof, byref
from dataclasses import dataclass

import torch
from torch import Tensor

from .. import _lopt
from .._columns import Span
from .._library import DTYPES, lib
from .._tensors import Tensors
from ._calls import Place, grads_of, increment_version, named
from ._lopt_shards import Shards
from ._watch import CHANGED, SAME, ListWatch, are_same, has_table, watch

_F32 = DTYPES["f32"]


@dataclass(frozen=True)
class Member:
    """One parameter: `group` is the number of its group, `label` how sentences call it."""

    param: Tensor
    state: dict  # the optimizer's; of a piece of a DTensor, what is held here of it
    group: int
    label: str
    whole: dict | None = None  # of a piece, the optimizer's
    told: Sequence[int] | None = None  # the shape that the library is told; None: the parameter's


def _row_major(tensors: Sequence[Tensor], shapes: Sequence[Sequence[int]], place: tuple[int, int]) -> Tensors:
    return Tensors([tensor.data_ptr() for tensor in tensors], _F32, shapes, None, place)


def plain(tensor: Tensor) -> Tensor:
    """Row-major and without a pending negation: itself where it is so."""
    return tensor.detach().resolve_neg().contiguous()


class MemberList:
    """See the head of this file. All has been checked when this is made: float32, of one device, with gradients."""

    def __init__(self, family: _lopt.Family, members: list[Member], shards: Shards | None = None) -> None:
        self.family, self.members, self.shards = family, members, shards
        self.params = [member.param for member in members]
        self.widths: list[float] | None = None  # by what learning rates are divided; the optimizer's
        self._once = any(member.whole is not None for member in members)
        self._states = [member.state for member in members]
        self._held = [[state[name] for state in self._states] for name in _lopt.STATE]
        self._shapes = [param.shape for param in self.params]
        self._strided = [k for k, param in enumerate(self.params) if not param.is_contiguous()]
        self._single = [k for k, param in enumerate(self.params) if param.numel() == 1]  # where a view may negate
        self.place = Place(self.params[0].device)
        self._written = [*self.params, *(tensor for held in self._held for tensor in held)]
        self._copies: list[Tensor] = []
        given = [plain(param) for param in self.params]
        told = [param.shape if member.told is None else member.told for member, param in zip(members, self.params)]
        as_they_are = not self._strided and all(map(tuple.__eq__, map(tuple, told), map(tuple, self._shapes)))
        self._arrays = [_row_major(given, told, self.place.key) for _ in range(2)]
        self._arrays += [_row_major(held, [one.shape for one in held], self.place.key) for held in self._held]
        self._params_watch = watch(self._arrays[0], self.params) if as_they_are else None
        self._grads_watch = watch(self._arrays[1], given)
        self._state_watches = [watch(made, held) for made, held in zip(self._arrays[2:], self._held)]
        self._whole = None
        if as_they_are and not self._once and has_table(self.params):
            arrays = dict(zip(("param", "grad", *_lopt.STATE), self._arrays))
            self._whole = ListWatch(arrays, self.params, self._states, {name: name for name in _lopt.STATE})

    def __len__(self) -> int:
        return len(self.members)

    # ---- from step to step ----
    def gather(self) -> bool:
        """Takes the gradients. False where anything is not what it was: make a new list, which says what is wrong."""
        if self._once:
            return False
        self._copies = []
        try:
            if self._whole is not None:
                same, followed = self._whole.follow()
                if not same:
                    return False
                single = grads_of([self.params[k] for k in self._single])
                if followed != CHANGED and not any(grad.is_neg() for grad in single):
                    return True
            if not self._params_fit():
                return False
            for name, held, watching in zip(_lopt.STATE, self._held, self._state_watches):
                if not are_same([state[name] for state in self._states], held) or watching.follow(held) != SAME:
                    return False
            grads = grads_of(self.params)
            negated = any(grads[k].is_neg() for k in self._single)
            if negated or self._grads_watch.follow(grads) == CHANGED:
                if any(grad.layout is not torch.strided or grad.device != self.place.device for grad in grads):
                    return False
                grads = [plain(grad) for grad in grads]
        except (AttributeError, TypeError, KeyError, RuntimeError):  # no gradient, a sparse one, no such state
            return False
        return self.use(grads)

    def _params_fit(self) -> bool:
        if self._params_watch is not None:
            return self._params_watch.follow(self.params) == SAME
        device = self.place.device
        return all(
            param.shape == shape and param.dtype is torch.float32 and param.device == device
            for param, shape in zip(self.params, self._shapes)
        )

    def use(self, grads: list[Tensor]) -> bool:
        """The next call reads these, which are row-major; False where they do not fit."""
        if any(grad.shape != shape or grad.dtype is not torch.float32 for grad, shape in zip(grads, self._shapes)):
            return False
        self._grads_watch.move([grad.data_ptr() for grad in grads])
        self._copies = grads  # which must live until the call has been made
        return True

    @property
    def grads(self) -> list[Tensor]:
        """Those of the next call."""
        return self._copies or grads_of(self.params)

    def spans(self) -> list[Span]:
        """(begin, end, written, name) of the memory of each tensor that is not empty."""
        found = []
        for index, name in enumerate(("", "gradient", *_lopt.STATE)):
            for k, member in enumerate(self.members):
                tensor = member.param if index == 0 else self.grads[k] if index == 1 else self._held[index - 2][k]
                if tensor.numel() and tensor.is_contiguous():
                    begin = tensor.data_ptr()
                    what = f"the {name} of {member.label}" if name else member.label
                    found.append((begin, begin + 4 * tensor.numel(), index != 1, what))
        return found

    # ---- the call ----
    @torch.no_grad()
    def prepare(self, params: Structure, factors: array, weights: dict[str, Tensor]) -> None:
        """Has the library look at all that step() would be given, and compile what it needs."""
        copies = self._point(params, factors, weights)
        if self.shards is not None:
            params.shards = addressof(self.shards.told)
        op, roles = self.family.op, self.family.op.roles_array(self._arrays)
        try:
            lib.qn_op_prepare(op.info, byref(self.place.current()), byref(params), len(self), roles)
        except (ValueError, TypeError, RuntimeError) as error:
            raise named(error, self.members) from None
        del copies

    def _point(self, params: Structure, factors: array, weights: dict[str, Tensor]) -> dict[int, Tensor]:
        """Puts the pointers into params; the parameters that are not row-major as copies, by their places."""
        copies = {k: plain(self.params[k]) for k in self._strided}
        if copies:
            self._arrays[0].move([copies.get(k, param).data_ptr() for k, param in enumerate(self.params)])
        params.lr_scale = factors.buffer_info()[0]
        for name, values in weights.items():
            setattr(params, name, values.data_ptr())
        return copies

    @torch.no_grad()
    def step(
        self, params: Structure, factors: array, weights: dict[str, Tensor], besides: Sequence[Tensors] = ()
    ) -> None:
        """One step over the gradients that were taken. `factors`: of the learning rate, one a parameter; `weights`: by
        the params' names for them; `besides`: what the library's step takes beside the six roles."""
        copies = self._point(params, factors, weights)
        lent = self._call(params, besides)
        for k, copy in copies.items():
            self.params[k].copy_(copy)
        increment_version(self._written)
        self._copies = []
        del lent, copies  # torch's allocator keeps them for the stream until the kernels have run

    @torch.no_grad()
    def step_to_nothing(
        self, params: Structure, factors: array, weights: dict[str, Tensor], besides: Sequence[Tensors]
    ) -> None:
        """A step whose `besides` have it write nothing: the library looks at all that it would be given, and compiles
        what it needs."""
        copies = self._point(params, factors, weights)
        lent = self._call(params, besides)
        del lent, copies

    def _call(self, params: Structure, besides: Sequence[Tensors]) -> Tensor | None:
        """The library's step; returns the workspace that it had."""
        op, execution = self.family.op, self.place.current()
        roles = op.roles_array([*self._arrays, *besides])
        if self.shards is not None:
            params.shards = addressof(self.shards.told)
        lent = self.place.lend(op.call_workspace_bytes(execution, params, len(self), roles))
        try:
            op.step(execution, params, len(self), roles)
        except (ValueError, TypeError, RuntimeError) as error:
            if self.shards is not None and self.shards.error is not None:
                raise RuntimeError(
                    f"{self.family.title}: a sum over the processes failed, and the step is not whole: "
                    f"{self.shards.error}"
                ) from self.shards.error
            raise named(error, self.members) from None
        return lent
