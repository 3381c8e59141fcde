# SPDX-License-Identifier: Apache-2.0
"""Changes of a graph that keep what it computes: BatchNorm of a model in eval mode goes into the weights before it,
work on constants alone is done once, and a net of convolutions runs in channels_last."""

from __future__ import annotations

import copy
import functools
from collections.abc import Container

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from . import _graph, runtime
from ._graph import Graph, Meta, Node, Ref, Unplannable

_NORM = "aten._native_batch_norm_legit_no_training.default"
_PRODUCTS = ("aten.convolution.default", "aten.addmm.default")
CREATE = ("aten.full.default", "aten.scalar_tensor.default", "aten.arange.start_step", "aten.empty.memory_format")
INSTEAD = {"aten.native_group_norm.default": runtime.group_norm}  # functions that take the place of PyTorch's ops


def evaluate(graph: Graph, values: dict, seen=lambda node, value, run: None, wide: bool = False) -> list:
    """The graph's wanted values, from its inputs' values by name. seen: of each node, with what computes it again.
    wide: the values are in float64, and what draws random numbers works in the graph's own types, so that it draws the
    graph's numbers."""
    values = dict(values)

    def look(ref: Ref):
        value = values[ref.name]
        return value if ref.index is None else value[ref.index]

    def narrow(ref: Ref):
        return look(ref).to(_graph.WORDS[graph.meta(ref).dtype])

    for node in graph.nodes:
        of = narrow if wide and node.random else look
        args, kwargs = _graph.replace(node.args, of), _graph.replace(node.kwargs, of)
        run = functools.partial(INSTEAD.get(node.op) or _graph.target(node.op), *args, **kwargs)
        value = run()
        values[node.name] = value = pytree.tree_map(widened, value) if wide and node.random else value
        seen(node, value, run)
    return [look(ref) for ref in graph.wanted()]


def widened(value):
    """In float64, if it is a tensor of real numbers."""
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def repropagate(graph: Graph) -> None:
    """Types, shapes and strides of the nodes anew, from those of the inputs."""

    def record(node: Node, value, run) -> None:
        results = value if isinstance(value, (list, tuple)) else [value]
        node.results = [_graph.meta_of(one) if one is not None else Meta("f32", (0,), (1,)) for one in results]

    with FakeTensorMode(), torch.no_grad():
        made = {
            name: torch.empty_strided(m.shape, m.strides, dtype=_graph.WORDS[m.dtype], device=graph.device)
            for name, m in graph.inputs.items()
        }
        evaluate(graph, made, record)


def is_view(node: Node) -> bool:
    """Whether its result may share memory with its first argument."""
    returns = _graph.target(node.op)._schema.returns
    return bool(returns) and returns[0].alias_info is not None


def is_of_input(nodes: list[Node], name: str) -> bool:
    """Whether a value may share memory with one that none of the nodes makes."""
    by_name = {node.name: node for node in nodes}
    while name in by_name:
        if not is_view(by_name[name]):
            return False
        name = by_name[name].args[0].name
    return True


def constant_names(graph: Graph, constants: list[str]) -> set[str]:
    """Values that depend on constants alone."""
    known = set(constants)
    for node in graph.nodes:
        if all(ref.name in known for ref in node.refs()):
            known.add(node.name)
    return known


