# SPDX-License-Identifier: Apache-2.0
"""The command `quern` as a companion: it says what a workload is, what machine this is and how many bytes a step moves,
and times the ceilings of this machine between our own samples, each time we ask (workbench/beside.h). So nothing of
that has a copy here, and a share is of a ceiling of the same moments. It times no peer and knows none."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sysconfig
import tempfile

from .. import _library


class CommandError(Exception):
    """The command is missing or will not do. `status` is the exit status that it ended with or would end with: 2 is a
    mistake of the caller's, 3 a lack of this machine's, 1 all else."""

    def __init__(self, sentence: str, status: int = 3) -> None:
        super().__init__(sentence)
        self.status = status


def _environment() -> dict[str, str]:
    """The command's: without the variables that are Python's alone, which it would call unknown."""
    return {name: value for name, value in os.environ.items() if name not in ("QUERN_LIBRARY", "QUERN_COMMAND")}


def _candidates() -> list[str]:
    """Where the command is looked for: QUERN_COMMAND alone if it is set; where the package's scripts are; beside a
    library of a build folder or an installation; on the PATH."""
    said = os.environ.get("QUERN_COMMAND")
    if said:
        return [said]
    library = pathlib.Path(_library.path).resolve()
    beside = [library.parents[1] / "cli/quern", library.parents[1] / "bin/quern"] if len(library.parents) > 1 else []
    found = shutil.which("quern")
    return [os.path.join(sysconfig.get_path("scripts"), "quern"), *map(str, beside), *([found] if found else [])]


def find() -> str:
    """The path of the command of this package's own version. CommandError names what was tried."""
    tried = []
    for path in _candidates():
        if not os.access(path, os.X_OK) or os.path.isdir(path):
            tried.append(f"{path}: not there")
            continue
        try:
            answer = subprocess.run(
                [path, "list", "--json"], capture_output=True, text=True, timeout=60, env=_environment()
            )
            version = json.loads(answer.stdout)["version"]
        except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired):
            tried.append(f"{path}: not quern's command")
            continue
        if version == _library.version:
            return path
        tried.append(f"{path}: version {version}, the library is {_library.version}")
    raise CommandError(
        "the command quern is wanted, for workloads and ceilings; tried "
        + "; ".join(tried)
        + "; QUERN_COMMAND=/path/to/quern names another; `make build` makes one, and `pip install .` where jansson is"
    )


class Companion:
    """A running command with one workload. `head` is what a line of `quern bench --json` says before anything is timed,
    besides "shapes" and "flush_bytes"."""

    def __init__(self, arguments: list[str]) -> None:
        self._said = tempfile.TemporaryFile(mode="w+", encoding="utf-8")  # noqa: SIM115 - close() closes it
        self._process = subprocess.Popen(
            [find(), "bench", *arguments, "--ceilings-here"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            encoding="utf-8",
            env=_environment(),
        )
        asks, answers = self._process.stdin, self._process.stdout
        assert asks is not None and answers is not None  # both are pipes
        self._asks, self._answers = asks, answers
        try:
            self.head: dict = self._read()
        except BaseException:
            self.close()
            raise

    def _read(self) -> dict:
        line = self._answers.readline()
        if line:
            return json.loads(line)
        status = self._process.wait()
        self._said.seek(0)
        said = self._said.read().strip()
        raise CommandError(said.removeprefix("quern bench: ") or f"quern bench ended with status {status}", status or 1)

    def round(self) -> None:
        """One sample of each ceiling; returns when they are taken."""
        with contextlib.suppress(BrokenPipeError):  # then it has ended, and _read says why
            self._asks.write("\n")
            self._asks.flush()
        self._read()

    def end(self) -> dict:
        """The samples of all rounds: "ceilings", "ceiling", "copy", "floor_ns", "clocks"."""
        self._asks.close()
        last = self._read()
        self.close()
        return last

    def close(self) -> None:
        """Ends the command, whatever it does."""
        with contextlib.suppress(BrokenPipeError):
            self._asks.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()
        self._said.close()

    def __enter__(self) -> Companion:
        return self

    def __exit__(self, *_) -> None:
        self.close()
