# SPDX-License-Identifier: Apache-2.0
"""quern: fused compute kernels that come with proof, on the CPU and on NVIDIA GPUs."""

from __future__ import annotations

from ._library import LibraryError
from ._library import version as __version__

__all__ = ["LibraryError", "__version__"]
