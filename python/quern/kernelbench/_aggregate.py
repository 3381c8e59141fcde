# SPDX-License-Identifier: Apache-2.0
"""Means over problems, as KernelBench's users know them. A problem whose candidate is wrong, missing, slower or not
clearly faster counts 1.0, because the baseline runs in its place; a problem that cannot be judged is listed, and the
mean stands with and without it. fast_p is the share of problems whose candidate is correct and over p times faster."""

from __future__ import annotations

import math

from ._lines import CORRECT

FAST = (0.0, 1.0, 1.5, 2.0, 3.0, 5.0)


def geometric_mean(ratios: list[float]) -> float:
    """0.5 and 2 give 1. NaN for none."""
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def _gain(line: dict, over: str) -> float:
    """The speed-up that a user gets, with the baseline in the place of a candidate that does not help."""
    if line["verdict"] not in CORRECT or over not in line.get("speedup", {}):
        return 1.0
    return line["speedup"][over]["ratio"] if line["speedup"][over]["word"] == "faster" else 1.0


def _compile_wins(line: dict) -> bool:
    return line.get("speedup", {}).get("better", {}).get("of", "eager") != "eager"


def summary(lines: list[dict]) -> dict:
    """Of the latest line of each problem."""
    judged = [line for line in lines if line["verdict"] != "cannot be judged"]
    correct = [line for line in judged if line["verdict"] in CORRECT]
    over = {name: geometric_mean([_gain(line, name) for line in judged])
            for name in ("eager", "compile default", "better", "best")}  # fmt: skip
    wins = [line for line in judged if _compile_wins(line)]
    ratios = [_gain(line, "better") for line in correct]
    return {
        "problems": len(lines),
        "judged": len(judged),
        "correct": len(correct),
        "faster": sum(line["verdict"] == "faster" for line in judged),
        "geometric_mean": over,
        "geometric_mean_all": geometric_mean([_gain(line, "better") for line in lines]),
        "hybrids": sum(line.get("hybrid", False) for line in correct),
        "compile_beats_eager": len(wins),
        "without_times": sum(not line.get("speedup") for line in judged),
        "geometric_mean_where_compile_beats_eager": geometric_mean([_gain(line, "better") for line in wins]),
        "fast": {str(p): sum(r > p for r in ratios) / len(judged) if judged else math.nan for p in FAST},
        "excluded": {line["problem"]: line["reason"] for line in lines if line["verdict"] == "cannot be judged"},
    }


def text(title: str, s: dict) -> list[str]:
    """Lines for a reader."""
    mean = s["geometric_mean"]
    out = [
        f"{title}: {s['judged']} of {s['problems']} problems judged, {s['correct']} correct, {s['faster']} faster",
        f"  geometric mean over eager {mean['eager']:.3g}, default compile {mean['compile default']:.3g}, the better "
        f"{mean['better']:.3g}, the best of all modes {mean['best']:.3g}",
        f"  compile beats eager in {s['compile_beats_eager']} of {s['judged'] - s['without_times']} that were timed; "
        f"there the mean over the better is {s['geometric_mean_where_compile_beats_eager']:.3g}",
        f"  {s['hybrids']} of the correct ones use torch.compile besides kernels of their own",
        "  " + ", ".join(f"fast_{p} {share:.3g}" for p, share in s["fast"].items()),
    ]
    if s["excluded"]:
        out.append(f"  with the problems that cannot be judged counted as 1: {s['geometric_mean_all']:.3g}")
        out += [f"  excluded: {problem}: {reason}" for problem, reason in s["excluded"].items()]
    return out
