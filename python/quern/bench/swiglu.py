# SPDX-License-Identifier: Apache-2.0
"""`python -m quern.bench swiglu` times SwiGLU forward, backward, both, and the forward that stores float8_e4m3fn with
one scale per row, over the widths of the Llama models and from one row to 8192. It times quern and its peers in turns
on the same tensors, beside a copy that moves as many bytes. Tensors that a backward writes over are restored,
untimed, before each of its calls."""

from __future__ import annotations

import argparse
import json
import sys
import time

import torch

from .. import swiglu_backward
from . import gated, measure, record, single, stats
from .heatmap import draw
from .peers import Absent
from .table import duration

PROGRAM = "python -m quern.bench swiglu"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=" ".join(__doc__.split()))
    add = parser.add_argument
    add(
        "--shape",
        "-s",
        metavar="RxC",
        action="append",
        help="rows x columns; repeatable; default: all",
    )
    add("--rows", metavar="LIST", help=f"with commas; {','.join(map(str, gated.ROWS))} unless given")
    add("--cols", metavar="LIST", help=f"with commas; {','.join(map(str, gated.WIDTHS))} unless given")
    add("--direction", "-d", action="append", choices=gated.DIRECTIONS, help="repeatable; the first three unless given")
    add("--multiplier", "-m", type=float, action="append", metavar="X", help="of the gate; 1 unless given; repeatable")
    add("--type", default="bf16", choices=tuple(gated.DTYPES), help="storage; default: bf16")
    add("--peers", metavar="NAMES", help=f"of {', '.join(gated.PEERS)}, with commas; all unless given")
    add("--device", help="cpu, cuda or cuda:N; a GPU if there is one unless given")
    add("--rounds", type=int, default=30, metavar="N", help="samples of each; 30 unless given")
    add("--time-budget", type=float, metavar="S", help="most time for everything; what finds none left is named")
    add("--json", "-j", metavar="FILE", help="append each measurement with its raw samples as a line of JSON")
    add("--heatmap", metavar="FILE.svg", help="draw rows x columns from the lines of --json FILE, and measure nothing")
    return parser


def _shapes(arguments: argparse.Namespace) -> list[tuple[int, int]]:
    def numbers(text: str | None, default: tuple[int, ...]) -> list[int]:
        return [int(word) for word in text.split(",")] if text else list(default)

    if arguments.shape:
        shapes = [[int(word) for word in text.lower().split("x")] for text in arguments.shape]
    else:
        rows, cols = numbers(arguments.rows, gated.ROWS), numbers(arguments.cols, gated.WIDTHS)
        shapes = [[r, c] for c in cols for r in rows]
    if any(len(shape) != 2 or min(shape) < 1 for shape in shapes):
        raise ValueError("a shape is rows x columns, both at least 1, as in 8192x14336")
    return [(r, c) for r, c in shapes]


class _Sum:
    """a + b into a third tensor: the forward's accesses, without its formula."""

    name = "sum"

    def __init__(self, of: gated.Data) -> None:
        self.of, self.c = of, torch.empty_like(of.a)

    def run(self) -> None:
        torch.add(self.of.a, self.of.b, out=self.c)


class _Apart:
    """quern's backward into new tensors, as eager and compiled PyTorch write theirs."""

    name = "apart"

    def __init__(self, of: gated.Data) -> None:
        self.of = of

    def run(self) -> None:
        swiglu_backward(self.of.dc, self.of.a, self.of.b, self.of.gate)


def _set_up(names: list[str], of: gated.Data, direction: str) -> tuple[list[gated.Gated], list[dict]]:
    """Those that run here, quern first, and a line of each: version, check, or why it is absent."""
    live, told = [], []
    check = gated.check_quantize if direction == "quantize" else gated.check
    for name in names:
        kind = gated.PEERS[name]
        entry: dict[str, object] = {"name": name, "version": "", "absent": "", "check": None}
        told.append(entry)
        try:
            entry["version"] = kind.version()
            peer = kind(of)
            worst, wrong = check(peer, of)
            entry["check"] = {"right": not wrong, "wrong": wrong, "worst_over_tolerance": min(worst, 1e30)}
            live.append(peer)
        except Absent as why:
            entry["absent"] = str(why)
        except Exception as error:  # whatever another project's code raises is told, and the others go on
            if name == "quern":
                raise
            entry["absent"] = f"failed: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
    return live, told


