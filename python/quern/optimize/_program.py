# SPDX-License-Identifier: Apache-2.0
"""A plan as Python text: kernels from bodies, and one flat function of their calls and PyTorch's own ops, which lets
go of each value after its last use. The same text runs here and stands in an exported file."""

from __future__ import annotations

import functools
import json
import linecache
import math
import re
from collections.abc import Callable

import torch

from .._arrays import is_row_major
from . import _fold, _graph
from ._graph import Graph, Ref
from ._memory import LEAST

IMPORTS = """import torch
from functools import partial

import quern
from quern.optimize.runtime import Memory
"""


# Ops that torch has as a function of the same name, arguments and meaning, which Python calls faster.
_FUNCTIONS = {
    "abs", "add", "addmm", "amax", "amin", "argmax", "argmin", "baddbmm", "bmm", "cat", "clamp", "convolution", "cos",
    "cumsum", "div", "embedding", "eq", "erf", "exp", "ge", "gt", "le", "log", "log1p", "lt", "maximum", "mean",
    "minimum", "mm", "mul", "native_layer_norm", "ne", "neg", "permute", "pow", "reciprocal",
    "relu", "rsqrt", "sigmoid", "sin", "sqrt", "squeeze", "sub", "sum", "tanh", "unsqueeze", "where", "_log_softmax",
    "_softmax",
}  # fmt: skip


# Ops whose layout is the choice of PyTorch's libraries.
_CHOOSE_LAYOUT = (
    "aten.convolution", "aten._convolution", "aten.upsample_", "aten.avg_pool", "aten.max_pool", "aten.adaptive_",
    "aten._adaptive_", "aten.grid_sampler",
)  # fmt: skip
FIXED = 1 << 16  # the most elements of a tensor that is made once for all calls


class Program:
    """`plan`: of the inputs, returns the list of outputs. `prepare`: of constants, what the plan takes beside them."""

    def __init__(self, text: str, has_prepare: bool, name: str) -> None:
        self.text = text
        self.name = name
        names: dict = {}
        file = f"<quern.optimize {name} {id(self):x}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)  # for tracebacks
        exec(compile(IMPORTS + text, file, "exec"), names)
        self.names = names  # kernels by their steps' names
        self.plan: Callable = names["quern_plan"]
        self.prepare: Callable | None = names["quern_prepare"] if has_prepare else None


def extern_plan(graph: Graph) -> dict:
    """Every node is PyTorch's."""
    return {"steps": [{"kind": "extern", "node": node.name} for node in graph.nodes], "notes": []}


def build(main: Graph, plan: dict, prepare: Graph | None, name: str) -> Program:
    parts = [*_kernels(plan)]
    writers = {"quern_plan": _Writer(main, plan)}
    if prepare is not None:
        writers = {"quern_prepare": _Writer(prepare, extern_plan(prepare)), **writers}
    fixed = {
        name: line for write in writers.values() for name, node in write.fixed.items() for line in write.extern(node)
    }
    parts.append("".join(f"{line}\n" for line in fixed.values()))
    parts += [_function(name, write) for name, write in writers.items()]
    ops = sorted({node.op for graph in (prepare, main) if graph is not None for node in graph.nodes})
    ops += filter(None, map(_into, ops))
    named = [op for op in ops if not _op_name(op).startswith(("torch.", "quern."))]
    used = [op for op in named if any(re.search(rf"\b{_op_name(op)}\(", part) for part in parts)]
    head = "".join(f"{_op_name(op)} = torch.ops.{op}\n" for op in used)
    if any(re.search(r"\bmemory\(", part) for part in parts):
        head += "memory = Memory()\n"
    return Program("\n\n".join(filter(None, [head, *parts])), prepare is not None, name)


# ---- kernels ----
def _kernels(plan: dict):
    """Their definitions; a kernel like an earlier one is that."""
    first: dict[str, str] = {}
    for step in plan["steps"]:
        if step["kind"] == "kernel":
            text = definition(step)
            why = "".join(f"# {line}\n" for line in filter(None, [step.get("why", "")]))
            same = first.setdefault(text, step["name"])
            yield f"{step['name']} = {same}" if same != step["name"] else f"{why}{step['name']} = {text}"


def _quoted(text: str) -> str:
    """A Python literal that reads as the text does."""
    if "\n" in text and '"""' not in text and not text.endswith('"'):
        return '"""\\\n' + text.replace("\\", "\\\\") + '"""'
    return json.dumps(text)


def dtype_text(word: str) -> str:
    return str(_graph.WORDS[word])


