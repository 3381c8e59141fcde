# SPDX-License-Identifier: Apache-2.0
"""The library's ops as torch ops: `torch.ops.quern.lion_` and, made from the descriptions, every other op of the
registry over lists of tensors. Each is also a function of this module under its name. Nothing here knows one op from
another."""

from __future__ import annotations

import torch

from .._ops import Op, ops
from ._namespace import NAMESPACE
from ._register import TorchOp

library = torch.library.Library(NAMESPACE, "DEF")


def list_op(op: Op) -> TorchOp:
    """Registers an op that works in place, over lists, under its name and an underscore as torch has it."""
    roles = [(role, role.plural) for role in op.roles]
    return TorchOp(library, op.name + "_", op, roles, tuple(op.params.values()), many=True, positional=False)


LIST_OPS: dict[str, TorchOp] = {made.op.name + "_": made for made in map(list_op, ops())}
globals().update(LIST_OPS)
__all__ = list(LIST_OPS)
