# SPDX-License-Identifier: Apache-2.0
"""`python -m quern.bench lopt`: a step of a learned optimizer over a model's list of tensors, by quern and by the
materialising form in plain PyTorch, in turns on parameters of the same values, beside a copy of as many bytes as a step
moves at least; its peak of memory beyond its state; and PyLO's, where it is installed. quern is checked first, against
the materialising form in float64, over tensors of the same ranks."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

import torch
from torch import Tensor

from .. import _lopt_abi, _lopt_weights
from ..torch.lopt import ELO, SmallFCLopt
from ..torch.velo import VeLO
from . import materialised, materialised_velo, measure, record, single, stats
from .lopt_lists import LISTS, Shapes, elements
from .lopt_memory import free_bytes, peak_of
from .table import duration

PROGRAM = "python -m quern.bench lopt"
RULES = {"small_fc_lopt": (SmallFCLopt, materialised.SMALL_FC), "elo": (ELO, materialised.ELO)}
OPS = (*RULES, "velo")
_NUM_STEPS = 1000  # of VeLO, and the loss that it is given
_LOSS = 2.5
LEAST_BYTES = 44  # an element: read g, p, m, v once, write p, m, v once
STATE_BYTES = 16  # an element: m, v; of rows and columns there are few
_CLIP = 24  # extents, where quern is checked


def made_weights(
    device: torch.device, dtype: torch.dtype = torch.float32, kind: int = _lopt_abi.SMALL_FC
) -> dict[str, Tensor]:
    """Random ones of the published shapes: a time does not depend on their values, and none are shipped."""
    generator = torch.Generator().manual_seed(11)
    size = 0.1 if kind == _lopt_abi.VELO_RNN else 0.5
    return {
        weight.name: (torch.rand(weight.shape, generator=generator) - 0.5).mul_(size).to(device, dtype)
        for weight in _lopt_weights.table(kind)
    }


def _velo_weights(device: torch.device, dtype: torch.dtype = torch.float32) -> list[dict[str, Tensor]]:
    return [made_weights(device, dtype, kind) for kind in (_lopt_abi.VELO_MLP, _lopt_abi.VELO_RNN)]


def _tensors(shapes: Shapes, device: torch.device, seed: int, scale: float) -> list[Tensor]:
    generator = torch.Generator(device=device).manual_seed(seed)
    return [torch.empty(shape, device=device).normal_(0, scale, generator=generator) for shape in shapes]


class Quern:
    name = "quern"

    def __init__(self, op: str, shapes: Shapes, device: torch.device, precision: str) -> None:
        self.params = [torch.nn.Parameter(p) for p in _tensors(shapes, device, 1, 0.02)]
        for param, grad in zip(self.params, _tensors(shapes, device, 2, 1e-3)):
            param.grad = grad
        cpu = torch.device("cpu")
        self.optimizer: VeLO | SmallFCLopt | ELO
        if op == "velo":
            self.optimizer = VeLO(self.params, *_velo_weights(cpu), _NUM_STEPS, lr=1e-3)
            self.loss = (torch.tensor(_LOSS, device=device),)
        else:
            self.optimizer = RULES[op][0](self.params, made_weights(cpu), lr=1e-3, precision=precision)
            self.loss = ()

    def run(self) -> None:
        self.optimizer.step(*self.loss)


class Materialised:
    name = "materialised"

    def __init__(self, op: str, of: Quern, device: torch.device) -> None:
        self.params = [param.detach().clone() for param in of.params]
        self.grads: list[Tensor] = [param.grad for param in of.params]  # type: ignore[misc]
        self.stepper = _stepper(op, self.params, device)

    def run(self) -> None:
        self.stepper(self.grads)


def _stepper(op: str, params: list[Tensor], device: torch.device) -> Callable[[list[Tensor]], None]:
    """Steps of the materialising form over these, in their type: a function of the gradients."""
    dtype, n, taken = params[0].dtype, len(params), itertools.count()
    if op == "velo":
        session = materialised_velo.Session(*_velo_weights(device, dtype), params, _NUM_STEPS)
        return lambda grads: session.step(grads, _LOSS, [1e-3] * n, [0.0] * n)
    weights, states = made_weights(device, dtype), [materialised.State(param) for param in params]
    return lambda grads: materialised.step(RULES[op][1], weights, params, grads, states, next(taken), 1e-3)


def peak_estimate(shapes: Shapes) -> int:
    """What the materialising form takes at its peak, roughly: some five copies of 39 floats of the largest tensor's
    elements, and its own state."""
    return 4 * (5 * 39 * max(elements([shape]) for shape in shapes) + 10 * elements(shapes))


# ---- the check ----
def check(op: str, shapes: Shapes, device: torch.device, precision: str) -> dict:
    """quern against the materialising form in float64, three steps over the list's shapes with their extents clipped:
    within the contract's tolerance, or where products are rounded the class's share of the update's root mean
    square."""
    clipped = sorted({tuple(min(extent, _CLIP + d) for d, extent in enumerate(shape)) for shape in shapes})
    of = Quern(op, clipped, device, precision)
    params = [param.detach().double() for param in of.params]
    stepper, worst, wrong = _stepper(op, params, device), 0.0, ""
    for taken in range(3):
        before = [param.clone() for param in params]
        grads = [param.grad.double() for param in of.params]  # type: ignore[union-attr]
        stepper(grads)
        of.run()
        for shape, got, wanted, old in zip(clipped, of.params, params, before):
            share = _share(got.detach().double(), wanted, old, precision, device)
            if not share <= 1 and not wrong:
                wrong = f"step {taken}, shape {shape}: off by {share:.3g} times the tolerance"
            worst = max(worst, share)
    return {"right": not wrong, "wrong": wrong, "worst_over_tolerance": min(worst, 1e30)}


_ROUNDED = {"tf32": 3e-3, "f16": 3e-3, "bf16x3": 5e-5}  # of the update's root mean square, a step


def _share(got: Tensor, wanted: Tensor, old: Tensor, precision: str, device: torch.device) -> float:
    update = wanted - old
    tolerance = 1e-6 * wanted.abs().clamp(min=1) + 1e-5 * update.abs()
    if device.type == "cuda" and precision in _ROUNDED:
        tolerance = tolerance + 3 * _ROUNDED[precision] * update.square().mean().sqrt()
    worst = float(((got - wanted).abs() / tolerance).max()) if got.numel() else 0.0
    return worst if worst == worst else float("inf")


# ---- a measurement ----
def _baseline(op: str, of: Quern, shapes: Shapes, device: torch.device) -> tuple[Materialised | None, str]:
    """The materialising form, or why it is not timed."""
    needed, free = peak_estimate(shapes), free_bytes(device)
    if needed > 0.9 * free:
        return None, f"needs some {needed / 2**30:.0f} GiB, and {free / 2**30:.0f} are free"
    return Materialised(op, of, device), ""


def _pylo() -> str:
    try:
        return f"version {version('pylo')} is installed; it takes its weights from a hub, and is not timed"
    except PackageNotFoundError:
        return "not installed"


def measure_one(op: str, name: str, device: torch.device, precision: str, rounds: int, clock: measure.Clock) -> dict:
    shapes = LISTS[name][1]
    line = _head(op, name, device, precision) | {"check": check(op, shapes, device, precision)}
    line["peers"] = [{"name": "pylo", "absent": _pylo()}]
    if not line["check"]["right"]:
        return line
    of = Quern(op, shapes, device, precision)
    other, why = _baseline(op, of, shapes, device)
    for peer in filter(None, (of, other)):
        peer.run()  # what is made once is there
    state = sum(t.numel() * t.element_size() for s in of.optimizer.state.values() for t in s.values())
    line |= {"state_bytes": state, "peak_bytes": peak_of(of.run, device)}
    nbytes = LEAST_BYTES * elements(shapes)
    copy = single.Copy(nbytes, device)
    calls = [(peer.run, False) for peer in (of, other, copy) if peer is not None]
    entry = {"name": "materialised", "absent": why}
    if other is not None:
        entry["peak_bytes"] = peak_of(other.run, device)
    samples = measure.in_turns(clock, lambda: None, calls, rounds, 1 if device.type == "cpu" else 3)
    line["step"], line["copy"] = record.series("quern", nbytes, samples[0]), record.series("copy", nbytes, samples[-1])
    line["times_copy"] = record.ratio(stats.ratio_paired(samples[0], samples[-1]))
    if other is not None:
        ratio = stats.ratio_paired(samples[1], samples[0])
        entry |= {"step": record.series(other.name, nbytes, samples[1]), "speedup": record.ratio(ratio)}
        entry["verdict"] = ratio.verdict
    line["peers"].insert(0, entry)
    return line


def _head(op: str, name: str, device: torch.device, precision: str) -> dict:
    shapes = LISTS[name][1]
    return single.head("quern lopt 1", device, torch_threads=torch.get_num_threads()) | {
        "op": op,
        "workload": name,
        "tensors": len(shapes),
        "elements": elements(shapes),
        "precision": precision if device.type == "cuda" and op != "velo" else "fp32",
    }


# ---- as people read it ----
def _memory(nbytes: int | None) -> str:
    return "peak unknown here" if nbytes is None else f"peak {nbytes / 2**20:.1f} MiB beyond its state"


def _row(name: str, series: dict, rest: str) -> str:
    return f"  {name:<14}{duration(series['median_ns']):>12}{single.rate(series):>14}  {rest}"


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
        _row("quern", step, _memory(line["peak_bytes"])),
        _row("copy", copy, f"of {LEAST_BYTES} bytes an element; a step takes {times:.2f} times as long"),
    ]
    for peer in line["peers"]:
        if peer["absent"]:
            out.append(f"  {peer['name']:<14}{'-':>12}  {peer['absent']}")
            continue
        low, high = peer["speedup"]["interval"]
        interval = "(too few samples)" if low is None else f"[{low:.2f}, {high:.2f}]"
        against = f"quern against it: {peer['speedup']['ratio']:.2f}x {interval} {peer['verdict']}"
        out.append(_row(peer["name"], peer["step"], f"{_memory(peer['peak_bytes'])}; {against}"))
    return "\n".join(out)


# ---- the command ----
def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=" ".join(__doc__.split()))
    add = parser.add_argument
    add("--op", action="append", choices=OPS, help="repeatable; small_fc_lopt unless given")
    doc = "repeatable; gpt2-124m on a GPU and gpt-10m on a processor unless given"
    add("--workload", "-w", action="append", choices=tuple(LISTS), help=doc)
    add("--precision", action="append", choices=_lopt_abi.PRECISIONS, help="on a GPU; repeatable; f16x3 unless given")
    add("--device", help="cpu, cuda or cuda:N; a GPU if there is one unless given")
    add("--threads", type=int, metavar="N", help="of the processor, for torch and quern; torch's unless given")
    add("--rounds", type=int, default=7, metavar="N", help="samples of each; 7 unless given")
    add("--json", "-j", metavar="FILE", help="append each measurement with its raw samples as a line of JSON")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    device, status = measure.device_of(arguments.device), 0
    clock = measure.clock_of(device)
    default = "gpt2-124m" if device.type == "cuda" else "gpt-10m"
    for op in arguments.op or ["small_fc_lopt"]:
        for name in arguments.workload or [default]:
            for precision in arguments.precision or ["f16x3"]:
                line = measure_one(op, name, device, precision, arguments.rounds, clock)
                single.tell(line, text, arguments.json)
                if not line["check"]["right"]:
                    status = 1
    return status


def main(argv: list[str]) -> int:
    """Exit status as of `python -m quern.bench`."""
    parser = _parser()
    arguments = single.parsed(parser, argv)
    if arguments.threads is not None:
        if arguments.threads < 1:
            parser.error(f"--threads is {arguments.threads}, it must be at least 1")
        torch.set_num_threads(arguments.threads)
    return single.ended(PROGRAM, arguments.json, lambda: _run(arguments))
