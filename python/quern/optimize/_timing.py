# SPDX-License-Identifier: Apache-2.0
"""Times functions in turns, and says which is faster than the first."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

import torch

from .._command import CommandError
from ..bench import stats, turns

FEWEST, MOST_ROUNDS = 11, 200
FLUSH_BYTES = 256 << 20  # more than any cache; the judge's
RUNS, ENOUGH_NS = 5, 5e7  # of `fastest`: two runs at least, no more once they took this long
LEAVE_FROM, BEHIND = 3, 1.25  # the round of `race` from which who takes so many times as long as the fastest leaves it
NEAR = 1.08  # the same once the time is over: calls are long
NOISE_NS = 30_000  # by which the host alone may delay a call
GAIN = 1.03  # that counts where no interval can be had
in_turn = turns.Turns()  # those of a folder's jobs, in a job


def race(functions: dict[str, Callable[[], object]], cuda: bool, seconds: float, stay: int = 1) -> dict[str, list[int]]:
    """Samples in ns of each function, all of them called in random order in each round: on a CPU by the host's clock.
    On a GPU between two events behind a flush of the caches, as the judge's headline is: the host's time counts as far
    as it is longer than the flush. The first `stay` functions are there to the end. Another leaves, with fewer samples,
    where it is behind the fastest that may be chosen: the first, or one after `stay`."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda") if cuda else None
    samples: dict[str, list[int]] = {name: [] for name in functions}
    lasting, order = [*functions][:stay], list(functions)
    until, rounds = time.monotonic() + seconds, 0
    while rounds < FEWEST or (time.monotonic() < until and rounds < MOST_ROUNDS):
        random.Random(rounds).shuffle(order)
        for name in order:
            if flush is not None:
                flush.zero_()
            samples[name].append(_once(functions[name], cuda))
        rounds += 1
        if rounds >= LEAVE_FROM:
            least = {name: min(samples[name]) for name in order}
            behind = BEHIND if time.monotonic() < until else NEAR
            most = behind * min(ns for name, ns in least.items() if name not in lasting[1:]) + NOISE_NS
            order = [name for name in order if least[name] <= most or name in lasting]
    return samples


def fastest(run: Callable[[], object], cuda: bool) -> int:
    """The least ns of a few runs, on a GPU behind flushes as in `race`."""
    flush = torch.empty(FLUSH_BYTES if cuda else 0, dtype=torch.uint8, device="cuda" if cuda else "cpu")
    samples: list[int] = []
    while len(samples) < 2 or len(samples) < RUNS and sum(samples) < ENOUGH_NS:
        flush.zero_()
        samples.append(_once(run, cuda))
    return min(samples)


def host_ns(run: Callable[[], object]) -> int:
    """The ns after which a call to the GPU returns, at its best of two, while nothing waits there."""
    samples = []
    for _ in range(2):
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        run()
        samples.append(time.perf_counter_ns() - start)
    return min(samples)


def _once(run: Callable[[], object], cuda: bool) -> int:
    if not cuda:
        start = time.perf_counter_ns()
        run()
        return time.perf_counter_ns() - start
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    return round(begin.elapsed_time(end) * 1e6)


def ranking(samples: dict[str, list[int]]) -> list[str]:
    """By the median; who left the race is behind all that did not."""
    most = max(map(len, samples.values()))
    return sorted(samples, key=lambda name: (len(samples[name]) < most, statistics.median(samples[name])))


def faster(baseline: list[int], own: list[int]) -> tuple[bool, float, tuple[float, float] | None]:
    """(whether it is, the ratio of the medians, its interval), in the rounds of both."""
    baseline = baseline[: len(own)]
    ratio = statistics.median(baseline) / max(statistics.median(own), 1)
    try:
        found = stats.speedup_paired(baseline, own)
        return found.verdict == "faster", found.ratio, (found.low or 0.0, found.high or 0.0)
    except (CommandError, ValueError):
        return ratio > GAIN, ratio, None


def bandwidth(device: torch.device) -> float:
    """Bytes per second that a copy reads and writes, at its best of several."""
    size = (256 << 20) if device.type == "cuda" else (32 << 20)
    a, b = (torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2))
    best = min(race({"copy": lambda: b.copy_(a)}, device.type == "cuda", 0.05)["copy"])
    return 2 * size / (best * 1e-9)
