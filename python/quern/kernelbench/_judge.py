# SPDX-License-Identifier: Apache-2.0
"""Judges a candidate by a reference: correct? how fast against the better of eager and compiled PyTorch? or refused,
because. Each model lives in a process of its own. Every call, timed ones too, gets data that no call had before, and
its whole output is compared with that of the reference on the same data."""

from __future__ import annotations

import contextlib
import random
import secrets
import time
from dataclasses import dataclass, field

import torch

from . import _compare, _process
from ._process import GIB, Broken, Failure, Limits, Process

LEVELS = {"quick": 3, "full": 8, "deep": 24}  # rounds of verification
SUSPICIOUS = 10.0  # a speed-up that needs a second run in a fresh process
SETS = 3  # of inputs; each call scales one by a factor of its own
FEWEST = 11  # trials that allow a word
IDLE_SECONDS = 0.06
FAILURES_OF_PROBLEM = ("inputs fail", "unfit inputs")


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
    threads: int = 0
    isolated: bool = True
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
    spike: int  # the element that grows, -1: none


class Model:
    """A model in a process: called on draws of data."""

    def __init__(self, process: Process, sets: list) -> None:
        self.process = process
        for value in sets:
            process.ask_with(value, "keep")
        self.samples: dict[str, list[int]] = {}
        self.lags: list[float] = []  # what the judge's clock saw beyond the process's, in ns
        self.behind: list[float] = []  # how long the device worked after the call's stream had finished, in ns
        self.left_threads = self.calls = 0

    def call(self, draw: Draw, options: Options, timer: str = "", watch: bool = False):
        """Runs the model once and returns its outputs and the answer of `collect`."""
        process = self.process
        staged = process.ask(
            "stage", which=draw.which, scale=draw.scale, spike=draw.spike,
            pad=64 * random.randrange(1, 1024), flush=timer != "simple",
        )  # fmt: skip
        start = time.perf_counter_ns()
        ran = process.ask("go", wait=bool(timer))
        wall = time.perf_counter_ns() - start
        if watch:
            self._idle()
        if options.gradients and not timer:
            process.ask("backward", seed=draw.spike & 0xFFFF)
        collected = process.ask("collect")
        outputs = process.outputs(collected, options.device)
        self.calls += 1
        self.left_threads += collected["threads"] > staged["threads"]
        ns = ran["event_ns"] if timer not in ("", "simple") and ran["event_ns"] is not None else ran["ns"]
        if type(ns) is not int or ns <= 0:
            raise Verdict("refused", "a time that is no positive number came out of its process")
        if timer:
            self.samples.setdefault(timer, []).append(ns)
            self.lags.append(wall - ran["ns"])
            if ran["device_ns"] is not None:
                self.behind.append(ran["device_ns"] - ran["event_ns"])
        return outputs, collected

    def _idle(self) -> None:
        """A process whose call has returned has nothing left to do."""
        before = self.process.cpu_seconds()
        time.sleep(IDLE_SECONDS)
        busy = self.process.cpu_seconds() - before
        if busy > IDLE_SECONDS / 4:
            raise Verdict("refused", f"its process computed for {busy * 1e3:.0f} ms after the call had returned")


