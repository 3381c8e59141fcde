# SPDX-License-Identifier: Apache-2.0
"""quern for JAX: every op as a pure function of arrays or trees of arrays, which jit compiles into a call of the
library, on the CPU and on NVIDIA GPUs; and Lion as an optimizer. It needs jax 0.5 or later; `import quern` imports
nothing of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _ops
from ._functions import function
from ._optimizer import Lion, LionState

_FUNCTIONS = tuple(made.name for made in _ops.ops())  # made when they are first named
__all__ = ["Lion", "LionState", *_FUNCTIONS]  # noqa: PLE0604 (the functions' names come from the library)


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in _FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = made = function(_ops.op(name))
    return made


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
