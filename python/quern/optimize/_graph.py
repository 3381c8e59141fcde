# SPDX-License-Identifier: Apache-2.0
"""The graph of a model as plain data, as the planner takes it: inputs, nodes (an op of PyTorch's with its arguments)
and outputs, each with type, shape and strides. Made from an fx graph of ATen ops; text of JSON."""

from __future__ import annotations

import importlib
import json
import math
import operator
import re
from dataclasses import dataclass, field

import torch

DTYPES = {
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float64: "f64",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "bool",
}
WORDS = {word: dtype for dtype, word in DTYPES.items()}
_NOTHING = ("aten._assert_tensor_metadata.default", "aten._assert_async.msg", "aten._assert_scalar.default")
_KEYWORDS = {
    "and", "as", "assert", "async", "await", "auto", "break", "case", "char", "class", "const", "continue", "def",
    "default", "del", "do", "double", "elif", "else", "enum", "except", "extern", "finally", "float", "for", "from",
    "global", "goto", "if", "import", "in", "inline", "int", "is", "lambda", "long", "nonlocal", "not", "or", "pass",
    "raise", "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch", "try",
    "typedef", "union", "unsigned", "void", "volatile", "while", "with", "yield", "None", "True", "False",
    "torch", "quern", "partial", "memory", "Memory",
}  # fmt: skip


class Unplannable(Exception):
    """A graph that is left as it was. The sentence says why."""


@dataclass(frozen=True)
class Ref:
    """A value of the graph: an input or a node's result. index: which, of a node with several."""

    name: str
    index: int | None = None


@dataclass(frozen=True)
class Meta:
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def record(self) -> dict:
        return {"dtype": self.dtype, "shape": list(self.shape), "strides": list(self.strides)}


@dataclass
class Node:
    name: str
    op: str  # "aten.add.Tensor"
    args: list
    kwargs: dict
    results: list[Meta]
    several: bool = False  # results are a tuple or a list, even if it has one
    kept: bool = False  # PyTorch's op, even if a kernel could compute it
    random: bool = False  # it draws random numbers

    def refs(self) -> list[Ref]:
        return refs_of([self.args, list(self.kwargs.values())])


@dataclass
class Graph:
    inputs: dict[str, Meta] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    outputs: list = field(default_factory=list)  # Ref, or a number, a text, None
    updates: list[tuple[str, Ref]] = field(default_factory=list)  # an input (a buffer), and its value after the call
    device: str = "cpu"
    convolutions: str = ""  # "tf32": the planner may write kernels of them
    replayable: bool = True  # a CUDA graph of it draws at each replay the random numbers that its ops would

    @property
    def random(self) -> bool:
        return any(node.random for node in self.nodes)

    def text(self) -> str:
        """As the planner reads it. An output that is one of several results is {"ref": ..., "index": ...}."""
        return json.dumps(
            {
                "device": self.device,
                **({"convolutions": self.convolutions} if self.convolutions else {}),
                "inputs": [{"name": name, **meta.record()} for name, meta in self.inputs.items()],
                "nodes": [_node_record(node) for node in self.nodes],
                "outputs": [out.name if out.index is None else _plain(out) for out in self.wanted()],
            },
            separators=(",", ":"),
        )

    def wanted(self) -> list[Ref]:
        """The values that must be there at the end, each once."""
        return list(dict.fromkeys([*refs_of(self.outputs), *(new for _, new in self.updates)]))

    def meta(self, ref: Ref) -> Meta:
        if ref.name in self.inputs:
            return self.inputs[ref.name]
        node = next(node for node in self.nodes if node.name == ref.name)
        return node.results[ref.index or 0]


def refs_of(value) -> list[Ref]:
    if isinstance(value, Ref):
        return [value]
    return [ref for item in value for ref in refs_of(item)] if isinstance(value, (list, tuple)) else []


def replace(value, change):
    """The value with every Ref in it changed."""
    if isinstance(value, Ref):
        return change(value)
    if isinstance(value, (list, tuple)):
        return [replace(item, change) for item in value]
    return {key: replace(item, change) for key, item in value.items()} if isinstance(value, dict) else value


def _node_record(node: Node) -> dict:
    record: dict = {"name": node.name, "op": node.op, "args": _plain(node.args), "kwargs": _plain(node.kwargs)}
    if node.kept:
        record["extern"] = True
    if node.random:
        record["random"] = True
    if node.several:
        return {**record, "results": [meta.record() for meta in node.results]}
    return {**record, **node.results[0].record()}


def _plain(value):
    """A value of JSON's."""
    if isinstance(value, Ref):
        return {"ref": value.name} if value.index is None else {"ref": value.name, "index": value.index}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, torch.dtype):
        return DTYPES.get(value, str(value))
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value).removeprefix("torch.")


# ---- from fx ----
def meta_of(tensor: torch.Tensor) -> Meta:
    if tensor.layout != torch.strided or tensor.dtype not in DTYPES:
        raise Unplannable(f"a tensor of {str(tensor.dtype).removeprefix('torch.')} in layout {tensor.layout}")
    extents = (*tensor.shape, *tensor.stride())
    if not all(type(extent) is int for extent in extents):
        raise Unplannable("a shape that depends on data or is not fixed")
    return Meta(DTYPES[tensor.dtype], tuple(tensor.shape), tuple(tensor.stride()))


