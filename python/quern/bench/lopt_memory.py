# SPDX-License-Identifier: Apache-2.0
"""How much memory a step takes at its peak beyond what was there before it: from the allocator of torch on a GPU, from
the process's resident pages on a processor."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable

import torch


def _status(name: str) -> int:
    """Bytes that /proc/self/status says."""
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(name + ":"):
                return 1024 * int(line.split()[1])
    raise OSError(f"/proc/self/status has no {name}")


def _give_back() -> None:
    """What was freed goes back to the system, so that it is counted when it is taken again."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _of_process(run: Callable[[], object]) -> int | None:
    _give_back()
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")  # the peak begins anew (proc(5))
        before = _status("VmRSS")
        if _status("VmHWM") > before + (16 << 20):  # where a system takes the word and does nothing
            return None
        run()
        return max(0, _status("VmHWM") - before)
    except OSError:
        return None


def peak_of(run: Callable[[], object], device: torch.device) -> int | None:
    """Bytes; None where this system does not say."""
    if device.type != "cuda":
        return _of_process(run)
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    run()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
