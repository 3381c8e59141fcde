# SPDX-License-Identifier: Apache-2.0
"""The torch ops of this build. Their namespace is this build's own, so that another build, and quern itself, can be
loaded in the same process."""

import torch

from .quern.torch._namespace import NAMESPACE
from .quern.torch.lion_names import lion_foreach, lion_step
from .quern.torch.ops import lion_

ops = getattr(torch.ops, NAMESPACE)


def add_op_namespace_prefix(op_name: str) -> str:
    """The full name of one of this build's ops."""
    return f"{NAMESPACE}::{op_name}"


__all__ = ["add_op_namespace_prefix", "lion_", "lion_foreach", "lion_step", "ops"]
