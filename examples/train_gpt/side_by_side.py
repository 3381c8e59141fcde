# SPDX-License-Identifier: Apache-2.0
"""Trains one model with several optimizers at once: same start, same batches, step by step in turn.

In turn, because a machine that slows down for a second then slows all of them; and each step another begins, because
the first finds other things in the caches. It judges nothing: checks.py does."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from model import GPT
from text import ledger
from torch import Tensor

Maker = Callable[[GPT], torch.optim.Optimizer]


@dataclass(frozen=True)
class Settings:
    steps: int = 300
    width: int = 256
    layers: int = 3
    heads: int = 4
    context: int = 64  # bytes that the model sees
    batch: int = 8  # sequences
    warmup: int = 20  # steps in which the learning rate grows to its full size
    lr: float = 3e-4  # Lion's, of the f32 model
    adamw_lr: float = 1e-3  # PyTorch's default
    bf16_lr: float = 3e-5  # of the 16-bit ones: as when a model is tuned further, and where rounding shows
    weight_decay: float = 0.1
    text_bytes: int = 1 << 19
    seed: int = 0


QUICK = Settings(steps=60, width=64, layers=2, heads=2)


@dataclass
class Run:
    """One optimizer's training. Lists have one entry a step; times are in microseconds."""

    losses: list[float] = field(default_factory=list)
    model_us: list[float] = field(default_factory=list)  # forward and backward
    optimizer_us: list[float] = field(default_factory=list)
    unmoved: list[float] = field(default_factory=list)  # share of weights with a gradient that no step has moved yet
    start: list[Tensor] = field(default_factory=list)  # the parameters before the first step
    model: GPT | None = None


class Watch:
    """Of the weights that have had a gradient, which have not moved since the start. (The embeddings of bytes that the
    text has not never have one.)"""

    def __init__(self, run: Run) -> None:
        self.pairs = list(zip(run.model.parameters(), run.start))
        self.still = [torch.ones_like(start, dtype=torch.bool) for start in run.start]
        self.pushed = [torch.zeros_like(start, dtype=torch.bool) for start in run.start]

    @torch.no_grad()
    def look(self) -> float:
        """To be called after a step; the share of weights that are still where they began."""
        for still, pushed, (parameter, start) in zip(self.still, self.pushed, self.pairs):
            still &= parameter == start
            pushed |= parameter.grad != 0
        unmoved = sum(int((still & pushed).sum()) for still, pushed in zip(self.still, self.pushed))
        return unmoved / sum(int(pushed.sum()) for pushed in self.pushed)


def first_model(settings: Settings, dtype: torch.dtype) -> GPT:
    torch.manual_seed(settings.seed)
    return GPT(settings.width, settings.layers, settings.heads, settings.context).to(dtype)


def batches(settings: Settings) -> Iterable[tuple[Tensor, Tensor]]:
    """Bytes and the bytes that follow them, batch x context each: pieces of the text from random places."""
    text = torch.frombuffer(bytearray(ledger(settings.text_bytes, settings.seed)), dtype=torch.uint8).long()
    places = torch.Generator().manual_seed(settings.seed)
    for _ in range(settings.steps):
        begins = torch.randint(len(text) - settings.context, (settings.batch, 1), generator=places)
        pieces = text[begins + torch.arange(settings.context + 1)]
        yield pieces[:, :-1], pieces[:, 1:]


def train(settings: Settings, dtype: torch.dtype, makers: dict[str, Maker], watch: bool = False) -> dict[str, Run]:
    """watch: fill `unmoved`, which costs a pass over the weights each step, outside the times."""
    model = first_model(settings, dtype)
    runs, optimizers, schedules, watches = {}, {}, {}, {}
    for name, make in makers.items():
        run = runs[name] = Run(model=copy.deepcopy(model), start=[p.detach().clone() for p in model.parameters()])
        optimizers[name] = make(run.model)
        schedules[name] = torch.optim.lr_scheduler.LambdaLR(
            optimizers[name], lambda step: min(1.0, (step + 1) / settings.warmup)
        )
        if watch:
            watches[name] = Watch(run)
    names = list(makers)
    for batch in batches(settings):
        for name in names:
            one_step(runs[name], optimizers[name], *batch)
            schedules[name].step()
            if watch:
                runs[name].unmoved.append(watches[name].look())
        names.append(names.pop(0))
    return runs


def one_step(run: Run, optimizer: torch.optim.Optimizer, x: Tensor, following: Tensor) -> None:
    begin = time.perf_counter_ns()
    optimizer.zero_grad()
    loss = run.model(x, following)
    loss.backward()
    middle = time.perf_counter_ns()
    optimizer.step()
    end = time.perf_counter_ns()
    run.losses.append(loss.item())
    run.model_us.append((middle - begin) / 1000)
    run.optimizer_us.append((end - middle) / 1000)
