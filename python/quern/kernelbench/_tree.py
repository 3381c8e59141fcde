# SPDX-License-Identifier: Apache-2.0
"""Values between the judge and a candidate's process: a tree in JSON whose tensors' bytes stand in a file of memory.
No pickles: a tree from a candidate is data, and `read` checks every number of it against the file's size. The file is
mapped once and only grows, and a GPU's driver is told its pages: so large tensors move at the speed of the bus."""

from __future__ import annotations

import math
import mmap
import os

import torch

ALIGNMENT = 64
GROWTH = 2 << 20  # bytes by which a memory grows
WORTH = 1 << 20  # bytes of a value from which a GPU's driver is told the pages
DEEPEST = 16
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    )
}  # fmt: skip
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


class Unfit(Exception):
    """A value that cannot be sent, or a message that is not well formed."""


def tensors(value) -> list[torch.Tensor]:
    """The tensors of a value, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for item in value for t in tensors(item)] if isinstance(value, (list, tuple)) else []


def _leaf(tensor: torch.Tensor, at: int) -> dict:
    # A subclass may compute when it is read; sparse and quantised tensors have no one block of bytes.
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise Unfit(f"a {type(tensor).__name__}, which is no plain tensor")
    name = str(tensor.dtype).removeprefix("torch.")
    if tensor.layout != torch.strided or name not in DTYPES:
        raise Unfit(f"a tensor of {name} in layout {tensor.layout}")
    size = tensor.numel() * tensor.element_size()
    return {"dtype": name, "shape": list(tensor.shape), "stride": list(tensor.stride()), "at": at, "bytes": size}


def _describe(value, found: list, at: int, depth: int = 0):
    """The tree of a value whose tensors' bytes begin at `at`; returns it and the end."""
    if depth > DEEPEST:
        raise Unfit(f"values in more than {DEEPEST} others")
    if isinstance(value, torch.Tensor):
        leaf = _leaf(value, at)
        found.append((leaf, value))
        return {"tensor": leaf}, -(-(at + leaf["bytes"]) // ALIGNMENT) * ALIGNMENT
    if value is None or isinstance(value, (bool, int, str)):
        return {"value": value}, at
    if isinstance(value, float):
        return {"float": value.hex()}, at
    if isinstance(value, (list, tuple)):
        items = []
        for item in value:
            tree, at = _describe(item, found, at, depth + 1)
            items.append(tree)
        return {"tuple" if isinstance(value, tuple) else "list": items}, at
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        members = {}
        for key, item in value.items():
            members[key], at = _describe(item, found, at, depth + 1)
        return {"dict": members}, at
    raise Unfit(f"a {type(value).__name__}")


class Memory:
    """A file of memory, mapped. `pin`: whether a GPU copies from and to it."""

    def __init__(self, fd: int, pin: bool = False) -> None:
        self.fd, self.pin, self.pinned = fd, pin, False
        self.whole = torch.empty(0, dtype=torch.uint8)

    def mapped(self, size: int = 0) -> torch.Tensor:
        """All its bytes, of which there are at least `size`."""
        if os.fstat(self.fd).st_size < size:
            os.ftruncate(self.fd, -(-size // GROWTH) * GROWTH)
        there = os.fstat(self.fd).st_size
        if there != self.whole.numel():
            self.forget()
            # A tensor that was read from the former mapping keeps it.
            self.whole = torch.frombuffer(mmap.mmap(self.fd, there), dtype=torch.uint8)
        return self.whole

    def used(self, size: int) -> None:
        """Tells the driver the pages, if a value of so many bytes is worth it and the file holds little else."""
        there = self.whole.numel()
        if self.pin and not self.pinned and size >= WORTH and there <= 2 * size + GROWTH:
            self.pinned = int(torch.cuda.cudart().cudaHostRegister(self.whole.data_ptr(), there, 0)) == 0
            self.pin = self.pinned

    def forget(self) -> None:
        if self.pinned:
            torch.cuda.cudart().cudaHostUnregister(self.whole.data_ptr())
        self.pinned, self.whole = False, torch.empty(0, dtype=torch.uint8)


def write(value, memory: Memory) -> dict:
    """Puts a value's tensors into the memory and returns its tree; each tensor's elements stand in row-major order."""
    found: list = []
    tree, size = _describe(value, found, 0)
    whole = memory.mapped(size)
    memory.used(size)
    for leaf, tensor in found:
        if leaf["bytes"]:
            at = whole[leaf["at"] : leaf["at"] + leaf["bytes"]].view(DTYPES[leaf["dtype"]])
            at.view(leaf["shape"]).copy_(tensor.detach())
    return tree


def _whole_number(value, most: int) -> bool:
    return type(value) is int and 0 <= value <= most


def _read_leaf(leaf, whole: torch.Tensor) -> torch.Tensor:
    room = whole.numel()
    try:
        dtype, shape, stride, at = DTYPES[leaf["dtype"]], leaf["shape"], leaf["stride"], leaf["at"]
        fine = all(_whole_number(x, 1 << 48) for x in [*shape, *stride, at]) and len(shape) == len(stride) <= 64
        size = math.prod(shape) * dtype.itemsize if fine else -1
    except (KeyError, TypeError) as error:
        raise Unfit("a tensor's line is not well formed") from error
    if not fine or at + size > room or at % dtype.itemsize or size != leaf["bytes"]:
        raise Unfit("a tensor's line is not well formed")
    here = whole[at : at + size].view(dtype).view(shape) if size else torch.empty(shape, dtype=dtype)
    here.told_stride = tuple(stride)  # that of the sender, for who wants to compare or rebuild it
    return here


def _build(tree, whole: torch.Tensor, depth: int):
    if depth > DEEPEST or not isinstance(tree, dict) or len(tree) != 1:
        raise Unfit("a value's line is not well formed")
    ((kind, inner),) = tree.items()
    if kind == "tensor":
        return _read_leaf(inner, whole)
    if kind == "value" and (inner is None or isinstance(inner, (bool, int, str))):
        return inner
    if kind == "float" and isinstance(inner, str):
        try:
            return float.fromhex(inner)
        except (ValueError, OverflowError) as error:
            raise Unfit("a number is not well formed") from error
    if kind in ("list", "tuple") and isinstance(inner, list):
        items = [_build(item, whole, depth + 1) for item in inner]
        return tuple(items) if kind == "tuple" else items
    if kind == "dict" and isinstance(inner, dict):
        return {key: _build(item, whole, depth + 1) for key, item in inner.items()}
    raise Unfit("a value's line is not well formed")


def read(tree, memory: Memory):
    """The value of a tree: its tensors are the memory itself, each with `told_stride`, the sender's."""
    value = _build(tree, memory.mapped(), 0)
    memory.used(sum(t.numel() * t.element_size() for t in tensors(value)))
    return value


def copied(value):
    """A value that no later message changes."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, (list, tuple)):
        return type(value)(map(copied, value))
    return {key: copied(item) for key, item in value.items()} if isinstance(value, dict) else value


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same bytes as whole numbers, so that NaN equals NaN and -0 differs from 0."""
    dense = tensor.detach().contiguous().reshape(-1)
    if dense.is_complex():
        dense = torch.view_as_real(dense).contiguous().reshape(-1)
    return dense.view(_WORDS[dense.element_size()])
