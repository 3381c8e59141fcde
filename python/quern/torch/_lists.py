# SPDX-License-Identifier: Apache-2.0
"""A list: parameters of one group that one call of the library steps together, because they lie on one device and
are stored alike. It holds a plan of the library's, finds out at each step whether the plan still fits the tensors,
and passes what moved. It does not know what the options mean, nor where state comes from.

Nothing is taken on trust from one step to the next: every address is read anew, and gradients, parameters and state
are compared with what the plan was made for. Whatever differs makes a new list, whose plan checks everything."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Structure, addressof, byref, c_uint64
from dataclasses import dataclass
from operator import is_, itemgetter

import torch
from torch import Tensor

from .. import _abi
from .._library import lib
from .._ops import Op, Plan
from ._calls import Place, as_real, code_of, grads_of, named, tensors_of
from ._sharded import Sharding, check_grad, local, sum_over_shards
from ._watch import CHANGED, SAME, ListWatch, has_table, watch


@dataclass(frozen=True)
class Member:
    """One parameter of a list. `place` is its number among all of the optimizer's, `label` how errors call it;
    `first_element` is where in the whole tensor begins what is held here."""

    param: Tensor
    state: dict
    place: int
    label: str
    first_element: int = 0


def same_layout(one: Tensor, other: Tensor) -> bool:
    """Do two tensors of one shape put equal indices at equal places? Strides of extents of 1 are never used."""
    return one.stride() == other.stride() or all(
        a == b for extent, a, b in zip(one.shape, one.stride(), other.stride()) if extent != 1
    )


class ParameterList:
    """See the head of this file. `entries`: by the role's name, the key in the state of what the op writes. `sharding`:
    the tensors are DTensors, all sharded so; None: plain tensors. Raises what the library refuses, with the parameters'
    names, before anything is written."""

    def __init__(
        self,
        op: Op,
        params: Structure,
        members: list[Member],
        entries: dict[str, str],
        sharding: Sharding | None = None,
    ) -> None:
        self.op, self.members = op, members
        self._sharding = sharding
        self._tensors = [member.param for member in members]
        self._states = [member.state for member in members]
        self._entries = list(entries)
        self._getters = [itemgetter(key) for key in entries.values()]
        self._held = [list(map(entry, self._states)) for entry in self._getters]
        self.written = [*self._tensors, *(tensor for held in self._held for tensor in held)]
        given = self._unwrap(self._tensors)
        # Where a view that negates or conjugates can have its parameter's layout.
        self._lazy = [k for k, tensor in enumerate(given) if tensor.is_complex() or tensor.numel() == 1]
        self.place = Place(given[0].device)
        self._ids = (c_uint64 * len(members))(*(member.place for member in members))
        self._first_elements = (c_uint64 * len(members))(*(member.first_element for member in members))
        self._grads = self._usable(self._unwrap(grads_of(self._tensors)), given)
        self._grad_dtype = self._grads[0].dtype
        held = list(map(self._unwrap, self._held))
        self._plan = self._make_plan(params, {"param": given, "grad": self._grads, **dict(zip(entries, held))})
        self._grads_moved = False  # since the plan was last told
        self._workspace_bytes: int | None = None
        self._whole = None
        if sharding is None and has_table(self._tensors):
            self._whole = ListWatch(self._arrays, self._tensors, self._states, entries)

    def __len__(self) -> int:
        return len(self.members)

    def _unwrap(self, tensors: list[Tensor]) -> list[Tensor]:
        return tensors if self._sharding is None else list(map(local, tensors))

    @torch.no_grad()
    def _usable(self, grads: Sequence[Tensor], params: Sequence[Tensor]) -> list[Tensor]:
        """Gradients that are laid out otherwise than their parameters, or are views that negate or conjugate, as
        copies that are not; everything else as it is."""
        made = []
        for grad, param in zip(grads, params):
            if grad.shape == param.shape and (grad.is_conj() or grad.is_neg() or not same_layout(grad, param)):
                grad = torch.empty_like(param, dtype=grad.dtype).copy_(grad)
            made.append(grad)
        return made

    @torch.no_grad()
    def _make_plan(self, params: Structure, tensors: dict[str, Sequence[Tensor]]) -> Plan:
        index = {role.name: role.index for role in self.op.roles}
        self.roles, self._moved, self._watches = _abi.Roles(), _abi.Roles(), {}
        self._arrays = {}
        for name, of_role in tensors.items():
            real = list(map(as_real, of_role))
            code = code_of(real[0].dtype, f"the {name} of {self.members[0].label}")
            array = self._arrays[name] = tensors_of(real, code, self.place.key)
            self._watches[name] = watch(array, of_role)
            self.roles[index[name]] = array.address
        self._moved[index["grad"]] = self._arrays["grad"].address
        try:
            return Plan(self.op, self.place.current(), params, len(self), self.roles)
        except (ValueError, TypeError, RuntimeError) as error:
            raise named(error, self.members) from None

    def gather(self) -> bool:
        """Takes this step's gradients. False: something is not as it was when the plan was made."""
        try:
            if self._whole is not None:
                are_same, followed = self._whole.follow()
                if not are_same:
                    return False
                is_lazy = bool(self._lazy) and any(
                    grad.is_neg() for grad in grads_of([self._tensors[k] for k in self._lazy])
                )
                if followed != CHANGED and not is_lazy:
                    self._grads_moved |= followed != SAME
                    return True
            given, grads = self._unwrap(self._tensors), grads_of(self._tensors)
            if self._sharding is not None:
                for member, grad in zip(self.members, grads):
                    if grad is not None:
                        check_grad(member.param, grad, member.label)
            if not self._take_grads(self._unwrap(grads), given):
                return False
            if self._watches["param"].follow(given) != SAME:
                return False
            for name, entry, held in zip(self._entries, self._getters, self._held):
                now = list(map(entry, self._states))
                if not all(map(is_, now, held)) or self._watches[name].follow(self._unwrap(now)) != SAME:
                    return False
        except (AttributeError, TypeError, KeyError, RuntimeError):  # no gradient, a sparse one, no such state
            return False
        return True

    def _take_grads(self, grads: list[Tensor], params: list[Tensor]) -> bool:
        of_grads = self._watches["grad"]
        lazy = any(grads[k].is_conj() or grads[k].is_neg() for k in self._lazy)
        followed = CHANGED if lazy else of_grads.follow(grads)
        if followed == CHANGED:
            grads = self._usable(grads, params)
            if any(g.shape != p.shape or g.dtype is not self._grad_dtype for g, p in zip(grads, params)):
                return False
            of_grads.move([grad.data_ptr() for grad in grads])
        self._grads = grads  # copies must live until the call has been made
        self._grads_moved |= followed != SAME
        return True

    def params_changed(self) -> None:
        """To be said when other numbers than pointers and the counter have changed in the params."""
        self._workspace_bytes = None

    def prepare(self, params: Structure) -> None:
        """Compiles and loads what a step with these params needs."""
        lib.qn_op_prepare(self.op.info, byref(self.place.current()), byref(params), len(self), self.roles)

    def _agreement(self, sharding: Sharding, params: Structure) -> Tensor | None:
        """Where each process holds a part only, what an op counts in whole tensors, summed over the parts."""
        if not self.op.workspace_bytes(params, len(self)):
            return None
        counts = torch.empty(2 * len(self), dtype=torch.int64, device=self.place.device)
        count = getattr(lib, f"qn_{self.op.name}_count")
        roles = self.roles[: len(self.op.roles)]
        count(byref(self.place.current()), byref(params), len(self), *roles, counts.data_ptr())
        sum_over_shards(counts, sharding.groups)
        return counts

    def step(self, params: Structure) -> None:
        """The plan's step over the gradients that were gathered."""
        params.tensor_id, params.first_element = addressof(self._ids), addressof(self._first_elements)
        counts = None if self._sharding is None else self._agreement(self._sharding, params)
        if counts is not None:
            params.agreement = counts.data_ptr()
        if self._workspace_bytes is None:
            self._workspace_bytes = self.op.workspace_bytes(params, len(self))
        workspace = self.place.lend(self._workspace_bytes) if self._workspace_bytes else None
        try:
            self._plan.step(self.place.current(), params, self._moved if self._grads_moved else None)
        except (ValueError, TypeError, RuntimeError) as error:
            self._grads_moved = True  # what the plan has taken of it is not known
            raise named(error, self.members) from None
        finally:
            params.agreement = None
            self._grads = []
            del workspace, counts  # torch's allocator keeps them for the stream until the kernels have run
        self._grads_moved = False
