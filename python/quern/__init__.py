# SPDX-License-Identifier: Apache-2.0
"""quern: fused compute kernels that come with proof, on the CPU and on NVIDIA GPUs."""

from __future__ import annotations

from ._library import LibraryError
from ._library import version as __version__

__all__ = ["LibraryError", "__version__"]


def __getattr__(name: str):
    """quern.torch is imported when it is first named, and PyTorch with it."""
    if name == "torch":
        import importlib

        return importlib.import_module(".torch", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
