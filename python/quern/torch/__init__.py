# SPDX-License-Identifier: Apache-2.0
"""quern for PyTorch 2.4 and later, on CPUs and NVIDIA GPUs: Lion, the optimizer; importing quern.torch.ops
registers the ops under it. Nothing is compiled against PyTorch."""

from __future__ import annotations

from .importers import import_state
from .lion import Lion

__all__ = ["Lion", "import_state"]
