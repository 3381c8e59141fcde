# SPDX-License-Identifier: Apache-2.0
"""Autograd must see that tensors have changed: PyTorch counts the writes of each, and what it has saved of one that was
written since is refused. Inference tensors have no count."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence


@functools.cache
def counter(torch) -> Callable[[Sequence], None]:
    """The function that counts a write of each tensor of a list: PyTorch's own, from 2.5 or so on."""
    count = torch._C._increment_version

    def count_each(tensors: Sequence) -> None:
        for tensor in tensors:
            if not tensor.is_inference():
                count(tensor)

    try:
        with torch.inference_mode():
            tensor = torch.empty(0, dtype=torch.uint8, device="cpu")
        count([tensor])
    except (TypeError, RuntimeError):
        return count_each
    return count


def count_writes(arrays: Iterable[object]) -> None:
    """Of the tensors of PyTorch's among them."""
    torch = sys.modules.get("torch")
    tensors = [] if torch is None else [one for one in arrays if isinstance(one, torch.Tensor)]
    if tensors:
        counter(torch)(tensors)
