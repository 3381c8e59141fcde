# SPDX-License-Identifier: Apache-2.0
"""What an array of any library says of itself: address, storage type, shape, strides, device, whether it may be
written, and on which stream its contents are made. NumPy's arrays, PyTorch's tensors and what else has data_ptr(), the
two array interfaces and DLPack are understood; none of these libraries is imported. Nothing is copied, and nothing is
held against an op here."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Sequence

from . import _dlpack, _streams
from ._library import DTYPES, KIND_NAMES, KINDS

CPU, CUDA = KINDS["cpu"], KINDS["cuda"]
CPU_DEVICE = (CPU, 0)

# Storage types by the name that NumPy, PyTorch and DLPack have for them: (the library's code, bytes).
STORAGE: dict[str, tuple[int, int]] = {
    "float32": (DTYPES["f32"], 4),
    "bfloat16": (DTYPES["bf16"], 2),
    "bfloat": (DTYPES["bf16"], 2),
    "float16": (DTYPES["f16"], 2),
    "float64": (DTYPES["f64"], 8),
    "float8_e4m3fn": (DTYPES["f8e4m3"], 1),
}
LONG_NAMES: dict[int, str] = {code: name for name, (code, _) in reversed(STORAGE.items())}
_IMMUTABLE = ("jax", "jaxlib", "tensorflow")  # their arrays never change; DLPack does not always say so
_PROTOCOLS = ("data_ptr", "__cuda_array_interface__", "__array_interface__", "__dlpack__")


class View:
    """One array. `name` is what sentences call it, `dtype` its storage type's name, `code` the library's number of that
    or None; strides count elements, None is row-major; `held` keeps the memory."""

    __slots__ = ("address", "code", "device", "dtype", "held", "name", "nbytes", "read_only", "shape", "strides")

    def __init__(self, name, address, dtype, shape, strides, device, read_only=False, held=None, item_bytes=0) -> None:
        self.name: str = name
        self.address: int = address
        self.dtype: str = dtype
        code, known_bytes = STORAGE.get(dtype, (None, 0))
        self.code: int | None = code
        self.shape: Sequence[int] = shape
        self.strides: Sequence[int] | None = strides
        self.device: tuple[int, int] = device
        self.read_only: bool = read_only
        self.held = held
        self.nbytes = item_bytes or known_bytes
        for extent in shape:
            self.nbytes *= extent


def is_row_major(shape: Sequence[int], strides: Sequence[int] | None) -> bool:
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides or ())):
        if extent == 0:
            return True
        if extent > 1 and stride != step:
            return False
        step *= extent
    return True


def place_name(device: tuple[int, int]) -> str:
    """ "cuda:0"."""
    return f"{KIND_NAMES[device[0]]}:{device[1]}"


def is_array(value: object) -> bool:
    """Has it one of the protocols? (A property that refuses, as PyTorch's __cuda_array_interface__ on the CPU does, is
    there nevertheless.)"""
    kind = type(value)
    return any(hasattr(kind, name) for name in _PROTOCOLS) or any(
        name in getattr(value, "__dict__", ()) for name in _PROTOCOLS
    )


def listed(name: str, value: object) -> tuple[Sequence[object], bool]:
    """The arrays behind an argument, and whether it was one array by itself. TypeError for what is no sequence."""
    if is_array(value):
        return (value,), True
    if isinstance(value, (list, tuple)):
        return value, False
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, bytearray, memoryview, dict)):
        return list(value), False
    raise TypeError(f"{name} is {_a(value)}, it must be an array or a sequence of arrays")


def _a(value: object) -> str:
    """What it is, for a sentence: None, a str, an int."""
    if value is None:
        return "None"
    kind = type(value).__qualname__
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"


def _element_strides(name: str, byte_strides: Sequence[int] | None, item_bytes: int) -> tuple[int, ...] | None:
    if byte_strides is None:
        return None
    if any(step % item_bytes for step in byte_strides):
        raise ValueError(
            f"{name} has strides of {tuple(byte_strides)} bytes, which are no multiples of its elements' {item_bytes}"
        )
    return tuple(step // item_bytes for step in byte_strides)


# ---- NumPy ----
def _numpy_dtype(dtype) -> str:
    """Its name; of a type with its bytes swapped, a name that no storage type has."""
    return dtype.name if dtype.isnative else f"{dtype.name} in the other byte order"


def _from_numpy(name: str, array) -> View:
    numpy = sys.modules["numpy"]
    if "numpy.ma" in sys.modules and isinstance(array, numpy.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, whose mask an update would pass over; give its .data")
    interface = array.__array_interface__
    address, read_only = interface["data"]
    dtype = array.dtype
    strides = None if array.flags.c_contiguous else _element_strides(name, array.strides, dtype.itemsize or 1)
    return View(
        name, address, _numpy_dtype(dtype), array.shape, strides, CPU_DEVICE, read_only, interface, dtype.itemsize
    )


# ---- PyTorch, and what looks like its tensors ----
def _torch_dtype(dtype: object) -> str:
    """As the others call it: of torch.float32, float32."""
    return str(dtype).rpartition(".")[2]


def _device_from_name(name: str, device: object) -> tuple[int, int]:
    kind, _, index = str(device).partition(":")
    if kind in ("cpu", "cuda", "gpu"):
        return (CPU, 0) if kind == "cpu" else (CUDA, int(index or 0))
    raise ValueError(f"{name} is on {device}, where quern has no kernels")


def _from_pointer(name: str, array, order: _streams.Order, written: bool) -> View:
    device = _device_from_name(name, array.device)
    torch = sys.modules.get("torch")
    is_torch = torch is not None and isinstance(array, torch.Tensor)
    strided = getattr(torch, "strided", None)
    if is_torch and (array.layout is not strided or array.is_neg()):
        what = "has a pending negation" if array.layout is strided else f"has the layout {array.layout}"
        raise TypeError(f"{name} {what}; it must be a plain dense tensor")
    try:
        address = array.data_ptr()
    except RuntimeError as error:  # a wrapper without memory of its own
        raise TypeError(f"{name} ({type(array).__qualname__}) has no memory of its own: {error}") from None
    dtype = _torch_dtype(array.dtype)
    if device[0] == CUDA and is_torch:
        order.note_framework(device[1], _streams.TORCH, written)
    item_bytes = array.element_size() if callable(getattr(array, "element_size", None)) else 0
    return View(name, address, dtype, tuple(array.shape), array.stride(), device, item_bytes=item_bytes)


# ---- the array interfaces ----
_TYPE_KINDS = {"i": "int", "u": "uint", "f": "float", "c": "complex", "b": "bool"}


def _interface_dtype(array: object, typestr: str) -> tuple[str, int]:
    """(name, bytes). What bfloat16 is, ml_dtypes says and the interface cannot: there it is a void of 2 bytes."""
    item_bytes = int(typestr[2:] or 1)
    dtype_name = getattr(getattr(array, "dtype", None), "name", None)
    if typestr[0] == (">" if sys.byteorder == "little" else "<"):
        return f"{typestr} in the other byte order", item_bytes
    if typestr[1] == "V":
        return dtype_name or typestr, item_bytes
    return f"{_TYPE_KINDS.get(typestr[1], typestr)}{8 * item_bytes}", item_bytes


def _from_interface(name: str, array, interface: dict, device: tuple[int, int]) -> View:
    if interface.get("mask") is not None:
        raise TypeError(f"{name} has a mask, which an update would pass over")
    dtype, item_bytes = _interface_dtype(array, interface["typestr"])
    data = interface.get("data")
    if not isinstance(data, tuple):
        raise TypeError(f"{name} says in its array interface no address of its data")
    strides = _element_strides(name, interface.get("strides"), item_bytes)
    held = (array, interface)
    return View(name, data[0] or 0, dtype, tuple(interface["shape"]), strides, device, bool(data[1]), held, item_bytes)


def _from_cuda_interface(name: str, array, interface: dict, order: _streams.Order, written: bool) -> View:
    cupy = sys.modules.get("cupy")
    address = interface["data"][0]
    if cupy is not None and isinstance(array, cupy.ndarray):
        index = array.device.id
        order.note_framework(index, _streams.CUPY, written)
    else:
        index = _interface_device(array, address)
        stream = interface.get("stream")
        if stream == 0:
            raise ValueError(f"{name} says stream 0 in its __cuda_array_interface__, which means none: 1 or 2")
        if stream is not None:
            order.note(index, _streams.INTERFACE, stream, written)
    return _from_interface(name, array, interface, (CUDA, index))


def _interface_device(array, address: int) -> int:
    """The interface does not say whose memory it is: the array may, and the driver does."""
    if hasattr(array, "__dlpack_device__"):
        return array.__dlpack_device__()[1]
    return _streams.device_of_pointer(address) if address else 0


# ---- DLPack ----
_DLPACK_DEVICES = {_dlpack.CPU: CPU, _dlpack.CUDA_HOST: CPU, _dlpack.CUDA: CUDA, _dlpack.CUDA_MANAGED: CUDA}


class Later:
    """An array on a GPU that is lent through DLPack: its producer must know the stream, which is known when all arrays
    of the call have been looked at."""

    __slots__ = ("array", "device", "name", "written")

    def __init__(self, name: str, array, device: tuple[int, int], written: bool) -> None:
        self.name, self.array, self.device, self.written = name, array, device, written

    def view(self, order: _streams.Order) -> View:
        return _from_dlpack(self.name, self.array, self.device, order.stream(self.device[1]) or 1, self.written)


def _from_dlpack(name: str, array, device: tuple[int, int], stream: int | None, written: bool) -> View:
    try:
        lent = _dlpack.lend(array, stream, written)
    except (BufferError, TypeError, RuntimeError) as error:
        raise TypeError(f"{name} ({type(array).__qualname__}) cannot be lent through DLPack: {error}") from None
    if written and lent.copied:
        raise TypeError(f"{name} ({type(array).__qualname__}) lends a copy through DLPack, which is written in vain")
    read_only = lent.read_only or type(array).__module__.partition(".")[0] in _IMMUTABLE
    item_bytes = STORAGE.get(lent.dtype, (0, 0))[1]
    return View(name, lent.address, lent.dtype, lent.shape, lent.strides, device, read_only, lent, item_bytes)


def _from_dlpack_now_or_later(name: str, array, written: bool) -> View | Later:
    kind, index = array.__dlpack_device__()
    mine = _DLPACK_DEVICES.get(int(kind))
    if mine is None:
        raise ValueError(f"{name} is on the device {int(kind)}:{index} of DLPack, where quern has no kernels")
    if mine == CUDA:
        return Later(name, array, (CUDA, index), written)
    return _from_dlpack(name, array, CPU_DEVICE, None, written)


# ---- any array ----
def view(name: str, array, order: _streams.Order, written: bool) -> View | Later:
    """Looks at one array; `name` is what sentences call it. Raises TypeError and ValueError for what cannot be used."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, numpy.ndarray):
        return _from_numpy(name, array)
    if numpy is not None and isinstance(array, numpy.generic):
        raise TypeError(f"{name} is a number of type {array.dtype.name}, not an array")
    if not is_array(array):
        raise TypeError(
            f"{name} is {_a(array)}, it must be an array: with data_ptr(), an array interface or __dlpack__"
        )
    if callable(getattr(array, "data_ptr", None)) and callable(getattr(array, "stride", None)):
        return _from_pointer(name, array, order, written)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return _from_cuda_interface(name, array, interface, order, written)
    interface = getattr(array, "__array_interface__", None)
    if interface is not None:
        return _from_interface(name, array, interface, CPU_DEVICE)
    return _from_dlpack_now_or_later(name, array, written)


