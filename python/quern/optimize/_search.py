# SPDX-License-Identifier: Apache-2.0
"""Makes the alternatives for one kind of call, times them, verifies the fastest, and returns it; None: the module
itself is kept."""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch.utils import _pytree as pytree

from . import (
    _ahead,
    _capture,
    _convolutions,
    _fold,
    _graph,
    _kept,
    _objects,
    _planner,
    _program,
    _recurrent,
    _select,
    _simplify,
    _timing,
    _variants,
    _verify,
)
from ._graph import Graph, Unplannable
from ._replay import Replay
from ._report import COMPILED, GRAPHED, MODULE_GRAPHED, Report
from .runtime import Fast

ALONE = ", faster kernels alone"  # behind the name of a plan without its slower kernels
FAR, MOST_RACERS = 2.0, 12  # times the fastest of a few runs; how many are timed in turns
MOST_MEMORY, FREE_BYTES = 2, 512 << 20  # times the module's, and beside that: products have a workspace
BUSY_ANYWAY = "the GPU is busy without it"
LONG_NS, BUSY = 10**6, 4  # a call so long, of which the host takes a fourth at most, gains nothing as a CUDA graph
IDLE_BYTES = 1 << 30  # of PyTorch's allocator
# Where hooks are defined that change the call's results and the module's tensors alone, which a graph holds.
_TRACED_HOOKS = ("torch.nn.utils.", "transformers.utils.output_capturing")
_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device)


@dataclass
class Alternative:
    """program None: the module itself, in a CUDA graph. infinities: whether it has PyTorch's results of infinities; a
    product of split operands gives NaN, an activation behind a product its limit."""

    name: str
    program: _program.Program | None
    main: Graph | None
    plan: dict | None
    prepare: Graph | None
    graphed: bool
    infinities: bool = True
    kept: list[str] = field(default_factory=list)  # nodes whose kernels were slower than PyTorch's ops
    whole: Graph | None = None  # before the split, without kernels for its convolutions; None: main has none


def device_of(model: torch.nn.Module, args: tuple, kwargs: dict) -> torch.device:
    tensors = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    devices = {t.device for t in [*tensors, *model.parameters(), *model.buffers()]}
    if len(devices) != 1:
        raise Unplannable(f"its tensors are on {', '.join(sorted(map(str, devices)))}" if devices else "no tensors")
    device = devices.pop()
    if device.type not in ("cpu", "cuda"):
        raise Unplannable(f"it is on {device}")
    return device


def refuse_call(model: torch.nn.Module, args: tuple, kwargs: dict) -> None:
    """Unplannable: what no plan can take the place of."""
    for leaf in pytree.tree_leaves((args, kwargs)):
        if isinstance(leaf, torch.Tensor):
            plain = type(leaf) in (torch.Tensor, torch.nn.Parameter)
            if not plain or leaf.layout != torch.strided or leaf.is_quantized:
                raise Unplannable(f"an input is a {type(leaf).__name__} in layout {leaf.layout}")
        elif not isinstance(leaf, _PLAIN):
            raise Unplannable(f"an input is a {type(leaf).__name__}")
    for name, module in model.named_modules():
        hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
        if not all((getattr(hook, "__module__", None) or "").startswith(_TRACED_HOOKS) for hook in hooks):
            raise Unplannable(f"{name or 'it'} has hooks on its forward")
        if isinstance(module, torch.jit.ScriptModule):
            raise Unplannable(f"{name or 'it'} is a ScriptModule")


def _has_kernels(plan: dict) -> bool:
    return any(step["kind"] == "kernel" for step in plan["steps"])


