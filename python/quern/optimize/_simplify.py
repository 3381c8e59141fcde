# SPDX-License-Identifier: Apache-2.0
"""What taking composite ops apart leaves behind: views that change nothing, and batches of products with one matrix,
which are one product of more rows."""

from __future__ import annotations

import torch

from . import _fold, _graph
from ._graph import Graph, Meta, Node, Ref

# Views that begin where their argument does.
_VIEWS = {f"aten.{name}.default" for name in ("view", "_unsafe_view", "expand", "permute", "alias", "detach", "t")}
_VIEWS |= {"aten.transpose.int", "aten.unsqueeze.default", "aten.squeeze.dim", "aten.squeeze.dims"}
FEW_ROWS = 64  # of a batch's product, up to which a copy of the rows costs less than a product for each batch


def simplify(graph: Graph) -> None:
    products = [node for node in graph.nodes if node.op == "aten.bmm.default"]
    if sum(_one_product(graph, node) for node in products):
        _fold.repropagate(graph)
    wanted = {ref.name for ref in graph.wanted()}
    seen_as: dict[Ref, dict] = {}  # the memory of a value, by how it was seen: what sees it so
    to: dict[Ref, Ref] = {}
    for node in graph.nodes:
        if node.op not in _VIEWS:
            continue
        base, own = node.args[0], node.results[0]
        seen = seen_as.setdefault(Ref(node.name), seen_as.setdefault(base, {_key(graph.meta(base)): base}))
        same = seen.setdefault(_key(own), Ref(node.name))
        if same.name != node.name and (node.name not in wanted or same.name not in {*wanted, *graph.inputs}):
            to[Ref(node.name)] = same
    _fold.redirect(graph, to)
    _graph.drop_unused(graph)


def _key(meta: Meta) -> tuple:
    return meta.dtype, meta.shape, meta.strides


def _one_product(graph: Graph, node: Node) -> bool:
    """(b, m, k) times one (k, n), b times the same, as (b m, k) times it. False: it stays."""
    x, w = (graph.meta(ref) for ref in node.args)
    (b, m, k), n = x.shape, w.shape[2]
    if not (b == 1 or (b > 1 and w.strides[0] == 0)) or 0 in (m, k, n):
        return False
    write = _fold.Writer(graph)
    ref = node.args[0]
    if b > 1 and m > 1 and x.strides[0] != m * x.strides[1]:
        if m > FEW_ROWS:
            return False
        ref = write.add("aten.clone.default", ref, memory_format=torch.contiguous_format, like="rows")
    rows = write.add("aten.view.default", ref, [b * m, k], like="rows")
    product = write.add("aten.mm.default", rows, write.add("aten.select.int", node.args[1], 0, 0), like="product")
    whole = write.add("aten.view.default", product, [b, m, n], like=node.name)
    write.made[-1].results = node.results  # the next product may be of it
    at = graph.nodes.index(node)
    graph.nodes[at : at + 1] = write.made
    _fold.redirect(graph, {Ref(node.name): whole})
    return True
