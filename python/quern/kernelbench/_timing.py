# SPDX-License-Identifier: Apache-2.0
"""Times a candidate and the baselines in turns, each call on data of its own. Three timers, as KernelBench's users know
them: simple (host clock round call and synchronisation), event (device events, cache flushed before each call; on a
GPU) and do_bench (as event, but warmed and repeated by budgets of milliseconds; on a CPU by the host's clock).
PyTorch's own, torch.utils.benchmark, is a further source: its calls are not verified, and no word comes from it."""

from __future__ import annotations

import random
import statistics
import time

from ..bench import stats
from ._judge import FEWEST, HEADLINE, Unjudgeable, Verdict
from ._process import Broken, Failure

WARMUP_MS, REPEAT_MS = 25.0, 100.0  # of do_bench
WARM_NS = 5e6  # the host's time counts in calls that are shorter
BENCHMARK_SECONDS = 0.05
LAG_NS = 5e4  # a difference of clocks that is nobody's
HIDDEN = 3.0  # times what a process reports: a difference of clocks that no machine's noise makes
NOTED = 0.2  # the same, from which its time is not believed


def _call(judge, models: list, draw, timer: str) -> None:
    try:
        for model in models:
            model.time(draw, timer)
    except (Failure, Broken) as error:
        raise Unjudgeable(f"a baseline: {getattr(error, 'kind', 'broken')}: {error}") from None


def _turn(judge, candidate, timer: str) -> None:
    """One call of each model, in random order; the candidate's is verified."""
    draw = judge._draw(True)  # else a multiple of an earlier call's data: outputs kept and scaled would pass
    others = [model for name, model in judge.baselines.items() if name != "eager"]
    others += [judge.control] if judge.control and timer in ("warmup", "simple") else []
    random.shuffle(others)
    cut = random.randrange(len(others) + 1)
    _call(judge, others[:cut], draw, timer)
    judge._verify(candidate, draw, timer)
    _call(judge, others[cut:], draw, timer)


def _excess(own: list[float], reference: list[float]) -> float:
    """How far `own` exceeds the reference's, in ns; the least and the median both must, as one alone may be noise."""
    least = min(own) - 2 * min(reference) - LAG_NS
    median = statistics.median(own) - 1.5 * statistics.median(reference) - LAG_NS
    return min(least, median)


def _believed(judge, candidate, reported_ns: float) -> bool:
    """A process reports the times of its calls; the judge's own clock sees a request and an answer more, and nothing
    else. On a GPU the device must be idle when the call's stream is. False: the times allow no word."""
    lag = _excess(candidate.lags, judge.eager.lags)
    if lag > HIDDEN * reported_ns:
        raise Verdict("refused", f"its clock misses {lag * 1e-6:.3g} ms of each call that the judge's clock sees")
    late = _excess(candidate.behind, judge.eager.behind) if candidate.behind else 0.0
    if late > NOTED * reported_ns:
        raise Verdict(
            "refused", f"the device works {late * 1e-6:.3g} ms longer than the call's stream; another runs work"
        )
    if lag > NOTED * reported_ns:
        judge.notes.append(f"the judge's clock sees {lag * 1e-6:.3g} ms more in each call than the process reports")
    return lag <= NOTED * reported_ns


def _count(judge, timer: str) -> int:
    if timer != "do_bench":
        return judge.options.trials
    estimate = statistics.median(judge.eager.samples["simple"]) * 1e-6
    return max(FEWEST, min(judge.options.trials, int(REPEAT_MS / max(estimate, 1e-3))))


def _timers(judge) -> list[str]:
    return ["simple", *(["event"] if judge.options.device.startswith("cuda") else []), "do_bench"]


