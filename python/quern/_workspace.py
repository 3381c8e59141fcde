# SPDX-License-Identifier: Apache-2.0
"""Memory that a call needs beside its arrays, from whoever keeps the memory of their device: PyTorch's or CuPy's
allocator where the call is on their current stream, whose order makes it safe to drop the memory at once; else the
library's own, which is given back when the stream has got so far."""

from __future__ import annotations

import ctypes
import sys

from . import _abi, _streams
from ._arrays import CPU
from ._library import lib

_ALIGNMENT = 16


class Workspace:
    """n_bytes on the device, 16-byte aligned. close() when the work that uses it has been put on the stream."""

    __slots__ = ("_device", "_held", "_stream", "address", "n_bytes")

    def __init__(self, n_bytes: int, device: tuple[int, int], stream: int, framework: str | None) -> None:
        self.n_bytes = n_bytes
        self._device: _abi.Device | None = None  # of memory that is the library's
        self._held: object = None  # memory that is somebody else's
        self._stream = stream
        self.address: int
        if device[0] == CPU:
            buffer = (ctypes.c_char * (n_bytes + _ALIGNMENT))()
            self._held, self.address = buffer, -(-ctypes.addressof(buffer) // _ALIGNMENT) * _ALIGNMENT
        elif framework == "torch" and _streams.of_torch(device[1]) == stream:
            torch = sys.modules["torch"]
            tensor = torch.empty(n_bytes, dtype=torch.uint8, device=torch.device("cuda", device[1]))
            self._held, self.address = tensor, tensor.data_ptr()
        elif framework == "cupy" and _streams.of_cupy(device[1]) == stream:
            cupy = sys.modules["cupy"]
            with cupy.cuda.Device(device[1]):
                array = cupy.empty(n_bytes, dtype="uint8")
            self._held, self.address = array, array.data.ptr
        else:
            memory = ctypes.c_void_p()
            self._device = _abi.Device(*device)
            lib.qn_memory_allocate(self._device, n_bytes, ctypes.byref(memory))
            self.address = memory.value or 0

    def close(self) -> None:
        self._held = None
        if self._device is not None:
            device, self._device = self._device, None
            lib.qn_stream_synchronize(device, self._stream)
            lib.qn_memory_release(device, self.address)
