# SPDX-License-Identifier: Apache-2.0
"""`python -m quern.bench OP --random N --seed S` times quern on problems drawn from the op's domain, in turns with
eager and compiled PyTorch and a copy of as many bytes. `quern bench OP --random N --seed S --list` draws the problems,
so both commands have the same ones on every machine. Each result is first compared with float64. A problem's ratio is
the time of the fastest of PyTorch's over quern's; the end tells the ratios' distribution and the worst problems, each
with the commands that run it alone.

Without --device the GPU is used if there is one. On a GPU a step is the device's time between two events with a cold
cache, and the host's time of a call is taken besides."""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

from . import command, measure, record, single, stats, sweep_forms
from .table import duration
from .turns import Turns

PROGRAM = "python -m quern.bench"
SLOWER, WORST = 0.97, 5
NO_PEERS = ("quern", "copy")
HOST_CALLS = 24
ROUNDS = (100, 15)  # of samples of each, on a processor, whose times scatter, and on a GPU
LEAD_NS = 200_000


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"{PROGRAM} OP", description=" ".join(__doc__.split()))
    add = parser.add_argument
    add("op", metavar="OP", help=f"of {', '.join(sweep_forms.FORMS)}")
    add("--random", type=int, metavar="N", required=True, help="problems")
    add("--seed", type=int, default=1, metavar="S", help="of the problems; 1 unless given")
    add("--first", type=int, default=0, metavar="K", help="number of the first problem; 0 unless given")
    add("--most-bytes", type=int, metavar="B", help="of a problem's tensors, as `quern bench` has it")
    add("--device", help="cpu, cuda or cuda:N; a GPU if there is one unless given")
    add("--threads", type=int, metavar="N", help="of the processor, for torch and quern; torch's unless given")
    add("--rounds", type=int, metavar="R", help="samples of each; {1} unless given, on a processor {0}".format(*ROUNDS))
    add("--jobs", type=int, default=1, metavar="J", help="processes, which compile side by side and time in turns")
    add("--lock", metavar="FILE", help="commands with one FILE time in turns")
    add("--time-budget", type=float, metavar="S", help="most time for everything; what finds none left is counted")
    add("--no-compile", action="store_true", help="leave torch.compile out")
    add("--json", "-j", metavar="FILE", help="append each measurement with its raw samples as a line of JSON")
    add("--share", metavar="K/J", help=argparse.SUPPRESS)  # a job's part of the problems, its lines on the output
    return parser


# ---- problems ----
def draw(arguments: argparse.Namespace) -> list[dict]:
    """CommandError says what is wrong with the op, the numbers or the machine."""
    words = ["bench", arguments.op, "--random", str(arguments.random), "--seed", str(arguments.seed), "--list"]
    words += ["--first", str(arguments.first)]
    if arguments.most_bytes is not None:
        words += ["--most-bytes", str(arguments.most_bytes)]
    said = subprocess.run(
        [command.find(), *words], capture_output=True, text=True, env=command.environment(), check=False
    )
    if said.returncode:
        sentence = (said.stderr.strip().splitlines() or [f"quern bench ended with status {said.returncode}"])[0]
        raise command.CommandError(sentence.removeprefix("quern bench: "), said.returncode)
    return [json.loads(line) for line in said.stdout.splitlines()]


def again(problem: dict, most_bytes: int | None) -> str:
    """The command that measures the problem alone."""
    least = f"{PROGRAM} {problem['op']} --random 1 --first {problem['number']} --seed {problem['seed']}"
    return least + (f" --most-bytes {most_bytes}" if most_bytes is not None else "")


# ---- one problem ----
def _warm(form: sweep_forms.Form, clock: measure.Clock, absent: dict[str, str], no_compile: bool) -> None:
    """First calls, which compile. Whatever PyTorch raises is told, and the others go on."""
    for name in list(form.calls):
        if name == "compile" and no_compile:
            del form.calls[name]
            continue
        form.around(name)
        try:
            form.calls[name]()
            clock.synchronize()
        except Exception as error:
            absent[name] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
            del form.calls[name]


def _host(form: sweep_forms.Form, clock: measure.CudaClock) -> dict[str, list[float]]:
    taken = {}
    for name, call in form.calls.items():
        form.around(name)
        before = form.restore if name in form.overwriting else lambda: None
        taken[name] = clock.host(call, before, HOST_CALLS)
    return taken


