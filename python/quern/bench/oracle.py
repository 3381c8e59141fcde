# SPDX-License-Identifier: Apache-2.0
"""Is a peer right? Each of its steps is held against the formula in float64, on the values that it found, so that what
storage rounds away is not taken for an error, and a small one in each step does not hide behind it.

Tolerances are units of rounding of what was added up, never of the result. A step of Lion has a sign in it: where its
argument is within rounding of zero, either sign is right; such elements are counted, and their number is bounded. Where
the argument is zero exactly there is no such freedom: sign(0) is 0. Infinite and NaN values are kept out, because there
implementations differ by convention."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch

from . import lists

STEPS = 3
BUDGET = 1 << 23  # elements that are looked at, at most
_UNIT = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}  # of storage
_LEAST = {torch.float32: 2.0**-148, torch.bfloat16: 2.0**-132, torch.float16: 2.0**-23}  # below it no digits are left


@dataclasses.dataclass(frozen=True)
class Settings:
    """Of the step; what the op calls them."""

    lr: float
    beta1: float
    beta2: float
    weight_decay: float


@dataclasses.dataclass(frozen=True)
class Values:
    """What a step found in the parts of the lists that are looked at, in float64."""

    weight: torch.Tensor
    momentum: torch.Tensor
    grad: torch.Tensor


@dataclasses.dataclass(frozen=True)
class Expected:
    """What it should leave: values with the magnitudes that were added up to make them. Where there is a sign in the
    step the weight may be off by lr times the difference of two signs, if the sign's argument is within rounding of
    zero."""

    weight: torch.Tensor
    weight_terms: torch.Tensor
    momentum: torch.Tensor
    momentum_terms: torch.Tensor
    argument: torch.Tensor | None = None  # of the sign
    argument_terms: torch.Tensor | None = None
    lr: float = 0.0
    roundings: int = 2  # that an implementation may make to storage, one after another


Reference = Callable[[Values, Settings], Expected]


def lion(v: Values, s: Settings) -> Expected:
    """One step of Lion (Chen et al., 2023)."""
    argument = s.beta1 * v.momentum + (1 - s.beta1) * v.grad
    keep = 1 - s.lr * s.weight_decay
    return Expected(
        weight=v.weight * keep - s.lr * torch.sign(argument),
        weight_terms=v.weight.abs() * keep + s.lr,
        momentum=s.beta2 * v.momentum + (1 - s.beta2) * v.grad,
        momentum_terms=s.beta2 * v.momentum.abs() + (1 - s.beta2) * v.grad.abs(),
        argument=argument,
        argument_terms=s.beta1 * v.momentum.abs() + (1 - s.beta1) * v.grad.abs(),
        lr=s.lr,
    )


@dataclasses.dataclass
class Check:
    """What was found. `wrong` is a sentence, "" for a peer that is right."""

    elements: int = 0  # compared, of all written tensors and steps together
    steps: int = 0
    signs: int = 0  # that differ where rounding allows it
    worst: float = 0.0  # difference over tolerance
    wrong: str = ""

    def record(self) -> dict:
        return {"right": not self.wrong, "wrong": self.wrong, "elements": self.elements, "steps": self.steps} | {
            "signs_that_differ": self.signs,
            "worst_over_tolerance": min(self.worst, 1e30),
        }


class View:
    """The parts of the lists that are looked at."""

    def __init__(self, of: lists.Lists) -> None:
        self.lists = of
        self.parts = list(lists.windows([p.numel() for p in of.params], BUDGET))

    def take(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat([tensors[k].view(-1)[start : start + n] for k, start, n in self.parts])

    def values(self) -> Values:
        of = self.lists
        return Values(*(self.take(tensors).double() for tensors in (of.weights, of.momenta, of.grads)))

    def place(self, index: int) -> str:
        for k, start, n in self.parts:
            if index < n:
                return f"element {start + index} of tensor {k}"
            index -= n
        raise IndexError(index)


def _tolerance(dtype: torch.dtype, terms: torch.Tensor, roundings: int) -> torch.Tensor:
    """As many roundings to storage, and as many in float32 of factors and products; one in a hundred for their cross
    terms."""
    unit = roundings * (_UNIT[dtype] + _UNIT[torch.float32])
    return 1.01 * unit * terms + _LEAST[dtype]


def _judge(view: View, check: Check, what: str, got, want, tolerance, found: Values, note="") -> bool:
    """Whether all is within tolerance; else the sentence tells of the element that is farthest off."""
    off = (got.double() - want).abs() / tolerance
    off = torch.where(torch.isnan(off), torch.full_like(off, float("inf")), off)
    worst = int(off.argmax())
    check.elements += got.numel()
    check.worst = max(check.worst, float(off[worst]))
    bad = off > 1
    if not bool(bad.any()):
        return True
    zeros = (found.grad == 0) & (found.momentum == 0)
    if what == "weight" and bool(zeros[bad].all()):
        note = "sign(0) is not taken as 0, so weights without a gradient drift: "
    check.wrong = (
        f"{note}{int(bad.sum())} of {got.numel()} {what} values are wrong after step {check.steps}; "
        f"{view.place(worst)} is {float(got[worst]):.9g}, it should be {float(want[worst]):.9g} "
        f"(weight {float(found.weight[worst]):.9g}, gradient {float(found.grad[worst]):.9g}, "
        f"momentum {float(found.momentum[worst]):.9g})"
    )
    return False


def _right_weights(view: View, check: Check, expected: Expected, found: Values) -> bool:
    weights = view.lists.weights
    got, want = view.take(weights), expected.weight
    tolerance = _tolerance(weights[0].dtype, expected.weight_terms, expected.roundings)
    if expected.argument is not None:
        terms = expected.argument_terms
        assert terms is not None  # they come with the argument
        coarsest = max((view.lists.momenta[0].dtype, view.lists.grads[0].dtype), key=_UNIT.__getitem__)
        margin = _tolerance(coarsest, terms, expected.roundings)
        free = (expected.argument.abs() <= margin) & (terms > 0)
        sign = torch.sign(expected.argument)
        # Of the three signs the one that comes nearest to what is there.
        moved = expected.weight + expected.lr * sign - got.double()
        nearest = (moved / max(expected.lr, 1e-300)).round().clamp(-1, 1)
        taken = torch.where(free, nearest, sign)
        want = want + expected.lr * (sign - taken)
        signs = int((taken != sign).sum())
        bound = int(4 * expected.roundings * (_UNIT[coarsest] + _UNIT[torch.float32]) * got.numel()) + 8
        check.signs += signs
        if signs > bound:
            check.wrong = f"{signs} of {got.numel()} signs differ after step {check.steps}; rounding explains {bound}"
            return False
    return _judge(view, check, "weight", got, want, tolerance, found)


def _right_copy(view: View, check: Check, found: Values) -> bool:
    """A short parameter is its master, rounded."""
    of = view.lists
    if not of.masters:
        return True
    masters = view.take(of.masters).double()
    tolerance = _tolerance(of.params[0].dtype, masters.abs(), 1)
    return _judge(view, check, "parameter", view.take(of.params), masters, tolerance, found)


def check(peer, of: lists.Lists, settings: Settings) -> Check:
    """Runs the peer for a few steps, each with the other gradients, on the lists as they are. What it raises passes
    through. On a GPU the comparison waits for nothing but the current stream, as the next work of a training step
    would: a launch elsewhere is found out."""
    view, done = View(of), Check()
    for _ in range(STEPS):
        of.swap_grads()
        peer.use(of.grads)
        found, grads = view.values(), view.take(of.grads)
        expected = peer.reference(found, settings)
        peer.step()
        done.steps += 1
        momentum = view.take(of.momenta)
        tolerance = _tolerance(momentum.dtype, expected.momentum_terms, expected.roundings)
        if not (
            _right_weights(view, done, expected, found)
            and _judge(view, done, "momentum", momentum, expected.momentum, tolerance, found)
            and _right_copy(view, done, found)
        ):
            break
        if not torch.equal(grads, view.take(of.grads)):
            done.wrong = f"step {done.steps} changed the gradients"
            break
    return done
