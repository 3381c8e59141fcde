# SPDX-License-Identifier: Apache-2.0
"""quern.torch's learned optimizers as torch.optim has optimizers: SmallFCLopt and ELO, and MuLO, which divides learning
rates by muP's width multipliers. What they share is in _lopt.py; the arithmetic is the library's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from .. import _lopt
from ._lopt import LAST, OF_ELO, OPTIONS, PARAMS, Learned


class SmallFCLopt(Learned):
    _family = _lopt.SMALL_FC
    __init__ = _lopt.constructor(_family, "params", OPTIONS)
    __doc__ = _lopt.document(_family, "params", PARAMS, OPTIONS, LAST)


class ELO(Learned):
    _family = _lopt.ELO
    __init__ = _lopt.constructor(_family, "params", OF_ELO)
    __doc__ = _lopt.document(_family, "params", PARAMS, OF_ELO, LAST)


# ---- muP ----
def _width_mult(param: Tensor, label: str) -> float:
    """By what the `mup` package's set_base_shapes left at the parameter."""
    shape = getattr(param, "infshape", None)
    if shape is None:
        raise ValueError(f"MuLO: {label} has no infshape: call mup.set_base_shapes(model, base) before")
    infinite = shape.ninf()
    if infinite > 2:
        raise ValueError(f"MuLO: {label} has {infinite} infinite dimensions, and muP's rule is for up to 2")
    return float(shape.width_mult()) if infinite == 2 else 1.0


def mup_groups(params: Iterable) -> list[dict[str, Any]]:
    """Parameter groups with the width multipliers of muP: tensors of two infinite dimensions go to groups of one
    `width_mult` each, by which their learning rate is divided; all others keep theirs. `params`: parameters or groups,
    of a model that mup.set_base_shapes has seen. ValueError for a parameter that it has not, or of more than two."""
    given = list(params)
    if not given or not isinstance(given[0], dict):
        given = [{"params": given}]
    made: list[dict[str, Any]] = []
    for index, group in enumerate(given):
        members = group["params"]
        by_width: dict[float, list[Tensor]] = {}
        for k, param in enumerate([members] if isinstance(members, Tensor) else members):
            by_width.setdefault(_width_mult(param, f"parameter {k} of group {index}"), []).append(param)
        made += [{**group, "params": part, "width_mult": width} for width, part in by_width.items()]
    return made


def MuLO(
    params: Iterable, weights: Any = None, *, lr: float | Tensor = _lopt.SMALL_FC.defaults["lr"], **options: Any
) -> SmallFCLopt:
    """SmallFCLopt over mup_groups(params): learning rates of tensors of two infinite dimensions are divided by their
    width multipliers, and with them their weight decay. The other arguments are those of SmallFCLopt."""
    return SmallFCLopt(mup_groups(params), weights, lr=lr, **options)
