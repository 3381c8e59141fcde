# SPDX-License-Identifier: Apache-2.0
"""Convolutions of a graph on a GPU: as calls of cuDNN's own entries in PyTorch (its fastest algorithm by measurement
instead of its guess, the bias left to the kernel that follows, several of one tensor in one call, and a sum and ReLU
behind it in the same call), or as kernels of the plan's in tf32 (of each channel alone: in float32)."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterable

import torch

from . import _fold, _graph, _onednn
from ._graph import Graph, Node, Ref

OWN = ", own convolutions"  # behind the name of a plan
_TYPES = ("f32", "f16", "bf16")


def variants(graph: Graph, constants: list[str]) -> list[tuple[str, Graph]]:
    """(what a report calls it, the graph) of each way that differs from the graph itself."""
    if graph.device == "cpu":
        return _onednn.variants(graph, constants)
    found = [node for node in graph.nodes if _is_cudnn(graph, node)]
    if not found:
        return []
    measured = copy.deepcopy(graph)
    for node in found:
        _measure(measured, node.name)
    made = [(", convolutions measured", measured)]
    together = copy.deepcopy(graph)
    if _put_together(together, constants):
        for node in [node for node in together.nodes if _is_cudnn(together, node)]:
            _measure(together, node.name)
        made.append((", convolutions together", together))
    joined = copy.deepcopy(graph)
    if sum(_join(joined, node.name) for node in found):
        made.append((", ReLU in convolutions", joined))
    if allows_tf32() and any(node.results[0].dtype == "f32" for node in found):
        made.append((OWN, own(graph)))
    return made


def own(graph: Graph, lost: Iterable[str] = ()) -> Graph:
    """The graph with kernels of the plan's for its convolutions in float32, but cuDNN's fastest for these nodes."""
    made = copy.deepcopy(graph)
    made.convolutions = "tf32"
    for node in [node for node in made.nodes if _is_cudnn(made, node)]:
        if node.name in lost:
            _measure(made, node.name)
        elif node.results[0].dtype == "f32":
            _lay_filter(made, node)
    return made


def _lay_filter(graph: Graph, node: Node) -> None:
    """The filter, of the same shape, in memory as the kernel reads it: elements, channels of the input, channels of the
    result."""
    write, w = _fold.Writer(graph), node.args[1]
    meta = graph.meta(w)
    order = [*range(2, len(meta.shape)), *((0, 1) if node.args[6] else (1, 0))]

    def add(op: str, ref: Ref, shape: list[int], strides: list[int], *args, **kwargs) -> Ref:
        made = write.add(op, ref, *args, like=f"{w.name}_laid", **kwargs)
        write.made[-1].results = [_graph.Meta(meta.dtype, tuple(shape), tuple(strides))]
        return made

    shape = [meta.shape[d] for d in order]
    dense = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
    turned = add("aten.permute.default", w, shape, [meta.strides[d] for d in order], order)
    laid = add("aten.clone.default", turned, shape, dense, memory_format=torch.contiguous_format)
    back = [order.index(d) for d in range(len(order))]
    node.args[1] = add("aten.permute.default", laid, list(meta.shape), [dense[k] for k in back], back)
    at = graph.nodes.index(node)
    graph.nodes[at:at] = write.made


def _is_cudnn(graph: Graph, node: Node) -> bool:
    if node.op != "aten.convolution.default" or node.results[0].dtype not in _TYPES:
        return False
    shapes = [graph.meta(ref).shape for ref in node.args[:2]] + [node.results[0].shape]
    return len(shapes[0]) in (3, 4, 5) and 0 not in itertools.chain(*shapes)


def allows_tf32() -> bool:
    """PyTorch's switch for convolutions, on unless it was changed."""
    try:
        return torch._C._get_cudnn_allow_tf32()
    except RuntimeError:  # PyTorch 2.9's own switches were used
        return torch.backends.cudnn.conv.fp32_precision == "tf32"


class _Call:
    """A convolution's arguments in cuDNN's order; one dimension becomes two, as PyTorch has it."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self.graph, self.node, self.write = graph, node, _fold.Writer(graph)
        x, w, self.bias, stride, padding, dilation, self.transposed, more, self.groups = node.args
        self.rank = len(graph.meta(x).shape) - 2
        self.flat = self.rank == 1
        self.stride, self.padding, self.dilation, self.more = (
            ([one] if self.flat else []) + list(values) * (self.rank if len(values) == 1 else 1)
            for one, values in ((1, stride), (0, padding), (1, dilation), (0, more))
        )
        self.x, self.w = (self.raised(ref) for ref in (x, w))

    def add(self, op: str, *args, like: Ref | None = None, **kwargs) -> Ref:
        """Of the shape of the node's result, or of `like`'s with a dimension more."""
        ref = self.write.add(op, *args, like=self.node.name, **kwargs)
        meta = self.node.results[0] if like is None else self.graph.meta(like)
        self.write.made[-1].results = [_raised(meta) if like is not None else meta]
        return ref

    def raised(self, ref: Ref) -> Ref:
        return self.add("aten.unsqueeze.default", ref, 2, like=ref) if self.flat else ref

    def lowered(self, ref: Ref) -> Ref:
        if not self.flat:
            return ref
        self.write.made[-1].results = [_raised(self.node.results[0])]
        return self.add("aten.squeeze.dim", ref, 2)

    def with_bias(self, ref: Ref) -> Ref:
        if self.bias is None:
            return ref
        shape = [-1] + [1] * self.rank
        view = self.write.add("aten.view.default", self.bias, shape, like=self.node.name)
        n = self.graph.meta(self.bias).shape[0]
        self.write.made[-1].results = [_graph.Meta(self.node.results[0].dtype, (n, *shape[1:]), (1,) * len(shape))]
        return self.add("aten.add.Tensor", ref, view)

    def part_of(self, whole: Ref, start: int) -> Ref:
        """The channels from `start` on of the result of several convolutions."""
        meta = self.node.results[0]
        part = self.write.add("aten.slice.Tensor", whole, 1, start, start + meta.shape[1], like=self.node.name)
        self.write.made[-1].results = [_graph.Meta(meta.dtype, meta.shape, self.graph.meta(whole).strides)]
        return self.with_bias(part) if self.bias is not None else self.add("aten.clone.default", part)

    def put(self, result: Ref, place: Node) -> None:
        """The result in the place of a node's."""
        at = self.graph.nodes.index(place)
        self.graph.nodes[at:at] = self.write.made
        _fold.redirect(self.graph, {Ref(place.name): result})
        _graph.drop_unused(self.graph)


