# SPDX-License-Identifier: Apache-2.0
"""quern.torch's learned optimizers as torch.optim has optimizers: SmallFCLopt and ELO, and MuLO, which divides learning
rates by muP's width multipliers. What they share is in _lopt.py; the arithmetic is the library's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from .. import _lopt
from ._lopt import Learned, Three

_SMALL_FC, _ELO = _lopt.SMALL_FC.defaults, _lopt.ELO.defaults


class SmallFCLopt(Learned):
    """The learned optimizer small_fc_lopt (AdafacLO, MuLO): a network of two layers of 32 moves every element.

    params: parameters, (name, parameter) pairs, or dicts of groups; of float32, of 0 to 5 dimensions
    weights: the network's weights: the path of a safetensors file as btherien/mulo publishes it, or a dict of float32
        tensors under the same names
    lr: learning rate; the weights were trained for 1.0, and schedules multiply it
    weight_decay: decoupled, after the step: p = p - weight_decay lr p
    step_mult, exp_mult: factors of the step: lr step_mult direction e^(exp_mult magnitude)
    max_grad_norm: bound of each gradient's norm; None: none. Gradients are not changed
    width_mult: divisor of the learning rate for muP; see MuLO
    m_decays, v_decay, factor_decays: decays of the means; None: those of the weights' file, as
        quern.convert_learned_optimizer writes them, else those of the published weights
    pylo_cuda_compat: computes as PyLO's CUDA code, which departs from its reference; up to 2 dimensions
    precision: class of the network's products on a GPU: "fp32", "tf32", "bf16x3", "f16x3" (as fp32, to some 8e-7 of the
        update), "f16"; the processor computes all of them as fp32
    capturable: lr, weight_decay and the number of steps are read from device memory, so that a captured graph sees them
        change; see prepare(). Each group is then a call of its own

    All but params and weights may be set per group. A parameter without a gradient is not changed."""

    _family = _lopt.SMALL_FC

    def __init__(
        self,
        params: Iterable,
        weights: Any,
        lr: float | Tensor = _SMALL_FC["lr"],
        weight_decay: float = _SMALL_FC["weight_decay"],
        *,
        step_mult: float = _SMALL_FC["step_mult"],
        exp_mult: float = _SMALL_FC["exp_mult"],
        max_grad_norm: float | None = None,
        width_mult: float = 1.0,
        m_decays: Three | None = None,
        v_decay: float | None = None,
        factor_decays: Three | None = None,
        pylo_cuda_compat: bool = False,
        precision: str = _SMALL_FC["precision"],
        capturable: bool = False,
    ) -> None:
        defaults: dict[str, Any] = dict(lr=lr, weight_decay=weight_decay, step_mult=step_mult, exp_mult=exp_mult)
        defaults.update(max_grad_norm=max_grad_norm, width_mult=width_mult, m_decays=m_decays, v_decay=v_decay)
        defaults.update(factor_decays=factor_decays, pylo_cuda_compat=pylo_cuda_compat, precision=precision)
        defaults.update(capturable=capturable)
        super().__init__(params, {"weights": weights}, defaults)


class ELO(Learned):
    """The learned optimizer ELO: small_fc_lopt's network and state with plain decays and an update of its own,
    p = p - lr (direction e^(exp_mult magnitude) + weight_decay p). A gradient of NaN counts as 0, an infinite one as
    the largest number of its sign.

    weights: as DiamondXL/elo publishes them, of the names and shapes of SmallFCLopt's
    clip_grad: bound of the norm of the gradients of all groups together; None: none. Gradients are not changed: while
        the step runs there are copies of them

    The other arguments are those of SmallFCLopt."""

    _family = _lopt.ELO

    def __init__(
        self,
        params: Iterable,
        weights: Any,
        lr: float | Tensor = _ELO["lr"],
        weight_decay: float = _ELO["weight_decay"],
        *,
        exp_mult: float = _ELO["exp_mult"],
        clip_grad: float | None = None,
        width_mult: float = 1.0,
        m_decays: Three | None = None,
        v_decay: float | None = None,
        factor_decays: Three | None = None,
        pylo_cuda_compat: bool = False,
        precision: str = _ELO["precision"],
        capturable: bool = False,
    ) -> None:
        defaults: dict[str, Any] = dict(lr=lr, weight_decay=weight_decay, exp_mult=exp_mult, clip_grad=clip_grad)
        defaults.update(width_mult=width_mult, m_decays=m_decays, v_decay=v_decay, factor_decays=factor_decays)
        defaults.update(pylo_cuda_compat=pylo_cuda_compat, precision=precision)
        defaults.update(capturable=capturable)
        super().__init__(params, {"weights": weights}, defaults)


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


def MuLO(params: Iterable, weights: Any, *, lr: float | Tensor = _SMALL_FC["lr"], **options: Any) -> SmallFCLopt:
    """SmallFCLopt over mup_groups(params): learning rates of tensors of two infinite dimensions are divided by their
    width multipliers, and with them their weight decay. The other arguments are those of SmallFCLopt."""
    return SmallFCLopt(mup_groups(params), weights, lr=lr, **options)
