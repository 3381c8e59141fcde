# SPDX-License-Identifier: Apache-2.0
"""Measures how far steps of the learned optimizers with ties="jax" are from those with ties="pylo":
tools/lopt_ties.py, with QUERN_LIBRARY where the library is not installed.

Tensors of equal dimensions and one without, each by itself, 100 steps over the same made gradients, whose scales
differ from row to row and from column to column. Prints after 1, 10 and 100 steps the root mean square of the
difference of the two moves over that of PyLO's move; and for SmallFCLopt that of the difference to the move of the
same tensor in JAX's layout, where PyLO's choice is JAX's. SmallFCLopt has the weights that come with quern, VeLO the
made ones of its golden vectors, which train nothing (lr 0.001). It judges nothing; results/lopt-ties-cpu.txt is what it
printed."""

import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "python/tests")]
import quern  # noqa: E402
import velo_golden  # noqa: E402

SHAPES = [(64, 64), (64, 64, 3), (32, 32, 3, 3), (16, 16, 3, 3, 3), (3, 2, 3, 3), (64, 3, 64), (64, 48)]
STEPS = (1, 10, 100)


def to_jax(array):
    """(outputs, inputs, places) as (places, inputs, outputs)."""
    return np.ascontiguousarray(array.transpose([*range(2, array.ndim), 1, 0]))


def to_torch(array):
    return array.transpose([array.ndim - 1, array.ndim - 2, *range(array.ndim - 2)])


def gradients(shape):
    draw = np.random.default_rng(7)
    scales = [np.exp(draw.normal(0, 1, n)) for n in shape]
    for _ in range(STEPS[-1]):
        g = draw.normal(0, 0.01, shape)
        for d, scale in enumerate(scales):
            g *= scale.reshape([-1 if k == d else 1 for k in range(len(shape))])
        yield g.astype(np.float32)


def start(shape):
    return np.random.default_rng(3).normal(0, 0.05, shape).astype(np.float32)


class Run:
    """A tensor that one optimizer steps, in torch's layout or in JAX's."""

    def __init__(self, make, shape, ties, turned):
        self.p = to_jax(start(shape)) if turned else start(shape)
        self.optimizer, self.turned = make([self.p.shape], ties), turned

    def move(self, g):
        before = self.p.copy()
        loss = [2.0] if isinstance(self.optimizer, quern.VeLO) else []
        self.optimizer.step([self.p], [to_jax(g) if self.turned else g], *loss)
        moved = self.p.astype(np.float64) - before
        return to_torch(moved) if self.turned else moved


def small_fc(shapes, ties):
    return quern.SmallFCLopt(shapes, ties=ties, lr_scale=[1.0])


def velo(shapes, ties):
    return quern.VeLO(shapes, *velo_golden.weights(), STEPS[-1], lr=1e-3, ties=ties)


def size(x):
    return float(np.sqrt(np.mean(np.square(x))))


def main():
    print(f"{'':12}{'':14}" + "".join(f"{f'step {t}':>10}" for t in STEPS) + f"{'in JAX layout':>16}")
    for title, make in (("SmallFCLopt", small_fc), ("VeLO", velo)):
        for shape in SHAPES if make is small_fc else [shape for shape in SHAPES if len(shape) < 5]:
            runs = [Run(make, shape, "pylo", False), Run(make, shape, "jax", False)]
            if make is small_fc:
                runs.append(Run(make, shape, "pylo", True))
            shares, exact = [], 0.0
            for t, g in enumerate(gradients(shape), 1):
                moved = [run.move(g) for run in runs]
                if t in STEPS:
                    shares.append(size(moved[1] - moved[0]) / size(moved[0]))
                if make is small_fc:
                    exact = max(exact, size(moved[2] - moved[1]) / size(moved[1]))
            words = "".join(f"{share:>10.2%}" for share in shares)
            print(f"{title:12}{'x'.join(map(str, shape)):14}{words}{f'{exact:.1e}' if exact else '-':>16}", flush=True)


if __name__ == "__main__":
    main()