def _raised(meta: _graph.Meta) -> _graph.Meta:
    shape, strides = meta.shape, meta.strides
    return _graph.Meta(meta.dtype, (*shape[:2], 1, *shape[2:]), (*strides[:2], strides[2] * shape[2], *strides[2:]))


def _node(graph: Graph, name: str) -> Node:
    return next(node for node in graph.nodes if node.name == name)


def _measure(graph: Graph, name: str) -> None:
    node = _node(graph, name)
    call = _Call(graph, node)
    how = [True, torch.backends.cudnn.deterministic or torch.are_deterministic_algorithms_enabled(), allows_tf32()]
    if call.transposed:
        sides = [call.padding, call.more, call.stride, call.dilation, call.groups]
        made = call.add("aten.cudnn_convolution_transpose.default", call.x, call.w, *sides, *how)
    else:
        sides = [call.padding, call.stride, call.dilation, call.groups]
        made = call.add("aten.cudnn_convolution.default", call.x, call.w, *sides, *how)
    call.put(call.with_bias(call.lowered(made)), node)


def _put_together(graph: Graph, constants: list[str]) -> bool:
    """Whether convolutions of one tensor became one, whose channels are those of all: the tensor is read once."""
    known = {*graph.inputs, *_fold.constant_names(graph, constants)}
    several = [nodes for nodes in _alike(graph, known) if len(nodes) > 1]
    if several:
        graph.nodes.sort(key=lambda node: node.name not in known)  # what makes the filters is before all of them
    for nodes in several:
        first, write, filters = nodes[0], _fold.Writer(graph), [node.args[1] for node in nodes]
        n = sum(graph.meta(ref).shape[0] for ref in filters)
        joined = write.add("aten.cat.default", filters, 0, like="filters")
        write.made[-1].results = [_widened(graph.meta(filters[0]), 0, n)]
        whole = write.add("aten.convolution.default", first.args[0], joined, None, *first.args[3:], like="convolutions")
        write.made[-1].results = [_widened(first.results[0], 1, n)]
        at, start = graph.nodes.index(first), 0
        graph.nodes[at:at] = write.made
        for node in nodes:
            call = _Call(graph, node)
            call.put(call.part_of(whole, start), node)
            start += node.results[0].shape[1]
    return bool(several)


def _alike(graph: Graph, known: set[str]) -> Iterable[list[Node]]:
    """Convolutions that differ in their filters' numbers and channels alone, which are known beforehand."""
    found: dict[tuple, list[Node]] = {}
    for node in graph.nodes:
        if not _is_cudnn(graph, node) or node.args[6] or node.args[8] != 1:
            continue
        if all(ref.name in known for ref in _graph.refs_of(node.args[1:3])):
            w = graph.meta(node.args[1])
            found.setdefault((node.args[0], repr(node.args[3:]), w.shape[1:], w.dtype), []).append(node)
    return found.values()


def _widened(meta: _graph.Meta, dim: int, extent: int) -> _graph.Meta:
    """With another extent, laid in the same order."""
    shape, strides, step = list(meta.shape), list(meta.strides), 1
    shape[dim] = extent
    for d in sorted(range(len(shape)), key=lambda d: (meta.strides[d], -d)):
        strides[d], step = step, step * shape[d]
    return _graph.Meta(meta.dtype, tuple(shape), tuple(strides))


def _join(graph: Graph, name: str) -> bool:
    """Whether a ReLU is behind the convolution, or a sum and a ReLU."""
    node, readers = _node(graph, name), _graph.Readers(graph)
    behind, other = readers.only(node, "aten.relu.default", "aten.add.Tensor"), None
    if behind is not None and behind.op == "aten.add.Tensor" and not behind.kwargs:
        rest = [arg for arg in behind.args if arg != Ref(name)]
        if len(rest) == 1 and isinstance(rest[0], Ref) and graph.meta(rest[0]) == node.results[0]:
            other, behind = rest[0], readers.only(behind, "aten.relu.default")
    if behind is None or behind.op != "aten.relu.default" or node.args[6]:
        return False
    call = _Call(graph, node)
    sides = [call.stride, call.padding, call.dilation, call.groups]
    if other is None:
        made = call.add("aten.cudnn_convolution_relu.default", call.x, call.w, call.bias, *sides)
    else:
        z = call.raised(other)
        made = call.add("aten.cudnn_convolution_add_relu.default", call.x, call.w, z, 1, call.bias, *sides)
    call.put(call.lowered(made), behind)
    return True
