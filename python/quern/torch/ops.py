# SPDX-License-Identifier: Apache-2.0
"""The library's ops as torch ops: `torch.ops.quern.lion_` and, made from the descriptions, every other op of the
registry, over lists of tensors and over single ones. Each is also a function of this module under its name. Nothing
here knows one op from another."""

from __future__ import annotations

import torch

from .._ops import Op, ops
from ._namespace import NAMESPACE
from ._register import TorchOp

library = torch.library.Library(NAMESPACE, "DEF")


def in_place(op: Op) -> TorchOp:
    """Registers an op under its name and an underscore, as torch calls what works in place."""
    return TorchOp(
        library,
        op.name + "_",
        op,
        tuple(op.params.values()),
        many=[(role, role.plural) for role in op.roles],
        one=[(role, role.framework_name) for role in op.roles],
        positional=False,
    )


IN_PLACE: dict[str, TorchOp] = {made.op.name + "_": made for made in map(in_place, ops())}
globals().update(IN_PLACE)
__all__ = list(IN_PLACE)
