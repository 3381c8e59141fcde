# SPDX-License-Identifier: Apache-2.0
"""Holds the derivatives of a quern.function against central differences, in double on the processor."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

from ._function import function, listed
from ._library import KernelError

_EPSILON = 2.0**-52


class GradientError(KernelError):
    """A derivative differs from central differences; the sentence has the place and both values."""


def check_gradient(
    f: function,
    inputs: Sequence,
    *,
    step: float = 0.0,
    tolerance: float = 1e-6,
    seed: int = 0,
    of: Sequence[int] | None = None,
    elements: int | None = None,
) -> float:
    """Compares f's vjp (and its jvp, if it has one) with central differences of f, along random cotangents and
    tangents. The inputs are converted to float64 on the CPU; f must compute in the type of its inputs.

    step       of the differences; 0: 1e-6 times the input's largest magnitude
    tolerance  largest difference of an element, over the largest of its gradient, besides the differences' own rounding
    of         numbers of the inputs to differentiate by; None: all of floating type
    elements   most elements of an input, chosen by the seed; None: all. Each requires two calls of f

    Returns the largest difference over the largest gradient. GradientError names the place."""
    import numpy

    if not isinstance(f, function) or not (f.has_vjp or f.has_jvp):
        raise ValueError(f"{f!r} has neither a vjp nor a jvp to be checked")
    if not 0 <= step < float("inf") or not 0 < tolerance < float("inf"):
        raise ValueError(f"step is {step} and tolerance {tolerance}; step is 0 or above, tolerance above 0")
    trial = _Trial(numpy, f, inputs, step, tolerance, seed)
    places = trial.floating if of is None else list(of)
    for place in places:
        if place not in trial.floating:
            raise ValueError(f"input {place} is not one of floating type: there are {trial.floating}")
    if f.has_vjp:
        trial.check_vjp(places, elements)
    if f.has_jvp:
        trial.check_jvp(places)
    return trial.worst


class _Trial:
    def __init__(self, numpy, f: function, inputs: Sequence, step: float, tolerance: float, seed: int) -> None:
        self.numpy, self.f, self.tolerance, self.worst = numpy, f, tolerance, 0.0
        self.random = numpy.random.default_rng(seed)
        torch = sys.modules.get("torch")
        self.torch = torch if torch and any(isinstance(one, torch.Tensor) for one in inputs) else None
        self.point = [self._double(one) for one in inputs]
        self.floating = [k for k, one in enumerate(self.point) if getattr(one, "dtype", None) == numpy.float64]
        self.steps = [step or self._step(one) for one in self.point]
        self.outputs = self.call(self.point)

    def _double(self, one):
        if self.torch is not None and isinstance(one, self.torch.Tensor):
            one = one.detach().cpu()
            one = (one.double() if one.is_floating_point() else one).numpy()
        if not hasattr(one, "dtype"):
            return one  # a number: it is no variable
        array = self.numpy.asarray(one)
        is_float = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
        return self.numpy.array(array, self.numpy.float64, order="C") if is_float else array

    def _step(self, one) -> float:
        if not hasattr(one, "dtype") or one.dtype.kind != "f":
            return 0.0
        finite = self.numpy.abs(one[self.numpy.isfinite(one)])
        return 1e-6 * (finite.max() if finite.size and finite.max() > 0 else 1.0)

    # ---- calls ----
    def given(self, arrays: Sequence) -> list:
        """As f takes them: what it returns may be kept, so they are copies."""
        copies = [one.copy() if hasattr(one, "dtype") else one for one in arrays]
        if self.torch is None:
            return copies
        return [self.torch.from_numpy(one) if isinstance(one, self.numpy.ndarray) else one for one in copies]

    def taken(self, arrays: Sequence) -> list:
        if self.torch is not None:
            arrays = [one.detach().cpu().numpy() if isinstance(one, self.torch.Tensor) else one for one in arrays]
        return [None if one is None else self.numpy.asarray(one) for one in arrays]

    def call(self, arrays: Sequence) -> list:
        made = self.taken(listed(self.f(*self.given(arrays))))
        for one in made:
            if one.dtype.kind == "f" and one.dtype != self.numpy.float64:
                raise ValueError(f"{self.f.name} gives {one.dtype} for float64 inputs: it must compute in their type")
        return made

    def moved(self, place: int, by) -> list:
        made = list(self.point)
        made[place] = self.point[place] + by
        return self.call(made)

    def like(self, arrays: Sequence) -> list:
        return [
            self.random.standard_normal(one.shape) if one.dtype.kind == "f" else self.numpy.zeros(one.shape)
            for one in arrays
        ]

    # ---- the checks ----
    def check_vjp(self, places: Sequence[int], elements: int | None) -> None:
        cotangents = self.like(self.outputs)
        made = self.taken(self.f.gradient(self.given(self.point), self.given(cotangents), self.given(self.outputs)))
        for place in places:
            if made[place] is None:
                raise GradientError(f"{self.f.name}: its vjp gives no cotangent of input {place}")
            size = self.point[place].size
            chosen: Sequence[int] = range(size)
            if elements is not None and elements < size:
                chosen = sorted(self.random.choice(size, elements, replace=False).tolist())
            wanted, noise = [], []
            for element in chosen:
                by = self.numpy.zeros(self.point[place].shape)
                by.flat[element] = self.steps[place]
                sides = self.sides(place, by, element)
                total = sum(float((c * (h - low)).sum()) for c, h, low in zip(cotangents, *sides[:2]))
                spread = sum(float((abs(c) * (abs(h) + abs(low))).sum()) for c, h, low in zip(cotangents, *sides[:2]))
                wanted.append(total / sides[2])
                noise.append(spread * 2 * _EPSILON / sides[2])
            given = [float(made[place].flat[element]) for element in chosen]
            self.compare(f"the cotangent of input {place}", given, wanted, noise, chosen, self.point[place].shape)

    def sides(self, place: int, by, element: int) -> tuple[list, list, float]:
        """Outputs of floating type on both sides, and how far these are apart as rounded."""
        here = self.point[place].flat[element]
        width = (here + self.steps[place]) - (here - self.steps[place])
        return self.moved(place, by), self.moved(place, -by), float(width)

    def check_jvp(self, places: Sequence[int]) -> None:
        for place in places:
            tangents = [self.numpy.zeros(getattr(one, "shape", ())) for one in self.point]
            tangents[place] = self.random.standard_normal(self.point[place].shape)
            made = self.taken(self.f.tangents(self.given(self.point), self.given(tangents)))
            step = self.steps[place]
            high, low = self.moved(place, step * tangents[place]), self.moved(place, -step * tangents[place])
            for k, (one, above, below) in enumerate(zip(made, high, low)):
                if above.dtype.kind != "f":
                    continue
                wanted = ((above - below) / (2 * step)).ravel().tolist()
                noise = ((abs(above) + abs(below)) * (_EPSILON / step)).ravel().tolist()
                given = self.numpy.asarray(one).ravel().tolist()
                what = f"the tangent of output {k} along input {place}"
                self.compare(what, given, wanted, noise, range(len(given)), above.shape)

    def compare(self, what: str, given, wanted, noise, chosen, shape) -> None:
        largest = max([0.0, *(max(abs(a), abs(b)) for a, b in zip(given, wanted))])
        for a, b, allowed, element in zip(given, wanted, noise, chosen):
            off = abs(a - b) - allowed
            if off > self.tolerance * largest or not (math.isfinite(a) and math.isfinite(b)):
                place = [int(index) for index in self.numpy.unravel_index(element, shape)]
                raise GradientError(
                    f"{self.f.name}: {what} at {place} is {a:.9g}, and central differences say {b:.9g} (largest "
                    f"{largest:.6g}, tolerance {self.tolerance:.3g})"
                )
            if largest:
                self.worst = max(self.worst, off / largest)
