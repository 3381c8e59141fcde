# SPDX-License-Identifier: Apache-2.0
"""The backend "quern" of torch.compile: Dynamo captures, guards and breaks graphs, AOTAutograd makes graphs of ATen ops
of them, forward and backward, and each such graph runs as a plan. A graph that cannot be planned runs as it is."""

from __future__ import annotations

import contextlib
import copy
import functools
import logging
import weakref
from collections.abc import Callable, Iterator, Sequence

import torch
from torch.utils._python_dispatch import _disable_current_modes

from .. import _fast
from . import _ahead, _capture, _fold, _graph, _planner, _program, _recurrent, _simplify, _timing, _variants, _verify
from ._graph import Graph, Unplannable
from ._replay import Replay

_log = logging.getLogger("quern.optimize")
SECONDS = 0.2  # of the timing of a graph's alternatives
LOOSE = ("bf16x3",)  # no float64 is at hand here that could show it to be as exact as the graph


class Prepared:
    """A plan of all inputs of which `prepare` takes some, once, and again where one of them has changed: a weight."""

    def __init__(self, program: _program.Program, main: Graph, prepare: Graph, inputs: list[str], users: list) -> None:
        assert program.prepare is not None
        self.plan, self.prepare = program.plan, program.prepare
        passed, own = _fold.order(main, prepare, [name for name in inputs if name not in users], users)
        self.constants, self.passed, self.own = (
            [inputs.index(name) for name in names] for names in (prepare.inputs, passed, own)
        )
        self.made: tuple[list, list, list] | None = None  # (of which tensors, their marks, what of them)

    def __call__(self, *values) -> list:
        weights, made = [values[k] for k in self.constants], self.made
        try:
            marks = [(weight.data_ptr(), weight._version) for weight in weights]
        except RuntimeError:  # tensors made in inference mode do not count their changes
            made, marks = None, []
        if made is None or made[1] != marks:
            with torch.inference_mode(False), torch.no_grad():
                # the tensors are held, so that no other one can be where they are
                made = [weight.detach() for weight in weights], marks, self.prepare(*weights)
            self.made = made  # at once: other threads read it
        return self.plan(*[values[k] for k in self.passed], *made[2], *[values[k] for k in self.own])