def unique(word: str, taken: set[str]) -> str:
    base = re.sub(r"\W", "_", word)
    base = base.lstrip("_") or "v"  # names with a leading _ are the compiler's
    base = f"v_{base}" if base.startswith(("aten_", "quern_")) or base in _KEYWORDS or base[0].isdigit() else base
    made, k = base, 1
    while made in taken or made in _KEYWORDS:
        made, k = f"{base}_{k}", k + 1
    taken.add(made)
    return made


def from_fx(module: torch.fx.GraphModule, device: str) -> Graph:
    """Unplannable: what the graph has that is not of a plan."""
    graph, values, taken = Graph(device=device), {}, set[str]()
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder":
            if not isinstance(value, torch.Tensor):  # a number, whose value the guards fix
                values[node] = value
                continue
            name = unique(node.name, taken)
            graph.inputs[name], values[node] = meta_of(value), Ref(name)
        elif node.op == "output":
            graph.outputs = list(_values(node.args[0], values))
        elif node.op != "call_function":
            raise Unplannable(f"a graph with {node.op} of {node.target}")
        elif node.target is operator.getitem:
            source, index = values[node.args[0]], node.args[1]
            values[node] = Ref(source.name, index)
        elif str(node.target) == "aten.copy_.default" and _is_input(graph, values[node.args[0]]):
            values[node] = values[node.args[1]]
            graph.updates.append((values[node.args[0]].name, values[node]))
        elif str(node.target) not in _NOTHING:
            graph.nodes.append(_node(node, value, values, taken))
            graph.replayable &= _replays(node)
            values[node] = Ref(graph.nodes[-1].name)
    drop_unused(graph)
    return graph


def _draws(node: torch.fx.Node) -> bool:
    """Whether it draws random numbers. Attention and recurrent nets draw none where their dropout is 0, nor do nets
    that do not train."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    given = _given(node)
    return given.get("train") is not False and given.get("dropout", given.get("dropout_p")) != 0


def _given(node: torch.fx.Node) -> dict:
    """Its arguments by name, defaults too."""
    given = {argument.name: argument.default_value for argument in node.target._schema.arguments}  # type: ignore[union-attr]
    return {**given, **dict(zip(given, node.args)), **node.kwargs}


def _replays(node: torch.fx.Node) -> bool:
    """Attention with dropout, forward and backward, keeps its seed on the host outside of a CUDA graph and on the GPU
    within; recurrent nets keep a state of cuDNN's. What a processor draws would be drawn once."""
    given = _given(node)
    if given.get("dropout", given.get("dropout_p")) not in (None, 0):
        return False
    made = node.meta["val"] if isinstance(node.meta["val"], (list, tuple)) else [node.meta["val"]]
    return not _draws(node) or all(one is None or one.device.type == "cuda" for one in made)


def _is_input(graph: Graph, value) -> bool:
    return isinstance(value, Ref) and value.name in graph.inputs


def _values(value, values: dict):
    if isinstance(value, torch.fx.Node):
        return values[value]
    if isinstance(value, (list, tuple)):
        return [_values(item, values) for item in value]
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        raise Unplannable("a shape that depends on data or is not fixed")
    return value


def _node(node: torch.fx.Node, value, values: dict, taken: set[str]) -> Node:
    if not isinstance(node.target, torch._ops.OpOverload):
        raise Unplannable(f"{node.target} is no op of PyTorch's")
    if node.target._schema.is_mutable:
        raise Unplannable(f"it writes in place ({node.target})")
    several = isinstance(value, (list, tuple))
    results = value if several else [value]
    if not all(isinstance(one, torch.Tensor) or one is None for one in results):
        raise Unplannable(f"{node.target} gives a value that is no tensor")
    metas = [meta_of(one) if one is not None else Meta("f32", (0,), (1,)) for one in results]
    args, kwargs = _values(node.args, values), {key: _values(item, values) for key, item in node.kwargs.items()}
    return Node(unique(node.name, taken), str(node.target), args, kwargs, metas, several, random=_draws(node))


def drop_unused(graph: Graph) -> None:
    """Nodes whose results nobody reads. The graph is functional: drawing random numbers is the only other effect."""
    wanted = {ref.name for ref in graph.wanted()}
    kept = []
    for node in reversed(graph.nodes):
        if node.name in wanted or node.random:
            kept.append(node)
            wanted.update(ref.name for ref in node.refs())
    graph.nodes = kept[::-1]


class Readers:
    """Who reads each value, of a graph as it is now."""

    def __init__(self, graph: Graph) -> None:
        self.wanted = {ref.name for ref in graph.wanted()}
        self.by_name: dict[str, list[tuple[Node, Ref]]] = {}
        for node in graph.nodes:
            for ref in node.refs():
                self.by_name.setdefault(ref.name, []).append((node, ref))

    def of(self, node: Node) -> list[Node]:
        """The nodes that read it; none where something else needs it, or its other results."""
        found = self.by_name.get(node.name, [])
        if node.name in self.wanted or any(ref.index for _, ref in found):
            return []
        return list({id(other): other for other, _ in found}.values())

    def only(self, node: Node, *ops: str) -> Node | None:
        """Its only reader, if that is one of these ops."""
        found = self.of(node)
        return found[0] if len(found) == 1 and found[0].op in ops else None


def target(op: str):
    """The op of a name such as aten.add.Tensor."""
    namespace, name, overload = op.split(".")
    if namespace == "quern":
        importlib.import_module("quern.torch")  # which registers the ops
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)
