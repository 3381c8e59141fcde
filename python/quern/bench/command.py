# SPDX-License-Identifier: Apache-2.0
"""The command `quern` as a companion: it says what a workload is, what machine this is and how many bytes a step moves,
and times the ceilings of this machine between our own samples, each time we ask (workbench/beside.h). So nothing of
that has a copy here, and a share is of a ceiling of the same moments. It times no peer and knows none."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile

from .._command import CommandError, environment, find


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
            env=environment(),
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
