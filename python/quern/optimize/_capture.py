# SPDX-License-Identifier: Apache-2.0
"""Captures a module as a graph of core ATen ops: a watched run first, which finds what no graph can hold (prints,
random numbers, changed inputs and attributes), then torch.export. Parameters, buffers, constants and attributes that
forward replaces by new tensors (states, such as a recurrent net's) are inputs of the graph."""

from __future__ import annotations

import contextlib
import io
import random
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch.utils import _pytree as pytree

from . import _graph, _objects
from ._graph import Graph, Unplannable
from .runtime import Attributes, slot_of

# Kept whole, because PyTorch has one fast kernel for each.
WHOLE = (
    "aten.scaled_dot_product_attention",
    "aten._scaled_dot_product_",
    "aten.gru",
    "aten.lstm",
    "aten.rnn_tanh",
    "aten.rnn_relu",
    "aten.upsample_",
    "aten.index_add",
    "aten.scatter_add",
    "aten.scatter_reduce",
)


@dataclass
class Slot:
    """Where a tensor of the model is found at each call: table[key]."""

    name: str  # of the graph's input
    table: dict | Attributes
    key: str
    target: str  # "layer.weight"
    kind: str  # "parameter", "buffer", "attribute" (a tensor that is neither), "constant" or "state"

    @property
    def tensor(self) -> torch.Tensor:
        return self.table[self.key]


@dataclass
class Captured:
    graph: Graph
    slots: list[Slot]  # of the graph's first inputs, in order
    users: list[str | None]  # the graph's input of each leaf of a call; None: a value that the guards fix
    leaves: list  # of the call that was captured, and behind them the states
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec
    states: list[Slot] = field(default_factory=list)  # whose new values are the graph's last outputs

    @property
    def constants(self) -> list[str]:
        """Inputs that the call itself does not change."""
        updated = {name for name, _ in self.graph.updates}
        return [slot.name for slot in self.slots if slot.name not in updated]


# ---- the watched run ----
def random_states(device: torch.device) -> list:
    states = [torch.get_rng_state(), random.getstate()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    if "numpy" in sys.modules:
        kind, keys, *rest = sys.modules["numpy"].random.get_state()
        states.append((kind, keys.tobytes(), *rest))
    return states


def restore_random(states: list, device: torch.device) -> None:
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[2], device)
    if len(states) > 2 + (device.type == "cuda"):
        numpy, (kind, keys, *rest) = sys.modules["numpy"], states[-1]
        numpy.random.set_state((kind, numpy.frombuffer(keys, numpy.uint32), *rest))


def _equal(a, b) -> bool:
    return (
        torch.equal(a, b) if isinstance(a, torch.Tensor) else bool((a == b) if isinstance(a, tuple) else (a == b).all())
    )


class _Watch(io.TextIOBase):
    """Passes text on, and remembers that there was some."""

    def __init__(self, to) -> None:
        self.to, self.wrote = to, False

    def write(self, text: str) -> int:
        self.wrote = True
        return self.to.write(text)

    def flush(self) -> None:
        self.to.flush()


def watched_run(model: torch.nn.Module, args: tuple, kwargs: dict, device: torch.device):
    """The outputs of one call, objects among them held, with the new values of the states; the sentences of what a
    graph cannot hold; and the states. They are as they were before, on the device where the model has them. Whether
    ops that may draw random numbers do so, as recurrent nets with a dropout of 0 do not, is seen here alone."""
    tensors = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    kept = [t.detach().clone() for t in tensors]
    states = random_states(device)
    out, err = _Watch(sys.stdout), _Watch(sys.stderr)

    def run():
        before, kinds = _objects.contents(model), {s.target: _kind(s.tensor) for s in attributes(model)}
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), torch.no_grad(), _kept_attributes(model):
            with _kept_buffers(model):
                result = model(*args, **kwargs)
            new = {s.target: s.tensor for s in attributes(model)}
            changed = _objects.changed(before, _objects.contents(model))
        fixed = [name for name in changed if name not in kinds or name not in new or kinds[name] != _kind(new[name])]
        return (result, [new[name] for name in changed if name not in fixed]), changed, fixed

    result, changed, fixed = run()
    found = []
    if out.wrote or err.wrote:
        found.append("it prints")
    if not all(_equal(a, b) for a, b in zip(states, random_states(device))):
        found.append("it draws random numbers")
        restore_random(states, device)
    if not all(torch.equal(_bits(t), _bits(was)) for t, was in zip(tensors, kept)):
        found.append("it changes its inputs")
    if fixed and not found:  # by the first call alone, as one that moves a state to the device?
        result, changed, fixed = run()
    if fixed:
        found.append(f"it changes its attribute {fixed[0]}")
    return _objects.held(result), found, [slot for slot in attributes(model) if slot.target in changed]


