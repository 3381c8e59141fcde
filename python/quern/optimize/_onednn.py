# SPDX-License-Identifier: Apache-2.0
"""Convolutions of a graph on a processor, whose filters are laid once as oneDNN reads them: PyTorch's own op lays them
at each call. Activations stay outside of the call: oneDNN's ReLU makes a number of NaN."""

from __future__ import annotations

import copy

import torch

from . import _fold
from ._graph import Graph, Node

LAID = ", filters laid once"  # behind the name of a plan


def variants(graph: Graph, constants: list[str]) -> list[tuple[str, Graph]]:
    """(what a report calls it, the graph), where the filter of a convolution in channels_last is a constant."""
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_convolution_pointwise"):
        return []
    known, made = _fold.constant_names(graph, constants), copy.deepcopy(graph)
    found = [node for node in made.nodes if node.op == "aten.convolution.default" and _fits(made, node, known)]
    for node in found:
        _lay(made, node)
    return [(LAID, made)] if found else []


def _fits(graph: Graph, node: Node, known: set[str]) -> bool:
    """Such a call takes and gives channels_last."""
    x, result = graph.meta(node.args[0]), node.results[0]
    if len(x.shape) not in _fold.LAST or result.dtype != "f32" or node.args[1].name not in known:
        return False
    layout = _fold.LAST[len(x.shape)]
    given = torch.empty_strided(x.shape, x.strides, device="meta")
    made = torch.empty(result.shape, device="meta").to(memory_format=layout)
    return given.is_contiguous(memory_format=layout) and made.stride() == result.strides


def _lay(graph: Graph, node: Node) -> None:
    write = _fold.Writer(graph)
    x, w, bias, stride, padding, dilation, transposed, more, groups = node.args
    size = list(graph.meta(x).shape)
    stride, padding, dilation, more = (
        list(values) * (len(size) - 2 if len(values) == 1 else 1) for values in (stride, padding, dilation, more)
    )
    sides = [padding, *([more] if transposed else []), stride, dilation, groups]
    kind = "convolution_transpose" if transposed else "convolution"
    laid = write.add(f"mkldnn._reorder_{kind}_weight.default", w, *sides, size, like=f"{w.name}_laid")
    write.made[-1].results = [graph.meta(w)]  # its extents; no strides describe its layout
    node.op, node.args = f"mkldnn._{kind}_pointwise.default", [x, laid, bias, *sides, "none", [], ""]
    at = graph.nodes.index(node)
    graph.nodes[at:at] = write.made


__all__ = ["LAID", "variants"]
