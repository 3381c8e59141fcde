# SPDX-License-Identifier: Apache-2.0
"""Verdicts as lines: of text for a reader, of JSON for a program."""

from __future__ import annotations

import json
import math
import os
import platform

import torch

from ..bench import stats
from . import _judge

CORRECT = ("faster", "same", "slower", "unclear")


def status_of(line: dict) -> int:
    return 0 if line["verdict"] in CORRECT else 2 if line["verdict"] == "cannot be judged" else 1


def head(problem: str, candidate: str | None, options: _judge.Options) -> dict:
    """How a line of docs/verdict-line.schema.json begins."""
    device = torch.device(options.device)
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    return {
        **stats.head("quern verdict 1", device.type, device.index or 0, **versions),
        "problem": problem,
        "candidate": candidate,
        "seed": options.seed,
        "check": options.level,
        "tolerance": options.tolerance.record(),
        "gradients": options.gradients,
    }


def unjudgeable(reason: str) -> dict:
    return {"verdict": "cannot be judged", "reason": reason, "notes": []}


def judge(problem: str, candidates: list[str], options: _judge.Options):
    """Yields a line for each candidate of a problem."""
    _judge.fresh_seed()
    for candidate in candidates:
        try:
            with _judge.Judge(problem, options) as judging:
                judging.compile()
                line = judging.judge(candidate)
        except _judge.Unjudgeable as error:
            line = unjudgeable(str(error))
        except torch.cuda.OutOfMemoryError as error:  # of the judge, which compares on the device
            line = unjudgeable(f"the judge itself: {str(error).partition('. ')[0]}")
        yield {**head(problem, candidate, options), **line}


def _milliseconds(ns: float) -> str:
    return f"{ns * 1e-6:.4g}"


def _table(line: dict) -> list[str]:
    rows = [["timer", "model", "n", "mean", "median", "sd", "min", "max"]]
    for timer, models in line["timers"].items():
        for name, s in models.items():
            figures = [_milliseconds(s[f"{which}_ns"]) for which in ("mean", "median", "sd", "min", "max")]
            rows.append([timer, name, str(len(s["samples_ns"])), *figures])
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    made = []
    for row in rows:
        texts = [cell.ljust(w) if k < 2 else cell.rjust(w) for k, (cell, w) in enumerate(zip(row, widths))]
        made.append("  " + "  ".join(texts))
    return [*made, "  (times in ms)"]


def text(line: dict) -> str:
    """A verdict for a reader."""
    word = f"correct, {line['verdict']}" if line["verdict"] in CORRECT else line["verdict"]
    out = [f"{os.path.basename(line['candidate'])}: {word}" + (f": {line['reason']}" if line["reason"] else "")]
    if "timers" in line:
        out += _table(line)
        for name, s in line["speedup"].items():
            low, high = s["interval"]
            interval = f" [{low:.3g}, {high:.3g}]" if low is not None else ""
            of = f" ({s['of']})" if name in ("better", "best") else ""
            out.append(f"  speed-up over {name}{of}: {s['ratio']:.3g}{interval} {s['word']}")
        tolerance = line["tolerance"]
        out.append(
            f"  greatest difference {line['max_abs']:.3g}, mean {line['mean_abs']:.3g}; tolerance {tolerance['name']}"
        )
        if "precision" in line:
            p = line["precision"]
            out.append(
                f"  error against float64 {p['error']:.2g}, eager PyTorch's {p['baseline_error']:.2g}: "
                f"class {p['class']}"
            )
        if "roofline" in line:
            r = line["roofline"]
            out.append(
                f"  {r['bound']} bound: {r['operations']:.4g} operations, {r['bytes']:.4g} bytes; floor "
                f"{_milliseconds(r['floor_ns'])} ms; it takes {r['distance']:.3g} floors, the better baseline "
                f"{r['headroom']:.3g}"
            )
        out.append(f"  {'the same' if line['deterministic'] else 'other'} bits when run again")
    isolation = line.get("isolation")
    if isolation is not None and ("files" not in isolation["denied"] or "network" not in isolation["namespaces"]):
        got = [*isolation["namespaces"], *isolation["denied"]]
        out.append(f"  isolation is partial: this system granted {', '.join(got) or 'none of its parts'}")
    return "\n".join(out + [f"  note: {note}" for note in line["notes"]])


def _finite(value):
    """The same with null in the place of what JSON cannot say."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def keep(line: dict, path: str | None) -> None:
    """Appends a line to a file; - prints it."""
    made = json.dumps(_finite(line), separators=(",", ":"), allow_nan=False) + "\n"
    if path == "-":
        print(made, end="", flush=True)
    elif path:
        with open(path, "a+b") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # an interrupted run's last line
                    made = "\n" + made
            file.write(made.encode())


def judge_all(work: list[tuple[str, list[str]]], options: _judge.Options, path: str | None) -> int:
    """Judges, prints and keeps; returns the exit status."""
    worst = 0
    for problem, candidates in work:
        for line in judge(problem, candidates, options):
            worst = max(worst, status_of(line))
            if path != "-":
                print(text(line), flush=True)
            keep(line, path)
    return worst
