# SPDX-License-Identifier: Apache-2.0
"""Times of several peers, taken in turns (A B C, C A B, ...) with the ceilings of the machine between them, so that
what happens to the machine happens to all. Raw samples are kept; what they come to is said elsewhere (stats.py,
record.py).

Up to four series a peer. `step`: on a GPU the device's own clock round a step, the cache overwritten before, and long
enough that the host is ahead; on a processor the host's clock. On a GPU besides: `wall`, the host's clock over many
steps without a wait between them, for each; `host` and `host_moved`, the call alone, with the gradients of the step
before and with others."""

from __future__ import annotations

import dataclasses
import gc
import random
import time
from collections.abc import Callable, Sequence

import torch

from . import stats
from .peers import Peer
from .progress import waiting

LEAD_NS = 1_000_000  # how far the host is ahead at least when a timed step begins on the device
PAUSE_S = 0.005  # on a processor, before a sample: the threads of what ran before go to sleep
ERROR = 0.005  # half the median's interval over the median: known well enough
MOST_ROUNDS = 200
BURST = 8  # calls that a device's queue takes without waiting
WALL_NS = 10_000_000  # of steps in a row, at least, for one sample


@dataclasses.dataclass
class Times:
    """Samples in ns, each the time of one step."""

    step: list[float] = dataclasses.field(default_factory=list)
    wall: list[float] = dataclasses.field(default_factory=list)
    host: list[float] = dataclasses.field(default_factory=list)
    host_moved: list[float] = dataclasses.field(default_factory=list)


