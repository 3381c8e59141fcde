# SPDX-License-Identifier: Apache-2.0
"""Tests the example's bounds: trains EagerLion beside an equally right Lion and beside wrong ones, and prints their
distances (CSV): control.py > results/train-gpt-control.csv

The right one differs in rounding alone, so no bound may be below its distance; each wrong one must break a bound."""

from __future__ import annotations

import argparse
import csv
import dataclasses
import sys

import torch
from checks import Check, same_course
from eager_lion import EagerLion
from side_by_side import QUICK, Settings, train


class OtherwiseRounded(EagerLion):
    """The same formula by other operations: interpolation for both sums, decay inside the step."""

    def update(self, p, g, m, lr, beta1, beta2, decay):
        u = m.lerp(g, 1 - beta1).sign_()
        p.sub_(u.add_(p, alpha=decay), alpha=lr)
        m.lerp_(g, 1 - beta2)


class RateTenPercentOff(EagerLion):
    def update(self, p, g, m, lr, beta1, beta2, decay):
        super().update(p, g, m, 1.1 * lr, beta1, beta2, decay)


class MomentumFirst(EagerLion):
    """The direction is taken from the new momentum."""

    def update(self, p, g, m, lr, beta1, beta2, decay):
        m.mul_(beta2).add_(g, alpha=1 - beta2)
        u = m.mul(beta1).add_(g, alpha=1 - beta1).sign_()
        p.mul_(1 - lr * decay).add_(u, alpha=-lr)


class StaleMomentum(EagerLion):
    """The momentum is never written."""

    def update(self, p, g, m, lr, beta1, beta2, decay):
        super().update(p, g, m.clone(), lr, beta1, beta2, decay)


class SignOfZeroIsOne(EagerLion):
    def update(self, p, g, m, lr, beta1, beta2, decay):
        c = m.mul(beta1).add_(g, alpha=1 - beta1)
        u = torch.where(c >= 0, 1.0, -1.0)
        p.mul_(1 - lr * decay).add_(u, alpha=-lr)
        m.mul_(beta2).add_(g, alpha=1 - beta2)


class WithoutDecay(EagerLion):
    def update(self, p, g, m, lr, beta1, beta2, decay):
        super().update(p, g, m, lr, beta1, beta2, 0.0)


class DecayWithoutRate(EagerLion):
    """The decay is not multiplied by the learning rate."""

    def update(self, p, g, m, lr, beta1, beta2, decay):
        super().update(p, g, m, lr, beta1, beta2, decay / lr)


class DoesNothing(EagerLion):
    def update(self, p, g, m, lr, beta1, beta2, decay):
        pass


RIGHT = (OtherwiseRounded,)
WRONG = (RateTenPercentOff, MomentumFirst, StaleMomentum, SignOfZeroIsOne, WithoutDecay, DecayWithoutRate, DoesNothing)


def distances(lions: tuple[type[EagerLion], ...], settings: Settings) -> dict[str, list[Check]]:
    """The checks of each of the Lions beside EagerLion."""
    makers = {
        lion.__name__: lambda model, lion=lion: lion(
            model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay)
        for lion in (EagerLion, *lions)
    }  # fmt: skip
    runs = train(settings, torch.float32, makers)
    peer = runs.pop("EagerLion")
    return {name: same_course(run, peer, settings) for name, run in runs.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description="What the checks of this example notice, as CSV.")
    parser.add_argument("--quick", action="store_true", help="a smaller model and fewer steps")
    parser.add_argument("--seeds", type=int, default=8, help="of the right Lion; the wrong ones get one (default: 8)")
    parser.add_argument("--threads", type=int, default=2, help="(default: 2)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["lion", "seed", "check", "value", "bound", "ok"])
    unnoticed = []
    for seed in range(arguments.seeds):
        settings = dataclasses.replace(QUICK if arguments.quick else Settings(), seed=seed)
        for lion, checks in distances(RIGHT + WRONG if seed == 0 else RIGHT, settings).items():
            for check in checks:
                table.writerow([lion, seed, check.what, f"{check.value:.3g}", check.bound, "yes" if check.ok else "no"])
            if all(check.ok for check in checks) != (lion in [right.__name__ for right in RIGHT]):
                unnoticed.append(f"{lion}, seed {seed}")
    for lion in unnoticed:
        print(f"control.py: misjudged: {lion}", file=sys.stderr)
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
