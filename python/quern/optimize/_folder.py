# SPDX-License-Identifier: Apache-2.0
"""A folder of KernelBench problems: each is optimized in a process forked from this one, which has PyTorch loaded. What
has a file already is passed over, so that a run that was interrupted continues."""

from __future__ import annotations

import argparse
import importlib
import os
import pathlib
import signal
import sys
import tempfile
import time
import traceback

from .. import _threads
from ..bench import turns
from ..kernelbench import _files
from . import _problem

_LOADED = ("torch._dynamo", "torch.export", "torch.utils.flop_counter")  # once, here
_TAIL = 300  # characters of a sentence


def run(arguments: argparse.Namespace) -> int:
    """The exit status."""
    try:
        levels, numbers = _files.numbers(arguments.levels, "--levels"), _files.numbers(arguments.problems, "--problems")
        problems = _files.problems(arguments.problem, levels)
    except ValueError as error:
        raise _problem.Bad(str(error)) from None
    for name in _LOADED:
        importlib.import_module(name)
    work = []
    for at, path in problems.items():
        out = pathlib.Path(arguments.out) / f"level{at[0]}" / pathlib.Path(path).name
        if (not numbers or at[1] in numbers) and not out.exists():
            try:
                out.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise _problem.Bad(f"--out is {arguments.out}: {error.strerror}") from None
            work.append((f"level {at[0]} problem {at[1]}", path, out))
    running: dict[int, _Child] = {}
    failed = 0
    with tempfile.NamedTemporaryFile() as lock:
        while work or running:
            for _ in range(0 if running else min(arguments.jobs, len(work))):  # all of them compile, then each times
                child = _Child(*work.pop(0), lock.name, arguments)
                running[child.pid] = child
            for child in list(running.values()):
                said = child.ended()
                if said is not None:
                    del running[child.pid]
                    failed += child.failed
                    print(f"{child.name}: {said}", flush=True)
            time.sleep(0.01)
    return 2 if failed else 0


class _Child:
    """A process that optimizes one problem and says one sentence."""

    def __init__(self, name: str, problem: str, out: pathlib.Path, lock: str, arguments: argparse.Namespace) -> None:
        self.name, self.failed = name, False
        self.until = time.monotonic() + arguments.time_limit
        self.limit = arguments.time_limit
        sys.stdout.flush()
        self.said, end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                status = _serve(end, problem, str(out), lock, arguments)
            finally:
                os._exit(status)
        os.close(end)

    def ended(self) -> str | None:
        """The sentence; None: it runs still."""
        late = time.monotonic() > self.until
        if late:
            os.kill(self.pid, signal.SIGKILL)
        pid, status = os.waitpid(self.pid, 0 if late else os.WNOHANG)
        if not pid:
            return None
        with os.fdopen(self.said, encoding="utf-8", errors="replace") as pipe:
            said = pipe.read()
        code = os.waitstatus_to_exitcode(status)
        self.failed = code != 0
        if late:
            return f"no file: it took more than {self.limit:g} s"
        return said if said else f"no file: its process ended by {'signal' if code < 0 else 'status'} {abs(code)}"


def _serve(end: int, problem: str, out: str, lock: str, arguments: argparse.Namespace) -> int:
    from . import _timing
    from .__main__ import optimize_file

    _timing.in_turn = turns.Turns(lock)
    _timing.in_turn.work_beside()
    _threads.parent_was_idle()
    silent = os.open(os.devnull, os.O_WRONLY)  # problems print
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    try:
        name = os.path.join(*pathlib.Path(problem).parts[-2:])
        report = optimize_file(problem, out, arguments, name)
        said, status = str(report).splitlines()[0] + f" ({report.seconds:.1f} s)", 0
        if report.chosen == "original" and report.why:
            said += ": " + "; ".join(report.why)
    except _problem.Bad as error:
        said, status = f"no file: {error}", 2
    except Exception:
        said, status = f"no file: {traceback.format_exc(limit=-1).strip().splitlines()[-1]}", 2
    os.write(end, said[:_TAIL].encode())
    return status
