# SPDX-License-Identifier: Apache-2.0
"""Memory for the large results of a plan on a processor. The pages of fresh memory cost more than most of what is
written to them, so memory whose result nobody holds any more is used again."""

from __future__ import annotations

import math

import torch

LEAST = 1 << 20  # bytes of a result; the C library keeps smaller blocks itself
MOST = 8  # blocks that are kept
LOOSE = 2  # times as large as a result may a block be


class Memory:
    """memory(shape, strides, dtype) makes a result. Its memory is not used again while a tensor, an array or a view of
    it lives. Threads may share one."""

    def __init__(self) -> None:
        self.blocks: list[tuple[torch.UntypedStorage, int, int]] = []  # (memory, its bytes, holders where nobody is)

    def __call__(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        size = math.prod(shape) * dtype.itemsize
        for _ in range(len(self.blocks)):
            try:
                block = self.blocks.pop(0)  # no other thread's from here on
            except IndexError:
                break
            storage, was, holders = block
            if storage.nbytes() != was or storage.is_shared():  # a holder resized it, or sent it to another process
                continue
            if size <= was <= LOOSE * size and _holders(storage) == holders:
                return self._lend(block, shape, strides, dtype)
            self.blocks.append(block)
        storage = torch.UntypedStorage(size)
        if len(self.blocks) >= MOST:
            return _tensor(storage, shape, strides, dtype)
        return self._lend((storage, size, _holders(storage)), shape, strides, dtype)

    def _lend(self, block: tuple, shape: tuple, strides: tuple, dtype: torch.dtype) -> torch.Tensor:
        made = _tensor(block[0], shape, strides, dtype)
        self.blocks.append(block)
        return made


def _holders(storage: torch.UntypedStorage) -> int:
    return torch._C._storage_Use_Count(storage._cdata)


def _tensor(storage: torch.UntypedStorage, shape: tuple, strides: tuple, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(0, dtype=dtype).set_(storage, 0, shape, strides)
