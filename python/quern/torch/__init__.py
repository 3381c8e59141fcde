# SPDX-License-Identifier: Apache-2.0
"""quern for PyTorch 2.4 and later, on CPUs and NVIDIA GPUs: Lion, the optimizer, and functions made of kernels, for
autograd and torch.compile; importing quern.torch.ops registers the ops under it. Nothing is compiled against
PyTorch."""

from __future__ import annotations

from .importers import import_state
from .lion import Lion

__all__ = ["Lion", "function", "import_state", "register"]


def __getattr__(name: str):
    if name not in ("function", "register"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import _functions

    made = globals()[name] = getattr(_functions, name)
    return made
