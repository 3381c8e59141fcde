# SPDX-License-Identifier: Apache-2.0
"""A judge of PyTorch modules as KernelBench has them: `python -m quern.kernelbench --help`, docs/judging.md."""
