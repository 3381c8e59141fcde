# SPDX-License-Identifier: Apache-2.0
"""Holds a candidate's outputs against the reference's. An element is right where |got - want| <= atol * min(1, s) +
rtol * |want|, s the root mean square of the wanted tensor: KernelBench's allclose, and stricter where outputs are
small, so that zeros do not pass. NaN and infinity are right only where the reference has the same."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from . import _tree

HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Tolerance:
    """`name`: original (1e-2), or current (1e-4, and 1e-2 for halves), as the versions of KernelBench have them."""

    name: str

    def of(self, dtype: torch.dtype) -> float:
        return 1e-2 if self.name == "original" or dtype in HALVES else 1e-4

    def record(self) -> dict:
        return {"name": self.name, "float32": self.of(torch.float32), "halves": self.of(torch.float16)}


@dataclass(frozen=True)
class Difference:
    """`wrong`: a sentence, "" where all is right. `kind`: "wrong shape or type" or "wrong values"."""

    kind: str = ""
    wrong: str = ""
    most: float = 0.0
    mean: float = 0.0


def _structure(value) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(_structure, value))})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_structure(item)}" for key, item in value.items()) + "}"
    return repr(value)


def _scale(want: torch.Tensor) -> float:
    finite = want[want.isfinite()]
    return float(finite.double().pow(2).mean().sqrt()) if finite.numel() else 0.0


def _tensor(got: torch.Tensor, want: torch.Tensor, tolerance: Tolerance) -> Difference:
    if not want.numel():
        return Difference()
    if not (want.is_floating_point() or want.is_complex()):
        bad = got != want
        if not bool(bad.any()):
            return Difference()
        at = int(bad.reshape(-1).nonzero()[0])
        d = (got.double() - want.double()).abs()
        values = got.reshape(-1)[at], want.reshape(-1)[at]
        sentence = f"{int(bad.sum())} of {want.numel()} elements differ; element {at} is {values[0]}, not {values[1]}"
        return Difference("wrong values", sentence, float(d.max()), float(d.mean()))
    wide = torch.complex128 if want.is_complex() else torch.float64
    limit = tolerance.of(want.dtype)
    got, want = got.to(wide).reshape(-1), want.to(wide).reshape(-1)
    finite = want.isfinite()
    d = torch.where(finite & got.isfinite(), (got - want).abs(), torch.where(finite, math.inf, 0.0))
    same = torch.where(finite, d <= limit * min(1.0, _scale(want.abs())) + limit * want.abs(),
                       (got == want) | (got.isnan() & want.isnan()))  # fmt: skip
    most, mean = float(d.max()), float(d.mean())
    if bool(same.all()):
        return Difference(most=most, mean=mean)
    at = int((~same).nonzero()[0])
    sentence = (f"{int((~same).sum())} of {want.numel()} elements are wrong; element {at} is {got[at].item():.6g}, "
                f"not {want[at].item():.6g}; greatest difference {most:.3g}, mean {mean:.3g}")  # fmt: skip
    return Difference("wrong values", sentence, most, mean)


def compare(got, want, tolerance: Tolerance) -> Difference:
    if _structure(got) != _structure(want):
        return Difference("wrong shape or type", f"the output is {_structure(got)}, the reference's {_structure(want)}")
    each = [_tensor(a, b, tolerance) for a, b in zip(_tree.tensors(got), _tree.tensors(want))]
    if not each:
        return Difference()
    worst = next((d for d in each if d.wrong), each[0])
    return Difference(worst.kind, worst.wrong, max(d.most for d in each), max(d.mean for d in each))


def _map(value, change):
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_map(item, change) for item in value)
    return {k: _map(v, change) for k, v in value.items()} if isinstance(value, dict) else value


def _mean(t: torch.Tensor) -> torch.Tensor:
    if t.is_floating_point() or t.is_complex():
        return torch.full_like(t, t.mean(dtype=torch.complex128 if t.is_complex() else torch.float64).item())
    return t.reshape(-1)[0].expand(t.shape) if t.numel() else t


def _shuffled(t: torch.Tensor) -> torch.Tensor:
    return t.reshape(-1).roll(t.numel() // 2 if t.dim() < 2 or t.shape[0] < 2 else t[0].numel()).reshape(t.shape)


def passing_mutants(want, other, tolerance: Tolerance) -> list[str]:
    """The known-wrong outputs that would pass for `want`; `other` is the reference's output of other inputs. Where one
    passes, the comparison proves nothing."""
    mutants = {"zeros": _map(want, torch.zeros_like), "the output of other inputs": other}
    if any(t.numel() > 1 for t in _tree.tensors(want)):
        mutants |= {"a constant": _map(want, _mean), "shuffled rows": _map(want, _shuffled)}
    return [name for name, wrong in mutants.items() if not compare(wrong, want, tolerance).wrong]


def same_bits(a, b) -> bool:
    return _structure(a) == _structure(b) and all(
        torch.equal(_tree.bits(x), _tree.bits(y)) for x, y in zip(_tree.tensors(a), _tree.tensors(b))
    )


def error(got, exact) -> float:
    """The root mean square error of a value's floating point tensors, relative to that of the exact ones."""
    above = below = 0.0
    for a, b in zip(_tree.tensors(got), _tree.tensors(exact)):
        if b.is_floating_point():
            a, b = a.double(), b.double()
            fine = b.isfinite() & a.isfinite()
            above += float((a - b)[fine].pow(2).sum())
            below += float(b[fine].pow(2).sum())
    return math.sqrt(above / below) if below else 0.0


def precision(candidate: float, baseline: float) -> str:
    """The class of a result by its error against float64 beside the baseline's own."""
    if candidate <= 2 * baseline or candidate <= 2**-23:
        return "baseline's"
    return next((name for name, most in (("tf32", 2**-10), ("bf16", 2**-7)) if candidate <= most), "below bf16")
