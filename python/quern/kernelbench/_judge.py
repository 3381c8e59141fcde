# SPDX-License-Identifier: Apache-2.0
"""Judges a candidate by a reference: correct? how fast against the better of eager and compiled PyTorch? or refused,
because. Each model lives in a process of its own. Every call, timed ones too, gets data that no call had before, and
its whole output is compared with that of the reference on the same data."""

from __future__ import annotations

import concurrent.futures
import contextlib
import random
import secrets
import time
from dataclasses import dataclass, field, replace

import torch

from ..bench.turns import Turns
from . import _ceilings, _compare, _exact, _files, _process, _settings, _tree
from ._process import GIB, Broken, Failure, Limits, Process

LEVELS = {"quick": 3, "full": 8, "deep": 24}  # rounds of verification
SUSPICIOUS = 10.0  # a speed-up that needs a second run in a fresh process
KINDS = ("heavy tail", "uniform", "sparse", "equal", "mixed magnitudes", "denormal")
TIES = ("sparse", "equal", "denormal")  # an index of the greatest has more than one right answer
SETS = 3  # of inputs; each call scales one by a factor of its own
FEWEST = 11  # trials that allow a word
IDLE_SECONDS, REST_SECONDS, IDLE_TURNS = 0.06, 0.1, 100
HEADLINE = ("eager", "compile default")  # the better of them is the original's baseline


@dataclass
class Options:
    device: str = "cpu"
    seed: int = 42
    trials: int = 100
    warmup: int = 3
    seconds: float = 30.0  # of the timing of one candidate
    level: str = "quick"
    tolerance: _compare.Tolerance = field(default_factory=lambda: _compare.Tolerance("original"))
    gradients: bool = False
    compile_modes: tuple[str, ...] = ("default",)
    ceilings: str = ""  # a file of `quern roofline --json`; "": measured
    threads: int = 0
    isolated: bool = True
    lock: str = ""  # a file; judges with the same one verify and time candidates in turns, while no other prepares
    compile_limits: Limits = Limits(600, 32 * GIB, 256)
    run_limits: Limits = Limits(120, 32 * GIB, 64)


class Unjudgeable(Exception):
    """The problem, not the candidate, is at fault."""


class Verdict(Exception):
    """Ends a judgement: a word and its reason."""

    def __init__(self, word: str, reason: str) -> None:
        super().__init__(reason)
        self.word = word


@dataclass(frozen=True)
class Draw:
    """The data of one call: a set of inputs, and how it is changed."""

    which: int
    scale: float
    spike: int | None  # the element that grows
    kind: str = ""  # another distribution
    rounded: bool = False  # inputs moved as rounding moves them


FIRST = Draw(0, 1.0, None)  # the problem's own inputs