# ---- lists of one kind: the common case, at a third of the price of `view` ----
Uniform = tuple[list[int], int, tuple[int, int], list[Sequence[int]]]  # addresses, code, device, shapes

_begin = ctypes.c_char.from_buffer
_address = ctypes.addressof
_codes: dict[object, int] = {}  # by numpy.dtype and torch.dtype


def uniform(arrays: Sequence[object], order: _streams.Order, written: bool) -> Uniform | None:
    """What there is to say of a list whose arrays are all NumPy's, or all PyTorch's, of one storage type, on one
    device, row-major, and with nothing odd about them. None: look at them one by one."""
    kinds = set(map(type, arrays))
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and kinds == {numpy.ndarray}:
        return _uniform_numpy(arrays)
    if torch is not None and kinds and kinds <= {torch.Tensor, torch.nn.Parameter}:
        return _uniform_torch(torch, arrays, order, written)
    return None


def _one_code(arrays: Sequence, name_of: Callable[[object], str]) -> int | None:
    dtypes = {array.dtype for array in arrays}
    if len(dtypes) != 1:
        return None
    dtype = dtypes.pop()
    code = _codes.get(dtype)
    if code is None:
        code = STORAGE.get(name_of(dtype), (None, 0))[0]
        if code is not None:
            _codes[dtype] = code
    return code


def _uniform_numpy(arrays: Sequence) -> Uniform | None:
    code = _one_code(arrays, _numpy_dtype)
    if code is None:
        return None
    try:
        # The buffer protocol refuses what is read-only or not row-major, and ctypes what is empty.
        return [_address(_begin(array)) for array in arrays], code, CPU_DEVICE, [array.shape for array in arrays]
    except (TypeError, ValueError, BufferError):
        return None


def _uniform_torch(torch, arrays: Sequence, order: _streams.Order, written: bool) -> Uniform | None:
    code = _one_code(arrays, _torch_dtype)
    devices = {array.device for array in arrays}
    if code is None or len(devices) != 1:
        return None
    strided = torch.strided
    if not all(array.layout is strided and array.is_contiguous() and not array.is_neg() for array in arrays):
        return None
    place = devices.pop()
    if place.type not in ("cpu", "cuda"):
        return None
    device = CPU_DEVICE if place.type == "cpu" else (CUDA, place.index)
    if device[0] == CUDA:
        order.note_framework(device[1], _streams.TORCH, written)
    return [array.data_ptr() for array in arrays], code, device, [array.shape for array in arrays]
