# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels of plans side by side, before any of them runs."""

from __future__ import annotations

import concurrent.futures
import contextlib
import math
import os
from collections.abc import Sequence
from typing import Any

import torch

from . import _graph, _program
from ._graph import Graph, Ref

MOST_THREADS = 4
MOST_BYTES = 1 << 28  # of a kernel's tensors, which a compile allocates; others are compiled by their first call


def compile_kernels(plans: Sequence[tuple[Graph, dict | None, dict]]) -> None:
    """plans: (graph, plan, kernels by name). What does not compile says so when it is called."""
    device = next((graph.device for graph, _, _ in plans), "cpu")
    wanted: dict[tuple, Any] = {}
    for graph, plan, kernels in plans:
        metas = {Ref(name): meta for name, meta in graph.inputs.items()}
        for node in graph.nodes:
            metas |= {Ref(node.name, k if node.several else None): meta for k, meta in enumerate(node.results)}
        for step in (plan or {}).get("steps", []):
            if step["kind"] != "kernel":
                continue
            inputs = [metas[Ref(one["ref"], one.get("index"))] for one in step["inputs"]]
            if sum(map(_bytes, [*inputs, *map(_program.stored, step["outputs"])])) <= MOST_BYTES:
                wanted.setdefault((_program.definition(step), *inputs), kernels[step["name"]])
            for out in step["outputs"]:
                made = _graph.Meta(out["dtype"], tuple(out["shape"]), tuple(out["strides"]))
                metas[Ref(out["name"], out.get("index"))] = made
    with concurrent.futures.ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as pool:
        for (_, *inputs), kernel in wanted.items():
            pool.submit(_compile, kernel, inputs, device)


def _bytes(meta: _graph.Meta) -> int:
    return math.prod(meta.shape) * _graph.WORDS[meta.dtype].itemsize


def _compile(kernel: Any, metas: list[_graph.Meta], device: str) -> None:
    with contextlib.suppress(Exception):
        inputs = [torch.empty_strided(m.shape, m.strides, dtype=_graph.WORDS[m.dtype], device=device) for m in metas]
        kernel.func.prepare(inputs=inputs, **kernel.keywords)
