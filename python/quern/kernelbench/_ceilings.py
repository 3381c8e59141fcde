# SPDX-License-Identifier: Apache-2.0
"""The limit of a problem on a machine: ceilings measured here with PyTorch's streams and products, or higher ones of a
file that `quern roofline --json` wrote, and the least time that they allow for a problem's bytes and operations."""

from __future__ import annotations

import functools
import json
import os
import time
from dataclasses import dataclass, replace

import torch

WINOGRAD = 2.25  # multiplications that a convolution may honestly save
SLACK = 0.95  # of the floor: a time below is too good to be true
_NAMES = {"float32": "fp32 multiply-add", "tf32": "TF32 mma.sync", "bf16": "bf16 mma.sync"}  # in a roofline's line
_MEMORY_BYTES = 1 << 28  # working sets of a GPU from which a stream comes from memory


@dataclass(frozen=True)
class Ceilings:
    bytes_per_second: float
    rates: dict[str, float]  # operations a second by class
    launch_ns: float
    cache_bytes: int  # of outputs that need not reach the memory in the time of a call
    source: str = "measured"

    def rate(self, kind: str) -> float:
        """The best rate for results of a class: float32 results may come from products of split operands."""
        allowed = ("float32", "tf32") if kind in ("baseline's", "tf32") else tuple(self.rates)
        return max(self.rates.get(name, 0.0) for name in allowed)


def _best_gpu(run, device: torch.device, n: int = 5) -> float:
    """Seconds."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(n):
        torch.cuda.synchronize(device)
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)
    return min(times)


def _best_cpu(run, n: int = 7) -> float:
    times = []
    for _ in range(n):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def _streams(best, device: torch.device, sizes: list[int], empty: float) -> float:
    """The fastest of a copy, a sum of two and a read, in bytes a second."""
    fastest = 0.0
    for size in sizes:
        a, b, c = (torch.ones(size // 4, device=device) for _ in range(3))
        runs = (2, functools.partial(c.copy_, a)), (3, functools.partial(torch.add, a, b, out=c)), (1, a.sum)
        fastest = max(fastest, *(moved * size / max(best(run) - empty, 1e-7) for moved, run in runs))
    return fastest


def _product(best, device: torch.device, n: int, dtype: torch.dtype) -> float:
    a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
    c = torch.empty(n, n, device=device, dtype=dtype)
    return 2.0 * n**3 / best(lambda: torch.mm(a, b, out=c))


def _of_gpu(device: torch.device) -> Ceilings:
    best = functools.partial(_best_gpu, device=device)
    little = torch.ones(1, device=device)
    was, rates = torch.backends.cuda.matmul.allow_tf32, {}
    try:
        for name, tf32, dtype in (("float32", False, torch.float32), ("tf32", True, torch.float32),
                                  ("bf16", True, torch.bfloat16)):  # fmt: skip
            torch.backends.cuda.matmul.allow_tf32 = tf32
            rates[name] = _product(best, device, 8192, dtype)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = was
    cache = torch.cuda.get_device_properties(device).L2_cache_size
    streams = _streams(best, device, [1 << 28, 1 << 30], 0.0)
    return Ceilings(streams, rates, best(lambda: little.add_(1), n=20) * 1e9, cache)


def _of_cpu() -> Ceilings:
    """Data of a processor's benchmark may stay in its caches: their bandwidth is the ceiling."""
    threads, device = torch.get_num_threads(), torch.device("cpu")
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    try:
        little = torch.ones(1)
        empty = _best_cpu(lambda: little.add_(1), 50)
        rates = {"float32": _product(_best_cpu, device, 768, torch.float32)}
        if torch.ops.mkldnn._is_mkldnn_bf16_supported():
            rates["bf16"] = _product(_best_cpu, device, 768, torch.bfloat16)
        return Ceilings(_streams(_best_cpu, device, [1 << 18, 1 << 20, 1 << 22, 1 << 24], empty), rates, empty * 1e9, 0)
    finally:
        torch.set_num_threads(threads)


def higher(a: Ceilings, b: Ceilings) -> Ceilings:
    """The faster of each; `b` names the source."""
    rates = {name: max(a.rates.get(name, 0.0), b.rates.get(name, 0.0)) for name in {*a.rates, *b.rates}}
    return replace(b, bytes_per_second=max(a.bytes_per_second, b.bytes_per_second), rates=rates)


_known: dict[str, Ceilings] = {}


def measure(device: str, again: bool = False) -> Ceilings:
    """Those of this machine, measured at the first use; again: the faster of both measurements."""
    if device not in _known or again:
        made = _of_cpu() if device == "cpu" else _of_gpu(torch.device(device))
        _known[device] = higher(_known[device], made) if device in _known else made
    return _known[device]


def of_file(path: str, device: str) -> Ceilings:
    """The last line of `quern roofline --json` in a file that is of the device's kind, or what is measured here where
    that is faster. ValueError: a sentence."""
    kind, found = device.split(":")[0], None
    with open(path, encoding="utf-8") as file:
        for text in file:
            try:
                line = json.loads(text)
                if line.get("schema") == "quern roofline 1" and line["backend"] == kind:
                    found = line["streams"], line["operations_per_second"]
            except (ValueError, KeyError, AttributeError):
                continue
    if not found:
        raise ValueError(f"{path} has no line of `quern roofline --json` for {kind}")
    here, least = measure(device), 0 if kind == "cpu" else _MEMORY_BYTES
    fastest = max((s["gbps"] * 1e9 for s in found[0] if s["bytes"] >= least), default=0.0)
    rates = {name: found[1].get(long, 0.0) for name, long in _NAMES.items()}
    return higher(here, replace(here, bytes_per_second=fastest, rates=rates, source=path))


def least_ns(work: dict, ceilings: Ceilings, kind: str) -> float:
    """No honest kernel is faster: what it may skip is not counted. Zeros of structured inputs and what is multiplied by
    them, rows of embeddings, multiplications of convolutions, and outputs that the cache keeps."""
    moved = work["nonzero"] + work["parameters"] - work["embeddings"] + max(0, work["outputs"] - ceilings.cache_bytes)
    operations = 0 if work["sparse"] else work["operations"] - work["convolutions"] * (1 - 1 / WINOGRAD)
    return 1e9 * max(moved / ceilings.bytes_per_second, operations / ceilings.rate(kind))


def roofline(work: dict, ceilings: Ceilings, kind: str, ns: float, better_ns: float) -> dict:
    """A problem under its ceilings, and a time (of the candidate, or else of the better baseline) above the floor."""
    moved = work["inputs"] + work["parameters"] + work["outputs"]
    rate = ceilings.rate(kind)
    times = {
        "memory": 1e9 * moved / ceilings.bytes_per_second,
        "compute": 1e9 * work["operations"] / rate,
        "launch": ceilings.launch_ns,
    }
    bound = max(times, key=times.__getitem__)
    return {
        "operations": work["operations"],
        "bytes": moved,
        "intensity": work["operations"] / moved if moved else None,
        "bound": bound,
        "floor_ns": times[bound],
        "distance": ns / times[bound],
        "headroom": better_ns / times[bound],
        "ceilings": {
            "bytes_per_second": ceilings.bytes_per_second,
            "operations_per_second": rate,
            "launch_ns": ceilings.launch_ns,
            "source": ceilings.source,
        },
    }
