# SPDX-License-Identifier: Apache-2.0
"""`python -m quern.kernelbench run DIR`: judges a copy of KernelBench, one line of JSON a problem; a run that was
interrupted continues where the lines end. Without candidates it times the baselines alone."""

from __future__ import annotations

import argparse
import concurrent.futures.process
import dataclasses
import hashlib
import json
import multiprocessing
import os
import pathlib
import tempfile
from collections.abc import Iterator

from . import _aggregate, _files, _judge, _lines, _timing
from .__main__ import PROGRAM, fail, options_of, shared

_Place = tuple[int, int]  # level and number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{PROGRAM} run",
        description="Judge a copy of KernelBench: DIR/levelN/M_name.py. Candidates are files of another folder whose "
        "paths name level and number (level1/problem_23/x_kernel.py, level1/23_x.py). Without candidates the baselines "
        "are timed alone.",
    )
    add = parser.add_argument
    add("folder", metavar="DIR", help="a copy of KernelBench")
    add("--levels", metavar="LIST", default="", help="such as 1,2; all unless given")
    add("--problems", metavar="LIST", default="", help="numbers within the levels, such as 1,23; all unless given")
    add("--candidates", metavar="DIR", help="one candidate a problem; the last by name where there are several")
    add("--jobs", type=int, default=1, metavar="N",
        help="problems at a time: they compile side by side, and then are timed in turns; 1 unless given")  # fmt: skip
    shared(parser)
    return parser


def _key(problem: str, candidate: str | None, options: _judge.Options) -> str:
    """What a line depends on: both texts and what was asked."""
    digest = hashlib.sha256()
    for path in filter(None, (problem, candidate)):
        digest.update(pathlib.Path(path).read_bytes())
    asked = (
        options.device,
        options.seed,
        options.level,
        options.tolerance.name,
        options.gradients,
        options.compile_modes,
        options.threads,
    )
    digest.update(repr(asked).encode())
    return digest.hexdigest()[:16]


def _kept(path: str | None) -> dict[str, dict]:
    """The lines of an earlier run by key; a last line that is not whole is left out."""
    lines: dict[str, dict] = {}
    if path and path != "-" and os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for text in file:
                try:
                    line = json.loads(text)
                    lines[line["key"]] = line
                except (ValueError, KeyError, TypeError):
                    continue
    return lines


def _baselines(problem: str, options: _judge.Options) -> dict:
    """The line of a problem without candidates."""
    _judge.fresh_seed()
    try:
        with _judge.Judge(problem, options, alone=True) as judging:
            judging.compile()
            with judging.in_turn():
                line = {**_timing.baselines(judging), "notes": judging.notes}
    except _judge.Unjudgeable as error:
        line = _lines.unjudgeable(str(error))
    return {**_lines.head(problem, None, options), **line}


def _line(problem: str, candidate: str | None, options: _judge.Options) -> dict:
    return next(_lines.judge(problem, [candidate], options)) if candidate else _baselines(problem, options)


def _judged(
    work: dict[_Place, tuple[str, str | None]], options: _judge.Options, jobs: int
) -> Iterator[tuple[_Place, dict]]:
    """Yields where and the line of each problem and candidate, as they are done. The next jobs start when all before
    them have ended: else somebody would always prepare, and nobody could time."""
    if jobs == 1:
        yield from ((at, _line(*files, options)) for at, files in work.items())
        return
    spawned = multiprocessing.get_context("spawn")  # a process that used a GPU cannot be forked
    with tempfile.NamedTemporaryFile() as lock, concurrent.futures.ProcessPoolExecutor(jobs, spawned) as pool:
        options = dataclasses.replace(options, lock=lock.name)
        left = list(work.items())
        try:
            while left:
                running = {pool.submit(_line, *files, options): at for at, files in left[:jobs]}
                del left[:jobs]
                for one in concurrent.futures.as_completed(running):
                    yield running[one], one.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _short(line: dict) -> str:
    if "speedup" in line and "better" in line["speedup"]:
        better = line["speedup"]["better"]
        return f"{line['verdict']}, {better['ratio']:.3g} times the better of eager and compile ({better['of']})"
    medians = ", ".join(
        f"{name} {s['median_ns'] * 1e-6:.4g} ms"
        for name, s in line.get("timers", {}).get(line.get("timer"), {}).items()
    )
    return line["verdict"] + (f": {line['reason']}" if line["reason"] else "") + (f" ({medians})" if medians else "")


def main(words: list[str]) -> int:
    arguments = _parser().parse_args(words)
    try:
        if arguments.jobs < 1:
            raise ValueError(f"--jobs is {arguments.jobs}, it must be at least 1")
        options = options_of(arguments, not arguments.candidates)
        levels, numbers = _files.numbers(arguments.levels, "--levels"), _files.numbers(arguments.problems, "--problems")
        problems = _files.problems(arguments.folder, levels)
        problems = {at: path for at, path in problems.items() if not numbers or at[1] in numbers}
        candidates = _files.by_problem(arguments.candidates) if arguments.candidates else {}
    except ValueError as error:
        return fail(str(error))
    done, lines, worst, quiet = _kept(arguments.json), [], 0, arguments.json == "-"

    def tell(at: _Place, line: dict) -> None:
        nonlocal worst
        lines.append(line)
        worst = max(worst, _lines.status_of(line) if arguments.candidates else 0)
        if not quiet:
            print(f"level {at[0]} problem {at[1]}: {_short(line)}", flush=True)

    work: dict[_Place, tuple[str, str | None]] = {}
    keys = {}
    for at, problem in problems.items():
        keys[at] = _key(problem, candidates.get(at), options)
        if keys[at] in done:
            tell(at, done[keys[at]])
        else:
            work[at] = problem, candidates.get(at)
    try:
        for at, line in _judged(work, options, arguments.jobs):
            line = {"key": keys[at], "level": at[0], "number": at[1], **line}
            _lines.keep(line, arguments.json)
            tell(at, line)
    except concurrent.futures.process.BrokenProcessPool:
        return fail("a job ended in the middle of a problem; the same command continues behind the lines that it kept")
    if not quiet and candidates:
        for level in sorted({line["level"] for line in lines}):
            chosen = [line for line in lines if line["level"] == level]
            print("\n".join(_aggregate.text(f"level {level}", _aggregate.summary(chosen))))
        print("\n".join(_aggregate.text("all", _aggregate.summary(lines))))
    return worst
