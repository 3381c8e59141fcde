# SPDX-License-Identifier: Apache-2.0
"""Which kernels of a plan are slower than PyTorch's ops for the same nodes: each is timed alone, on the values that it
has in its place."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from . import _fold, _timing
from ._graph import Graph, Node, Ref

APART = 1.1  # times as slow as PyTorch's ops: less may be the measurement


def losers(main: Graph, plan: dict, kernels: dict, values: list) -> list[str]:
    """The nodes of slower kernels, without those of other kernels. kernels: by name; values: of main's inputs. A
    kernel's step gets its time and that of PyTorch's ops."""
    known, took = _measure(main, values)
    lost, won = set[str](), set[str]()
    for step in plan["steps"]:
        if step["kind"] != "kernel":
            continue
        inputs = [known.get(Ref(one["ref"], one.get("index"))) for one in step["inputs"]]
        if any(one is None for one in inputs):  # a part of a node, which is no value of the graph
            won.update(step["nodes"])
            continue
        kernel = kernels[step["name"]]
        own = _timing.fastest(functools.partial(kernel, inputs=inputs), main.device == "cuda")
        theirs = sum(took[name] for name in step["nodes"])
        step["ns"], step["theirs_ns"] = own, theirs
        (lost if own > APART * theirs else won).update(step["nodes"])
    return [node.name for node in main.nodes if node.name in lost - won]


def _measure(main: Graph, values: list) -> tuple[dict[Ref, torch.Tensor], dict[str, int]]:
    """Each value of the graph, and the time of each of its nodes."""
    known = {Ref(name): value for name, value in zip(main.inputs, values)}
    took: dict[str, int] = {}

    def record(node: Node, value, run: Callable) -> None:
        took[node.name] = _timing.fastest(run, main.device == "cuda")
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