class Judge:
    """Of one reference; the candidates come one after the other."""

    def __init__(self, reference: str, options: Options) -> None:
        self.path, self.options = reference, options
        self._stack = contextlib.ExitStack()
        self.notes: list[str] = []
        self.sets: list = []
        self.init: list = []
        self.flags: dict = {}
        self.most = self.mean = 0.0
        self.same_weights = True

    def __enter__(self) -> Judge:
        try:
            self._open()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_) -> None:
        self._stack.close()

    def _start(self, limits: Limits, folder: str = "") -> Process:
        folder = folder or self._stack.enter_context(_process.folder())
        options = self.options
        return self._stack.enter_context(Process(folder, options.device, options.threads, limits, options.isolated))

    def _reference(self, mode: str = "") -> Model:
        process = self._start(self.options.compile_limits if mode else self.options.run_limits)
        process.ask("load", path=self.path, name="Model")
        if not self.sets:
            for k in range(SETS):
                seed = self.options.seed if k == 0 else secrets.randbits(31)
                both = process.given(process.ask("inputs", seed=seed))
                if k == 0:
                    self.init = both["init"]
                self.sets.append(both["inputs"])
        answer = process.ask_with(
            self.init, "construct", seed=self.options.seed, compile_mode=mode or None, gradients=self.options.gradients
        )
        self.weights = answer["weights"]
        return Model(process, self.sets)

    def _open(self) -> None:
        try:
            self.eager = self._reference()
            self._check_problem()
        except (Failure, Broken) as error:
            kind = getattr(error, "kind", "broken")
            raise Unjudgeable(f"the reference: {kind}: {error}") from None
        self.baselines = {"eager": self.eager}

    def _draw(self, spiked: bool) -> Draw:
        return Draw(random.randrange(SETS), random.uniform(0.5, 1.0), random.getrandbits(30) if spiked else -1)

    def _check_problem(self) -> None:
        """The reference must answer alike to the same data, otherwise to other data, and known-wrong outputs fail."""
        options = self.options
        first, answer = self.eager.call(Draw(0, 1.0, -1), options)
        again, _ = self.eager.call(Draw(0, 1.0, -1), options)
        self.aliases, self.mutates = answer["overlap"], set(answer["changed"])
        if _compare.compare(again, first, options.tolerance).wrong:
            raise Unjudgeable(
                "the reference gives other outputs for the same inputs; it draws random numbers in forward"
            )
        other, _ = self.eager.call(Draw(1, 0.5, -1), options)
        passing = _compare.passing_mutants(first, other, options.tolerance)
        if passing:
            raise Unjudgeable(
                f"a wrong output passes for the reference's: {', '.join(passing)}; nothing can be proved by it"
            )
        self.first = first

    def compile(self) -> None:
        """Adds the compiled baselines; what cannot be compiled is noted."""
        for mode in self.options.compile_modes:
            try:
                model = self._reference(mode)
                outputs, _ = model.call(Draw(0, 1.0, -1), self.options)
                model.process.limits = self.options.run_limits
                self.baselines[f"compile {mode}"] = model
                if _compare.compare(outputs, self.first, self.options.tolerance).wrong:
                    self.notes.append(f"torch.compile ({mode}) is wrong for this reference; its time is kept")
            except (Failure, Broken) as error:
                self.notes.append(f"torch.compile ({mode}) does not run this reference: {error}")

    # ---- a candidate ----

    def _candidate(self, path: str, folder: str, limits: Limits) -> Model:
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

    def _verify(self, candidate: Model, draw: Draw, timer: str = "", watch: bool = False) -> _compare.Difference:
        """One call of the reference and, after it, of the candidate on the same data."""
        try:
            want, _ = self.eager.call(draw, self.options, timer)
        except Failure as failure:
            raise Unjudgeable(f"the reference fails on other data than its own: {failure.kind}: {failure}") from None
        got, answer = candidate.call(draw, self.options, timer, watch)
        self._untouched(answer)
        if set(answer["changed"]) - self.mutates:
            raise Verdict("refused", f"it changed its input number {min(set(answer['changed']) - self.mutates)}")
        if answer["overlap"] and not self.aliases:
            raise Verdict("refused", "its output shares memory with an input")
        if answer["flags"] != self.flags:
            changed = [name for name in self.flags if answer["flags"].get(name) != self.flags[name]]
            self.notes.append(f"it sets torch's {', '.join(changed)}")
            self.flags = answer["flags"]
        difference = _compare.compare(self._matched(got, want), want, self.options.tolerance)
        if difference.wrong:
            word = difference.kind if self.same_weights or difference.kind != "wrong values" else "different weights"
            raise Verdict(word, difference.wrong)
        self.most, self.mean = max(self.most, difference.most), max(self.mean, difference.mean)
        return difference

    def _matched(self, got, want):
        """Parameters' gradients in the reference's order: equal weights belong together, whatever their names."""
        if not isinstance(want, dict) or "parameters" not in want or not self.same_weights:
            return got
        rooms: dict[str, list] = {}
        for weight, gradient in zip(self.candidate_weights, got["parameters"]):
            rooms.setdefault(str(weight), []).append(gradient)
        return {**got, "parameters": [rooms[str(weight)].pop(0) for weight in self.weights]}

    def judge(self, path: str) -> dict:
        """The line of a candidate."""
        self.most = self.mean = 0.0
        self.same_weights = True
        base = len(self.notes)
        line: dict = {"candidate": path}
        try:
            with _process.folder() as folder:
                line |= self._judged(path, folder)
        except Verdict as verdict:
            line |= {"verdict": verdict.word, "reason": str(verdict)}
        except Failure as failure:
            line |= {"verdict": failure.kind, "reason": str(failure)}
        except Broken as broken:
            if self.process.running:
                raise Unjudgeable(f"a baseline: {broken}") from None
            line |= {"verdict": "broken", "reason": str(broken)}
        line |= {"max_abs": self.most, "mean_abs": self.mean, "isolation": self.process.isolation, "notes": self.notes}
        self.notes = self.notes[:base]
        return line

    def _judged(self, path: str, folder: str) -> dict:
        self.flags = {}
        warm = self._candidate(path, folder, self.options.compile_limits)
        with contextlib.suppress(Failure):  # the run phase says it
            warm.call(Draw(0, 1.0, -1), self.options)
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
        from . import _timing

        candidate = self._candidate(path, folder, self.options.run_limits)
        try:
            self.flags = candidate.process.ask("flags")["flags"]
            for k in range(LEVELS[level]):
                self._verify(candidate, self._draw(k % 2 == 1), watch=k == 1)
            same = candidate.call(Draw(0, 1.0, -1), self.options)[0], candidate.call(Draw(0, 1.0, -1), self.options)[0]
            line = {"deterministic": _compare.same_bits(*same)}
            self.outputs = same[0]
            if candidate.left_threads == candidate.calls:
                raise Verdict("refused", "each call leaves a thread behind")
            return line | _timing.race(self, candidate)
        finally:
            candidate.process.close()

    def precision(self) -> dict:
        """The errors of the candidate's and of eager PyTorch's first outputs against float64."""
        try:
            self.eager.process.ask("double")
            exact, _ = self.eager.call(Draw(0, 1.0, -1), self.options)
        except (Failure, Broken):
            return {}
        own, theirs = (_compare.error(x, exact) for x in (self.outputs, self.first))
        return {"error": own, "baseline_error": theirs, "class": _compare.precision(own, theirs)}


def fresh_seed() -> None:
    """The judge's own draws cannot be foreseen."""
    random.seed(secrets.randbits(64))
    torch.manual_seed(secrets.randbits(31))