def attributes(model: torch.nn.Module) -> list[Slot]:
    """The tensors that are neither parameters nor buffers."""
    return [
        Slot("", table, key, f"{name}.{key}" if name else key, "state")
        for name, module in model.named_modules()
        for table in [Attributes(module)]
        for key, _ in table.items()
    ]


def _kind(tensor: torch.Tensor) -> tuple:
    return type(tensor), tensor.dtype, tensor.shape, tensor.stride(), tensor.device


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    from ..kernelbench._tree import bits

    return bits(tensor)


@contextlib.contextmanager
def kept_state(model: torch.nn.Module):
    """Buffers and attributes have their former values afterwards."""
    with _kept_attributes(model), _kept_buffers(model):
        yield


@contextlib.contextmanager
def _kept_attributes(model: torch.nn.Module):
    """Of the type and on the device that forward has given them; one of another shape stays what it has become."""
    kept = [(slot, slot.tensor) for slot in attributes(model)]
    try:
        yield
    finally:
        for slot, was in kept:
            new = slot.table.get(slot.key)
            if isinstance(new, torch.Tensor) and new is not was and new.shape == was.shape:
                slot.table[slot.key] = was.to(new)


@contextlib.contextmanager
def _kept_buffers(model: torch.nn.Module):
    kept = [
        (module._buffers, key, buffer, buffer.detach().clone())
        for module in model.modules()
        for key, buffer in module._buffers.items()
        if buffer is not None
    ]
    try:
        yield
    finally:
        with torch.no_grad():
            for table, key, buffer, was in kept:
                table[key] = buffer  # forward may have put another one there
                if not torch.equal(_bits(buffer), _bits(was)):
                    buffer.copy_(was)


# ---- the graph ----
def _decompositions():
    table = torch.export.default_decompositions()
    for op in list(table.keys()):
        if str(op).startswith(WHOLE):
            table.pop(op)
    return table


class _Whole(torch.nn.Module):
    """A model with its states as arguments and their new values behind its results, whose objects are held."""

    def __init__(self, model: torch.nn.Module, states: list[Slot]) -> None:
        super().__init__()
        self.model, self.states = model, states

    def forward(self, args: tuple, kwargs: dict, values: list):
        kept = [slot.tensor for slot in self.states]
        try:
            _put(self.states, values)
            return _objects.held(self.model(*args, **kwargs)), [slot.tensor for slot in self.states]
        finally:
            _put(self.states, kept)


def _put(states: list[Slot], values: list) -> None:
    for slot, value in zip(states, values):
        slot.table[slot.key] = value


def _slot(model: torch.nn.Module, spec, exported, name: str) -> Slot:
    kind, target = spec.kind.name, _target(model, spec)
    if kind == "CONSTANT_TENSOR":
        with contextlib.suppress(AttributeError):
            table, key = slot_of(model, spec.target)
            if isinstance(table, Attributes) and table[key] is exported.constants[spec.target]:
                return Slot(name, table, key, target, "attribute")
        return Slot(name, exported.constants, spec.target, target, "constant")
    return Slot(name, *slot_of(model, spec.target), target, kind.lower())


