# SPDX-License-Identifier: Apache-2.0
"""quern.torch's CELO2 and ELO-CELO2: what they have beside the other learned optimizers (_lopt.py), groups of
embeddings, which the library is given as vectors. The arithmetic is the library's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from .. import _lopt
from ._lopt import LAST, OF_ELO, PARAMS, Learned
from ._sharded import is_sharded

_OPTIONS = {
    "is_embedding": _lopt.Option(
        False, "AdamW moves the group's parameters, whatever their dimensions; set it per group"
    ),
    **OF_ELO,
}
_LAST = f"""AdamW also moves parameters of fewer than two dimensions. Its means are corrected by the group's steps.
    {LAST} ELO-CELO2 is this class with its weights and lr=3.16e-4, weight_decay=0.1, adam_weight_decay=0.1,
    adam_lr_mult=20, clip_grad=1.0."""


class Celo2(Learned):
    _family = _lopt.CELO2
    __init__ = _lopt.constructor(_family, "params", _OPTIONS)
    __doc__ = _lopt.document(_family, "params", PARAMS, _OPTIONS, _LAST)

    def _check_options(self, group: dict[str, Any]) -> None:
        if not isinstance(group["is_embedding"], bool):
            raise TypeError(f"Celo2: is_embedding is {group['is_embedding']!r}, it must be True or False")
        super()._check_options(group)

    def _check_param(self, param: Tensor, grad: Tensor, label: str, compat: bool) -> None:
        if is_sharded(param):
            raise TypeError(
                f"Celo2: {label} is a DTensor, and a matrix is made orthogonal as a whole: give plain tensors"
            )
        super()._check_param(param, grad, label, compat)

    def _shaping(self, group: dict[str, Any]) -> bool:
        return group["is_embedding"]

    def _told(self, param: Tensor, group: dict[str, Any]) -> Sequence[int]:
        return (param.numel(),) if group.get("is_embedding") else param.shape
