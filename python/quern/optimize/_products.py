# SPDX-License-Identifier: Apache-2.0
"""Matrix products of a graph, each with what follows it: biases, a clamp, an activation and a norm become calls of the
op gemm_norm."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import torch

from .._arrays import is_row_major
from .._ops import op
from . import _fold, _graph
from ._graph import Graph, Node, Ref, Unplannable

_ACTIVATIONS = {"aten.relu.default": "relu", "aten.sigmoid.default": "sigmoid", "aten.tanh.default": "tanh"}
_GELU = {"none": "gelu", "tanh": "gelu_tanh"}


def precisions(graph: Graph) -> list[str]:
    """Classes of products that may take the place of PyTorch's. Which of them are as exact is found by measurement."""
    types = {node.results[0].dtype for node in graph.nodes if _is_product(graph, node)}
    if types == {"bf16"}:
        return ["bf16"]
    if types != {"f32"}:
        return []
    if graph.device == "cpu":
        return ["fp32"]
    tf32 = ["tf32"] if torch.backends.cuda.matmul.allow_tf32 else []
    return ["fp32", "tf32x3", "f16x3", "bf16x3", *tf32]


def fuse(graph: Graph, precision: str) -> Graph:
    """The same graph with its products as calls of gemm_norm. Unplannable: it has none."""
    made = copy.deepcopy(graph)
    products = [node for node in made.nodes if _is_product(made, node)]
    if not products:
        raise Unplannable("no product of two matrices")
    for node in products:
        _Product(made, node, precision).write()
    _graph.drop_unused(made)
    _fold.repropagate(made)
    return made


def variants(graph: Graph) -> dict[str, Graph]:
    """The same graph with its products in each class that may take the place of PyTorch's."""
    made: dict[str, Graph] = {}
    own = {node.name for node in graph.nodes}  # whose classes are the model's choice
    for word in precisions(graph):
        if not made:
            made[word] = fuse(graph, word)
            continue
        made[word] = copy.deepcopy(next(iter(made.values())))
        for node in made[word].nodes:
            if node.op == "quern.gemm_norm.default" and node.name not in own:
                node.kwargs["precision"] = word
    return made


def _is_product(graph: Graph, node: Node) -> bool:
    if node.op not in ("aten.mm.default", "aten.addmm.default") or node.kwargs:
        return False
    out = node.results[0]
    whole = 0 not in graph.meta(node.args[-2]).shape and 0 not in out.shape
    bias = node.op == "aten.mm.default" or graph.meta(node.args[0]).shape == out.shape[1:]
    return whole and bias and out.dtype in ("f32", "bf16")