class Writer:
    """New nodes of a graph, in order."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.taken = {*graph.inputs, *(node.name for node in graph.nodes)}
        self.made: list[Node] = []

    def add(self, op: str, *args, like: str = "folded", **kwargs) -> Ref:
        name = _graph.unique(like, self.taken)
        self.made.append(Node(name, op, list(args), kwargs, [Meta("f32", (0,), (1,))]))
        return Ref(name)


# ---- BatchNorm ----
def fold_norms(graph: Graph, constants: list[str]) -> int:
    """How many BatchNorms went into the weights of the convolution or product before them."""
    known, folded = constant_names(graph, constants), 0
    uses: dict[str, int] = {}
    for ref in [*(r for node in graph.nodes for r in node.refs()), *graph.wanted()]:
        uses[ref.name] = uses.get(ref.name, 0) + 1
    nodes = {node.name: node for node in graph.nodes}
    other_results = {r.name for r in _all_refs(graph) if r.index not in (None, 0)}
    for norm in [node for node in graph.nodes if node.op == _NORM]:
        product = nodes.get(norm.args[0].name)
        if product is None or product.op not in _PRODUCTS or uses[product.name] != 1 or norm.name in other_results:
            continue
        if product.results[0].dtype not in ("f32", "f64") or not _foldable(product, norm, known):
            continue
        _fold_one(graph, product, norm)
        folded += 1
    if folded:
        _graph.drop_unused(graph)
        repropagate(graph)
    return folded


def _all_refs(graph: Graph) -> list[Ref]:
    return [*(ref for node in graph.nodes for ref in node.refs()), *graph.wanted()]


def _foldable(product: Node, norm: Node, known: set[str]) -> bool:
    if not all(ref.name in known for ref in _graph.refs_of(norm.args[1:])):
        return False
    if product.op == "aten.addmm.default":
        weights = [product.args[0], product.args[2]]
        return not product.kwargs and all(ref.name in known for ref in _graph.refs_of(weights))
    transposed, groups = product.args[6], product.args[8]
    if transposed and groups != 1:
        return False
    return all(ref.name in known for ref in _graph.refs_of(product.args[1:3]))


def _fold_one(graph: Graph, product: Node, norm: Node) -> None:
    write = Writer(graph)
    gain, shift, mean, variance, _, eps = norm.args[1:7]
    scale = write.add("aten.rsqrt.default", write.add("aten.add.Scalar", variance, eps))
    if gain is not None:
        scale = write.add("aten.mul.Tensor", scale, gain)
    convolution = product.op == "aten.convolution.default"
    weight, bias = (product.args[1], product.args[2]) if convolution else (product.args[2], product.args[0])
    at = scale
    if convolution:
        shape = [1] * len(graph.meta(weight).shape)
        shape[1 if product.args[6] else 0] = -1
        at = write.add("aten.view.default", scale, shape)
    new_weight = write.add("aten.mul.Tensor", weight, at, like=f"{weight.name}_folded")
    offset = write.add("aten.neg.default", mean) if bias is None else write.add("aten.sub.Tensor", bias, mean)
    new_bias = write.add("aten.mul.Tensor", offset, scale, like=f"{weight.name}_shift")
    if shift is not None:
        new_bias = write.add("aten.add.Tensor", new_bias, shift, like=f"{weight.name}_shift")
    if convolution:
        product.args[1], product.args[2] = new_weight, new_bias
    else:
        product.args[2], product.args[0] = new_weight, new_bias
    graph.nodes[graph.nodes.index(product) : graph.nodes.index(product)] = write.made
    redirect(graph, {Ref(norm.name, 0): Ref(product.name)})


def redirect(graph: Graph, to: dict[Ref, Ref]) -> None:
    def change(ref: Ref) -> Ref:
        return to.get(ref, ref)

    for node in graph.nodes:
        node.args, node.kwargs = _graph.replace(node.args, change), _graph.replace(node.kwargs, change)
    graph.outputs = _graph.replace(graph.outputs, change)
    graph.updates = [(name, change(ref)) for name, ref in graph.updates]


# ---- constants ----
def split(graph: Graph, constants: list[str], users: list) -> tuple[Graph | None, Graph]:
    """(what is computed once from the constants, the rest, which takes its results as inputs before `users`, the
    inputs that are a call's own)."""
    known = constant_names(graph, constants)
    early = [node for node in graph.nodes if node.name in known]
    if not any(node.refs() for node in early):
        return None, graph
    main = Graph(dict(graph.inputs), [], graph.outputs, graph.updates, graph.device, convolutions=graph.convolutions)
    main.nodes = [node for node in graph.nodes if node.name not in known or node.op in CREATE]
    there = {*main.inputs, *(node.name for node in main.nodes)}
    crossing = list(dict.fromkeys(ref for ref in _all_refs(main) if ref.name not in there))
    if not crossing:
        return None, graph
    prepare = Graph({name: graph.inputs[name] for name in constants}, early, list(crossing), [], graph.device)
    _graph.drop_unused(prepare)
    main = copy.deepcopy(main)  # its nodes' arguments change, the graph's do not
    taken, renamed = set(there), {}
    for ref in crossing:
        name = ref.name if ref.index is None else _graph.unique(f"{ref.name}_{ref.index}", taken)
        renamed[ref] = Ref(name)
        main.inputs[name] = graph.meta(ref)
    _own_outputs(main, crossing, early)
    redirect(main, renamed)
    _graph.drop_unused(main)
    used = {ref.name for ref in _all_refs(main)} | {name for name, _ in main.updates}
    names = [*(name for name in main.inputs if name not in users), *(name for name in main.inputs if name in users)]
    main.inputs = {name: main.inputs[name] for name in names if name in used or name in users}
    return prepare, main


def order(main: Graph, prepare: Graph | None, slots: Container[str], users: Container) -> tuple[list[str], list[str]]:
    """What a plan of the rest takes: (those of the slots, inputs that are no call's own, that it takes as they are; the
    call's own); what is computed once stands between them."""
    names = list(main.inputs)
    passed, own = [name for name in names if name in slots], [name for name in names if name in users]
    prepared = [name for name in names if name not in slots and name not in users]
    assert len(prepared) == (len(prepare.outputs) if prepare else 0) and [*passed, *prepared, *own] == names
    return passed, own


def _own_outputs(main: Graph, crossing: list[Ref], early: list[Node]) -> None:
    """An output that was computed once is copied at each call, since the caller may write to it. One that is a view of
    a weight stays one."""
    write, to = Writer(main), {}
    for ref in _graph.refs_of(main.outputs):
        if ref in crossing and ref not in to and not is_of_input(early, ref.name):
            to[ref] = write.add("aten.clone.default", ref, like=f"{ref.name}_out")
            write.made[-1].results = [_meta_among(early, ref)]
    main.outputs = _graph.replace(main.outputs, lambda ref: to.get(ref, ref))
    main.nodes += write.made


def _meta_among(nodes: list[Node], ref: Ref) -> Meta:
    return next(node.results[ref.index or 0] for node in nodes if node.name == ref.name)


# ---- channels_last ----
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def channels_last(graph: Graph, constants: list[str]) -> Graph:
    """The same graph with images, volumes and filters in channels_last. Unplannable: it has nothing to gain."""
    if not any(node.op == "aten.convolution.default" and len(node.results[0].shape) in LAST for node in graph.nodes):
        raise Unplannable("no convolution of images or volumes")
    made = copy.deepcopy(graph)
    write, to = Writer(made), {}
    filters = {node.args[1].name for node in made.nodes if node.op == "aten.convolution.default"}
    images = {ref.name for node in made.nodes for ref in node.refs()} - set(constants)
    for name, meta in made.inputs.items():
        if len(meta.shape) in LAST and name in filters | images and name not in dict(made.updates):
            to[Ref(name)] = write.add("aten.clone.default", Ref(name), like=f"{name}_last",
                                      memory_format=LAST[len(meta.shape)])  # fmt: skip
    redirect(made, to)
    made.outputs, made.nodes = list(graph.outputs), [*write.made, *made.nodes]
    made.outputs = [copy.copy(out) for out in graph.outputs]
    _rearrange_views(made)
    _restore_outputs(made, graph)
    return made


def _rearrange_views(graph: Graph) -> None:
    """A view that channels_last does not allow is one of a row-major copy."""
    for _ in range(len(graph.nodes)):
        try:
            return repropagate(graph)
        except Exception:
            failing = next((node for node in graph.nodes if not _runs(graph, node)), None)
            if failing is None or failing.op != "aten.view.default":
                raise Unplannable("its views need the usual layout") from None
            write = Writer(graph)
            failing.args[0] = write.add("aten.clone.default", failing.args[0], memory_format=torch.contiguous_format)
            at = graph.nodes.index(failing)
            graph.nodes[at:at] = write.made
    return None


def _runs(graph: Graph, node: Node) -> bool:
    upto = Graph(graph.inputs, graph.nodes[: graph.nodes.index(node) + 1], [], [], graph.device)
    try:
        repropagate(upto)
    except Exception:
        return False
    return True


def _restore_outputs(made: Graph, graph: Graph) -> None:
    write, to = Writer(made), {}
    for ref in graph.wanted():
        if made.meta(ref).strides == graph.meta(ref).strides:
            continue
        if not torch.empty_strided(graph.meta(ref).shape, graph.meta(ref).strides, device="meta").is_contiguous():
            raise Unplannable("an output has a layout of its own")
        to[ref] = write.add("aten.clone.default", ref, like=f"{ref.name}_out", memory_format=torch.contiguous_format)
    made.outputs = _graph.replace(made.outputs, lambda ref: to.get(ref, ref))
    made.updates = [(name, to.get(ref, ref)) for name, ref in made.updates]
    made.nodes += write.made
    repropagate(made)
