# SPDX-License-Identifier: Apache-2.0
"""From samples to a line of JSON: that of the command's `quern bench`, begun by the command itself (command.py), with
what only this measurement has: `by`, `python`, `wall`, `host` and `peers` (docs/benchmarking.md). Reading such lines is
the command's business: `quern report`, `quern compare`."""

from __future__ import annotations

import json
import os
import platform

import torch

from . import stats
from .measure import Times
from .oracle import Check

BY = "quern.torch.Lion"


def series(name: str, nbytes: float, samples: list[float]) -> dict:
    made = stats.series(samples)
    return {"name": name, "way": "", "bytes": nbytes, **made, "gbps": nbytes / made["median_ns"]}


def ratio(r: stats.Ratio) -> dict:
    return {"ratio": r.ratio, "interval": [r.low, r.high]}


def share_of(mine: dict, ceiling: dict) -> stats.Ratio:
    """The rate of a series over that of a ceiling, from samples of the same rounds."""
    pairs = stats.ratio_paired(ceiling["samples_ns"], mine["samples_ns"])
    return pairs.times(mine["bytes"] / ceiling["bytes"])


def _apart(name: str, nbytes: float, times: Times) -> dict:
    taken = {"wall": times.wall, "host": times.host, "host_moved": times.host_moved}
    return {what: series(name, nbytes, samples) for what, samples in taken.items() if samples}


class Line:
    """The line of one measurement. `head`: what the command said of it before."""

    def __init__(self, head: dict) -> None:
        self.line = {key: value for key, value in head.items() if key not in ("shapes", "flush_bytes")}
        self.line["by"] = BY
        self.line["python"] = {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "torch_threads": torch.get_num_threads(),
        }
        self.elements, self.per_element = head["elements"], head["bytes_per_element"]

    def wrong(self, check: Check) -> dict:
        """quern itself is wrong: it gets no time, and what is beside it gets none either."""
        self.line["check"] = check.record()
        del self.line["cache"]
        return self.line

    def timed(self, check: Check, times: Times, ceilings: dict, peers: list[dict]) -> dict:
        line, nbytes = self.line, self.elements * self.per_element
        clocks = ceilings.pop("clocks")
        line["machine"]["clocks"] = clocks
        line |= {"check": check.record(), "timer": "event", "fused": series(line["op"], nbytes, times.step)}
        line |= _apart(line["op"], nbytes, times)
        line |= ceilings
        best, copy = (ceilings["ceilings"][ceilings[which]] for which in ("ceiling", "copy"))
        line |= {"share": ratio(share_of(line["fused"], best)), "share_of_copy": ratio(share_of(line["fused"], copy))}
        median = line["fused"]["median_ns"]
        line["impossible"] = median < 0.95 * ceilings["floor_ns"]
        line["suspicion"] = (
            f"impossible: {median * 1e-6:.4g} ms, and this machine's fastest stream needs "
            f"{ceilings['floor_ns'] * 1e-6:.4g} ms for the bytes alone"
            if line["impossible"]
            else ""
        )
        for which in ("host", "host_moved"):
            if which in line:
                line[f"{which if which != 'host' else 'host_same'}_ns"] = line[which]["median_ns"]
        line["peers"] = peers
        return line


def absent(name: str, version: str, why: str) -> dict:
    return {"name": name, "version": version, "absent": why}


def peer(line: Line, ceilings: dict, own: Times, of, version: str, check: Check, times: Times) -> dict:
    """A peer's member of the line: its speed-up is its time over quern's, so above 1 where quern is the faster one."""
    nbytes = line.elements * (of.bytes_per_element or line.per_element)
    step = series(of.name, nbytes, times.step)
    speedup = stats.speedup_paired(times.step, own.step)
    out = {
        "name": of.name,
        "version": version,
        "doc": of.doc,
        "absent": "",
        "other_op": of.bytes_per_element is not None,
        "check": check.record(),
        "step": step,
        "share": ratio(share_of(step, ceilings["ceilings"][ceilings["ceiling"]])),
        "speedup": ratio(speedup),
        "verdict": speedup.verdict,
    }
    out |= _apart(of.name, nbytes, times)
    if times.wall:
        speedup = stats.speedup_paired(times.wall, own.wall)
        out |= {"wall_speedup": ratio(speedup), "wall_verdict": speedup.verdict}
    return out


def append(path: str, line: dict) -> None:
    """One line behind what the file has, in one write, so that two processes may share it."""
    text = (json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n").encode()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        done = os.write(file, text)
    finally:
        os.close(file)
    if done != len(text):
        raise OSError(f"{path}: only {done} of {len(text)} bytes could be written")
