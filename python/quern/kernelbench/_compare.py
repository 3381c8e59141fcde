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
    """`name`: original (1e-2), or current (1e-4, and 1e-2 for halves), as the versions of KernelBench have them.
    `least`: a bound below which it does not go."""

    name: str
    least: float = 0.0

    def of(self, dtype: torch.dtype) -> float:
        return max(self.least, 1e-2 if self.name == "original" or dtype in HALVES else 1e-4)

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
    return "float" if isinstance(value, float) else repr(value)


def chunks(n: int, device: str):
    """Cuts of `n` elements whose temporaries stay in a processor's cache, or small beside a GPU's memory."""
    size = 1 << 16 if device == "cpu" else 1 << 24
    return [slice(at, min(at + size, n)) for at in range(0, n, size)]


def _scale(parts: list[torch.Tensor], n: int) -> float:
    """The root mean square of the finite elements."""
    total = sum(float(torch.vdot(part, part).real if part.is_complex() else torch.dot(part, part)) for part in parts)
    if math.isfinite(total):
        return math.sqrt(total / n)
    finite = [part[part.isfinite()] for part in parts]
    count = sum(part.numel() for part in finite)
    return math.sqrt(sum(float(part.abs().double().square().sum()) for part in finite) / count) if count else 0.0


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype.is_complex else torch.float64


class _Found:
    """What the chunks of one tensor gave."""

    def __init__(self) -> None:
        self.most, self.total, self.wrong, self.at, self.values = 0.0, 0.0, 0, -1, (0.0, 0.0)

    def add(self, d: torch.Tensor, bad: torch.Tensor | None, begin: int, got: torch.Tensor, want: torch.Tensor) -> None:
        self.most = max(self.most, float(d.max()))
        self.total += float(d.sum(dtype=torch.float64))
        if bad is not None and self.at < 0 and bool(bad.any()):
            first = int(bad.nonzero()[0])
            self.at, self.values = begin + first, (got[first].item(), want[first].item())
        self.wrong += int(bad.sum()) if bad is not None else 0


def _whole(got: torch.Tensor, want: torch.Tensor, cuts: list[slice], device: str) -> _Found:
    """Tensors of whole numbers and truth values: equal or not."""
    found = _Found()
    for cut in cuts:
        g, w = got[cut].to(device), want[cut].to(device)
        bad = g != w
        if bool(bad.any()):
            found.add((g.double() - w.double()).abs(), bad, cut.start, g, w)
    return found


def _near(got: torch.Tensor, want: torch.Tensor, cuts: list[slice], device: str, limit: float) -> _Found:
    """Halves and float32 in float32 (a difference has no rounding that matters beside a tolerance), others wider."""
    found, kind = _Found(), torch.float32 if want.dtype in (torch.float32, *HALVES) else _wide(want.dtype)
    parts = [want[cut].to(device).to(kind) for cut in cuts]
    least = limit * min(1.0, _scale(parts, want.numel()))
    least += 2 * torch.finfo(want.dtype).tiny if not want.is_complex() else 0.0  # denormals may be flushed
    for cut, w in zip(cuts, parts):
        g = got[cut].to(device).to(kind)
        d = (g - w).abs()
        if float(torch.sub(d, w.abs(), alpha=limit).max()) <= least:  # false where something is NaN
            found.add(d, None, cut.start, g, w)
            continue
        finite = w.isfinite()  # NaN and infinity are right where the reference has the same
        fine = torch.where(finite, d <= w.abs().mul_(limit).add_(least), (g == w) | (g.isnan() & w.isnan()))
        d = torch.where(finite & g.isfinite(), d, torch.where(finite, math.inf, 0.0))
        found.add(d, ~fine, cut.start, g, w)
    return found


def _tensor(got: torch.Tensor, want: torch.Tensor, tolerance: Tolerance, device: str) -> Difference:
    n = want.numel()
    if not n:
        return Difference()
    exact = not (want.is_floating_point() or want.is_complex())
    got, want, cuts = got.reshape(-1), want.reshape(-1), chunks(n, device)
    found = _whole(got, want, cuts, device) if exact else _near(got, want, cuts, device, tolerance.of(want.dtype))
    most, mean = found.most, found.total / n
    if not found.wrong:
        return Difference(most=most, mean=mean)
    was, right = (str(x) if exact else f"{x:.6g}" for x in found.values)
    sentence = (f"{found.wrong} of {n} elements {'differ' if exact else 'are wrong'}; element {found.at} is {was}, not "
                f"{right}; greatest difference {most:.3g}, mean {mean:.3g}")  # fmt: skip
    return Difference("wrong values", sentence, most, mean)