def now_ns() -> int:
    """The clock that the command reads."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


class Clock:
    """How a device is timed. On a processor only step() is there."""

    is_device = False

    def __init__(self, hot: bool) -> None:
        self.hot = hot

    def synchronize(self) -> None:
        pass

    def step(self, run: Callable[[], None]) -> float:
        time.sleep(PAUSE_S)
        if self.hot:
            run()
        start = now_ns()
        run()
        return float(now_ns() - start)


class CudaClock(Clock):
    is_device = True

    def __init__(self, hot: bool, device: torch.device, flush_bytes: int) -> None:
        super().__init__(hot)
        self.device = device
        self.cover = torch.empty(flush_bytes, dtype=torch.uint8, device=device) if flush_bytes else None
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.covers, self.cover_ns = 1, float(LEAD_NS)
        if self.cover is not None:
            self.cover_ns = min(self._between(self.cover.zero_) for _ in range(5))
            self.covers = 1 + int(LEAD_NS / self.cover_ns)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    def _between(self, run: Callable[[], object]) -> float:
        self.begin.record()
        run()
        self.end.record()
        self.end.synchronize()
        return self.begin.elapsed_time(self.end) * 1e6

    def step(self, run: Callable[[], None]) -> float:
        if self.hot or self.cover is None:
            run()
        else:
            for _ in range(self.covers):
                self.cover.zero_()
        return self._between(run)

    def wall(self, run: Callable[[], None], steps: int) -> float:
        self.synchronize()
        start = now_ns()
        for _ in range(steps):
            run()
        self.synchronize()
        return (now_ns() - start) / steps

    def host(self, run: Callable[[], object], before: Callable[[], None], calls: int) -> list[float]:
        """The call alone, `calls` times in a row; before each one `before`, which is not timed."""
        spent = []
        self.synchronize()
        for _ in range(calls):
            before()
            start = now_ns()
            run()
            spent.append(float(now_ns() - start))
        self.synchronize()
        return spent


FLUSH_BYTES = 256 << 20  # of a cache, at least, and twice the L2


def device_of(name: str | None) -> torch.device:
    """A GPU if there is one, or what is named. ValueError for what has no kernels here, RuntimeError for a GPU that is
    not there."""
    device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"the device is {device}, it must be cpu or cuda")
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if (device.index or 0) >= count:
            raise RuntimeError(f"{device} is asked for, and torch sees {count} GPUs")
        device = torch.device("cuda", device.index or 0)
        torch.cuda.set_device(device)  # takes no device without an index
    return device


def clock_of(device: torch.device) -> Clock:
    if device.type == "cuda":
        l2 = torch.cuda.get_device_properties(device).L2_cache_size
        return CudaClock(False, device, max(FLUSH_BYTES, 2 * l2))
    return Clock(False)


def _order(number: int, n: int) -> list[int]:
    """Of so many in a round, the same at every run: each round has its own, since what a call leaves behind, in caches
    and among threads, is paid for by the next one, which should not always be the same."""
    return random.Random(number).sample(range(n), n)


def in_turns(clock: Clock, restore: Callable[[], None], calls: list, rounds: int, warm: int = 3) -> list[list[float]]:
    """Samples in ns of each of the calls, taken in turns after `warm` calls of each; a call is (run, whether `restore`
    must go before it)."""
    samples: list[list[float]] = [[] for _ in calls]
    for run, _ in calls:
        for _ in range(warm):
            run()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for number in range(rounds):
            for k in _order(number, len(calls)):
                run, overwrites = calls[k]
                if overwrites:
                    restore()
                clock.synchronize()
                samples[k].append(clock.step(run))
    finally:
        restore()
        if was_enabled:
            gc.enable()
    return samples


def _known_well(times: Sequence[Times]) -> bool:
    for each in times:
        for samples in (each.step, each.wall):
            if samples:
                s = stats.summarize(samples)
                if s.low is None or s.high is None or s.high - s.low > 2 * ERROR * s.median:
                    return False
    return True


class Session:
    """The peers that are timed together. `ceilings` takes one sample of each ceiling of the machine."""

    def __init__(self, clock: Clock, peers: Sequence[Peer], ceilings: Callable[[], None], say: Callable[[str], None]):
        self.clock, self.peers, self.ceilings, self.say = clock, list(peers), ceilings, say
        self.times = [Times() for _ in self.peers]
        self.order: list[list[int]] = []  # of each round; the last number is the ceilings'

    def _warm_up(self) -> list[float]:
        """Steps until first calls and clocks are behind us; each peer's step in ns, roughly."""
        estimates = []
        for peer in self.peers:
            with waiting(self.say, f"warming up: {peer.name}"):
                for _ in range(2):
                    peer.step()
                self.clock.synchronize()
            start = now_ns()
            peer.step()
            self.clock.synchronize()
            estimates.append(float(now_ns() - start))
        return estimates

    def _take(self, k: int, estimate: float) -> None:
        peer, times, clock = self.peers[k], self.times[k], self.clock
        times.step.append(clock.step(peer.step))
        if not isinstance(clock, CudaClock):
            return
        times.wall.append(clock.wall(peer.step, max(3, 1 + int(WALL_NS / estimate))))
        # Even, so that no peer begins with the gradients that it ended with: all of them are swapped as often.
        calls = 2 * max(1, min(BURST // 2, int(WALL_NS / estimate)))
        times.host.extend(clock.host(peer.step, lambda: None, calls))

        def move() -> None:
            peer.of.swap_grads()
            peer.use(peer.of.grads)

        times.host_moved.extend(clock.host(peer.step, move, calls))

    def run(self, seconds: float, least: int) -> None:
        """Rounds until all medians are known well or the seconds are spent, at least `least` of them."""
        estimates = self._warm_up()
        n = len(self.peers)
        was_enabled = gc.isenabled()
        gc.collect()
        gc.disable()  # a collection belongs to no peer
        start = now_ns()
        try:
            for number in range(MOST_ROUNDS):
                spent = (now_ns() - start) * 1e-9
                if number >= least and (spent >= seconds or _known_well(self.times)):
                    break
                needed = f"of at least {least}, {spent:.0f} s"  # the first ones are taken whatever they take
                self.say(f"round {number + 1} " + (needed if number < least else f"at {spent:.0f} s of {seconds:.0f}"))
                order = _order(number, n + 1)
                self.order.append(order)
                for k in order:
                    self.clock.synchronize()
                    if k == n:
                        self.ceilings()
                    else:
                        self._take(k, estimates[k])
        finally:
            if was_enabled:
                gc.enable()
