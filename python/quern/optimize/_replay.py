# SPDX-License-Identifier: Apache-2.0
"""A plan in CUDA graphs: one launch a call. Inputs are copied into memory of the graph's own, but for those that were
at the same address in several calls: they are read where they are, by a graph that runs for this address alone. Outputs
are the graph's memory and are handed out without a copy. A graph whose outputs the caller still holds is not run again:
another one is captured, and beyond MOST of them the plan runs without a graph. So no output ever changes under its
holder."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence

import torch

MOST = 2  # of a kind: a loop `y = f(x)` holds the last outputs while the next are made
MOST_CAPTURES = 8  # of a plan whose values move
STEADY = 3  # calls in which a value was at the same address, and is expected there
WARMUPS = 2


class _Instance:
    """One captured graph and its memory. copied: the values by place that it has copies of; fixed: the addresses of the
    others, at which alone it may run."""

    def __init__(self, copied: dict, fixed: dict[int, int], graph: torch.cuda.CUDAGraph, outputs: list) -> None:
        self.places, self.copies, self.fixed = list(copied), list(copied.values()), fixed
        self.graph, self.outputs = graph, outputs
        tensors = [t for t in outputs if isinstance(t, torch.Tensor) and t.data_ptr() not in fixed.values()]
        found = [t.untyped_storage()._cdata for t in tensors]
        self.holders = [(data, torch._C._storage_Use_Count(data)) for data in found]

    def fits(self, addresses: Sequence[int]) -> bool:
        """Whether it can run on the values at these addresses, and nobody holds its outputs."""
        count = torch._C._storage_Use_Count
        return all(addresses[k] == at for k, at in self.fixed.items()) and all(
            count(data) == none for data, none in self.holders
        )

    def run(self, values: Sequence) -> list:
        if len(self.copies) == 1:
            self.copies[0].copy_(values[self.places[0]])
        elif self.copies:
            torch._foreach_copy_(self.copies, [values[k] for k in self.places])
        self.graph.replay()
        return [out.detach() if isinstance(out, torch.Tensor) else out for out in self.outputs]

    def parts(self) -> tuple:
        copied, n = dict(zip(self.places, self.copies)), len(self.places) + len(self.fixed)
        storages, none = (tuple(one[k] for one in self.holders) for k in (0, 1))
        reads = tuple(self.fixed.get(k) for k in range(n)), tuple(copied.get(k) for k in range(n))
        return (self.graph.replay, tuple(self.outputs), storages, none, *reads)


class Replay:
    """Calls `plan(*values)` by graphs. plan: returns a list. updated: tensors that the plan itself changes, which the
    runs before a capture must not. random: it draws random numbers on the GPU, each replay those that a run would.
    copies: values that move are copied from the first call on; else the plan runs without a graph until it is known
    which ones stay. changed: places of values that the plan changes, so that they cannot be copies."""

    def __init__(
        self,
        plan: Callable[..., list],
        device: torch.device,
        updated: Sequence[torch.Tensor] = (),
        random: bool = False,
        copies: bool = True,
        changed: Sequence[int] = (),
    ) -> None:
        self.plan, self.device, self.updated, self.random = plan, device, updated, random
        self.copies, self.changed = copies, frozenset(changed)
        self.instances: list[_Instance] = []  # those that copy least first, of these the newest
        self.pool = torch.cuda.graph_pool_handle()
        self.lock = threading.Lock()
        self.stream: torch.cuda.Stream | None = None  # of the last replay
        self.left, self.calls = MOST_CAPTURES, 0
        self.last: list[int] = []  # addresses
        self.same: list[int] = []  # by place: calls before this one in which the value was where it is now

    def __call__(self, values: Sequence) -> list:
        if torch.cuda.is_current_stream_capturing():
            return self.plan(*values)
        addresses = [value.data_ptr() for value in values]
        with self.lock:
            self._follow()
            found = next((one for one in self.instances if one.fits(addresses)), None)
            if found is None or found.places:
                fixed = self._steady(addresses)
                if self._wants(found, fixed):
                    found = self._another(values, fixed) or found
            if found is not None:
                return found.run(values)
        return self.plan(*values)

    def parts(self) -> tuple | None:
        """The graphs and what runs them, as quern/objects.h wants them; None: there are none yet."""
        graphs = tuple(one.parts() for one in self.instances)
        return (graphs, self, self.lock, torch._C._storage_Use_Count, torch.Tensor.detach) if graphs else None

    def _steady(self, addresses: list[int]) -> dict[int, int]:
        """Counts the call, and says which values are expected to stay where they are."""
        if len(addresses) != len(self.last):
            self.same = [0] * len(addresses)
        else:
            self.same = [n + 1 if a == b else 0 for n, a, b in zip(self.same, addresses, self.last)]
        self.last, self.calls = addresses, self.calls + 1
        return {k: addresses[k] for k, n in enumerate(self.same) if n >= STEADY}

    def _wants(self, found: _Instance | None, fixed: dict[int, int]) -> bool:
        """Whether a graph is captured that reads these values where they are: one that copies less than what there is,
        or one more, where others' outputs are held."""
        if not self.left or not self.changed <= fixed.keys() or not (self.copies or self.calls > STEADY):
            return False
        of_this_kind = sum(one.fixed == fixed for one in self.instances)
        return of_this_kind < MOST and (found is None or len(found.fixed) < len(fixed))

    def _another(self, values: Sequence, fixed: dict[int, int]) -> _Instance | None:
        """None: there is no memory for one more beside those that run already."""
        try:
            with torch.inference_mode(False), torch.no_grad():  # its memory is for calls in any mode
                made = self._capture(values, fixed)
        except RuntimeError:
            if not self.instances:
                raise
            self.left = 0
            return None
        self.left -= 1
        of_addresses = [one for one in (made, *self.instances) if one.fixed][:MOST]  # an older one goes
        of_copies = [one for one in (made, *self.instances) if not one.fixed]
        self.instances = sorted([*of_addresses, *of_copies], key=lambda one: len(one.places))
        return made

    def _follow(self) -> None:
        """Graphs share memory, so that a replay on another stream waits for those before it."""
        current = torch.cuda.current_stream(self.device)
        if self.stream is None or current.cuda_stream != self.stream.cuda_stream:
            if self.stream is not None:
                current.wait_stream(self.stream)
            self.stream = current

    def _capture(self, values: Sequence, fixed: dict[int, int]) -> _Instance:
        copied = {
            k: torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x)
            for k, x in enumerate(values)
            if k not in fixed
        }
        inputs = [copied.get(k, x) for k, x in enumerate(values)]
        kept = [tensor.clone() for tensor in self.updated]
        state = torch.cuda.get_rng_state(self.device) if self.random else None
        current, side = torch.cuda.current_stream(self.device), torch.cuda.Stream(self.device)
        side.wait_stream(current)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(side):
            for _ in range(WARMUPS):
                self.plan(*inputs)
        torch.cuda.synchronize(self.device)
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.cuda.device(self.device))
            stack.enter_context(torch.cuda.graph(graph, pool=self.pool, stream=side, capture_error_mode="thread_local"))
            outputs = self.plan(*inputs)
        for tensor, was in zip(self.updated, kept):
            tensor.copy_(was)
        if state is not None:
            torch.cuda.set_rng_state(state, self.device)
        torch.cuda.synchronize(self.device)
        return _Instance(copied, fixed, graph, outputs)
