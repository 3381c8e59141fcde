# SPDX-License-Identifier: Apache-2.0
"""CELO2 on plain arrays: what it has beside the other learned optimizers (_lopt_arrays.py), embeddings, which the
library is given as vectors. The arithmetic is the library's."""

from __future__ import annotations

import math
from typing import Any

from . import _lopt
from ._lopt_arrays import LAST, OF_ELO, SHAPES, Bounded

_OPTIONS = {
    "is_embedding": _lopt.Option(
        None, "for each array, whether AdamW moves it although it has two or more dimensions; None: no"
    ),
    **OF_ELO,
}


class Celo2(Bounded):
    _family = _lopt.CELO2
    __init__ = _lopt.constructor(_family, "shapes", _OPTIONS)
    __doc__ = _lopt.document(
        _family,
        "shapes",
        SHAPES,
        _OPTIONS,
        LAST.replace("an input of the network", "what AdamW's means are corrected by"),
    )

    is_embedding: Any

    def _options(self) -> dict[str, Any]:
        flags = self.is_embedding
        if flags is not None and not isinstance(flags, (list, tuple)):
            raise TypeError(f"Celo2: is_embedding is {flags!r}, it must be a list of True and False, one an array")
        if flags is not None and len(flags) != len(self.shapes):
            raise ValueError(f"Celo2: is_embedding has {len(flags)} values, and there are {len(self.shapes)} arrays")
        for k, flag in enumerate(flags or ()):
            if not isinstance(flag, bool):
                raise TypeError(f"Celo2: is_embedding[{k}] is {flag!r}, it must be True or False")
        return super()._options()

    def _told(self, k: int) -> tuple[int, ...]:
        shape = self.shapes[k]
        return (math.prod(shape),) if self.is_embedding and self.is_embedding[k] else shape