class Model:
    """A model in a process: called on draws of data."""

    def __init__(self, process: Process, sets: list) -> None:
        self.process = process
        for value in sets:
            process.ask_with(value, "keep")
        self.samples: dict[str, list[int]] = {}
        self.lags: list[float] = []  # what the judge's clock saw beyond the process's and waits for a processor, in ns
        self.behind: list[float] = []  # how long the device worked after the call's stream had finished, in ns
        self.left_threads = self.calls = 0
        self.warm = False  # whether a call on other data comes before each timed one

    def call(self, draw: Draw, options: Options, timer: str = "", watch: bool = False):
        """Runs the model once and returns its outputs, which the next call overwrites, and the answer of `collect`."""
        process = self.process
        staged = self._run(draw, timer, True)
        if watch:
            self._idle()
        if options.gradients and not timer:
            process.ask("backward", seed=(draw.spike or 0) & 0xFFFF)
        collected = process.ask("collect")
        self.calls += 1
        self.left_threads += collected["threads"] > staged["threads"]
        return process.outputs(collected), collected

    def kept(self, draw: Draw, options: Options):
        """The same for outputs that stay."""
        outputs, collected = self.call(draw, options)
        return _tree.copied(outputs), collected

    def time(self, draw: Draw, timer: str) -> None:
        """Runs the model once and looks at the time alone."""
        self._run(draw, timer, False)

    def _run(self, draw: Draw, timer: str, check: bool) -> dict:
        staged = self.process.ask(
            "stage", which=draw.which, scale=draw.scale, spike=draw.spike, kind=draw.kind, rounded=draw.rounded,
            pad=64 * random.randrange(1, 1024), warm=self.warm and bool(timer), check=check,
        )  # fmt: skip
        waited, start = self.process.waited_ns(), time.perf_counter_ns()
        ran = self.process.ask("go", wait=bool(timer), flush=timer != "simple")
        wall = time.perf_counter_ns() - start
        waited = self.process.waited_ns() - waited
        ns = ran["event_ns"] if timer not in ("", "simple") and ran["event_ns"] is not None else ran["ns"]
        if type(ns) is not int or type(ran["ns"]) is not int or ns <= 0:
            raise Verdict("refused", "a time that is no positive number came out of its process")
        if timer and ran["ns"] > wall:
            raise Verdict("refused", "its clock reports more time than has passed")
        if timer:
            self.samples.setdefault(timer, []).append(ns)
            self.lags.append(max(0, wall - waited - ran["ns"]))
            if ran["device_ns"] is not None:
                self.behind.append(ran["device_ns"] - ran["event_ns"])
        return staged

    def _idle(self) -> None:
        """A process whose call has returned has nothing left to do. Threads of OpenMP look for work for a while: a
        process that comes to rest soon is no cheat. On a busy machine that takes longer, but no more computing."""
        process, began = self.process, time.monotonic()
        start = process.cpu_seconds()
        for _ in range(IDLE_TURNS):
            before, waited = process.cpu_seconds(), process.waiting_seconds()
            time.sleep(IDLE_SECONDS)
            now = process.cpu_seconds()
            if now - before + process.waiting_seconds() - waited <= IDLE_SECONDS / 4:
                return
            if time.monotonic() - began > REST_SECONDS and now - start > REST_SECONDS:
                raise Verdict("refused", f"its process computes {REST_SECONDS:g} s after the call had returned")


