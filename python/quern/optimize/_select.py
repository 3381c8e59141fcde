# SPDX-License-Identifier: Apache-2.0
"""Which kernels of a plan are slower than PyTorch's ops for the same nodes: each is timed alone, on the values that it
has in its place."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from . import _fold, _graph, _program, _timing
from ._graph import Graph, Node, Ref

APART = 1.1  # times as slow as PyTorch's ops: less may be the measurement


def losers(main: Graph, plan: dict, kernels: dict, values: list, times: dict[str, int]) -> list[str]:
    """The nodes of slower kernels, without those of other kernels. kernels: by name; values: of main's inputs; times:
    what was timed before, which is not timed again. A kernel's step gets its time and that of PyTorch's ops."""
    cuda = main.device == "cuda"

    def fastest(run: Callable, *what) -> int:
        key = repr(what)
        if key not in times:
            times[key] = _timing.fastest(run, cuda)
        return times[key]

    known, took = _measure(main, values, fastest)
    lost, won = set[str](), set[str]()
    for step in plan["steps"]:
        if step["kind"] != "kernel":
            continue
        refs = [Ref(one["ref"], one.get("index")) for one in step["inputs"]]
        inputs = [known.get(ref) for ref in refs]
        if any(one is None for one in inputs):  # a part of a node, which is no value of the graph
            won.update(step["nodes"])
            continue
        kernel = kernels[step["name"]]
        own = fastest(functools.partial(kernel, inputs=inputs), _program.definition(step), *map(main.meta, refs))
        theirs = sum(took[name] for name in step["nodes"])
        step["ns"], step["theirs_ns"] = own, theirs
        (lost if own > APART * theirs else won).update(step["nodes"])
    return [node.name for node in main.nodes if node.name in lost - won]


def _measure(main: Graph, values: list, fastest: Callable) -> tuple[dict[Ref, torch.Tensor], dict[str, int]]:
    """Each value of the graph, and the time of each of its nodes."""
    known = {Ref(name): value for name, value in zip(main.inputs, values)}
    took: dict[str, int] = {}

    def record(node: Node, value, run: Callable) -> None:
        took[node.name] = fastest(run, node.op, *_graph.replace((node.args, node.kwargs), main.meta))
        if node.several:
            known.update({Ref(node.name, k): one for k, one in enumerate(value)})
        else:
            known[Ref(node.name)] = value

    guesses, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True  # or cuDNN's fastest
    try:
        _fold.evaluate(main, dict(zip(main.inputs, values)), record)
    finally:
        torch.backends.cudnn.benchmark = guesses
    return known, took