class Region:
    """One graph of a compiled model, called with a list of its inputs: as it is, and taken apart into core ATen, of
    which kernels are made. Its first call chooses among these, products and convolutions by other calls, and PyTorch's
    ops of the graph as it is, by time, on that call's own values; on a GPU a CUDA graph is captured once the inputs'
    addresses repeat. weights: the inputs that are the model's own, of a graph that only infers."""

    def __init__(self, graph: Graph, apart: Graph | None, why: list[str], weights: Sequence[str] = ()) -> None:
        self.graph, self.apart, self.why, self.weights = graph, apart, why, list(weights)
        self.run: Callable[..., list] | None = None
        self.chosen = ""
        self.replay: Replay | None = None
        self.again: Callable | None = None  # a replay in one entry into C, where the call is like the last one
        self.seen: list | None = None  # the graphs that it knows
        updated = {name for name, _ in graph.updates}
        self.changed = [k for k, name in enumerate(graph.inputs) if name in updated]
        self.graphable = graph.device == "cuda" and graph.replayable

    def __call__(self, values: list):
        if self.again is not None:
            made = self.again(*values)
            if made is not NotImplemented:
                values.clear()
                return made
        values, given = list(values), values
        given.clear()  # AOTAutograd hands its inputs over, so that each is free after its last use
        if self.run is None:
            self._choose(values)
        if self.graphable:
            return self._replayed(values)
        assert self.run is not None
        return self.run(*values)

    def close(self) -> None:
        """Lets go of graphs' memory; the words stay in `regions`."""
        self.run = self.replay = self.again = self.seen = None

    # ---- the choice ----
    def _choose(self, values: list) -> None:
        if any(value.is_inference() for value in values):  # which do not count their changes
            self.weights = []
        functions = dict(self._programs())
        self.chosen, self.run = "PyTorch's ops", functions["PyTorch's ops"]
        if len(functions) < 2:
            return
        device = values[0].device if values else torch.device(self.graph.device)
        states = _capture.random_states(device)
        try:
            with _disable_current_modes():  # AOTAutograd watches the first call: calls would take several times as long
                self._try(functions, values, lambda: _capture.restore_random(states, device))
        except Exception as error:
            self.why.append(f"the choice: {type(error).__name__}: {error}")
        _capture.restore_random(states, device)

    def _programs(self) -> Iterator[tuple[str, Callable]]:
        """(name, function) of each way to run it; the first is the graph as it is."""
        as_it_is = "PyTorch's ops"
        yield as_it_is, _program.build(self.graph, _program.extern_plan(self.graph), None, as_it_is).plan
        if self.apart is None:
            return
        graph, inputs, plans = copy.deepcopy(self.apart), list(self.apart.inputs), []
        users = [name for name in inputs if name not in self.weights]
        if self.weights:
            _fold.fold_norms(graph, self.weights)
        for one in _variants.variants(graph, self.weights):
            if one.products in LOOSE or one.way == _recurrent.OWN or (one.layout and not self.weights):
                continue
            name = "fused" + one.suffix
            try:
                prepare, main = _fold.split(one.graph, self.weights, users)
                plan = _planner.plan(main)
                if not (prepare or one.suffix or any(step["kind"] == "kernel" for step in plan["steps"])):
                    continue
                program = _program.build(main, plan, prepare, name)
                made = program.plan if prepare is None else Prepared(program, main, prepare, inputs, users)
                plans.append((main, plan, program.names))
            except Exception as error:
                self.why.append(f"{name}: {type(error).__name__}: {error}")
                continue
            yield name, made
        _ahead.compile_kernels(plans)

    def _double(self, values: list, start: Callable[[], None]) -> list[torch.Tensor]:
        """The outputs that are real numbers, in float64; none where an op does not compute in it. A gradient that is
        zero but for rounding is right by them alone."""
        start()
        wide = map(_fold.widened, values)
        try:
            made = _fold.evaluate(self.graph, dict(zip(self.graph.inputs, wide)), wide=True)
        except Exception:
            return []
        named = dict(zip(self.graph.wanted(), made))
        wanted = [named[ref] for ref in [*_graph.refs_of(self.graph.outputs), *self._updated()]]
        return [t.double() for t in wanted if t.is_floating_point()]

    def _updated(self) -> list:
        """The new values of buffers, in the order of the inputs."""
        new = dict(self.graph.updates)
        return [new[name] for name in self.graph.inputs if name in new]

    def _try(self, functions: dict[str, Callable], values: list, start: Callable[[], None]) -> None:
        """start: so that each draws the same random numbers."""
        from ..kernelbench import _compare

        copies = [value.clone() if k in self.changed else value for k, value in enumerate(values)]

        def fresh(function: Callable) -> list:
            for k in self.changed:
                copies[k].copy_(values[k])
            start()
            return [*function(*copies), *(copies[k].clone() for k in self.changed)]

        def wrong(function: Callable, want: list, double: Callable[[], list[torch.Tensor]]) -> str:
            try:
                got = fresh(function)
            except Exception as error:
                return f"it fails: {type(error).__name__}: {error}"
            difference = _compare.compare(got, want, _compare.Tolerance("current"), self.graph.device)
            if difference.wrong and not ((exact := double()) and _verify.as_near(got, want, exact, exact)):
                return difference.wrong
            return "" if strides(got) == strides(want) else "other strides"

        def strides(values: list) -> list:
            return [t.stride() for t in values if isinstance(t, torch.Tensor)]

        with torch.no_grad():
            want, double = (
                fresh(functions[self.chosen]),
                functools.cache(functools.partial(self._double, values, start)),
            )
            right = {self.chosen: functions[self.chosen]}
            for name, function in functions.items():
                why = wrong(function, want, double)
                if why:
                    self.why.append(f"{name}: {why}")
                else:
                    right[name] = function
            del want, double
            racers: dict = {name: functools.partial(function, *copies) for name, function in right.items()}
            samples = _timing.race(racers, self.graph.device == "cuda", SECONDS)
        name = next((name for name in _timing.ranking(samples) if name != self.chosen), self.chosen)
        better, ratio, _ = _timing.faster(samples[self.chosen], samples[name])
        self.why.append(f"{name} is {ratio:.3g} times as fast as {self.chosen}")
        if better:
            self.chosen, self.run = name, right[name]
        _log.info("a graph of %d nodes runs as %s: %s", len(self.graph.nodes), self.chosen, "; ".join(self.why))

    # ---- CUDA graphs ----
    def _replayed(self, values: list) -> list:
        assert self.run is not None
        if self.replay is None:
            self.replay = Replay(
                self.run, values[0].device, random=self.graph.random, copies=False, changed=self.changed
            )
        self.replay.updated = [values[k] for k in self.changed]
        try:
            made = self.replay(values)
        except RuntimeError as error:
            if self.replay.instances:
                raise
            self.why.append(f"no CUDA graph: {str(error).splitlines()[0]}")
            self.graphable, self.replay = False, None
            return self.run(*values)
        if self.seen is not self.replay.instances:
            self.seen, self.again = self.replay.instances, self._again(values, self.replay)
        return made

    def _again(self, values: list, replay: Replay) -> Callable | None:
        graphs, n = replay.parts(), len(values)
        if graphs is None:
            return None
        switches = (torch._C._cuda_isCurrentStreamCapturing,) if self.graph.device == "cuda" else ()
        return _fast.plan(tuple(values), (None,) * n, range(n), list, graphs=graphs, switches=switches)