def _steps(form: sweep_forms.Form, clock: measure.Clock, rounds: int) -> dict[str, list[float]]:
    def of(name: str, call: Callable) -> Callable:
        def run() -> None:
            form.around(name)
            call()

        return run

    calls = [(of(name, call), name in form.overwriting) for name, call in form.calls.items()]
    return dict(zip(form.calls, measure.in_turns(clock, form.restore, calls, rounds)))


def _lead(clock: measure.CudaClock, host: dict[str, list[float]]) -> None:
    """The host must be ahead of the device by the longest call, and by what now and then holds it up."""
    longest = max(stats.summarize(samples).median for samples in host.values())
    clock.covers = 1 + int(min(3 * measure.LEAD_NS, LEAD_NS + 2 * longest) / clock.cover_ns)


def _compare(line: dict, steps: dict[str, list[float]], host: dict[str, list[float]], nbytes: int) -> None:
    rows: dict[str, Any] = {}
    for name, samples in steps.items():
        rows[name] = {"step": record.series(name, nbytes, [round(ns) for ns in samples])}
        if name in host:
            rows[name]["host_ns"] = stats.summarize(host[name]).median
    own = rows["quern"]["step"]
    peers = {name: row for name, row in rows.items() if name not in NO_PEERS}
    line |= {"rows": rows, "share_of_copy": rows["copy"]["step"]["median_ns"] / own["median_ns"]}
    best = min(peers, key=lambda name: peers[name]["step"]["median_ns"], default="")
    if best:
        ratio = stats.speedup_paired(peers[best]["step"]["samples_ns"], own["samples_ns"])
        line |= {"beside": best, "speedup": record.ratio(ratio), "verdict": ratio.verdict}
    if best and host:
        line["host_speedup"] = min(row["host_ns"] for row in peers.values()) / rows["quern"]["host_ns"]


def measure_one(problem: dict, clock: measure.Clock, turns: Turns, arguments: argparse.Namespace) -> dict:
    device = getattr(clock, "device", torch.device("cpu"))
    most = arguments.most_bytes
    line: dict[str, Any] = single.head("quern sweep 1", device) | {"problem": problem, "again": again(problem, most)}
    absent: dict[str, str] = {}
    torch._dynamo.reset()
    with turns():
        form = sweep_forms.FORMS[problem["op"]](problem, device)
        clock.synchronize()
    _warm(form, clock, absent, arguments.no_compile)
    with turns():
        form.restore()
        form.around("quern")
        wrong = f"it raised {absent['quern']}" if "quern" in absent else form.check()
        line |= {"check": {"right": not wrong, "wrong": wrong}, "absent": absent}
        if wrong:
            return line
        host: dict[str, list[float]] = {}
        if isinstance(clock, measure.CudaClock):
            host = _host(form, clock)
            _lead(clock, host)
        rounds = arguments.rounds or ROUNDS[clock.is_device]
        _compare(line, _steps(form, clock, rounds), host, form.bytes)
    return line


# ---- what they come to ----
def text(line: dict) -> str:
    """As people read it."""
    problem = line["problem"]
    what = f"{problem['types'].split()[0]} {problem['shape']}; {problem['set']}"
    if not line["check"]["right"]:
        return f"{problem['number']:>5}  WRONG  {what}: {line['check']['wrong']}"
    ratio = f"{line['speedup']['ratio']:.3f}" if "speedup" in line else "-"
    times = ", ".join(f"{name} {duration(row['step']['median_ns'])}" for name, row in line["rows"].items())
    return f"{problem['number']:>5}  {ratio:>6}  {what}\n{'':15}{times}"


def _distribution(name: str, ratios: list[float]) -> str:
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    slower = sum(ratio < SLOWER for ratio in ratios)
    return (
        f"{name}: geometric mean {mean:.3f}, least {min(ratios):.3f}, "
        f"under {SLOWER} in {slower} of {len(ratios)} ({100 * slower / len(ratios):.0f} %)"
    )


