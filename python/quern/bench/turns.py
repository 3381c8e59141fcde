# SPDX-License-Identifier: Apache-2.0
"""The right to time, of one process at a time: jobs compile and check side by side, and time in turns."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator


class Turns:
    """Of the processes that name the same file; without a file, of nobody else. Each process makes its own: a file that
    was open before a fork is one right for both."""

    def __init__(self, path: str | None = None) -> None:
        self.file = open(path, "w") if path else None  # noqa: SIM115 - it lives as long as the process
        self.waited = 0.0  # seconds

    def work_beside(self) -> None:
        """From here to this process's turn nobody times: what others compile slows calls that are short."""
        if self.file:
            fcntl.flock(self.file, fcntl.LOCK_SH)

    def leave(self) -> None:
        """Others may time."""
        if self.file:
            fcntl.flock(self.file, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        if self.file:
            start = time.monotonic()
            fcntl.flock(self.file, fcntl.LOCK_EX)
            self.waited += time.monotonic() - start
        try:
            yield
        finally:
            self.leave()
