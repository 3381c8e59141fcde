# SPDX-License-Identifier: Apache-2.0
"""Tells PyTorch's autograd which tensors a call has written. Autograd keeps a version counter for each tensor, and
refuses a backward pass over a saved tensor whose counter has moved. Inference tensors have no counter."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence


@functools.cache
def counter(torch) -> Callable[[Sequence], None]:
    """The function that increments the version counter of each tensor of a list: PyTorch's own, where it takes lists
    (from 2.5 or so on)."""
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
    """Increment the version counters of those that are PyTorch's tensors."""
    torch = sys.modules.get("torch")
    tensors = [] if torch is None else [one for one in arrays if isinstance(one, torch.Tensor)]
    if tensors:
        counter(torch)(tensors)
