# SPDX-License-Identifier: Apache-2.0
"""The door to quern.optimize."""

from __future__ import annotations

from ..optimize._model import Optimized, optimize

__all__ = ["Optimized", "optimize"]
