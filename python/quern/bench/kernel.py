# SPDX-License-Identifier: Apache-2.0
"""What a warm call of a kernel from a body costs the host, in Python: `python -m quern.bench kernel`. One element, so
that almost nothing is computed; each sample is the mean of a burst of calls. It says nothing of the kernel's own speed,
which is `quern kernel bench`'s."""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import sys
import time
from collections.abc import Callable

from .. import Device, __version__, devices, metal_kernel
from .stats import summarize

BODY = "uint i = thread_position_in_grid.x; out[i] = metal::exp(inp[i]);"
MOST_US = {"numpy": 20.0, "torch cuda": 15.0}  # what it must reach, where something is asked
BURST_ON_CPU, BURST_ON_GPU = 100, 8  # a GPU's queue takes so many without waiting


def _call(kernel, array, shape, dtype) -> Callable[[], object]:
    def call():
        return kernel(
            inputs=[array],
            grid=(1, 1, 1),
            threadgroup=(1, 1, 1),
            output_shapes=[shape],
            output_dtypes=[dtype],
        )

    return call


def _cases() -> dict[str, tuple[Callable[[], object], Callable[[], None], int, str]]:
    """By name: (the call, what waits for the device, calls in a burst, the version of the framework)."""
    kernel = metal_kernel("myexp", ["inp"], ["out"], BODY)
    made: dict = {}
    try:
        import numpy

        made["numpy"] = _call(kernel, numpy.ones(1, numpy.float32), (1,), numpy.float32), lambda: None, BURST_ON_CPU
        made["numpy"] += (numpy.__version__,)
    except ImportError:
        pass
    try:
        import torch
    except ImportError:
        return made
    for device in ("cpu", *(("cuda",) if torch.cuda.is_available() else ())):
        call = _call(kernel, torch.ones(1, device=device), (1,), torch.float32)
        wait = torch.cuda.synchronize if device == "cuda" else lambda: None
        burst = BURST_ON_GPU if device == "cuda" else BURST_ON_CPU
        made[f"torch {device}"] = call, wait, burst, torch.__version__
    return made


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def _sample(call: Callable[[], object], wait: Callable[[], None], burst: int) -> float:
    wait()
    start = time.perf_counter_ns()
    for _ in range(burst):
        call()
    return (time.perf_counter_ns() - start) / burst


def measure(name: str, case: tuple, samples: int) -> dict:
    """The line of one case: nanoseconds a call."""
    call, wait, burst, version = case
    for _ in range(20):
        call()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        taken = [_sample(call, wait, burst) for _ in range(samples)]
    finally:
        wait()
        if was_enabled:
            gc.enable()
    found = summarize(taken)
    gpu: list[Device] = [device for device in devices() if device.name != "cpu"]
    return {
        "by": "quern.bench kernel",
        "measures": "host time of a warm call, one element",
        "case": name,
        "version": __version__,
        "framework": version,
        "python": platform.python_version(),
        "machine": {"cpu": _processor(), "cpus": len(os.sched_getaffinity(0)), "gpu": gpu[0].model if gpu else ""},
        "burst": burst,
        "median_ns": found.median,
        "interval_ns": [found.low, found.high],
        "min_ns": found.least,
        "max_ns": found.most,
        "most_ns": 1e3 * MOST_US[name] if name in MOST_US else None,
        "samples_ns": taken,
    }


def main(argv: list[str]) -> int:
    """The command; 0, or 1 where a call takes longer than it may."""
    parser = argparse.ArgumentParser(prog="python -m quern.bench kernel", description=" ".join(__doc__.split()))
    parser.add_argument("--json", "-j", metavar="FILE", help="append each measurement as a line of JSON")
    parser.add_argument("--samples", type=int, default=200, metavar="N", help="bursts a case; 200 unless given")
    arguments = parser.parse_args(argv)
    if not 1 <= arguments.samples <= 100000:
        parser.error(f"--samples is {arguments.samples}, it must be from 1 to 100000")
    status = 0
    for name, case in _cases().items():
        line = measure(name, case, arguments.samples)
        most = line["most_ns"]
        wanted = f", at most {most * 1e-3:g}" if most else ""
        print(f"{name:12} {line['median_ns'] * 1e-3:8.2f} us a call (least {line['min_ns'] * 1e-3:.2f}{wanted})")
        status |= most is not None and line["median_ns"] > most
        if arguments.json:
            with open(arguments.json, "a", encoding="utf-8") as file:
                file.write(json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n")
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