class Search:
    def __init__(self, model: torch.nn.Module, forward: Callable, args: tuple, kwargs: dict, report: Report) -> None:
        self.model, self.forward, self.args, self.kwargs, self.report = model, forward, args, kwargs, report
        self.device = device_of(model, args, kwargs)
        self.cuda = self.device.type == "cuda"
        self.quick: dict[str, int] = {}  # ns of a few runs of each alternative
        self.times: dict[str, int] = {}  # of kernels and PyTorch's ops alone
        self.compiled: dict[str, Callable] = {}  # the module by torch.compile, to be timed beside
        self.busy: set[str] = set()  # alternatives whose calls keep the GPU busy without a CUDA graph
        self.beside = 0.0  # seconds that torch.compile took
        self.unclear = False  # the times do not say whether the module or an alternative is the faster
        self.own_peak: int | None = None  # bytes that a call of the module takes beside its inputs and weights
        refuse_call(model, args, kwargs)
        result, found, states = _capture.watched_run(model, args, kwargs, self.device)
        if found:
            raise Unplannable(", ".join(found))
        objects = _objects.are_in(result)
        self.captured = _capture.capture(model, args, kwargs, self.device, states, objects)
        tensors = [*model.parameters(), *model.buffers(), *(slot.tensor for slot in states)]
        self.aliases = _verify.aliases(result, args, kwargs, tensors)
        self.constants = [] if self._inference_weights() else self.captured.constants
        graph = self.captured.graph
        report.n_nodes = len(graph.nodes)
        metas = [*graph.inputs.values(), *(graph.meta(ref) for ref in graph.wanted())]
        report.least_bytes = sum(math.prod(m.shape) * _graph.WORDS[m.dtype].itemsize for m in metas)

    # ---- alternatives ----
    def alternatives(self) -> list[Alternative]:
        graph = copy.deepcopy(self.captured.graph)
        _simplify.simplify(graph)
        self.report.folded = _fold.fold_norms(graph, self.constants)
        graphs = (False, True) if self.cuda and not self.aliases else (False,)
        made = []
        for one in _variants.variants(graph, self.constants):
            prepare, main = _fold.split(one.graph, self.constants, self.captured.users)
            alone = bool(one.way or one.products)  # what differs is in kernels, or in calls beside them
            plans = {} if alone else {"PyTorch's ops": _program.extern_plan(main)}
            try:
                fused = _planner.plan(main)
                if alone or _has_kernels(fused):
                    plans["fused"] = fused
            except Unplannable as error:
                self.report.rejected["fused" + one.suffix] = str(error)
            for name, plan in plans.items():
                program = _program.build(main, plan, prepare, name)
                for graphed in graphs:
                    full = name + one.suffix + (GRAPHED if graphed else "")
                    infinities = not one.products and one.way != _recurrent.OWN
                    made.append(Alternative(full, program, main, plan, prepare, graphed, infinities))
                    made[-1].whole = one.base if one.way == _convolutions.OWN else None
        if self.cuda and not self.aliases and not self.captured.states:
            made.append(Alternative(MODULE_GRAPHED, None, None, None, None, True))
        return made

    def _inference_weights(self) -> bool:
        """Tensors made in inference mode do not count their changes, so nothing can be kept of them."""
        return any(slot.tensor.is_inference() for slot in self.captured.slots)

    def fast(self, alternative: Alternative) -> Fast:
        captured, main = self.captured, alternative.main
        names = [slot.name for slot in captured.slots]
        tables = [(slot.table, slot.key) for slot in captured.slots]
        updated = [names.index(name) for name, _ in captured.graph.updates]
        make = functools.partial(
            Fast,
            self.model,
            self.forward,
            args=self.args,
            kwargs=self.kwargs,
            graphed=alternative.graphed,
            slots=tables,
            updated=updated,
            states=[(slot.table, slot.key) for slot in captured.states],
        )
        program = alternative.program
        if main is None or program is None:
            tensors = [k for k, leaf in enumerate(captured.leaves) if isinstance(leaf, torch.Tensor)]
            return make(plan=None, prepare=None, constants=[], passed=[], users=tensors, out_spec=None)
        passed, users = _fold.order(main, alternative.prepare, names, captured.users)
        return make(
            plan=program.plan,
            prepare=program.prepare,
            constants=[names.index(name) for name in (alternative.prepare.inputs if alternative.prepare else {})],
            passed=[names.index(name) for name in passed],
            users=[captured.users.index(name) for name in users],
            out_spec=captured.out_spec,
        )

    def found(self, alternative: Alternative, fast: Fast) -> Found:
        """The report gets the plan's steps."""
        if alternative.plan is not None and alternative.main is not None and alternative.program is not None:
            ops = {node.name: node.op for node in alternative.main.nodes}
            self.report.describe_plan(alternative.plan, ops, alternative.kept)
            self.report.program = alternative.program.text
        return Found(fast, alternative, self.captured)

    # ---- the choice ----
    def choose(self, seconds: float, verify: bool, compare: bool) -> tuple[Fast, Alternative] | None:
        name = _kept.key(self.captured.graph, self.model, self.device)
        before = (None, []) if compare else _kept.look(name)
        if before[0] == "original":
            self.report.why.append("the module itself was the fastest when the alternatives were timed before")
            return None
        alternatives = self.alternatives()
        if before[0] is None:
            _ahead.compile_kernels([(x.main, x.plan, x.program.names) for x in alternatives if x.main and x.program])
        if compare:
            self._for_peers(self._compile)
        self._give_back()  # others' turns need memory
        with _timing.in_turn():
            return self._timed(name, before, alternatives, seconds, verify)

    def _timed(
        self,
        name: str,
        before: tuple[str | None, list[str]],
        alternatives: list[Alternative],
        seconds: float,
        verify: bool,
    ) -> tuple[Fast, Alternative] | None:
        report = self.report
        reference = _verify.Reference(self.model, self.forward, self.args, self.kwargs)
        racers: dict[str, tuple[Fast, Alternative]] = {}
        kept = self._kept(*before, alternatives, reference)
        if kept is not None:
            return kept
        right = [(self._enter(racers, alternative, reference), alternative) for alternative in alternatives]
        for fast, alternative in right:
            if fast is None or alternative.graphed:
                continue
            try:
                made = self._without_losers(fast, alternative)
            except Exception as error:  # memory for the graph's values, of which a plan keeps few at a time
                report.rejected[alternative.name + ALONE] = f"kernels cannot be timed alone: {error}"
                continue
            for graphed in sorted({one.graphed for one in alternatives}):
                if made is None:
                    break
                full = made.name + (GRAPHED if graphed else "")
                self._enter(racers, replace(made, name=full, graphed=graphed), reference)
        if self.compiled and self.cuda and not self.captured.states:
            self._for_peers(self._capture_compiled)
        chosen = self._fastest(racers, seconds, reference if verify else None)
        for fast, _ in racers.values():
            if chosen is None or fast is not chosen[0]:
                fast.replay = None  # else its memory waits for the collector
        if verify and not self.unclear:
            _kept.keep(name, report.chosen, chosen[1].kept if chosen else [])
        return chosen

    def _enter(self, racers: dict, alternative: Alternative, reference: _verify.Reference) -> Fast | None:
        """Adds an alternative that is right, and takes those out that a few runs show to be far behind: the memory of
        their graphs is for others. None: it is wrong, or a graph that gains nothing."""
        name = alternative.name
        fast = None
        try:
            try:
                fast, wrong = self._tried(alternative, reference)
            except torch.cuda.OutOfMemoryError:
                _without_graphs(racers)
                fast, wrong = self._tried(alternative, reference)
        except Exception as error:  # a kernel that does not compile, an op that no graph can capture, memory
            wrong = _verify.failure(error)
        self._give_back()
        if wrong:
            self.report.rejected[name] = wrong
            return None
        assert fast is not None
        racers[name] = fast, alternative
        ranked = sorted(racers, key=self.quick.__getitem__)
        behind = [name for name in ranked if self.quick[name] > FAR * self.quick[ranked[0]] + _timing.NOISE_NS]
        for name in {*behind, *ranked[MOST_RACERS:]}:
            racers.pop(name)[0].replay = None
        return fast

    def _give_back(self) -> None:
        """Idle memory, to other processes: cuDNN's measurements leave all of the GPU's to this one."""
        if self.cuda and torch.cuda.memory_reserved() > torch.cuda.memory_allocated() + IDLE_BYTES:
            torch.cuda.empty_cache()

    def _tried(self, alternative: Alternative, reference: _verify.Reference) -> tuple[Fast | None, str]:
        """The function, and what is wrong with it; a few runs have been timed where nothing is."""
        name = alternative.name
        if alternative.graphed and name.removesuffix(GRAPHED) in self.busy:
            return None, BUSY_ANYWAY
        fast = self.fast(alternative)
        wrong = reference.wrong(fast, 1)
        if wrong:
            return fast, wrong
        run = functools.partial(fast, *self.args, **self.kwargs)
        with torch.no_grad(), _capture.kept_state(self.model):
            took = self.quick[name] = _timing.fastest(run, self.cuda)
            if not alternative.graphed and self._keeps_busy(run, took):
                self.busy.add(name)
            return fast, self._hungry(fast)

    def _keeps_busy(self, run: Callable[[], object], took: int) -> bool:
        return self.cuda and took > max(LONG_NS, BUSY * _timing.host_ns(run))

    def _hungry(self, fast: Fast) -> str:
        """A sentence, where a call takes much more memory than the module's."""
        if not self.cuda:
            return ""
        values = [self.captured.leaves[k] for k in fast.users]
        if self.own_peak is None:
            self.own_peak = _peak(lambda: self.forward(*self.args, **self.kwargs))
        peak = _peak(lambda: fast._direct(*values))
        if peak <= MOST_MEMORY * self.own_peak + FREE_BYTES:
            return ""
        return f"a call takes {peak >> 20} MiB beside its inputs and weights, the module's {self.own_peak >> 20}"

    def _without_losers(self, fast: Fast, alternative: Alternative) -> Alternative | None:
        """The plan without the kernels that are slower than PyTorch's ops; None: all of them are, or none."""
        main, plan, program = alternative.main, alternative.plan, alternative.program
        if main is None or plan is None or program is None or not _has_kernels(plan):
            return None
        values = [*fast.given, *(self.captured.leaves[k] for k in fast.users)]
        with torch.no_grad():
            lost = _select.losers(main, plan, program.names, values, self.times)
        return self._keeping(alternative, lost) if lost else None

    def _keeping(self, alternative: Alternative, nodes: list[str]) -> Alternative | None:
        """The plan with these nodes PyTorch's; None: no kernel is left."""
        prepare, main = alternative.prepare, copy.deepcopy(alternative.main)
        if alternative.whole is not None:  # the filters of convolutions that are cuDNN's now lie as they did
            whole = _convolutions.own(alternative.whole, nodes)
            prepare, main = _fold.split(whole, self.constants, self.captured.users)
        assert main is not None
        for node in main.nodes:
            node.kept = node.name in nodes
        plan, name = _planner.plan(main), alternative.name.removesuffix(GRAPHED) + ALONE
        if not _has_kernels(plan):
            return None
        assert alternative.plan is not None
        timed = {tuple(step["nodes"]): step for step in alternative.plan["steps"] if "ns" in step}
        for step in plan["steps"]:
            same = timed.get(tuple(step.get("nodes", ())))
            if same is not None:
                step["ns"], step["theirs_ns"] = same["ns"], same["theirs_ns"]
        program = _program.build(main, plan, prepare, name)
        name += GRAPHED if alternative.graphed else ""
        return replace(alternative, name=name, program=program, main=main, plan=plan, prepare=prepare, kept=nodes)

    def _kept(self, name: str | None, nodes: list[str], alternatives: list[Alternative], reference: _verify.Reference):
        """What was chosen before; None: nothing, or it is not right any more."""
        for alternative in alternatives:
            if name is not None and alternative.name == name.replace(ALONE, ""):
                with contextlib.suppress(Exception):  # then it is chosen anew
                    made = self._keeping(alternative, nodes) if nodes else alternative
                    assert made is not None
                    fast = self.fast(made)
                    if not reference.wrong(fast, 1):
                        self.report.chosen = name
                        self.report.why.append("it was the fastest when the alternatives were timed before")
                        return fast, made
        return None

    def _race(
        self, racers: dict[str, tuple[Fast, Alternative]], compiled: dict[str, Callable], seconds: float
    ) -> dict[str, list[int]]:
        device = torch.cuda.device(self.device) if self.cuda else contextlib.nullcontext()
        with torch.no_grad(), _capture.kept_state(self.model), device:
            callables: dict[str, Callable] = {"original": self.forward, **compiled}
            callables |= {name: fast for name, (fast, _) in racers.items()}
            functions: dict[str, Callable[[], object]] = {
                name: functools.partial(function, *self.args, **self.kwargs) for name, function in callables.items()
            }
            for function in functions.values():
                function()
            return _timing.race(functions, self.cuda, seconds, 1 + len(compiled))

    def _for_peers(self, step: Callable[[], None]) -> None:
        start = time.monotonic()
        step()
        self.beside += time.monotonic() - start

    def _compile(self) -> None:
        """The module by torch.compile's default mode, if that runs it."""
        try:
            compiled = torch.compile(self.forward)
            with torch.no_grad(), _capture.kept_state(self.model):
                compiled(*self.args, **self.kwargs)
        except Exception as error:
            self.report.rejected[COMPILED] = _verify.failure(error)
            return
        self.compiled[COMPILED] = compiled

    def _capture_compiled(self) -> None:
        """torch.compile's module in a CUDA graph too, which reads the example where it is."""
        name, run = COMPILED + GRAPHED, functools.partial(self.compiled[COMPILED], *self.args, **self.kwargs)
        replay = Replay(lambda: [run()], self.device, list(self.model.buffers()))
        try:
            with torch.no_grad(), _capture.kept_state(self.model):
                if self._keeps_busy(run, _timing.fastest(run, True)):
                    self.report.rejected[name] = BUSY_ANYWAY
                    return
                replay([])
        except Exception as error:
            self.report.rejected[name] = _verify.failure(error)
            return
        self.compiled[name] = lambda *args, **kwargs: replay([])

    def _fastest(
        self, racers: dict[str, tuple[Fast, Alternative]], seconds: float, reference: _verify.Reference | None
    ) -> tuple[Fast, Alternative] | None:
        """Where the fastest is wrong, the others race again: some had left because of it."""
        report = self.report
        while racers:
            report.samples = samples = self._race(racers, self.compiled, seconds)
            name = next(name for name in _timing.ranking(samples) if name not in self.compiled)
            if name == "original":
                report.why.append("the module itself is the fastest")
                return None
            fast, alternative = racers[name]
            wrong = ""
            if reference is not None:
                _without_graphs(racers, name)  # what verifies needs memory
                try:
                    wrong = reference.wrong(fast, infinities=alternative.infinities)
                except torch.cuda.OutOfMemoryError as error:
                    wrong = _verify.failure(error)
            if not wrong:
                better, ratio, interval = _timing.faster(samples["original"], samples[name])
                if not better and ratio > _timing.GAIN:  # others disturbed the race: the two have one more
                    for both, more in self._race({name: racers[name]}, {}, seconds).items():
                        samples[both] += more
                    better, ratio, interval = _timing.faster(samples["original"], samples[name])
                    self.unclear = not better
                if not better:
                    report.why.append(f"{name} is not faster for certain ({ratio:.3g})")
                    return None
                report.chosen, report.speedup, report.interval = name, ratio, interval
                return racers[name]
            report.rejected[name] = wrong
            racers.pop(name)[0].replay = None
        report.why.append("no alternative is right")
        return None