def compare(got, want, tolerance: Tolerance, device: str = "cpu") -> Difference:
    """The work is done on the device, a part of each tensor at a time."""
    if _structure(got) != _structure(want):
        return Difference("wrong shape or type", f"the output is {_structure(got)}, the reference's {_structure(want)}")
    pairs = zip(*(_tree.tensors(_map(value, lambda x: x, torch.tensor)) for value in (got, want)))
    each = [_tensor(a, b, tolerance, device) for a, b in pairs]
    if not each:
        return Difference()
    worst = next((d for d in each if d.wrong), each[0])
    return Difference(worst.kind, worst.wrong, max(d.most for d in each), max(d.mean for d in each))


def _map(value, change, number=float):
    """A value with its tensors and its numbers changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, float):
        return number(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_map(item, change, number) for item in value)
    return {k: _map(v, change, number) for k, v in value.items()} if isinstance(value, dict) else value


def _mean(t: torch.Tensor) -> torch.Tensor:
    if t.is_floating_point() or t.is_complex():
        return torch.full_like(t, t.mean(dtype=torch.complex128 if t.is_complex() else torch.float64).item())
    return t.reshape(-1)[0].expand(t.shape) if t.numel() else t


def _shuffled(t: torch.Tensor) -> torch.Tensor:
    return t.reshape(-1).roll(t.numel() // 2 if t.dim() < 2 or t.shape[0] < 2 else t[0].numel()).reshape(t.shape)


def passing_mutants(want, other, tolerance: Tolerance, device: str = "cpu") -> list[str]:
    """The known-wrong outputs that would pass for `want`; `other` is the reference's output of other inputs. Where one
    passes, the comparison proves nothing."""
    want, other = (_map(value, lambda t: t.to(device)) for value in (want, other))
    mutants = {"zeros": _map(want, torch.zeros_like), "the output of other inputs": other}
    if any(t.numel() > 1 for t in _tree.tensors(want)):
        mutants |= {"a constant": _map(want, _mean), "shuffled rows": _map(want, _shuffled)}
    return [name for name, wrong in mutants.items() if not compare(wrong, want, tolerance, device).wrong]


def like(value, want):
    """The same numbers in the types of `want`."""
    kinds = iter(_tree.tensors(want))
    return _map(value, lambda t: t.to(next(kinds).dtype))


def still(want, got, want_after, got_after) -> str:
    """A sentence, where a change that moved `want` did not move `got` as far."""
    for w, g, v, h in zip(*map(_tree.tensors, (want, got, want_after, got_after))):
        if g.shape != w.shape or h.shape != v.shape:
            return "the candidate's has another shape"
        if not (w.is_floating_point() and w.numel()):
            continue
        right, made = (v - w).double().reshape(-1), (h - g).double().reshape(-1)
        right = torch.where(right.isfinite(), right, 0.0)
        at = int(right.abs().argmax())
        if abs(right[at]) > 4e-3 * float(w.double().square().mean().sqrt()) and not (
            abs(made[at] - right[at]) <= 0.5 * abs(right[at])
        ):
            return f"element {at} moves by {right[at].item():.3g}, the candidate's by {made[at].item():.3g}"
    return ""


def same_bits(a, b) -> bool:
    return _structure(a) == _structure(b) and all(
        torch.equal(_tree.bits(x), _tree.bits(y)) for x, y in zip(_tree.tensors(a), _tree.tensors(b))
    )


def error(got, exact) -> float:
    """The root mean square error of a value's floating point tensors, relative to that of the exact ones."""
    above = below = 0.0
    for a, b in zip(_tree.tensors(got), _tree.tensors(exact)):
        if b.is_floating_point():
            a, b = a.reshape(-1), b.reshape(-1)
            sums = []
            for part in chunks(b.numel(), b.device.type):  # results may take half of a GPU's memory
                x, y = a[part].double(), b[part].double()
                fine = y.isfinite() & x.isfinite()
                sums.append(torch.stack([t.where(fine, 0.0).pow(2).sum() for t in (x - y, y)]))
            if sums:
                found = torch.stack(sums).sum(0)
                above, below = above + float(found[0]), below + float(found[1])
    return math.sqrt(above / below) if below else 0.0


def farthest(got, exact) -> float:
    """The greatest such error of a tensor."""
    return max((error(a, b) for a, b in zip(_tree.tensors(got), _tree.tensors(exact))), default=0.0)


def precision(candidate: float, baseline: float) -> str:
    """The class of a result by its error against float64 beside the baseline's own."""
    if candidate <= 2 * baseline or candidate <= 2**-23:
        return "baseline's"
    return next((name for name, most in (("tf32", 2**-10), ("bf16", 2**-7)) if candidate <= most), "below bf16")
