# SPDX-License-Identifier: Apache-2.0
"""Which CUDA stream a call runs on: the current one of the framework that the arrays belong to, for their own device.
No framework is imported here, and none is asked that the program has not imported itself."""

from __future__ import annotations

import ctypes
import sys

from . import _abi
from ._library import KINDS, lib

_CUDA = KINDS["cuda"]
_LEGACY = 1  # CUDA's other name for the stream NULL
TORCH, CUPY, INTERFACE = range(3)  # whose stream is taken first, where arrays of several are in one call


def _normal(stream: int) -> int:
    return 0 if stream == _LEGACY else stream


def handle_of(stream: object) -> int:
    """A stream as an int: an int is one; torch.cuda.Stream, cupy.cuda.Stream, numba's streams and whatever has
    __cuda_stream__ are asked. TypeError for anything else."""
    if isinstance(stream, int) and not isinstance(stream, bool):
        if stream < 0:
            raise ValueError(f"stream is {stream}, a handle is not negative")
        return _normal(stream)
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return _normal(int((protocol() if callable(protocol) else protocol)[1]))
    for name in ("cuda_stream", "ptr", "handle"):
        handle = getattr(stream, name, None)
        if handle is not None:
            handle = getattr(handle, "value", handle)
            return _normal(int(handle or 0))
    raise TypeError(f"stream is a {type(stream).__name__}; it must be an int or a stream of a framework")


def is_of_cuda(stream: object) -> bool:
    """Does it say on which CUDA stream to run, rightly or wrongly? MLX's streams and devices (mx.gpu), which kernels
    from a body are given, do not: they are no numbers, have no handle and come from no framework that has one."""
    if stream is None or isinstance(stream, str):
        return False
    if isinstance(stream, (int, float, complex)) or hasattr(stream, "__cuda_stream__"):
        return True
    if (type(stream).__module__ or "").partition(".")[0] in ("torch", "cupy", "numba", "jax", "jaxlib"):
        return True
    return any(getattr(stream, name, None) is not None for name in ("cuda_stream", "ptr", "handle"))


def of_torch(index: int) -> int:
    """PyTorch's current stream of that device."""
    return _normal(sys.modules["torch"].cuda.current_stream(index).cuda_stream)


def of_cupy(index: int) -> int:
    """CuPy's current stream of that device."""
    cuda = sys.modules["cupy"].cuda
    with cuda.Device(index):
        return _normal(cuda.get_current_stream().ptr)


class Order:
    """The streams of one call. Each array on a GPU says on which stream its contents are made (`note`); the call
    then runs on the first of them, by the order of the ranks above, and waits for the rest."""

    def __init__(self, explicit: object = None) -> None:
        self.explicit = None if explicit is None else handle_of(explicit)
        self._noted: dict[int, dict[tuple[int, int], bool]] = {}  # by device: (rank, stream): is any of it written?
        self._current: dict[tuple[int, int], int] = {}

    def note_framework(self, index: int, rank: int, written: bool) -> None:
        """An array of a framework that has a current stream."""
        stream = self._current.get((index, rank))
        if stream is None:
            stream = self._current[index, rank] = of_torch(index) if rank == TORCH else of_cupy(index)
        self.note(index, rank, stream, written)

    def note(self, index: int, rank: int, stream: int, written: bool) -> None:
        noted = self._noted.setdefault(index, {})
        key = (rank, _normal(stream))
        noted[key] = noted.get(key, False) or written

    def stream(self, index: int) -> int:
        """The one that the call runs on; 0 is the legacy default stream."""
        if self.explicit is not None:
            return self.explicit
        noted = self._noted.get(index)
        return min(noted)[1] if noted else 0  # every array of a rank but INTERFACE names one stream

    def wait_for_others(self, index: int) -> bool:
        """Makes the host wait until the other streams' work is done, so that it comes before ours. True if work on one
        of them may follow on what is written here: then our stream must be waited for too (`finish`). An explicit
        stream is taken as ordered by whoever gave it."""
        ours, back = self.stream(index), False
        if self.explicit is not None:
            return False
        for (_, stream), written in self._noted.get(index, {}).items():
            if stream != ours:
                lib.qn_stream_synchronize(_abi.Device(_CUDA, index), stream)
                back |= written
        return back

    def finish(self, index: int) -> None:
        lib.qn_stream_synchronize(_abi.Device(_CUDA, index), self.stream(index))


def device_of_pointer(address: int) -> int:
    """The CUDA device whose memory it is: asked of the driver, for interfaces that do not say. RuntimeError with the
    driver's number where it does not know."""
    attribute_device_ordinal = 9
    chosen = ctypes.c_char_p()
    lib.qn_option_get(b"libcuda", ctypes.byref(chosen))
    driver = ctypes.CDLL((chosen.value or b"").decode() or "libcuda.so.1")
    index = ctypes.c_int(-1)
    status = driver.cuInit(0) or driver.cuPointerGetAttribute(
        ctypes.byref(index), attribute_device_ordinal, ctypes.c_uint64(address)
    )
    if status:
        raise RuntimeError(f"the CUDA driver does not say whose memory 0x{address:x} is: error {status}")
    return index.value
