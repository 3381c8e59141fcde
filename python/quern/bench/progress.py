# SPDX-License-Identifier: Apache-2.0
"""What goes on, told while it goes on: redrawn on a terminal, elsewhere a line now and then, and of what takes long how
long it has taken. Nothing of this runs while a sample is taken."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

Say = Callable[[str], None]


class Progress:
    """On standard error."""

    def __init__(self) -> None:
        self.on_terminal, self.shown = sys.stderr.isatty(), False
        self.drawn = float("-inf")

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    def __call__(self, what: str) -> None:
        now = time.monotonic()
        if now - self.drawn < (0.1 if self.on_terminal else 5.0):
            return
        self.drawn, self.shown = now, True
        self._write(f"\r\033[K{what[:79]}" if self.on_terminal else f"{what}\n")

    def hide(self) -> None:
        if self.on_terminal and self.shown:
            self._write("\r\033[K")


@contextlib.contextmanager
def waiting(say: Say, what: str, every_s: float = 1.0) -> Iterator[None]:
    """Says `what`, and while the block runs, from time to time, for how long it has: another project's compiler may
    take minutes and tells nothing."""
    done, start = threading.Event(), time.monotonic()

    def tell() -> None:
        while not done.wait(every_s):
            say(f"{what}, {time.monotonic() - start:.0f} s")

    say(what)
    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