def _without_graphs(racers: dict[str, tuple[Fast, Alternative]], but: str = "") -> None:
    """Frees the memory of CUDA graphs; who is called again captures anew."""
    for name, (fast, alternative) in racers.items():
        if alternative.graphed and name != but:
            fast.replay, fast.addresses = None, None
    torch.cuda.empty_cache()


def _peak(run: Callable[[], object]) -> int:
    """Bytes of a GPU's memory that a run takes."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    return torch.cuda.max_memory_allocated() - before


@dataclass
class Found:
    """A plan that runs, and what it was made of."""

    fast: Fast
    alternative: Alternative
    captured: _capture.Captured


def search(model, forward, args, kwargs, report: Report, seconds: float, verify: bool, compare=False) -> Found | None:
    """The plan for calls of one kind; None: the module itself, and the report says why."""
    start, waited, made = time.monotonic(), _timing.in_turn.waited, None
    try:
        made = Search(model, forward, args, kwargs, report)
        chosen = made.choose(seconds, verify, compare)
    except Unplannable as error:
        report.why.append(f"it runs as it was: {error}")
        return None
    finally:
        report.seconds = time.monotonic() - start - (_timing.in_turn.waited - waited) - (made.beside if made else 0)
    if chosen is None:
        return None
    fast, alternative = chosen
    made.captured.leaves = [  # shapes alone, not the caller's memory
        torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta") if isinstance(x, torch.Tensor) else x
        for x in made.captured.leaves
    ]
    return made.found(alternative, fast)
