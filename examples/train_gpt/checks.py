# SPDX-License-Identifier: Apache-2.0
"""Bounds on the difference of two trainings, each with its reason. control.py measures the difference of equally right
Lions, and shows that wrong ones break these bounds (results/train-gpt-control.csv).

Two right Lions that round differently do not stay together for ever: where a direction is within rounding of zero its
sign differs, that weight differs by 2 lr, and the training feeds such differences back. So there are three bounds. A
sharp one, while the difference is still one of rounding: it notices what is wrong with a step. And two for what comes
later, of the size of that chance: one for each step, one for the mean at the end, where much of it cancels."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import fmean

import torch
from side_by_side import Run, Settings
from text import ledger

FIRST_STEPS = 10
FIRST, EVERY, LAST = 2e-5, 0.5, 0.1  # nats a byte


@dataclass(frozen=True)
class Check:
    what: str
    value: float
    bound: float
    at_least: bool = False  # the bound is a least, not a most

    @property
    def ok(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound  # NaN is never ok

    def record(self) -> dict:
        return {**asdict(self), "ok": self.ok}


def tail(losses: list[float]) -> float:
    """The loss at the end: the mean over the last tenth of the steps."""
    return fmean(losses[-max(1, len(losses) // 10) :])


def greatest(differences: list[float] | torch.Tensor) -> float:
    """NaN if one is NaN, which Python's max() may pass over."""
    return float(torch.as_tensor(differences, dtype=torch.float64).max())


def same_course(run: Run, peer: Run, settings: Settings) -> list[Check]:
    """run and peer trained the same model on the same batches with optimizers that should be the same."""
    apart = [abs(a - b) for a, b in zip(run.losses, peer.losses)]
    text = ledger(settings.text_bytes, settings.seed)
    absent = [byte for byte in range(256) if byte not in text]
    drift = (run.model.byte.weight[absent] - peer.model.byte.weight[absent]).abs()
    return [
        Check(f"loss apart in the first {FIRST_STEPS} steps", greatest(apart[:FIRST_STEPS]), FIRST),
        Check("loss apart in any step", greatest(apart), EVERY),
        Check("mean loss apart, last tenth", abs(tail(run.losses) - tail(peer.losses)), LAST),
        # Their gradient is 0 and sign(0) is 0: they only decay, and roundings come to less than 0.01 lr.
        Check("weights without gradient apart, in lr", greatest(drift.detach()) / settings.lr, 0.1),
        learns(run),
    ]


def learns(run: Run, name: str = "") -> Check:
    what = "loss at the end, of that at the start"
    return Check(f"{name}: {what}" if name else what, tail(run.losses) / run.losses[0], 0.8)


def frozen_at_start(start: list[torch.Tensor], lr: float, weight_decay: float) -> list[torch.Tensor]:
    """The weights that no step of a Lion whose result is rounded to nearest can move from where they begin, up or down.
    A smaller learning rate, as in the warm-up, cannot move them either."""
    wide = [weights.float() for weights in start]
    kept = [weights * (1 - lr * weight_decay) for weights in wide]
    up = [(weights + lr).to(began.dtype) == began for weights, began in zip(kept, start)]
    down = [(weights - lr).to(began.dtype) == began for weights, began in zip(kept, start)]
    return [a & b for a, b in zip(up, down)]


def freezing(nearest: Run, stochastic: Run, master: Run, settings: Settings) -> list[Check]:
    """16-bit weights: rounding to nearest freezes most of them, the other two ways do not."""
    frozen = frozen_at_start(nearest.start, settings.bf16_lr, settings.weight_decay)
    share = sum(int(f.sum()) for f in frozen) / sum(f.numel() for f in frozen)
    moved = sum(int((f & (p != s)).sum()) for f, p, s in zip(frozen, nearest.model.parameters(), nearest.start))
    return [
        Check("to nearest: weights that moved though no step can move them", moved, 0),
        Check("to nearest: share that no step can move, from the start", share, 0.5, at_least=True),
        Check("to nearest: share that never moved", nearest.unmoved[-1], 0.5, at_least=True),
        Check("stochastic: share that never moved", stochastic.unmoved[-1], 0.05),
        Check("master copy: share that never moved", master.unmoved[-1], 0.05),
        Check("stochastic and master copy: mean loss apart, last tenth",
              abs(tail(stochastic.losses) - tail(master.losses)), LAST),
        Check("to nearest: mean loss above stochastic, last tenth",
              tail(nearest.losses) - tail(stochastic.losses), 0.1, at_least=True),
    ]  # fmt: skip