def definition(step: dict) -> str:
    """What a kernel step calls: its body, and all of a call but the inputs. Steps that compute alike read alike,
    whatever their numbers, so that a network's repeated blocks, and its plans, share what is compiled and timed."""
    outputs = step["outputs"]
    make = {"metal": "metal_kernel", "cuda": "cuda_kernel"}[step["dialect"]]
    words = [
        f"        {json.dumps(re.sub('^k[0-9]+', 'k', step['name']))},",
        f"        {json.dumps([one['parameter'] for one in step['inputs']])},",
        f"        {json.dumps([out['parameter'] for out in outputs])},",
        f"        {_quoted(step['source'])},",
    ]
    if step.get("header"):
        words.append(f"        header={_quoted(step['header'])},")
    if step.get("strided"):
        words.append(f"        strided={json.dumps(step['strided'])},")
    if step.get("cluster"):
        words.append(f"        cluster={step['cluster']},")
    if step.get("shared_bytes"):
        words.append(f"        shared_memory={step['shared_bytes']},")
    if step.get("math", "safe") != "safe":
        words.append(f"        math={json.dumps(step['math'])},")
    call = [
        f"    output_shapes=[{', '.join(str(stored(out).shape) for out in outputs)}],",
        f"    output_dtypes=[{', '.join(dtype_text(out['dtype']) for out in outputs)}],",
        f"    grid={tuple(step['grid'])},",
    ]
    if any("init" in out for out in outputs):
        call.append(f"    init_value={[out.get('init') for out in outputs]},")
    if step.get("threadgroup"):
        call.append(f"    threadgroup={tuple(step['threadgroup'])},")
    return "\n".join(["partial(", f"    quern.{make}(", *words, "    ),", *call, ")"])


# ---- the function ----
def _op_name(op: str) -> str:
    namespace, name, overload = op.split(".")
    if namespace == "quern":
        return f"quern.torch.{name}"
    if op in _fold.INSTEAD:
        return f"quern.optimize.runtime.{_fold.INSTEAD[op].__name__}"
    if namespace == "aten" and name in _FUNCTIONS and not overload.endswith(("out", "Dimname", "names_dim")):
        return f"torch.{name}"
    base = name if namespace == "aten" else f"{namespace}_{name}"
    return f"aten_{base}" if overload == "default" else f"aten_{base}_{overload}"


@functools.cache
def _into(op: str) -> str | None:
    """The overload of an op with one result that writes into `out`; None where PyTorch has no kernel of it for
    processors, and would compute elsewhere and copy."""
    if not op.startswith("aten."):
        return None
    packet = getattr(torch.ops.aten, op.split(".")[1])
    own = [(a.name, str(a.type)) for a in _graph.target(op)._schema.arguments]
    for name in packet.overloads():
        schema = getattr(packet, name)._schema
        if [(a.name, str(a.type)) for a in schema.arguments] == [*own, ("out", "Tensor")] and name.endswith("out"):
            full = f"{schema.name}.{name}"
            own_kernel = torch._C._dispatch_has_kernel_for_dispatch_key(full, "CPU")
            return f"{op.rpartition('.')[0]}.{name}" if own_kernel else None
    return None