@dataclass
class _Product:
    """A product and the nodes behind it, as far as one call computes them. `value`: what it has reached."""

    graph: Graph
    node: Node
    precision: str
    biases: list[Ref] = field(default_factory=list)
    affine: list[Ref | None] = field(default_factory=lambda: [None, None])
    settings: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.columns = self.node.results[0].shape[1]
        self.readers = _graph.Readers(self.graph)  # of the graph as it is until `write` changes it
        self.value = self.node
        self.biases += self.node.args[:-2]
        self.settings = {"clamp": False, "activation": "none", "norm": "none", "precision": self.precision}

    # ---- what follows ----
    def is_vector(self, ref) -> bool:
        return isinstance(ref, Ref) and self.graph.meta(ref).shape == (self.columns,)

    def skip_view(self) -> None:
        view = self.readers.only(self.value, "aten.view.default", "aten._unsafe_view.default")
        if view is not None and view.results[0].shape[-1:] == (self.columns,):
            self.value = view

    def take_bias(self) -> bool:
        add = self.readers.only(self.value, "aten.add.Tensor")
        if add is None or add.kwargs or len(self.biases) == 2:
            return False
        other = [arg for arg in add.args if arg != Ref(self.value.name)]
        if len(other) != 1 or not self.is_vector(other[0]):
            return False
        self.biases.append(other[0])
        self.value = add
        return True

    def take_clamp(self) -> None:
        clamp = self.readers.only(self.value, "aten.hardtanh.default", "aten.clamp.default")
        if clamp is None:
            return
        default = [-1.0, 1.0] if clamp.op == "aten.hardtanh.default" else []
        bounds = [*clamp.args[1:], *default[len(clamp.args) - 1 :]]
        if clamp.kwargs or len(bounds) != 2 or not all(isinstance(b, (int, float)) for b in bounds):
            return
        if bounds[0] <= bounds[1]:
            self.settings |= {"clamp": True, "lo": float(bounds[0]), "hi": float(bounds[1])}
            self.value = clamp

    def take_activation(self) -> None:
        found = self.readers.only(self.value, *_ACTIVATIONS, "aten.gelu.default")
        if found is not None:
            gelu = found.op == "aten.gelu.default"
            word = _GELU[found.kwargs.get("approximate", "none")] if gelu else _ACTIVATIONS[found.op]
        else:
            silu = self.silu()
            found, word = (silu, "silu") if silu else (self.mish(), "mish")
        if found is not None:
            self.settings["activation"], self.value = word, found

    def by_op(self, *ops: str) -> dict[str, Node] | None:
        """The nodes that read the value, if they are one of each of these ops."""
        readers = self.readers.of(self.value)
        found = {node.op: node for node in readers}
        return found if len(readers) == len(ops) and found.keys() == set(ops) else None

    def silu(self) -> Node | None:
        """value * sigmoid(value)"""
        found = self.by_op("aten.mul.Tensor", "aten.sigmoid.default")
        return self.times(found["aten.mul.Tensor"], found["aten.sigmoid.default"]) if found else None

    def mish(self) -> Node | None:
        """value * tanh(softplus(value))"""
        found = self.by_op("aten.mul.Tensor", "aten.exp.default", "aten.gt.Scalar", "aten.where.self")
        if found is None:
            return None
        above, softplus = found["aten.gt.Scalar"], found["aten.where.self"]
        log, gate = (
            self.readers.only(found["aten.exp.default"], "aten.log1p.default"),
            self.readers.only(softplus, "aten.tanh.default"),
        )
        if log is None or gate is None or above.args[1] != 20:
            return None
        if self.readers.only(above, softplus.op) is None or self.readers.only(log, softplus.op) is None:
            return None
        if softplus.args != [Ref(above.name), Ref(self.value.name), Ref(log.name)]:
            return None
        return self.times(found["aten.mul.Tensor"], gate)

    def times(self, product: Node, gate: Node) -> Node | None:
        """The product, if it is of the value and the gate, which nothing else reads."""
        factors = ([Ref(self.value.name), Ref(gate.name)], [Ref(gate.name), Ref(self.value.name)])
        return product if self.readers.only(gate, product.op) is product and product.args in factors else None

    def take_norm(self) -> None:
        norm = self.readers.only(self.value, "aten.native_layer_norm.default", "aten.native_group_norm.default")
        if norm is None:
            self.take_rms()
            return
        if norm.op == "aten.native_layer_norm.default":
            shape, gamma, beta, eps = norm.args[1:]
            fits, groups, kind = list(shape) == [self.columns], 1, "layer"
        else:
            gamma, beta, n, c, inside, groups, eps = norm.args[1:]
            fits, kind = (n, c, inside) == (*self.node.results[0].shape, 1), "group"
        readers = [ref.index for _, ref in self.readers.by_name.get(norm.name, [])]
        readers += [ref.index for ref in self.graph.wanted() if ref.name == norm.name]
        if fits and not any(readers) and all(one is None or self.is_vector(one) for one in (gamma, beta)):
            self.settings |= {"norm": kind, "groups": groups, "eps": float(eps)}
            self.affine, self.value = [gamma, beta], norm

    def take_rms(self) -> None:
        """value * rsqrt(mean(value^2) + eps), as rms_norm is taken apart."""
        found = self.by_op("aten.pow.Tensor_Scalar", "aten.mul.Tensor")
        if found is None or found["aten.pow.Tensor_Scalar"].args[1] != 2:
            return
        square, product = found["aten.pow.Tensor_Scalar"], found["aten.mul.Tensor"]
        mean = self.readers.only(square, "aten.mean.dim")
        eps = self.readers.only(mean, "aten.add.Scalar") if mean is not None and not mean.kwargs else None
        root = self.readers.only(eps, "aten.rsqrt.default") if eps is not None and not eps.kwargs else None
        last = len(self.value.results[0].shape) - 1
        if mean is None or eps is None or root is None or self.readers.only(root, "aten.mul.Tensor") is not product:
            return
        if mean.args[1:] not in ([[last], True], [[-1], True]):
            return
        self.settings |= {"norm": "rms", "eps": float(eps.args[1])}
        self.value = product
        scale = self.readers.only(product, "aten.mul.Tensor")
        gamma = [arg for arg in scale.args if arg != Ref(product.name)] if scale is not None else []
        if scale is not None and len(gamma) == 1 and self.is_vector(gamma[0]):
            self.affine, self.value = [gamma[0], None], scale

    # ---- the call ----
    def write(self) -> None:
        self.skip_view()
        while self.take_bias():
            pass
        self.take_clamp()
        self.take_activation()
        self.take_norm()
        graph, write = self.graph, _fold.Writer(self.graph)
        x, w = self.node.args[-2:]
        x, w = self.dense(write, x), self.transposed(write, w)
        vectors = [self.single(write, one) for one in [*self.biases, None, None][:2] + self.affine]
        settings = {name: param.default for name, param in op("gemm_norm").params.items()} | self.settings
        made = write.add("quern.gemm_norm.default", x, w, *vectors, like="product", **settings)
        shape = self.value.results[0].shape
        if shape != self.node.results[0].shape:
            made = write.add("aten.view.default", made, list(shape), like="product")
        at = graph.nodes.index(self.value)
        graph.nodes[at:at] = write.made
        several = Ref(self.value.name, 0) if self.value.several else Ref(self.value.name)
        _fold.redirect(graph, {several: made})

    def dense(self, write: _fold.Writer, ref: Ref) -> Ref:
        meta = self.graph.meta(ref)
        return ref if is_row_major(meta.shape, meta.strides) else self.copied(write, ref)

    def transposed(self, write: _fold.Writer, ref: Ref) -> Ref:
        """Of (k, n): (n, k), row-major."""
        meta, turned = self.graph.meta(ref), write.add("aten.permute.default", ref, [1, 0])
        return turned if is_row_major(meta.shape[::-1], meta.strides[::-1]) else self.copied(write, turned)

    @staticmethod
    def copied(write: _fold.Writer, ref: Ref) -> Ref:
        return write.add("aten.clone.default", ref, memory_format=torch.contiguous_format)

    def single(self, write: _fold.Writer, ref: Ref | None) -> Ref | None:
        """In float32, row-major."""
        if ref is None:
            return None
        if self.graph.meta(ref).dtype != "f32":
            return write.add("aten._to_copy.default", ref, dtype=torch.float32)
        return self.dense(write, ref)