class Judge:
    """Of one reference; the candidates come one after the other. `alone`: none comes, so that nothing is compared."""

    def __init__(self, reference: str, options: Options, alone: bool = False) -> None:
        self.path, self.options, self.alone = reference, options, alone
        self.in_turn = Turns(options.lock)
        self._stack = contextlib.ExitStack()
        self.notes: list[str] = []
        self.sets: list = []
        self.init: list = []
        self.flags: dict = {}
        self.control: Model | None = None
        self.most = self.mean = 0.0
        self.same_weights, self.in_doubt = True, False

    def __enter__(self) -> Judge:
        # One thread compares: it works in its cache, and leaves the other cores to the models.
        self._stack.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)
        for caches in {"", _process.caches() if self.options.compile_modes else ""}:
            _process.nursery(caches)  # by this thread: with the thread that starts it, it ends
        self._stack.callback(self.in_turn.leave)
        try:
            self.in_turn.work_beside()
            self._open()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_) -> None:
        self._stack.close()

    def _start(self, limits: Limits, folder: str = "", caches: str = "") -> Process:
        folder = folder or self._stack.enter_context(_process.folder())
        options = self.options
        process = Process(folder, options.device, options.threads, limits, options.isolated, caches, options.gradients)
        return self._stack.enter_context(process)

    def _reference(self, mode: str = "") -> Model:
        limits = self.options.compile_limits if mode else self.options.run_limits
        process = self._start(limits, caches=_process.caches() if mode else "")
        process.ask("load", path=self.path, name="Model")
        asked = {"seed": self.options.seed, "compile_mode": mode or None, "gradients": self.options.gradients}
        if self.alone:  # nobody compares: each process makes its own inputs
            process.ask("inputs", seed=self.options.seed, own=True)
            process.ask("construct", **asked)
            return Model(process, [])
        if not self.sets:
            for k in range(SETS):
                seed = self.options.seed if k == 0 else secrets.randbits(31)
                both = process.given(process.ask("inputs", seed=seed, domain=k == SETS - 1))
                if k == 0:
                    self.init = both["init"]
                self.sets.append(both["inputs"])
            self.sets += both["domain"]
        self.weights = process.ask_with(self.init, "construct", **asked)["weights"]
        return Model(process, self.sets)

    def _open(self) -> None:
        try:
            if self.alone:  # processes start and build their models at once; nothing is timed yet
                modes = ("", *self.options.compile_modes)
                with concurrent.futures.ThreadPoolExecutor(len(modes)) as pool:
                    self._started = {mode: pool.submit(self._reference, mode) for mode in modes}
                self.eager = self._started[""].result()
                self.eager.time(FIRST, "")
            else:
                self.eager = self._reference()
                self._check_problem()
        except (Failure, Broken) as error:
            kind = getattr(error, "kind", "broken")
            raise Unjudgeable(f"the reference: {kind}: {error}") from None
        self.baselines = {"eager": self.eager}
        self.usual = self.eager.process.ask("flags")["flags"]
        try:
            self.work = self.eager.process.ask("work")
        except Failure as failure:
            self.work = {}
            self.notes.append(f"no roofline: the reference {failure.kind}: {failure}")
        except Broken as broken:
            raise Unjudgeable(f"the reference, while its operations are counted: {broken}") from None

    def _draw(self, spiked: bool) -> Draw:
        spike = random.choice([-1, random.getrandbits(30)]) if spiked else None
        return Draw(random.randrange(SETS if self.sets else 1), random.uniform(0.5, 1.0), spike)

    def _draws(self, level: str) -> list[Draw]:
        """Of a verification: the problem's own data, data with a spike, other distributions, and other shapes."""
        kinds = [kind for kind in KINDS if not (self.whole and kind in TIES)]
        kinds = random.sample(kinds, 1) if level == "quick" else kinds
        hidden: list[int] = list(range(SETS, len(self.sets)))
        hidden = random.sample(hidden, min(2, len(hidden))) if level == "quick" else hidden
        made = [self._draw(False), self._draw(True), *(Draw(k, random.uniform(0.5, 1.0), -1) for k in hidden)]
        made += [replace(self._draw(random.random() < 0.5), kind=kind) for kind in kinds]
        return made + [self._draw(k % 2 == 1) for k in range(LEVELS[level] - len(made))]

    def _check_problem(self) -> None:
        """The reference must answer alike to the same data, otherwise to other data, and known-wrong outputs fail."""
        options = self.options
        first, answer = self.eager.kept(FIRST, options)
        again, _ = self.eager.call(FIRST, options)
        self.whole = not all(t.is_floating_point() for t in _tree.tensors(first))
        self.aliases, self.mutates = answer["overlap"], set(answer["changed"])
        if _compare.compare(again, first, options.tolerance, options.device).wrong:
            raise Unjudgeable(
                "the reference gives other outputs for the same inputs; it draws random numbers in forward"
            )
        other, _ = self.eager.call(Draw(1, 0.5, None), options)
        passing = _compare.passing_mutants(first, other, options.tolerance, options.device)
        if passing:
            raise Unjudgeable(
                f"a wrong output passes for the reference's: {', '.join(passing)}; nothing can be proved by it"
            )
        self.first = first

    def open_control(self) -> None:
        """Eager PyTorch once more, in another process. On a GPU it would need the memory of the models again."""
        if not self.control and self.options.device == "cpu":
            self.control = self._reference()

    def compile(self) -> None:
        """Adds the compiled baselines; what cannot be compiled is noted."""
        options = self.options
        for mode in options.compile_modes:
            try:
                model = self._started[mode].result() if self.alone else self._reference(mode)
                if self.alone:
                    model.time(FIRST, "")
                else:
                    outputs, _ = model.call(FIRST, options)
                    if _compare.compare(outputs, self.first, options.tolerance, options.device).wrong:
                        self.notes.append(f"torch.compile ({mode}) is wrong for this reference; its time is kept")
                model.process.limits = options.run_limits
                self.baselines[f"compile {mode}"] = model
            except (Failure, Broken) as error:
                self.notes.append(f"torch.compile ({mode}) does not run this reference: {error}")

    # ---- a candidate ----

    def _candidate(self, path: str, folder: str, limits: Limits) -> Model:
        self.in_turn.work_beside()  # again, where a turn came before
        process = self._start(limits, folder)
        self.process = process
        try:
            loaded = process.ask("load", path=path, name="ModelNew")
            built = process.ask_with(self.init, "construct", seed=self.options.seed, gradients=self.options.gradients)
            self._untouched({**loaded, **built})
            self.same_weights = sorted(map(str, built["weights"])) == sorted(map(str, self.weights))
            self.candidate_weights = built["weights"]
            return Model(process, self.sets)
        except Failure as failure:
            raise Verdict(failure.kind, str(failure)) from None

    def _untouched(self, answer: dict) -> None:
        if answer["replaced"]:
            raise Verdict(
                "refused", f"it replaced {', '.join(map(str, answer['replaced']))}, which the measurement uses"
            )

    def _wanted(self, draw: Draw, timer: str):
        try:
            return self.eager.call(draw, self.options, timer)
        except Failure as failure:
            raise Unjudgeable(f"the reference fails on other data than its own: {failure.kind}: {failure}") from None

    def _verify(self, candidate: Model, draw: Draw, timer: str = "", watch: bool = False) -> _compare.Difference:
        """One call of the reference and of the candidate on the same data."""
        calls = [lambda: self._wanted(draw, timer), lambda: candidate.call(draw, self.options, timer, watch)]
        if timer and random.random() < 0.5:  # who is first waits more on a busy machine, or less
            (got, answer), (want, _) = calls[1](), calls[0]()
        else:
            (want, _), (got, answer) = calls[0](), calls[1]()
        self._untouched(answer)
        if set(answer["changed"]) - self.mutates:
            raise Verdict("refused", f"it changed its input number {min(set(answer['changed']) - self.mutates)}")
        if answer["behind"]:
            raise Verdict("refused", "it wrote behind the end of an input")
        if not candidate.process.same_priority():
            raise Verdict("refused", "it changed the priority of its process")
        if answer["overlap"] and not self.aliases:
            raise Verdict("refused", "its output shares memory with an input")
        if answer["flags"] != self.flags:
            changed = [name for name in self.usual if answer["flags"].get(name) != self.usual[name]]
            self.notes.append(f"it sets torch's {', '.join(changed)}")
            self.flags = answer["flags"]
        got = self._matched(got, want)
        difference = _compare.compare(got, want, self.options.tolerance, self.options.device)
        if difference.wrong and not timer and _exact.unsteady(self, draw, got, want):
            return difference
        if difference.wrong and draw.kind and not _exact.refutes(self, draw, got):
            return difference
        if difference.wrong:
            word = difference.kind if self.same_weights or difference.kind != "wrong values" else "different weights"
            raise Verdict(word, difference.wrong)
        self.most, self.mean = max(self.most, difference.most), max(self.mean, difference.mean)
        return difference

    def _perturb(self, candidate: Model) -> None:
        """One element of the inputs is changed: where the reference moves most, the candidate moves as far."""
        draw = self._draw(True)
        before, after = ([model.kept(d, self.options)[0] for model in (self.eager, candidate)]
                         for d in (replace(draw, spike=None), draw))  # fmt: skip
        still = _compare.still(*before, *after)
        if still:
            raise Verdict("wrong values", f"one element of the inputs changes the reference's output; {still}")

    def _matched(self, got, want):
        """Parameters' gradients in the reference's order: equal weights belong together, whatever their names."""
        if not isinstance(want, dict) or "parameters" not in want or not self.same_weights:
            return got
        rooms: dict[str, list] = {}
        for weight, gradient in zip(self.candidate_weights, got["parameters"]):
            rooms.setdefault(str(weight), []).append(gradient)
        found = []
        for weight, right in zip(self.weights, want["parameters"]):
            room = rooms[str(weight)]  # where several weights are equal, the nearest gradient belongs to this one
            nearest = [_compare.compare(one, right, self.options.tolerance).most for one in room] if room[1:] else [0]
            found.append(room.pop(nearest.index(min(nearest))))
        return {**got, "parameters": found}

    def judge(self, path: str) -> dict:
        """The line of a candidate."""
        self.most = self.mean = 0.0
        self.same_weights, self.in_doubt = True, False
        base = len(self.notes)
        line: dict = {}
        try:
            with _process.folder() as folder:
                line |= self._judged(path, folder)
        except Verdict as verdict:
            line |= {"verdict": verdict.word, "reason": str(verdict)}
        except Failure as failure:
            line |= {"verdict": failure.kind, "reason": str(failure)}
        except Broken as broken:
            if not all(model.process.running for model in self.baselines.values()):
                raise Unjudgeable(f"a baseline: {broken}") from None
            line |= {"verdict": "broken", "reason": str(broken)}
        line["hybrid"] = _files.hybrid(path)
        line |= {"max_abs": self.most, "mean_abs": self.mean, "isolation": self.process.isolation, "notes": self.notes}
        self.notes = self.notes[:base]
        return line

    def _judged(self, path: str, folder: str) -> dict:
        self.flags = self.usual
        warm = self._candidate(path, folder, self.options.compile_limits)
        with contextlib.suppress(Failure):  # the run phase says it
            warm.call(FIRST, self.options)
        warm.process.close()
        line = self._run(path, folder, self.options.level)
        if line["speedup"]["better"]["ratio"] > SUSPICIOUS and self.options.level == "quick":
            first = line["speedup"]["better"]["ratio"]
            line = self._run(path, folder, "full")
            self.notes.append(
                f"{first:.3g} times the better baseline is suspicious; a second process was checked in full"
            )
        return line

    def _run(self, path: str, folder: str, level: str) -> dict:
        candidate = self._candidate(path, folder, self.options.run_limits)
        try:
            with self.in_turn():
                return self._verified(candidate, level)
        finally:
            candidate.process.close()

    def _verified(self, candidate: Model, level: str) -> dict:
        from . import _timing

        for k, draw in enumerate(self._draws(level)):
            self._verify(candidate, draw, watch=k == 1)
        for _ in range(0 if level == "quick" or self.options.gradients else LEVELS[level] // 4):
            self._perturb(candidate)
        same = candidate.kept(FIRST, self.options)[0], candidate.kept(FIRST, self.options)[0]
        line = {"deterministic": _compare.same_bits(*same)}
        for outputs in same:
            self.outputs = self._matched(outputs, self.first)
            found = _compare.compare(self.outputs, self.first, self.options.tolerance, self.options.device)
            if found.wrong and not _exact.unsteady(self, FIRST, self.outputs, self.first):
                raise Verdict(found.kind, found.wrong)
        if candidate.left_threads == candidate.calls:
            raise Verdict("refused", "each call leaves a thread behind")
        settings = _settings.read(self.options.device)
        line |= _timing.race(self, candidate) | _exact.precision(self, FIRST)
        self._settled(line, settings)
        if self.in_doubt:
            _unclear(line)
        return line | self._under(line)

    def _settled(self, line: dict, before: dict) -> None:
        """Times under two settings of a GPU are not compared, whoever changed them."""
        after = _settings.read(self.options.device)
        changed = [name for name in before if after.get(name) != before[name]]
        if changed:
            self.notes.append(f"the GPU's {', '.join(changed)} changed while it was timed: its times say nothing")
            _unclear(line)

    def under(self, line: dict, kind: str) -> dict:
        """Where a line's headline stands under the ceilings; nothing where the work is not known."""
        if not self.work:
            return {}
        medians = {name: s["median_ns"] for name, s in line["timers"][line["timer"]].items()}
        better = min(ns for name, ns in medians.items() if name in HEADLINE)
        return {
            "roofline": _ceilings.roofline(self.work, self._ceilings(), kind, medians.get("candidate", better), better)
        }

    def _ceilings(self, again: bool = False) -> _ceilings.Ceilings:
        measured = _ceilings.measure(self.options.device, again)
        return _ceilings.of_file(self.options.ceilings, self.options.device) if self.options.ceilings else measured

    def _under(self, line: dict) -> dict:
        """The same for a candidate; a time below the floor is refused, once the ceilings were measured again."""
        kind = line.get("precision", {}).get("class", "below bf16")
        found = self.under(line, kind)
        ns = line["timers"][line["timer"]]["candidate"]["median_ns"]
        moved = {**self.work, "sparse": True}  # bytes alone: a product with a diagonal matrix needs fewer operations
        for again in (False, True):
            least = _ceilings.least_ns(moved, self._ceilings(again), kind) if found else 0.0
            if ns >= _ceilings.SLACK * least:
                if found and ns < _ceilings.SLACK * _ceilings.least_ns(self.work, self._ceilings(), kind):
                    self.notes.append("it needs fewer operations than PyTorch's, or other units than its class")
                return found
        raise Verdict("refused", f"{ns * 1e-6:.4g} ms is too fast to be true: the bytes take {least * 1e-6:.4g} ms")


def _unclear(line: dict) -> None:
    line["verdict"] = "unclear"
    for speedup in line["speedup"].values():
        speedup["word"] = "unclear"


def fresh_seed() -> None:
    """The judge's own draws cannot be foreseen."""
    random.seed(secrets.randbits(64))
    torch.manual_seed(secrets.randbits(31))
