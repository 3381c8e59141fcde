# SPDX-License-Identifier: Apache-2.0
"""What may be said about samples of time: the methods of the command (workbench/stats.c), so that its figures and
these are of one kind; a test holds them against each other. Medians and ranks; no interval where there are too few
samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# What an interval leaves out on each side, and where the normal distribution does so.
_FIGURE = (0.025, 1.959963984540054)  # 95 %: what is read beside other figures
_WORD = (0.0005, 3.2905267314918945)  # the 99.9 % level of verdicts
_SAME_BAND = 1.02
WORD_PAIRS = 11  # the fewest that allow a word
_EXACT = 50  # pairs up to which the signed-rank distribution is summed out


@dataclass(frozen=True)
class Summary:
    """Of samples in ns; low, high: where the median is, None below 6 samples."""

    median: float
    low: float | None
    high: float | None
    least: float
    most: float
    mean: float
    deviation: float


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
        """What a speed-up (the other's time / this time) allows one to say."""
        if self.low is None or self.high is None:
            return "unclear"
        if self.low >= 1 / _SAME_BAND and self.high <= _SAME_BAND:
            return "same"
        if self.low > 1:
            return "faster"
        return "slower" if self.high < 1 else "unclear"


def _quantile(ordered: Sequence[float], q: float) -> float:
    at = q * (len(ordered) - 1)
    k = int(at)
    if k + 1 >= len(ordered):
        return ordered[-1]
    return ordered[k] + (at - k) * (ordered[k + 1] - ordered[k])


def _median_rank(n: int) -> int:
    """The largest c with P(Binomial(n, 1/2) <= c - 1) <= tail; 0: n is too small."""
    if n > 1000:
        return int(0.5 * n - 0.5 * _FIGURE[1] * math.sqrt(n))
    term, total, c = 0.5**n, 0.0, 0
    while total + term <= _FIGURE[0]:
        total += term
        term *= (n - c) / (c + 1)
        c += 1
    return c


def _signed_rank(n: int, level: tuple[float, float]) -> int:
    """The largest c with P(V <= c - 1) <= tail, V Wilcoxon's signed-rank statistic of n pairs; 0: n is too small."""
    if n > _EXACT:
        pairs = n * (n + 1)
        return int(pairs / 4 - level[1] * math.sqrt(pairs * (2 * n + 1) / 24))
    ways = [1.0] + [0.0] * (n * (n + 1) // 2)  # subsets of the ranks 1..k by their sum, over 2^k
    for k in range(1, n + 1):
        for s in range(k * (k + 1) // 2, -1, -1):
            ways[s] = 0.5 * (ways[s] + (ways[s - k] if s >= k else 0.0))
    total, c = 0.0, 0
    while total + ways[c] <= level[0]:
        total += ways[c]
        c += 1
    return c


def summarize(samples: Sequence[float]) -> Summary:
    """At least one finite sample. The interval is made of two order statistics (the sign test turned round)."""
    ordered = sorted(samples)
    n = len(ordered)
    mean = math.fsum(ordered) / n
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in ordered) / (n - 1)) if n > 1 else 0.0
    c = _median_rank(n)
    low, high = (ordered[c - 1], ordered[n - c]) if c else (None, None)
    return Summary(_quantile(ordered, 0.5), low, high, ordered[0], ordered[-1], mean, deviation)


def _paired(above: Sequence[float], below: Sequence[float], level: tuple[float, float]) -> Ratio:
    logs = [math.log(a / b) for a, b in zip(above, below)]
    n = len(logs)
    walsh = sorted(0.5 * (logs[i] + logs[k]) for i in range(n) for k in range(i, n))
    c = _signed_rank(n, level)
    low, high = (math.exp(walsh[c - 1]), math.exp(walsh[len(walsh) - c])) if c else (None, None)
    return Ratio(math.exp(_quantile(walsh, 0.5)), low, high)


def ratio_paired(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """above[k] / below[k], where the k-th samples were taken side by side: Hodges-Lehmann estimate and Wilcoxon's
    signed-rank interval of the logarithms; 6 pairs at least for an interval."""
    return _paired(above, below, _FIGURE)


def speedup_paired(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """A ratio for a word: that of the two medians, which stand beside it, in an interval that holds in 999 of 1000 and
    has the ratio in it; WORD_PAIRS at least for an interval."""
    ratio, pairs = summarize(above).median / summarize(below).median, _paired(above, below, _WORD)
    if pairs.low is None or pairs.high is None:
        return Ratio(ratio, None, None)
    return Ratio(ratio, min(pairs.low, ratio), max(pairs.high, ratio))
