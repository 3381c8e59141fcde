# SPDX-License-Identifier: Apache-2.0
"""Saving launches as they are made: exact source, options, inputs and sizes, for `quern kernel replay` elsewhere."""

from __future__ import annotations

import ctypes
import os
from ctypes import byref

from . import _kernel_abi as abi


class capture:
    """A context that saves every launch of every kernel, in all threads, to a folder of its own under `folder`. It is
    slow, and waits for each launch on a GPU. One may be open at a time. `launches`: the number saved, known at the end.

        with quern.capture("seen") as seen:
            kernel(...)
        print(seen.launches)"""

    def __init__(self, folder: str | os.PathLike) -> None:
        self.folder: str = os.fspath(folder)
        self.launches: int | None = None

    def __enter__(self) -> capture:
        abi.lib.qn_capture_start(os.fsencode(self.folder))
        return self

    def __exit__(self, *_) -> None:
        count = ctypes.c_size_t()
        abi.lib.qn_capture_stop(byref(count))
        self.launches = count.value
