# SPDX-License-Identifier: Apache-2.0
"""quern for JAX: every op as a pure function of arrays or trees of arrays, which jit compiles into a call of the
library, on the CPU and on NVIDIA GPUs; and Lion as an optimizer. It needs jax 0.5 or later; `import quern` imports
nothing of it."""

from __future__ import annotations

from .. import _ops
from ._functions import function
from ._optimizer import Lion, LionState

globals().update({made.name: function(made) for made in _ops.ops()})
__all__ = ["Lion", "LionState", *(made.name for made in _ops.ops())]  # noqa: PLE0604
