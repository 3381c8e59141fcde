# SPDX-License-Identifier: Apache-2.0
"""The layers that `kernels` may put in the place of a model's own: without state and without a constructor."""

from .quern.torch.lion_names import LionOptimizerStep

__all__ = ["LionOptimizerStep"]
