# SPDX-License-Identifier: Apache-2.0
"""Recurrent nets of a graph on a GPU as kernels of the plan's: one launch for all layers and directions."""

from __future__ import annotations

import copy
import math

import torch

from .._arrays import is_row_major
from . import _convolutions, _fold, _graph
from ._graph import Graph, Meta, Node, Ref

OWN = ", own recurrent nets"  # behind the name of a plan
OP = "quern.recurrent.default"
CAPABILITY = (9, 0)  # of a GPU whose blocks form clusters, and whose threads hand over registers (sm_90a)
_KINDS = {
    "aten.rnn_tanh.input": "tanh",
    "aten.rnn_relu.input": "relu",
    "aten.lstm.input": "lstm",
    "aten.gru.input": "gru",
}
_NETS = {"tanh": torch.rnn_tanh, "relu": torch.rnn_relu, "lstm": torch.lstm, "gru": torch.gru}
_GATES = {"tanh": 1, "relu": 1, "lstm": 4, "gru": 3}

_library = torch.library.Library("quern", "FRAGMENT")
_library.define(
    "recurrent(Tensor x, Tensor h0, Tensor? c0, Tensor weights, str kind, int hidden, int layers, bool biased, "
    "bool bidirectional, bool batch_first) -> Tensor[]"
)


@torch.library.impl(_library, "recurrent", "CompositeExplicitAutograd")
def _by_pytorch(x, h0, c0, weights, kind, hidden, layers, biased, bidirectional, batch_first):
    """What a plan's kernel is held against: the net whose parameters lie in one tensor, in PyTorch's order."""
    params, at, rows, ways = [], 0, _GATES[kind] * hidden, 2 if bidirectional else 1
    for layer in range(layers):
        shapes = [(rows, hidden * ways if layer else x.shape[-1]), (rows, hidden), *([(rows,)] * 2 if biased else [])]
        for shape in shapes * ways:
            n = torch.Size(shape).numel()
            params.append(weights[at : at + n].view(shape))
            at += n
    hx = [h0, c0] if kind == "lstm" else h0
    return list(_NETS[kind](x, hx, params, biased, layers, 0.0, False, bidirectional, batch_first))


def variants(graph: Graph) -> list[tuple[str, Graph]]:
    """(what a report calls it, the graph) where PyTorch's switch allows TF32, of which the kernels' products are the
    better: of operands that are two bf16 each."""
    made = copy.deepcopy(graph)
    found = [node for node in made.nodes if _is_net(made, node)]
    if not found or graph.device != "cuda" or not _convolutions.allows_tf32():
        return []
    if torch.cuda.get_device_capability() != CAPABILITY:
        return []
    for node in found:
        _pack(made, node)
    return [(OWN, made)]


def _is_net(graph: Graph, node: Node) -> bool:
    """A net of f32 tensors without a projection or dropout."""
    if node.op not in _KINDS or node.random or node.kwargs:
        return False
    x, _, params, biased, layers, _, _, bidirectional, _ = node.args
    metas = [graph.meta(ref) for ref in params]
    whole = len(params) == layers * (4 if biased else 2) * (2 if bidirectional else 1)
    if _shapes(graph, node) != [meta.shape for meta in node.results[1:]]:
        # PyTorch before 2.13 describes an LSTM's states with four dimensions, and all that is made of them.
        whole = whole and not any(ref.name == node.name and ref.index for n in graph.nodes for ref in n.refs())
    dense = all(is_row_major(meta.shape, meta.strides) for meta in metas)
    return whole and dense and {meta.dtype for meta in [graph.meta(x), *metas]} == {"f32"}


def _shapes(graph: Graph, node: Node) -> list[tuple[int, ...]]:
    """Of the states, which are those of the states before."""
    return [graph.meta(ref).shape for ref in _graph.refs_of(node.args[1])]


def _pack(graph: Graph, node: Node) -> None:
    """Its parameters in one tensor, which is made once."""
    write = _fold.Writer(graph)

    def add(op: str, n: int, *args) -> Ref:
        made = write.add(op, *args, like=f"{node.name}_weights")
        write.made[-1].results = [Meta("f32", (n,), (1,))]
        return made

    x, state, params, biased, layers, _, _, bidirectional, batch_first = node.args
    for k, shape in enumerate(_shapes(graph, node), 1):
        node.results[k] = Meta("f32", shape, (shape[1] * shape[2], shape[2], 1))
    states = list(state) if isinstance(state, (list, tuple)) else [state, None]
    sizes = [math.prod(graph.meta(ref).shape) for ref in params]
    flat = [add("aten.view.default", n, ref, [n]) for ref, n in zip(params, sizes)]
    weights = add("aten.cat.default", sum(sizes), flat)
    hidden = graph.meta(states[0]).shape[-1]
    kind = _KINDS[node.op]
    node.op, node.args = OP, [x, *states, weights, kind, hidden, layers]
    node.args += [biased, bidirectional, batch_first]
    at = graph.nodes.index(node)
    graph.nodes[at:at] = write.made