def summary(op: str, lines: list[dict], asked: int) -> str:
    """The distribution and the worst problems."""
    timed = [line for line in lines if "speedup" in line]
    wrong = [line for line in lines if not line["check"]["right"]]
    out = [f"{op}: {len(lines)} of {asked} problems, {len(wrong)} wrong"]
    for key, name in (("speedup", "time against the fastest of PyTorch's"), ("host_speedup", "host time likewise")):
        ratios = [line[key]["ratio"] if key == "speedup" else line[key] for line in timed if key in line]
        if ratios:
            out.append(_distribution(name, ratios))
    large = [
        line["share_of_copy"] for line in lines if line.get("problem", {}).get("bytes", 0) >= 4e6 and "rows" in line
    ]
    if large:
        out.append(_distribution("rate against a copy's, from 4 MB on", large))
    timed.sort(key=lambda line: line["speedup"]["ratio"])
    for line in wrong + timed[:WORST]:
        out.append(f"{text(line)}\n{'':15}{line['again']}\n{'':15}{line['problem']['command']}")
    return "\n".join(out)


# ---- running ----
def _here(problems: list[dict], arguments: argparse.Namespace, tell: Callable[[dict], None]) -> None:
    device = measure.device_of(arguments.device)
    clock, turns, start = measure.clock_of(device), Turns(arguments.lock), time.monotonic()
    for problem in problems:
        if arguments.time_budget is not None and time.monotonic() - start > arguments.time_budget:
            return
        tell(measure_one(problem, clock, turns, arguments))


def _in_jobs(arguments: argparse.Namespace, argv: list[str], tell: Callable[[dict], None]) -> None:
    """Each job measures its share and prints lines of JSON."""
    with tempfile.TemporaryDirectory() as folder:
        lock = [] if arguments.lock else ["--lock", os.path.join(folder, "turns")]
        here = str(pathlib.Path(__file__).parents[2])
        path = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "1", "PYTHONPATH": path}
        jobs = [
            subprocess.Popen(
                [sys.executable, "-m", "quern.bench", *argv, *lock, "--share", f"{k}/{arguments.jobs}"],
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for k in range(arguments.jobs)
        ]
        waiting = {job.stdout.fileno(): job.stdout for job in jobs if job.stdout}
        with selectors.DefaultSelector() as ready:
            for file in waiting.values():
                ready.register(file, selectors.EVENT_READ)
            while ready.get_map():
                for key, _ in ready.select():
                    line = key.fileobj.readline()  # type: ignore[union-attr]
                    if line:
                        tell(json.loads(line))
                    else:
                        ready.unregister(key.fileobj)
        ended = [job.wait() for job in jobs]
    if any(ended):
        raise RuntimeError(f"jobs ended with status {', '.join(map(str, ended))}")


def _run(arguments: argparse.Namespace, argv: list[str]) -> int:
    if arguments.op not in sweep_forms.FORMS:
        from .. import _ops

        _ops.op(arguments.op)  # an unknown op's own sentence
        raise ValueError(f"{arguments.op} has no form in PyTorch here; there are of {', '.join(sweep_forms.FORMS)}")
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    problems, lines = draw(arguments), []
    if arguments.share:
        k, jobs = (int(number) for number in arguments.share.split("/"))
        _here(problems[k::jobs], arguments, lambda line: print(json.dumps(line), flush=True))
        return 0

    def tell(line: dict) -> None:
        lines.append(line)
        single.tell(line, text, arguments.json)

    try:
        if arguments.jobs > 1:
            _in_jobs(arguments, argv, tell)
        else:
            _here(problems, arguments, tell)
    finally:
        print(summary(arguments.op, lines, len(problems)), flush=True)
    return 0 if all(line["check"]["right"] for line in lines) else 1


def main(argv: list[str]) -> int:
    """Exit status as of `python -m quern.bench`."""
    parser = _parser()
    arguments = single.parsed(parser, argv)
    for name, least in (("random", 1), ("jobs", 1), ("first", 0), ("seed", 0), ("most_bytes", 1), ("threads", 1)):
        value = getattr(arguments, name)
        if value is not None and value < least:
            parser.error(f"--{name.replace('_', '-')} is {value}, it must be at least {least}")
    try:
        with torch.no_grad():
            return single.ended(PROGRAM, arguments.json, lambda: _run(arguments, argv))
    except command.CommandError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return error.status
