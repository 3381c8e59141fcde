# SPDX-License-Identifier: Apache-2.0
"""Statistics of samples of time, the shapes of a workload, and how a line of JSON begins: the command says all of it
(workbench/figures.h), so that its figures and these are of one kind. One process of it answers all questions."""

from __future__ import annotations

import atexit
import functools
import json
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from .._command import CommandError, environment, find

WORD_PAIRS = 11  # QN_WORD_PAIRS: the fewest pairs that allow a word
_LOCK = threading.Lock()


@functools.cache
def _process() -> subprocess.Popen[str]:
    command = [find(), "report", "--figures-here"]
    made = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=environment()
    )
    atexit.register(_end, made)
    return made


def _end(process: subprocess.Popen[str]) -> None:
    if process.stdin:
        process.stdin.close()
    process.wait()


def _ask(question: dict) -> dict:
    with _LOCK:
        process = _process()
        assert process.stdin and process.stdout  # both are pipes
        process.stdin.write(json.dumps(question, separators=(",", ":")) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
    if not line:
        raise CommandError(f"quern report --figures-here ended with status {process.wait()}", 1)
    answer = json.loads(line)
    if "error" in answer:
        raise ValueError(answer["error"])
    return answer


@dataclass(frozen=True)
class Summary:
    """Of samples in ns; low, high: where the median is, None below 6 samples."""

    median: float
    low: float | None
    high: float | None
    min: float
    max: float
    mean: float
    sd: float


@dataclass(frozen=True)
class Ratio:
    """A ratio of two times with its interval; None where there are too few samples for one."""

    ratio: float
    low: float | None
    high: float | None

    def times(self, factor: float) -> Ratio:
        low, high = (None if x is None else x * factor for x in (self.low, self.high))
        return Ratio(self.ratio * factor, low, high)

    @property
    def verdict(self) -> str:
        """The word that a speed-up (the other's time / this time) allows."""
        return _ask({"verdict": [self.low, self.high]})["verdict"]


def summarize(samples: Sequence[float]) -> Summary:
    """At least one sample."""
    return Summary(**_ask({"samples": list(samples)}))


def series(samples: Sequence[float]) -> dict:
    """A series of docs/result-line.schema.json."""
    s = summarize(samples)
    return {
        "mean_ns": s.mean,
        "median_ns": s.median,
        "interval_ns": [s.low, s.high],
        "sd_ns": s.sd,
        "min_ns": s.min,
        "max_ns": s.max,
        "samples_ns": list(samples),
    }


def ratio_paired(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """above[k] / below[k], where the k-th samples were taken side by side; 6 pairs at least for an interval."""
    return Ratio(**_ask({"above": list(above), "below": list(below)}))


def speedup_paired(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """A ratio for a word: that of the two medians, in an interval that holds in 999 of 1000; WORD_PAIRS at least for an
    interval."""
    return Ratio(**_ask({"above": list(above), "below": list(below), "word": True}))


def head(schema: str, kind: str, index: int, **machine: object) -> dict:
    """How a line begins: schema, date, version, commit, machine, build. `machine`: what else there is to say of it."""
    said = _ask({"head": kind, "index": index})
    return {"schema": schema, **said, "machine": {**said["machine"], **machine}}


def workload(name: str) -> list[tuple[int, ...]]:
    """The shapes of the command's workload of this name ("gpt2-124m", "12x3000"). ValueError: there is none."""
    return [tuple(shape) for shape in _ask({"workload": name})["shapes"]]