regions: list[Region] = []  # of this process, for who wants to know what was done


def _compile(module: torch.fx.GraphModule, inputs: Sequence, infers: bool = False) -> Callable:
    """A function of a list of inputs, as AOTAutograd calls it. infers: nobody asks for gradients."""
    from torch._functorch.aot_autograd import make_boxed_func

    try:
        devices = {value.device.type for value in inputs if isinstance(value, torch.Tensor)}
        if len(devices) != 1 or not all(isinstance(value, torch.Tensor) for value in inputs):
            raise Unplannable("its inputs are on several devices or are no tensors")
        graph = _graph.from_fx(module, devices.pop())
        if graph.device not in ("cpu", "cuda"):
            raise Unplannable(f"it is on {graph.device}")
        _simplify.simplify(graph)
    except Unplannable as error:
        _log.info("a graph runs as it is: %s", error)
        return make_boxed_func(module.forward)
    why: list[str] = []
    weights = _weights(graph) if infers and graph.device == "cpu" else []
    regions.append(Region(graph, _taken_apart(module, inputs, graph.device, why), why, weights))
    region = regions[-1]

    def run(values: list) -> list:
        return region(values)

    weakref.finalize(run, region.close).atexit = False  # type: ignore[misc]
    run._boxed_call = True  # type: ignore[attr-defined] # AOTAutograd's word for a function of one list
    return run


def _weights(graph: Graph) -> list[str]:
    """The inputs that Dynamo knows as a model's own, parameters and buffers, but for those that a call changes."""
    context = torch._guards.TracingContext.try_get()
    known = getattr(context and context.fw_metadata, "static_input_indices", None) or ()
    names, changed = list(graph.inputs), {name for name, _ in graph.updates}
    return [names[k] for k in known if k < len(names) and names[k] not in changed]


def _taken_apart(module: torch.fx.GraphModule, inputs: Sequence, device: str, why: list[str]) -> Graph | None:
    from torch._guards import detect_fake_mode
    from torch.fx.experimental.proxy_tensor import make_fx

    try:
        with detect_fake_mode(inputs) or contextlib.nullcontext(), torch.no_grad():
            made = _graph.from_fx(make_fx(module, _decompositions())(*inputs), device)
        _simplify.simplify(made)
    except Exception as error:
        why.append(f"it cannot be taken apart: {type(error).__name__}: {error}")
        return None
    return made


def quern(module: torch.fx.GraphModule, inputs: Sequence, **options):
    """torch.compile(model, backend="quern")."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    words = [*(options.get("options") or {}), *(word for word in options if word != "options")]
    if words:
        raise ValueError(f"the backend quern has no option {', '.join(words)}")
    return aot_autograd(
        fw_compiler=_compile,
        bw_compiler=_compile,
        inference_compiler=functools.partial(_compile, infers=True),
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )(module, inputs)


def _decompositions() -> dict:
    from torch._decomp import core_aten_decompositions

    def whole(op) -> bool:  # parts would draw other random numbers
        return str(op).startswith(_capture.WHOLE) or torch.Tag.nondeterministic_seeded in op.tags

    return {op: rule for op, rule in core_aten_decompositions().items() if not whole(op)}


def register() -> None:
    """So that PyTorch knows the name, also where the package is not installed."""
    from torch._dynamo.backends import registry

    if "quern" not in registry._BACKENDS and "quern" not in registry._COMPILER_FNS:
        registry.register_backend(compiler_fn=quern, name="quern")
