# SPDX-License-Identifier: Apache-2.0
"""quern for PyTorch 2.4 and later, on CPUs and NVIDIA GPUs. Nothing is compiled against PyTorch."""
