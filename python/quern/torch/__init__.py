# SPDX-License-Identifier: Apache-2.0
"""quern for PyTorch 2.4 and later, on CPUs and NVIDIA GPUs: Lion, the optimizer, and functions made of kernels, for
autograd and torch.compile; importing quern.torch.ops registers the ops under it. Nothing is compiled against
PyTorch."""

from __future__ import annotations

from .importers import import_state
from .lion import Lion

__all__ = ["Lion", "SiLUMul", "SwiGLUMLP", "function", "gemm_norm", "import_state", "register", "swiglu"]

_LATER = {
    "SiLUMul": "_silu_mul",
    "SwiGLUMLP": "_swiglu",
    "function": "_functions",
    "gemm_norm": "_gemm",
    "register": "_functions",
    "swiglu": "_swiglu",
}


def __getattr__(name: str):
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    made = globals()[name] = getattr(import_module(f".{_LATER[name]}", __name__), name)
    return made
