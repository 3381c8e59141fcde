# SPDX-License-Identifier: Apache-2.0
"""`python -m quern.bench lopt --train MODEL`: what share of a whole training step a learned optimizer's step takes.
Forward and backward of a model in bfloat16 (autocast) and then the step of one of the optimizers, in turns: quern's,
PyTorch's fused AdamW, and the materialising form where it fits. All of them train one model. quern's optimizer is
checked before, as where it is timed alone (lopt_peers.py)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from . import measure, record, single, stats
from .lopt_models import GPT, TRAINED, ViT, fill, shapes_of
from .lopt_peers import check, elements, optimizer_of, pylo, stepper_of, too_large
from .table import duration

SCHEMA = "quern lopt train 1"
_ADAMW_LR = 1e-5


class _Spent:
    """How long a part of a step took, for each step: between two events of a GPU's stream, else by the host's clock."""

    def __init__(self, device: torch.device) -> None:
        self._is_gpu = device.type == "cuda"
        self._marks: list[tuple[Any, Any]] = []

    def _mark(self) -> Any:
        if not self._is_gpu:
            return measure.now_ns()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def time(self, run: Callable[[], object]) -> None:
        begin = self._mark()
        run()
        self._marks.append((begin, self._mark()))

    def last(self, n: int) -> list[float]:
        """In ns, of the last n steps, which have ended."""
        marks = self._marks[-n:]
        return [begin.elapsed_time(end) * 1e6 if self._is_gpu else float(end - begin) for begin, end in marks]


class Model:
    """A model with its data, and one step of its training but for the optimizer."""

    def __init__(self, name: str, batch: int, device: torch.device) -> None:
        torch.manual_seed(3)
        with device:
            self.module: GPT | ViT = TRAINED[name].make()
            fill(self.module)
            self.data = self.module.data(batch)
        self.device, self.params = device, list(self.module.parameters())
        self.loss = torch.zeros((), device=device)

    def run(self) -> None:
        """Gradients and the loss that they are of."""
        for param in self.params:
            param.grad = None
        with torch.autocast(self.device.type, torch.bfloat16):
            loss = self.module(*self.data)
        loss.backward()
        self.loss = loss.detach()


class Step:
    """A whole step of training, by one of the optimizers. `update` moves the model's parameters by their gradients."""

    def __init__(self, name: str, model: Model, update: Callable[[], object]) -> None:
        self.name, self.model, self.update = name, model, update
        self.spent = _Spent(model.device)

    def run(self) -> None:
        self.model.run()
        self.spent.time(self.update)


def _quern(op: str, model: Model, precision: str) -> Callable[[], object]:
    optimizer: Any = optimizer_of(op, model.params, precision)
    return (lambda: optimizer.step(model.loss)) if op == "velo" else optimizer.step


def _materialised(op: str, model: Model) -> Callable[[], object]:
    stepper = stepper_of(op, [param.detach() for param in model.params], model.device)
    return lambda: stepper([param.grad for param in model.params])  # type: ignore[misc]


def _out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.cuda.OutOfMemoryError) or "allocate memory" in str(error)


def _begun(name: str, model: Model, make: Callable[[], Callable[[], object]]) -> tuple[Step | None, str]:
    """A peer after its first step, or why there is none."""
    try:
        step = Step(name, model, make())
        step.run()
        return step, ""
    except RuntimeError as error:
        if not _out_of_memory(error):
            raise
    torch.cuda.empty_cache()
    return None, f"does not fit the memory of {model.device} beside the model"


def _peers(op: str, name: str, model: Model) -> list[tuple[str, Step | None, str]]:
    """Those beside quern: name, step, why it is absent."""
    adamw, why = _begun("adamw", model, lambda: torch.optim.AdamW(model.params, lr=_ADAMW_LR, fused=True).step)
    out = [("adamw", adamw, why)]
    if model.device.type == "cuda":
        torch.cuda.empty_cache()  # what PyTorch keeps for later counts as free
    why = too_large(shapes_of(name), model.device)
    plain, failed = (None, why) if why else _begun("materialised", model, lambda: _materialised(op, model))
    return [*out, ("materialised", plain, failed)]


