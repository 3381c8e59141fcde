# SPDX-License-Identifier: Apache-2.0
"""Arrays of any library that speaks DLPack: what their capsules say, read through declarations of our own. The capsule
is looked into and never consumed: whoever holds it keeps the memory, and dropping it gives the memory back."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13  # DLDeviceType
_READ_ONLY, _COPIED = 1, 2  # bits of DLManagedTensorVersioned.flags
_MOST_MAJOR = 1  # the layout below holds for all minor versions of it
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}  # DLDataTypeCode
_NAMES = {(10, 8): "float8_e4m3fn"}  # codes of one type alone, with its bits


class _DataType(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class _Tensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("dtype", _DataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class _Versioned(Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager_ctx", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    ]


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.argtypes = [ctypes.py_object, c_char_p]
_pointer_of.restype = c_void_p
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes = [ctypes.py_object, c_char_p]


class Lent:
    """What a capsule says. `dtype` is a name as NumPy has it ("float32", "bfloat16"); strides count elements; `capsule`
    holds the memory."""

    __slots__ = ("address", "capsule", "copied", "device_id", "device_type", "dtype", "read_only", "shape", "strides")

    def __init__(self, capsule: object) -> None:
        flags = 0
        if _is_valid(capsule, b"dltensor_versioned"):
            versioned = _Versioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))
            if versioned.major > _MOST_MAJOR:
                raise TypeError(f"its DLPack version is {versioned.major}.{versioned.minor}, up to 1 are known here")
            tensor, flags = versioned.tensor, versioned.flags
        elif _is_valid(capsule, b"dltensor"):
            tensor = _Tensor.from_address(_pointer_of(capsule, b"dltensor"))
        else:
            raise TypeError(f"its __dlpack__ gives {capsule!r}, which is no fresh DLPack capsule")
        self.capsule = capsule
        self.read_only = bool(flags & _READ_ONLY)
        self.copied = bool(flags & _COPIED)
        self.device_type, self.device_id = tensor.device_type, tensor.device_id
        self.address = (tensor.data or 0) + tensor.byte_offset
        self.shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
        self.strides = tuple(tensor.strides[: tensor.ndim]) if tensor.ndim and tensor.strides else None
        kind = tensor.dtype
        lanes = f"x{kind.lanes}" if kind.lanes != 1 else ""
        plain = f"{_KINDS.get(kind.code, f'type {kind.code} of ')}{kind.bits}"
        self.dtype = _NAMES.get((kind.code, kind.bits), plain) + lanes


def lend(array: object, stream: int | None, written: bool) -> Lent:
    """Asks the array for its capsule. `stream` is the consumer's, as the protocol counts (None for memory of the host,
    1 for CUDA's legacy default stream): the producer makes it wait for the array's contents. A written array must not
    be a copy. Errors of the producer (BufferError) pass through; TypeError for what is no capsule."""
    streams = {} if stream is None else {"stream": stream}
    try:
        capsule = array.__dlpack__(max_version=(_MOST_MAJOR, 0), **({"copy": False} if written else {}), **streams)  # type: ignore[attr-defined]
    except TypeError:  # a producer from before versions
        capsule = array.__dlpack__(**streams)  # type: ignore[attr-defined]
    return Lent(capsule)