def _benchmark(judge, model) -> list[int]:
    """The samples of torch.utils.benchmark, which the process took."""
    try:
        samples = model.process.ask("benchmark", seconds=BENCHMARK_SECONDS)["ns"]
    except (Failure, Broken) as error:
        kind = getattr(error, "kind", "broken")
        if model in judge.baselines.values():
            raise Unjudgeable(f"a baseline, when called again and again: {kind}: {error}") from None
        raise Verdict(kind, f"when called again and again: {error}") from None
    if not samples or not all(type(ns) is int and ns > 0 for ns in samples):
        raise Verdict("refused", "times that are no positive numbers came out of its process")
    return samples


def _sample(judge, models: dict, turn) -> tuple[str, dict]:
    """Runs the trials of every timer; returns the headline's timer and the series."""
    options, timers = judge.options, _timers(judge)
    for model in [*models.values(), *([judge.control] if judge.control else [])]:
        model.samples, model.lags, model.behind = {}, [], []
    for _ in range(options.warmup):
        turn("warmup")
    on_gpu, first = options.device.startswith("cuda"), judge.eager.samples.get("warmup")
    for model in {*models.values(), judge.eager}:  # alike, as a model may count its calls
        model.warm = on_gpu and first is not None and statistics.median(first) < WARM_NS
    until = time.monotonic() + options.seconds
    for k, timer in enumerate(timers):
        share = time.monotonic() + (until - time.monotonic()) / (len(timers) - k)
        for n in range(_count(judge, timer)):
            if n >= FEWEST and time.monotonic() > share:
                break
            turn(timer)
    series = {t: {name: stats.series(model.samples[t]) for name, model in models.items()} for t in timers}
    return "event" if "event" in timers else "simple", series


def _benchmarks(judge, models: dict) -> dict:
    return {name: stats.series(_benchmark(judge, model)) for name, model in models.items()}


def baselines(judge) -> dict:
    """The times of the baselines alone."""

    def turn(timer: str) -> None:
        draw = judge._draw(False)
        _call(judge, random.sample(list(judge.baselines.values()), len(judge.baselines)), draw, timer)

    headline, series = _sample(judge, judge.baselines, turn)
    series["benchmark"] = _benchmarks(judge, judge.baselines)
    line = {"verdict": "baselines", "reason": "", "timer": headline, "timers": series}
    return line | judge.under(line, "baseline's")


def _word(judge, ratio, headline: str) -> str:
    """Two processes with the same model differ by when they run and where their memory lies, which no interval of two
    processes knows. The control's interval bounds that difference, and only a greater one is faster or slower."""
    if not judge.control:
        return ratio.verdict
    eager, control = (model.samples[headline] for model in (judge.eager, judge.control))
    same = stats.speedup_paired(eager, control)
    if same.low is None or same.high is None:
        return "unclear"
    most = max(same.high, 1 / same.low)
    if ratio.verdict == "faster" and ratio.low <= most or ratio.verdict == "slower" and ratio.high * most >= 1:
        return "unclear"
    return ratio.verdict


def race(judge, candidate) -> dict:
    """The times of all models and the speed-ups over each baseline."""
    judge.open_control()
    models = {**judge.baselines, "candidate": candidate}
    headline, series = _sample(judge, models, lambda timer: _turn(judge, candidate, timer))
    own = candidate.samples[headline]
    believed = _believed(judge, candidate, statistics.median(own))
    series["benchmark"] = _benchmarks(judge, models)  # by a clock that is not looked at again
    medians = {name: statistics.median(model.samples[headline]) for name, model in judge.baselines.items()}
    original = [name for name in medians if name in HEADLINE]
    chosen = {name: name for name in medians}
    chosen |= {"better": min(original, key=medians.__getitem__), "best": min(medians, key=medians.__getitem__)}
    speedup = {}
    for name, baseline in chosen.items():
        ratio = stats.speedup_paired(judge.baselines[baseline].samples[headline], own)
        speedup[name] = {
            "of": baseline,
            "ratio": ratio.ratio,
            "interval": [ratio.low, ratio.high],
            "word": _word(judge, ratio, headline) if believed else "unclear",
        }
    return {
        "verdict": speedup["better"]["word"],
        "reason": "",
        "timer": headline,
        "timers": series,
        "speedup": speedup,
    }