def measure_one(names: list[str], of: gated.Data, direction: str, rounds: int, clock: measure.Clock) -> dict:
    live, told = _set_up(names, of, direction)
    by_name = {entry["name"]: entry for entry in told}
    line = _head(of, direction) | {"check": by_name["quern"]["check"], "peers": told[1:]}
    if not line["check"]["right"]:
        return line
    nbytes = of.bytes_of(direction)
    copy = single.Copy(nbytes, of.device)
    calls = [(gated.call_of(peer, direction), peer.in_place and direction in ("backward", "both")) for peer in live]
    limits: list[single.Copy | _Sum | _Apart] = [copy]
    if direction in ("forward", "backward"):
        limits.append(_Sum(of) if direction == "forward" else _Apart(of))
    samples = measure.in_turns(clock, of.restore, [*calls, *((limit.run, False) for limit in limits)], rounds)
    series = [record.series(peer.name, nbytes, taken) for peer, taken in zip(live, samples)]
    line["fused"] = series[0]
    for limit, taken in zip(limits, samples[len(live) :]):
        line[limit.name] = record.series(limit.name, nbytes, taken)
        line[f"share_of_{limit.name}"] = record.ratio(record.share_of(series[0], line[limit.name]))
    for one in series[1:]:
        ratio = stats.speedup_paired(one["samples_ns"], series[0]["samples_ns"])
        by_name[one["name"]] |= {"step": one, "speedup": record.ratio(ratio), "verdict": ratio.verdict}
    return line


def _head(of: gated.Data, direction: str) -> dict:
    return single.head("quern swiglu 1", of.device) | {
        "op": "swiglu",
        "direction": direction,
        "rows": of.rows,
        "cols": of.cols,
        "type": str(of.dtype).removeprefix("torch."),
        "gate_multiplier": of.gate,
    }


def text(line: dict) -> str:
    """As people read it."""
    out = [
        f"swiglu {line['direction']}, {line['rows']} x {line['cols']}, {line['type']}, "
        f"gate x {line['gate_multiplier']:g}, {line['machine']['device']}"
    ]
    if not line["check"]["right"]:
        return f"{out[0]}\n  quern is WRONG, so nothing is timed: {line['check']['wrong']}"
    share = line["share_of_copy"]
    of_copy = f"{100 * share['ratio']:.1f}% of a copy's rate, {single.rate(line['copy'])}"
    if "sum" in line:
        of_copy += f"; {100 * line['share_of_sum']['ratio']:.1f}% of a sum's, {single.rate(line['sum'])}"
    if "apart" in line:
        of_copy += f"; into new tensors {duration(line['apart']['median_ns'])}"
    out.append(f"  {'quern':<10}{duration(line['fused']['median_ns']):>12}{single.rate(line['fused']):>14}  {of_copy}")
    for peer in line["peers"]:
        if peer["absent"]:
            out.append(f"  {peer['name']:<10}{'-':>12}  {peer['absent']}")
            continue
        step, speedup = peer["step"], peer["speedup"]
        wrong = "" if peer["check"]["right"] else f"; WRONG: {peer['check']['wrong']}"
        low, high = speedup["interval"]
        interval = "(too few samples)" if low is None else f"[{low:.3f}, {high:.3f}]"
        out.append(
            f"  {peer['name']:<10}{duration(step['median_ns']):>12}{single.rate(step):>14}  "
            f"quern against it: {speedup['ratio']:.3f}x {interval} {peer['verdict']}{wrong}"
        )
    return "\n".join(out)


def _names(text: str | None) -> list[str]:
    names = [name for name in (text or ",".join(gated.PEERS)).split(",") if name]
    for name in names:
        if name not in gated.PEERS:
            raise ValueError(f"there is no peer {name}; there are {', '.join(gated.PEERS)}")
    return ["quern", *(name for name in names if name != "quern")]


def _run(arguments: argparse.Namespace) -> int:
    shapes, names, device = _shapes(arguments), _names(arguments.peers), measure.device_of(arguments.device)
    clock, status, start = measure.clock_of(device), 0, time.monotonic()
    for rows, cols in shapes:
        for gate in arguments.multiplier or [1.0]:
            of = None  # the last shape's memory first
            of = gated.Data(rows, cols, gated.DTYPES[arguments.type], device, gate, seed=1)
            for direction in arguments.direction or gated.BYTES:
                spent = time.monotonic() - start
                if arguments.time_budget is not None and spent > arguments.time_budget:
                    print(
                        f"{PROGRAM}: {direction} {rows}x{cols}: not measured, {spent:.0f} s are spent", file=sys.stderr
                    )
                    status = 1
                    continue
                line = measure_one(names, of, direction, arguments.rounds, clock)
                single.tell(line, text, arguments.json)
                if not line["check"]["right"]:
                    status = 1
    return status


def _draw(arguments: argparse.Namespace) -> int:
    with open(arguments.json, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file if line.strip()]
    draw(arguments.heatmap, lines)
    return 0


def main(argv: list[str]) -> int:
    """Exit status as of `python -m quern.bench`."""
    parser = _parser()
    arguments = single.parsed(parser, argv)
    if not arguments.heatmap:
        with torch.no_grad():
            return single.ended(PROGRAM, arguments.json, lambda: _run(arguments))
    if not arguments.json:
        parser.error("--heatmap draws what --json FILE holds: name it")
    return single.ended(PROGRAM, None, lambda: _draw(arguments))
