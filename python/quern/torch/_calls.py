# SPDX-License-Identifier: Apache-2.0
"""From torch's tensors to what the library's calls take: storage types, devices, streams, threads. No op and no
optimizer is known here, and nothing is kept but pools of threads."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from .. import _abi, _threads
from .._library import DTYPES, KINDS
from .._tensors import Tensors
from .._versions import counter

# The library's storage types, by torch's. A complex tensor is seen as the pairs of reals that it is stored as.
CODES: dict[torch.dtype, int] = {
    torch.float32: DTYPES["f32"],
    torch.bfloat16: DTYPES["bf16"],
    torch.float16: DTYPES["f16"],
    torch.float64: DTYPES["f64"],
}


def code_of(dtype: torch.dtype, what: str) -> int:
    """The library's code of a storage type. TypeError names `what` where it has none."""
    try:
        return CODES[dtype]
    except KeyError:
        known = ", ".join(str(known).removeprefix("torch.") for known in CODES)
        raise TypeError(f"quern: {what} is {dtype}; storage types are {known}") from None


def place_of(device: torch.device) -> tuple[int, int]:
    """(kind, index) as the library counts devices. ValueError where it knows none of that kind."""
    if device.type == "cuda" and torch.version.hip is None:
        return KINDS["cuda"], torch.cuda.current_device() if device.index is None else device.index
    if device.type == "cpu":
        return KINDS["cpu"], 0
    raise ValueError(f"quern: a tensor is on {device}; the devices are cpu and NVIDIA's cuda")


def as_real(tensor: Tensor) -> Tensor:
    """A complex tensor as its pairs of reals, at the same address; any other as it is."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def grads_of(params: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of parameters that have them. Where one has none after all, looking at it is an AttributeError."""
    return cast("list[Tensor]", [param.grad for param in params])


def named(error: Exception, members: Sequence[Any]) -> Exception:
    """The library's sentences call a tensor "param[3]", its place in the list: adds each one's label."""
    places = dict.fromkeys(int(place) for place in re.findall(r"\b[a-z_]+\[(\d+)\]", str(error)))
    labels = [f"[{place}] is {members[place].label}" for place in places if place < len(members)]
    return type(error)(f"{error} ({', '.join(labels)})") if labels else error


def tensors_of(list_of: Sequence[Tensor], code: int, place: tuple[int, int]) -> Tensors:
    """The role's array for the library; all are real and of the type and device that are said."""
    return Tensors(
        [tensor.data_ptr() for tensor in list_of],
        code,
        [tensor.shape for tensor in list_of],
        [tensor.stride() for tensor in list_of],
        place,
    )


def _raw_stream(index: int) -> int:
    return torch.cuda.current_stream(index).cuda_stream


# The device's current stream in 0.1 us; the public way makes an object, 1.5 us.
raw_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _raw_stream)


class Place:
    """Where a list's calls run: its device and, at each call anew, the device's current stream or torch's threads."""

    __slots__ = ("_index", "_is_cuda", "_pool", "device", "execution", "key")

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.key = place_of(device)
        kind, self._index = self.key
        self._is_cuda = kind == KINDS["cuda"]
        self.execution = _abi.sized(_abi.Exec)
        self.execution.device.kind, self.execution.device.index = self.key

    def current(self) -> _abi.Exec:
        """To be passed to a call that is made now."""
        if self._is_cuda:
            self.execution.stream = raw_stream(self._index)
        else:
            self._pool = _threads.pool_for("torch")
            self.execution.pool = self._pool and self._pool.address
        return self.execution

    def lend(self, n_bytes: int) -> Tensor | None:
        """Workspace for the call that is made next on the current stream: memory of torch's, in that stream's order,
        so it may be let go as soon as the call has returned."""
        if not n_bytes:
            return None
        memory = torch.empty(n_bytes, dtype=torch.uint8, device=self.device)
        self.execution.workspace, self.execution.workspace_bytes = memory.data_ptr(), n_bytes
        return memory


def is_capturing() -> bool:
    """Is the current stream of the current device being captured into a graph? 0.3 us."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


increment_version = counter(torch)
