# SPDX-License-Identifier: Apache-2.0
"""What taking composite ops apart leaves behind: views that change nothing, batches of products with one matrix, which
are one product of more rows, exclusive scans, which are scans of what begins with nothing, and the device of casts."""

from __future__ import annotations

import torch

from . import _fold, _graph
from ._graph import Graph, Meta, Node, Ref

# Views that begin where their argument does.
_VIEWS = {f"aten.{name}.default" for name in ("view", "_unsafe_view", "expand", "permute", "alias", "detach", "t")}
_VIEWS |= {"aten.transpose.int", "aten.unsqueeze.default", "aten.squeeze.dim", "aten.squeeze.dims"}
_NOTHING = {"aten.cumsum.default": 0, "aten.cumprod.default": 1}  # what a scan of it leaves as it is
FEW_ROWS = 64  # of a batch's product, up to which a copy of the rows costs less than a product for each batch


def simplify(graph: Graph) -> None:
    _drop_devices(graph)
    products = [node for node in graph.nodes if node.op == "aten.bmm.default"]
    joined = [node for node in graph.nodes if node.op == "aten.cat.default"]
    if sum([*(_one_product(graph, node) for node in products), *(_one_scan(graph, node) for node in joined)]):
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


def _drop_devices(graph: Graph) -> None:
    """A cast that names its device may be a copy to another one. Where the graph has one device, the name says nothing,
    and is left out."""
    named = [node.kwargs["device"] for node in graph.nodes if node.kwargs.get("device") is not None]
    if any(device.type != graph.device for device in named):
        return
    for node in graph.nodes:
        if node.op == "aten._to_copy.default":
            node.kwargs.pop("device", None)


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


def _one_scan(graph: Graph, node: Node) -> bool:
    """cat(zeros, cumsum(x)) as cumsum(cat(zeros, x)), and products likewise: one kernel then makes all of it. False: it
    stays."""
    parts, dim = node.args[0], node.args[1] if len(node.args) > 1 else 0
    made = {one.name: one for one in graph.nodes}
    first, scan = (made.get(ref.name) for ref in parts) if len(parts) == 2 else (None, None)
    if first is None or scan is None or scan.op not in _NOTHING or _graph.Readers(graph).only(scan, node.op) is None:
        return False
    of, along = graph.meta(scan.args[0]), scan.args[1]
    if scan.name in {ref.name for ref in graph.wanted()} or (along - dim) % len(of.shape):
        return False
    if first.op not in ("aten.full.default", "aten.full_like.default") or first.args[1] != _NOTHING[scan.op]:
        return False
    if not of.dtype == scan.results[0].dtype == first.results[0].dtype:
        return False
    write = _fold.Writer(graph)
    whole = write.add(node.op, [parts[0], scan.args[0]], dim, like=f"{node.name}_whole")
    once = write.add(scan.op, whole, along, like=node.name)
    write.made[-1].results = node.results
    at = graph.nodes.index(node)
    graph.nodes[at : at + 1] = write.made
    graph.nodes.remove(scan)
    _fold.redirect(graph, {Ref(node.name): once})
    return True
