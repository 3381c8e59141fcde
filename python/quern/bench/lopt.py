# SPDX-License-Identifier: Apache-2.0
"""`python -m quern.bench lopt` times a step of a learned optimizer over a model's list of tensors: quern, the same in
PyTorch operations, and PyLO where it is installed, in turns on parameters of the same values, beside a copy of as
many bytes as a step moves at least; celo2 also beside the orthogonalisation of Muon's kind alone. It also measures
launches and the peak of memory beyond the state. quern is first checked against the PyTorch operations in float64.
--train times whole training steps of a model, and the optimizer's part."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch

from .. import _library
from . import lopt_train, measure, record, single, stats
from .lopt_memory import peak_of
from .lopt_models import TRAINED
from .lopt_peers import OPS, Materialised, NewtonSchulz, Quern, check, elements, precisions, pylo, too_large
from .table import duration

PROGRAM = "python -m quern.bench lopt"
LEAST_BYTES = 44  # an element: read g, p, m, v once, write p, m, v once


# ---- a measurement ----
def measure_one(op: str, name: str, device: torch.device, precision: str, rounds: int, clock: measure.Clock) -> dict:
    shapes = stats.workload(name)
    line = _head(op, name, device, precision) | {"check": check(op, shapes, device, precision)}
    line["peers"] = [pylo()]
    if not line["check"]["right"]:
        return line
    of = Quern(op, shapes, device, precision)
    why = too_large(shapes, device)
    other = None if why else Materialised(op, of, device)
    of.run()  # what is made once is there
    line["launches"] = _launches(of.run) if device.type == "cuda" else None
    state = sum(t.numel() * t.element_size() for s in of.optimizer.state.values() for t in s.values())
    line |= {"state_bytes": state, "peak_bytes": peak_of(of.run, device)}
    nbytes = LEAST_BYTES * elements(shapes)
    copy = single.Copy(nbytes, device)
    classes = (torch.bfloat16, torch.float32) if device.type == "cuda" else (torch.float32,)
    alone = [NewtonSchulz(of, dtype, device) for dtype in classes] if op == "celo2" else []
    peers: list[Any] = [peer for peer in (of, other, *alone, copy) if peer is not None]
    calls = [(peer.run, False) for peer in peers]
    entry: dict[str, Any] = {"name": "materialised", "absent": why}
    if other is not None:
        other.run()
        entry["peak_bytes"] = peak_of(other.run, device)
    samples = measure.in_turns(clock, lambda: None, calls, rounds, 1 if device.type == "cpu" else 3)
    line["step"], line["copy"] = record.series("quern", nbytes, samples[0]), record.series("copy", nbytes, samples[-1])
    line["times_copy"] = record.ratio(stats.ratio_paired(samples[0], samples[-1]))
    if other is not None:
        ratio = stats.speedup_paired(samples[1], samples[0])
        entry |= {"step": record.series(other.name, nbytes, samples[1]), "speedup": record.ratio(ratio)}
        entry["verdict"] = ratio.verdict
    line["peers"].insert(0, entry)
    for peer, series in zip(alone, samples[-1 - len(alone) :]):
        ratio = stats.speedup_paired(series, samples[0])
        of_peer = {"name": peer.name, "step": record.series(peer.name, nbytes, series), "speedup": record.ratio(ratio)}
        line["peers"].append(of_peer | {"absent": "", "verdict": ratio.verdict})
    return line


def _launches(step: Callable[[], None]) -> int:
    """Of quern, in one step."""
    before = _library.lib.qn_launch_count()
    step()
    return _library.lib.qn_launch_count() - before


def _head(op: str, name: str, device: torch.device, precision: str) -> dict:
    shapes = stats.workload(name)
    return single.head("quern lopt 1", device, torch_threads=torch.get_num_threads()) | {
        "op": op,
        "workload": name,
        "tensors": len(shapes),
        "elements": elements(shapes),
        "precision": precision if device.type == "cuda" else "fp32",
    }


# ---- as people read it ----
def _memory(nbytes: int | None) -> str:
    return "peak unknown here" if nbytes is None else f"peak {nbytes / 2**20:.1f} MiB beyond its state"


def _launched(count: int | None) -> str:
    return "" if count is None else f", {count} launches"


def _row(name: str, series: dict, rest: str) -> str:
    return f"  {name:<20}{duration(series['median_ns']):>12}{single.rate(series):>14}  {rest}"


def text(line: dict) -> str:
    head = (
        f"{line['op']}, {line['workload']}: {line['tensors']} tensors, {line['elements']:,} elements, "
        f"{line['precision']}, {line['machine']['device']}"
    )
    if not line["check"]["right"]:
        return f"{head}\n  quern is WRONG, so nothing is timed: {line['check']['wrong']}"
    step, copy, times = line["step"], line["copy"], line["times_copy"]["ratio"]
    out = [
        head,
        _row("quern", step, _memory(line["peak_bytes"]) + _launched(line["launches"])),
        _row("copy", copy, f"of {LEAST_BYTES} bytes an element; a step takes {times:.2f} times as long"),
    ]
    for peer in line["peers"]:
        if peer["absent"]:
            out.append(f"  {peer['name']:<20}{'-':>12}  {peer['absent']}")
            continue
        low, high = peer["speedup"]["interval"]
        interval = "(too few samples)" if low is None else f"[{low:.2f}, {high:.2f}]"
        against = f"quern against it: {peer['speedup']['ratio']:.2f}x {interval} {peer['verdict']}"
        memory = f"{_memory(peer['peak_bytes'])}; " if "peak_bytes" in peer else ""
        out.append(_row(peer["name"], peer["step"], memory + against))
    return "\n".join(out)


# ---- the command ----
def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=" ".join(__doc__.split()))
    add = parser.add_argument
    add("--op", action="append", choices=OPS, help="repeatable; small_fc_lopt unless given")
    doc = "as `quern bench` has them; repeatable; gpt2-124m on a GPU and gpt-10m on a processor unless given"
    add("--workload", "-w", action="append", metavar="NAME", help=doc)
    doc = "repeatable: whole training steps of this model, and the optimizer's share of them"
    add("--train", action="append", choices=tuple(TRAINED), metavar="MODEL", help=f"{doc}; {', '.join(TRAINED)}")
    add("--batch", type=int, metavar="N", help="with --train: sequences or images a step; the model's own unless given")
    words = sorted({word for op in OPS for word in precisions(op)})
    add("--precision", action="append", choices=words, help="on a GPU; repeatable; the op's own choice unless given")
    add("--device", help="cpu, cuda or cuda:N; a GPU if there is one unless given")
    add("--threads", type=int, metavar="N", help="of the processor, for torch and quern; torch's unless given")
    add(
        "--rounds",
        type=int,
        default=11,
        metavar="N",
        help="samples of each; 11 unless given, the fewest that allow a word",
    )
    add("--json", "-j", metavar="FILE", help="append each measurement with its raw samples as a line of JSON")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    device, status = measure.device_of(arguments.device), 0
    clock = measure.clock_of(device)
    default = "gpt2-124m" if device.type == "cuda" else "gpt-10m"
    for op in arguments.op or ["small_fc_lopt"]:
        for name in arguments.workload or arguments.train or [default]:
            for precision in arguments.precision or precisions(op)[:1]:
                of = (op, name, device, precision, arguments.rounds, clock)
                line = lopt_train.measure_one(*of, arguments.batch) if arguments.train else measure_one(*of)
                single.tell(line, lopt_train.text if arguments.train else text, arguments.json)
                if not line["check"]["right"]:
                    status = 1
    return status


def main(argv: list[str]) -> int:
    """Exit status as of `python -m quern.bench`."""
    parser = _parser()
    arguments = single.parsed(parser, argv)
    if arguments.train and arguments.workload:
        parser.error("--train and --workload are two measurements: give one of them")
    for op in arguments.op or ["small_fc_lopt"]:
        for word in arguments.precision or ():
            if word not in precisions(op):
                parser.error(f"--precision is {word}, {op} has {', '.join(precisions(op))}")
    if arguments.batch is not None and not (arguments.train and 1 <= arguments.batch <= 65536):
        parser.error(f"--batch is {arguments.batch}, it goes with --train and is from 1 to 65536")
    if arguments.threads is not None:
        if arguments.threads < 1:
            parser.error(f"--threads is {arguments.threads}, it must be at least 1")
        torch.set_num_threads(arguments.threads)
    return single.ended(PROGRAM, arguments.json, lambda: _run(arguments))