class _Writer:
    """Lines of a function. parts: results of nodes that kernels write one by one, which are names of their own. fixed:
    nodes that make the same small tensor at each call, which is made once, before the function."""

    def __init__(self, graph: Graph, plan: dict) -> None:
        self.graph, self.plan = graph, plan
        kernels = [step for step in plan["steps"] if step["kind"] == "kernel"]
        # What kernels read, as it is or as an op of PyTorch's has made of it, whose result is laid as its inputs are.
        self.by_kernels = {one["ref"] for step in kernels for one in step["inputs"]}
        others = {step["node"] for step in plan["steps"] if step["kind"] != "kernel"}
        for node in reversed(graph.nodes):
            if node.name in self.by_kernels & others:
                self.by_kernels |= {ref.name for ref in node.refs()}
        self.parts = {_out(out) for step in kernels for out in step["outputs"] if "index" in out}
        given = {
            ref.name for ref in graph.wanted()
        }  # to the caller, who may write to it; or what may be a part of that
        given |= {ref.name for node in graph.nodes if _fold.is_view(node) for ref in node.refs()}
        stay = {step["node"] for step in plan["steps"] if step["kind"] == "extern"} - given
        self.fixed = {node.name: node for node in graph.nodes if node.name in stay and _is_fixed(node)}

    def name(self, ref: Ref) -> str:
        """What holds a value: its node's name, if that is a PyTorch op's."""
        return f"{ref.name}__{ref.index}" if ref in self.parts else ref.name

    def literal(self, value) -> str:
        if isinstance(value, Ref):
            return value.name if value.index is None else self.part(value)
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(map(self.literal, value)) + "]"
        if isinstance(value, float):
            return repr(value) if value - value == 0 else f"float({str(value)!r})"
        if isinstance(value, torch.device):
            return f"torch.device({str(value)!r})"
        return repr(value)  # torch's types, layouts and formats read as they are written

    def part(self, ref: Ref) -> str:
        return self.name(ref) if ref in self.parts else f"{ref.name}[{ref.index}]"

    def memory(self, meta: _graph.Meta) -> str | None:
        """What makes the memory of a value; None: the op or kernel makes its own."""
        size, filled = math.prod(meta.shape) * _graph.WORDS[meta.dtype].itemsize, _sorted(meta)
        if self.graph.device != "cpu" or size < LEAST or not is_row_major(filled.shape, filled.strides):
            return None
        return f"memory({meta.shape}, {meta.strides}, {dtype_text(meta.dtype)})"

    def extern(self, node: _graph.Node) -> list[str]:
        words = [*map(self.literal, node.args), *(f"{key}={self.literal(arg)}" for key, arg in node.kwargs.items())]
        into, memory = _into(node.op), None if node.several else self.memory(node.results[0])
        if into and memory:
            return [f"{node.name} = {_op_name(into)}({', '.join([*words, f'out={memory}'])})"]
        return [f"{node.name} = {_op_name(node.op)}({', '.join(words)})"]

    def laid(self, node: _graph.Node) -> list[str]:
        """A line that gives a result the strides that kernels rely on, where PyTorch may choose others: versions and
        processors differ, and its fake tensors say something else of a dimension of 1."""
        meta = node.results[0]
        view = _fold.is_view(node) and node.op.split(".")[1].endswith("view") and 1 in meta.shape
        if node.name not in self.by_kernels or node.several or not (view or node.op.startswith(_CHOOSE_LAYOUT)):
            return []
        fixed = f"quern.optimize.runtime.laid({node.name}, {meta.strides})"
        return [f"if {node.name}.stride() != {meta.strides}:", f"    {node.name} = {fixed}"]

    def kernel(self, step: dict) -> list[str]:
        inputs = ", ".join(self.literal(_in(one)) for one in step["inputs"])
        names, memories, views = "", [], []
        for out, said in zip(map(_out, step["outputs"]), step["outputs"]):
            name = self.name(out)
            names += f"{name}, "
            memories.append(self.memory(stored(said)))
            if not is_row_major(said["shape"], said["strides"]):  # then the graph names it
                meta = self.graph.meta(out)
                views.append(f"{name} = {name}.as_strided({meta.shape}, {meta.strides})")
        into = f", out=[{', '.join(map(str, memories))}]" if any(memories) else ""
        return [f"{names}= {step['name']}(inputs=[{inputs}]{into})", *views]

    def steps(self) -> list[tuple[list[str], list[str], list[str]]]:
        """(lines, names read, names made) of each step."""
        nodes, made = {node.name: node for node in self.graph.nodes}, []
        for step in self.plan["steps"]:
            if step["kind"] == "kernel":
                reads = [self.name(_in(one)) for one in step["inputs"]]
                made.append((self.kernel(step), reads, [self.name(_out(out)) for out in step["outputs"]]))
            elif step["node"] not in self.fixed:
                node = nodes[step["node"]]
                lines = [*self.extern(node), *self.laid(node)]
                made.append((lines, [self.name(ref) for ref in node.refs()], [node.name]))
        return made


def _is_fixed(node: _graph.Node) -> bool:
    return node.op in _fold.CREATE and not node.refs() and math.prod(node.results[0].shape) <= FIXED


def _in(one: dict) -> Ref:
    return Ref(one["ref"], one.get("index"))


def _out(one: dict) -> Ref:
    return Ref(one["name"], one.get("index"))


def _sorted(meta: _graph.Meta) -> _graph.Meta:
    """With the dimensions from the outermost to the innermost."""
    order = sorted(range(len(meta.shape)), key=lambda d: -meta.strides[d])
    return _graph.Meta(meta.dtype, tuple(meta.shape[d] for d in order), tuple(meta.strides[d] for d in order))


def stored(said: dict) -> _graph.Meta:
    """A kernel's output as the kernel writes it: row-major."""
    return _sorted(_graph.Meta(said["dtype"], tuple(said["shape"]), tuple(said["strides"])))


def _updates(graph: Graph, write: _Writer) -> list[str]:
    """All buffers of a type as one call: of many a GPU makes few kernels. One that gets another's former value gets a
    copy of it, because calls have no order among buffers."""
    by_type: dict[str, list[tuple[str, str]]] = {}
    for buffer, new in graph.updates:
        value = write.literal(new) + (".clone()" if _fold.is_of_input(graph.nodes, new.name) else "")
        by_type.setdefault(graph.inputs[buffer].dtype, []).append((buffer, value))
    return [
        f"torch._foreach_copy_([{', '.join(buffers)}], [{', '.join(new)}])"
        for buffers, new in (zip(*pairs) for pairs in by_type.values())
    ]


def _function(name: str, write: _Writer) -> str:
    graph, steps = write.graph, write.steps()
    kept = {write.name(ref) for ref in graph.wanted()} | {*graph.inputs, *write.fixed}
    last = {read: k for k, (_, reads, makes) in enumerate(steps) for read in [*makes, *reads]}
    lines = []
    for k, (text, reads, makes) in enumerate(steps):
        lines += text
        dead = [one for one in dict.fromkeys([*reads, *makes]) if last[one] == k and one not in kept]
        if dead:
            lines.append(f"del {', '.join(dead)}")
    lines += _updates(graph, write)
    lines.append(f"return [{', '.join(map(write.literal, graph.outputs))}]")
    head = f"def {name}({', '.join(graph.inputs)}):"
    return "\n".join([head, *(f"    {line}" for line in lines)]) + "\n"
