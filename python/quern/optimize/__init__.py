# SPDX-License-Identifier: Apache-2.0
"""Makes PyTorch models faster: quern.torch.optimize, the backend "quern" of torch.compile, and `python -m
quern.optimize --help`. docs/optimizing.md."""


def register() -> None:
    """Tells PyTorch the backend's name where the package is on the path, but not installed."""
    from ._backend import register

    register()