def _series(name: str, samples: list[float]) -> dict:
    """Without bytes, of which a whole step moves nobody knows how many."""
    made = record.series(name, 0, samples)
    return {key: value for key, value in made.items() if key not in ("bytes", "gbps")}


def figures(name: str, whole: list[float], part: list[float]) -> dict:
    """Times of the whole step and of the optimizer's part, and its share, of the same steps."""
    share = record.ratio(stats.ratio_paired(part, whole))
    return {"step": _series(name, whole), "optimizer": _series(name, part), "share": share}


def _require_memory(model: str, batch: int, device: torch.device, error: RuntimeError) -> RuntimeError:
    if not _out_of_memory(error):
        return error
    return torch.cuda.OutOfMemoryError(
        f"a training step of {model} over {batch} {TRAINED[model].of} does not fit the memory of {device}: choose a "
        "smaller model, or --batch"
    )


def measure_one(
    op: str, name: str, device: torch.device, precision: str, rounds: int, clock: measure.Clock, batch: int | None
) -> dict:
    """The line. RuntimeError with a sentence where the model does not fit."""
    shapes, batch = shapes_of(name), batch or TRAINED[name].batch
    line = single.head(SCHEMA, device, torch_threads=torch.get_num_threads()) | {
        "op": op,
        "workload": name,
        "tensors": len(shapes),
        "elements": elements(shapes),
        "precision": precision if device.type == "cuda" else "fp32",
        "batch": batch,
        "batch_of": TRAINED[name].of,
        "check": check(op, shapes, device, precision),
    }
    if not line["check"]["right"]:
        return line
    try:
        model = Model(name, batch, device)
        own = Step("quern", model, _quern(op, model, precision))
        own.run()
    except RuntimeError as error:
        raise _require_memory(name, batch, device, error) from error
    others = _peers(op, name, model)
    steps = [own, *(step for _, step, _ in others if step is not None)]
    warm = 1 if device.type == "cpu" else 3
    samples = measure.in_turns(clock, lambda: None, [(step.run, False) for step in steps], rounds, warm)
    loss = float(model.loss)
    if not math.isfinite(loss):  # with which VeLO's step would be none
        line["check"] |= {"right": False, "wrong": f"the model's loss has become {loss}"}
        return line
    made = {step.name: figures(step.name, whole, step.spent.last(rounds)) for step, whole in zip(steps, samples)}
    line |= {"loss": loss, **made["quern"], "peers": [_peer(made, *other) for other in others] + [pylo()]}
    return line


def _peer(made: dict[str, dict], name: str, step: Step | None, why: str) -> dict:
    entry: dict[str, Any] = {"name": name, "absent": why}
    if step is not None:
        speedup = stats.speedup_paired(made[name]["step"]["samples_ns"], made["quern"]["step"]["samples_ns"])
        entry |= {**made[name], "speedup": record.ratio(speedup), "verdict": speedup.verdict}
    return entry


# ---- as people read it ----
def _row(name: str, of: dict, rest: str = "") -> str:
    low, high = of["share"]["interval"]
    interval = "(too few samples)" if low is None else f"[{100 * low:.1f}, {100 * high:.1f}]"
    return (
        f"  {name:<14}{duration(of['step']['median_ns']):>12}{duration(of['optimizer']['median_ns']):>12}"
        f"{100 * of['share']['ratio']:>8.1f} %  {interval}{rest}"
    )


def text(line: dict) -> str:
    head = (
        f"{line['op']}, training {line['workload']}, {line['batch']} {line['batch_of']}: {line['elements']:,} "
        f"parameters, {line['precision']}, {line['machine']['device']}"
    )
    if not line["check"]["right"]:
        return f"{head}\n  quern is WRONG, so nothing is timed: {line['check']['wrong']}"
    out = [head, f"  {'':<14}{'whole step':>12}{'optimizer':>12}{'its share':>10}", _row("quern", line)]
    for peer in line["peers"]:
        if peer["absent"]:
            out.append(f"  {peer['name']:<14}{'-':>12}  {peer['absent']}")
            continue
        times = f"; the whole step with quern: {peer['speedup']['ratio']:.2f}x as fast, {peer['verdict']}"
        out.append(_row(peer["name"], peer, times))
    return "\n".join(out)