def _target(model: torch.nn.Module, spec) -> str:
    return spec.target.removeprefix("model.") if isinstance(model, _Whole) else spec.target


def capture(
    model: torch.nn.Module,
    args: tuple,
    kwargs: dict,
    device: torch.device,
    states: Sequence[Slot] = (),
    objects: bool = False,
) -> Captured:
    """objects: there are some among the results. Unplannable: a sentence."""
    states, whole = list(states), objects or bool(states)
    leaves = [*pytree.tree_leaves((args, kwargs)), *(slot.tensor for slot in states)]
    # Each argument a tensor of its own: else two that happen to be one tensor would be one input of the graph.
    given = args, kwargs, leaves[len(leaves) - len(states) :]
    apart, named, values = pytree.tree_map(lambda x: x.detach() if isinstance(x, torch.Tensor) else x, given)
    if whole:
        model, apart, named = _Whole(model, states), (apart, named, values), {}
    try:
        quiet = contextlib.redirect_stderr(io.StringIO())  # where export writes the graph so far, if it fails
        with torch.no_grad(), warnings.catch_warnings(), quiet, kept_state(model):
            warnings.simplefilter("ignore")
            exported = torch.export.export(model, apart, named, strict=False).run_decompositions(_decompositions())
    except Exception as error:
        text = str(error).strip().splitlines() or [type(error).__name__]
        raise Unplannable(f"it cannot be captured ({type(error).__name__}: {text[0][:200]})") from error
    module, signature = exported.graph_module, exported.graph_signature
    graph = _graph.from_fx(module, device.type)
    slots, users, names = [], [], iter(graph.inputs)
    for spec, node in zip(signature.input_specs, (n for n in module.graph.nodes if n.op == "placeholder")):
        tensor = isinstance(node.meta.get("val"), torch.Tensor)
        name = next(names) if tensor else None
        if spec.kind.name == "USER_INPUT":
            users.append(name)
        elif spec.kind.name in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR") and name is not None:
            slots.append(_slot(model, spec, exported, name))
        else:
            raise Unplannable(f"it has an input of the kind {spec.kind.name.lower()}")
    _outputs(graph, signature, model, slots)
    for slot in slots:
        if slot.kind == "constant" and slot.tensor.dim() == 0:  # such as torch.tensor(2.0), which any device takes
            exported.constants[slot.key] = slot.tensor.to(device)
        if slot.tensor.device != device:
            raise Unplannable(f"{slot.target} is on {slot.tensor.device}, not on {device}")
    in_spec, out_spec = exported.call_spec.in_spec, exported.call_spec.out_spec
    if whole:
        out_spec = pytree.tree_structure(pytree.tree_unflatten([0] * out_spec.num_leaves, out_spec)[0])
    return Captured(graph, slots, users, leaves, in_spec, out_spec, states)


def _outputs(graph: Graph, signature, model: torch.nn.Module, slots: list[Slot]) -> None:
    """Divides a graph's outputs into those of the call and the buffers' new values."""
    outputs, by_target = [], {slot.target: slot for slot in slots}
    for spec, value in zip(signature.output_specs, graph.outputs):
        kind = spec.kind.name
        if kind == "USER_OUTPUT":
            outputs.append(value)
        elif kind == "BUFFER_MUTATION":
            graph.updates.append((by_target[_target(model, spec)].name, value))
        elif kind == "USER_INPUT_MUTATION":
            raise Unplannable("it changes its inputs")
        else:
            raise Unplannable(f"it has an output of the kind {kind.lower()}")
    graph.outputs = outputs
    drop_slots(graph, slots)


def drop_slots(graph: Graph, slots: list[Slot]) -> None:
    """Parameters and buffers that no node reads."""
    _graph.drop_unused(graph)
    read = {ref.name for node in graph.nodes for ref in node.refs()}
    read |= {ref.name for ref in graph.wanted()} | {name for name, _ in graph.updates}
    for slot in [slot for slot in slots if slot.name not in read]:
        slots.remove(slot)
        del graph.inputs[slot.name]
