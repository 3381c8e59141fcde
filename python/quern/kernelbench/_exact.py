# SPDX-License-Identifier: Apache-2.0
"""The reference in float64: who is right where a candidate and PyTorch differ, and how precise both are."""

from __future__ import annotations

from dataclasses import replace

from . import _compare, _tree
from ._process import Failure

UNSTEADY = 0.05  # most relative error in norm of a gradient that no tolerance can hold


def double(judge, draw):
    """The reference's outputs in float64; None where it cannot compute them."""
    try:
        judge.eager.process.ask("double", on=True)
        return judge.eager.kept(draw, judge.options)[0]
    except Failure:
        return None
    finally:
        judge.eager.process.ask("double", on=False)


def _wrong(judge, value, exact) -> bool:
    return bool(_compare.compare(value, exact, judge.options.tolerance, judge.options.device).wrong)


def _note(judge, note: str) -> None:
    judge.notes += [note] if note not in judge.notes else []


def refutes(judge, draw, got) -> bool:
    """Whether float64 confirms, on data that is hard to compute with, that the reference is right and not `got`."""
    got, want = _tree.copied(got), judge.eager.kept(draw, judge.options)[0]
    exact = double(judge, draw)
    if exact is not None:
        exact = _compare.like(exact, want)
        if _wrong(judge, got, exact) and not _wrong(judge, want, exact):
            return True
    _note(judge, f"float64 does not confirm the reference on data that is {draw.kind}; it was left out")
    return False


def unsteady(judge, draw, got, want) -> bool:
    """Whether gradients beyond the tolerance refuse nobody. Where an argument of ReLU is zero but for rounding, each
    float32 takes a side, and all gradients before that place differ. So it is where float64's own gradients leave the
    tolerance when inputs move by a rounding. Then the candidate's must be near them in norm, and no word follows."""
    if not judge.options.gradients:
        return False
    got, want = _tree.copied(got), _tree.copied(want)
    exact, moved = double(judge, draw), double(judge, replace(draw, rounded=True))
    if exact is None or moved is None:
        return False
    right = _compare.like(exact, want)
    in_doubt = _wrong(judge, got, right)
    near = _compare.farthest(got, exact) <= UNSTEADY
    if in_doubt and not (near and _wrong(judge, _compare.like(moved, want), right)):
        return False
    _note(judge, "gradients differ from PyTorch's as float64's do when inputs move by a rounding")
    judge.in_doubt |= in_doubt
    return True


def precision(judge, draw) -> dict:
    """The errors of the candidate's and of eager PyTorch's first outputs against float64."""
    exact = double(judge, draw)
    if exact is None:
        return {}
    own, theirs = (_compare.error(x, exact) for x in (judge.outputs, judge.first))
    return {"precision": {"error": own, "baseline_error": theirs, "class": _compare.precision(own, theirs)}}
