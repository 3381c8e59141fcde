# SPDX-License-Identifier: Apache-2.0
"""A plan in CUDA graphs: one launch a call. Inputs are copied into memory of the graph's own, but for those that
are known to stay where they are; outputs are the graph's memory and are handed out without a copy. A graph whose
outputs the caller still holds is not run again: another one is captured, and beyond MOST of them the plan runs without
a graph. So no output ever changes under its holder."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence

import torch

MOST = 2  # a loop `y = f(x)` holds the last outputs while the next are made
WARMUPS = 2


class _Instance:
    """One captured graph and its memory. copied: the inputs by place that it has copies of; fixed: the addresses of the
    others, at which alone it may run."""

    def __init__(self, copied: dict, fixed: dict[int, int], graph: torch.cuda.CUDAGraph, outputs: list) -> None:
        self.places, self.copies, self.fixed = list(copied), list(copied.values()), list(fixed.items())
        self.graph, self.outputs = graph, outputs
        tensors = [t for t in outputs if isinstance(t, torch.Tensor) and t.data_ptr() not in fixed.values()]
        found = [t.untyped_storage()._cdata for t in tensors]
        self.holders = [(data, torch._C._storage_Use_Count(data)) for data in found]

    def fits(self, values: Sequence) -> bool:
        """Whether it can run on these values, and nobody holds its outputs."""
        count = torch._C._storage_Use_Count
        return all(values[k].data_ptr() == at for k, at in self.fixed) and all(
            count(data) == none for data, none in self.holders
        )

    def run(self, values: Sequence) -> list:
        if len(self.copies) == 1:
            self.copies[0].copy_(values[self.places[0]])
        elif self.copies:
            torch._foreach_copy_(self.copies, [values[k] for k in self.places])
        self.graph.replay()
        return [out.detach() if isinstance(out, torch.Tensor) else out for out in self.outputs]


class Replay:
    """Calls `plan(*values)` by graphs. plan: returns a list. updated: tensors that the plan itself changes, which the
    runs before a capture must not. fixed: the places of values that are read where they are, not copied. random: it
    draws random numbers on the GPU, each replay those that a run would."""

    def __init__(
        self,
        plan: Callable[..., list],
        device: torch.device,
        updated: Sequence[torch.Tensor],
        fixed: Sequence[int] = (),
        random: bool = False,
    ) -> None:
        self.plan, self.device, self.updated, self.fixed = plan, device, updated, frozenset(fixed)
        self.random = random
        self.instances: list[_Instance] = []
        self.pool = torch.cuda.graph_pool_handle()
        self.lock = threading.Lock()
        self.stream: torch.cuda.Stream | None = None  # of the last replay
        self.most = MOST

    def __call__(self, values: Sequence) -> list:
        if torch.cuda.is_current_stream_capturing():
            return self.plan(*values)
        with self.lock:
            self._follow()
            for instance in self.instances:
                if instance.fits(values):
                    return instance.run(values)
            if len(self.instances) < self.most:
                made = self._another(values)
                if made is not None:
                    self.instances.append(made)
                    return made.run(values)
        return self.plan(*values)

    def _another(self, values: Sequence) -> _Instance | None:
        """None: there is no memory for one more beside those that run already."""
        try:
            with torch.inference_mode(False), torch.no_grad():  # its memory is for calls in any mode
                return self._capture(values)
        except RuntimeError:
            if not self.instances:
                raise
            self.most = len(self.instances)
            return None

    def _follow(self) -> None:
        """Graphs share memory, so that a replay on another stream waits for those before it."""
        current = torch.cuda.current_stream(self.device)
        if self.stream is None or current.cuda_stream != self.stream.cuda_stream:
            if self.stream is not None:
                current.wait_stream(self.stream)
            self.stream = current

    def _capture(self, values: Sequence) -> _Instance:
        copied = {
            k: torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x)
            for k, x in enumerate(values)
            if k not in self.fixed
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
        return _Instance(copied, {k: values[k].data_ptr() for k in self.fixed}, graph, outputs)
