# SPDX-License-Identifier: Apache-2.0
"""quern for PyTorch 2.4 and later, on CPUs and NVIDIA GPUs: Lion and learned optimizers, and functions made of kernels,
for autograd and torch.compile; importing quern.torch.ops registers the ops under it. Nothing is compiled against
PyTorch."""

from __future__ import annotations

from . import _gemm, _swiglu  # noqa: F401  # their ops are in torch.ops.quern from here on
from .importers import import_state
from .lion import Lion

__all__ = [
    "Celo2",
    "ELO",
    "Lion",
    "MuLO",
    "SiLUMul",
    "SmallFCLopt",
    "SwiGLUMLP",
    "VeLO",
    "export_pylo",
    "function",
    "gemm_norm",
    "import_pylo",
    "import_state",
    "mup_groups",
    "optimize",
    "register",
    "swiglu",
]

_LATER = {
    "Celo2": "celo2",
    "ELO": "lopt",
    "MuLO": "lopt",
    "SiLUMul": "_silu_mul",
    "SmallFCLopt": "lopt",
    "SwiGLUMLP": "_mlp",
    "VeLO": "velo",
    "export_pylo": "pylo",
    "function": "_functions",
    "gemm_norm": "_gemm",
    "import_pylo": "pylo",
    "mup_groups": "lopt",
    "optimize": "_optimize",
    "register": "_functions",
    "swiglu": "_swiglu",
}


def __getattr__(name: str):
    if name not in _LATER:
        from .._names import absent

        raise absent(__name__, name, __all__)
    from importlib import import_module

    made = globals()[name] = getattr(import_module(f".{_LATER[name]}", __name__), name)
    return made
