# SPDX-License-Identifier: Apache-2.0
"""The public structs of libquern as ctypes sees them. They are held against the loaded library's own sizes when it is
loaded (_library.py); what an op's params look like is not here: that follows from its description (_ops.py)."""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_int,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
    py_object,
)

TYPE_CHECKING = False  # not typing's: loading that would be a good part of `import quern`
if TYPE_CHECKING:
    from typing import TypeVar

    _Struct = TypeVar("_Struct", bound=Structure)

MAX_TENSORS = 10
MAX_NDIM = 32
ABSENT, READ, WRITE = 0, 1, 2  # qn_access, as bits
PARAM_DOUBLE, PARAM_U64, PARAM_BOOL, PARAM_ENUM = range(4)
PARAM_DEVICE_F32, PARAM_DEVICE_I64, PARAM_DEVICE_HYPER, PARAM_HOST_U64 = range(4, 8)
PARAM_HOST_F64, PARAM_DEVICE_F32S, PARAM_HOST_STRUCT = range(8, 11)


class Device(Structure):
    _fields_ = [("kind", c_int), ("index", c_int)]


class Tensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("dtype", c_int),
        ("ndim", c_int),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("device", Device),
    ]


class Exec(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("device", Device),
        ("stream", c_void_p),
        ("pool", c_void_p),
        ("workspace", c_void_p),
        ("workspace_bytes", c_size_t),
    ]


class DeviceInfo(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char * 128),
        ("arch", c_int),
        ("multiprocessors", c_int),
        ("memory_bytes", c_int64),
        ("free_bytes", c_int64),
        ("l2_bytes", c_int64),
        ("driver_version", c_int),
        ("compiler_version", c_int),
        ("driver_path", c_char * 256),
        ("compiler_path", c_char * 256),
    ]


class OpTensor(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("framework_name", c_char_p),
        ("doc", c_char_p),
        ("fill", c_int),
        ("fill_scale", c_double),
        ("shape", c_char_p),
        ("storage", c_int),
        ("single", c_int),
        ("optional", c_int),
        ("written_where", c_size_t),
    ]


class OpTypesEntry(Structure):
    _fields_ = [("dtype", c_int), ("access", c_int)]


class OpTypes(Structure):
    _fields_ = [("tensor", OpTypesEntry * MAX_TENSORS)]


class OpParam(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("doc", c_char_p),
        ("type", c_int),
        ("offset", c_size_t),
        ("least", c_double),
        ("most", c_double),
        ("below_most", c_int),
        ("values", c_char_p),
        ("hyper_offset", c_size_t),
    ]


class OpInfo(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("brief", c_char_p),
        ("doc", c_char_p),
        ("tensors", POINTER(OpTensor)),
        ("n_tensors", c_size_t),
        ("types", POINTER(OpTypes)),
        ("n_types", c_size_t),
        ("params", POINTER(OpParam)),
        ("n_params", c_size_t),
        ("params_bytes", c_size_t),
        ("hyper_bytes", c_size_t),
        ("defaults", c_void_p),
        ("agreement", c_int),
        ("agreement_units", c_double),
        ("oracle_roundings", c_int),
        ("oracle_ranged", c_int),
        ("oracle_units", c_double),
        ("unfused_doc", c_char_p),
        ("unfused_bytes", c_double),
        ("operations", c_double),
        ("count_reads", c_uint32),
        ("element_bytes", c_double),
    ]


class Variant(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("backend", c_char_p),
        ("name", c_char_p),
        ("state", c_char_p),
        ("available", c_int),
        ("chosen", c_int),
        ("why", c_char * 160),
    ]


class OptionInfo(Structure):
    _fields_ = [(name, c_char_p) for name in ("name", "variable", "default_value", "values", "doc")]


class ObjectCalls(Structure):
    """Addresses of Python's and DLPack's own functions."""

    _fields_ = [(name, c_void_p) for name in ("read", "at", "release")]


class ObjectPart(Structure):
    """Its objects live as long as this."""

    _fields_ = [("list", py_object), ("get", c_void_p), ("key", py_object), ("tensors", c_void_p)]


# By the C name: what is compared with qn_struct_bytes().
STRUCTS: dict[str, type[Structure]] = {
    "qn_device": Device,
    "qn_tensor": Tensor,
    "qn_exec": Exec,
    "qn_device_info": DeviceInfo,
    "qn_op_tensor": OpTensor,
    "qn_op_types": OpTypes,
    "qn_op_param": OpParam,
    "qn_op_info": OpInfo,
    "qn_variant": Variant,
    "qn_option_info": OptionInfo,
    "qn_object_calls": ObjectCalls,
    "qn_object_part": ObjectPart,
}

Roles = c_void_p * MAX_TENSORS  # const qn_tensor *const *tensors

# What is called: name: (result, arguments). A qn_status result becomes an exception (_library.py).
STATUS = object()
PROTOTYPES: dict[str, tuple[object, list[object]]] = {
    "qn_version": (c_char_p, []),
    "qn_last_error": (c_char_p, []),
    "qn_status_name": (c_char_p, [c_int]),
    "qn_struct_bytes": (c_size_t, [c_char_p]),
    "qn_dtype_name": (c_char_p, [c_int]),
    "qn_dtype_bytes": (c_size_t, [c_int]),
    "qn_device_kind_name": (c_char_p, [c_int]),
    "qn_device_count": (STATUS, [c_int, POINTER(c_int)]),
    "qn_device_query": (STATUS, [Device, POINTER(DeviceInfo)]),
    "qn_memory_allocate": (STATUS, [Device, c_size_t, POINTER(c_void_p)]),
    "qn_memory_release": (STATUS, [Device, c_void_p]),
    "qn_stream_synchronize": (STATUS, [Device, c_void_p]),
    "qn_cpu_tier": (STATUS, [POINTER(c_char_p)]),
    "qn_option_count": (c_size_t, []),
    "qn_option_at": (POINTER(OptionInfo), [c_size_t]),
    "qn_option_get": (STATUS, [c_char_p, POINTER(c_char_p)]),
    "qn_option_set": (STATUS, [c_char_p, c_char_p]),
    "qn_pool_create": (STATUS, [POINTER(c_void_p), c_int]),
    "qn_pool_create_openmp": (STATUS, [POINTER(c_void_p), c_int]),
    "qn_pool_destroy": (None, [POINTER(c_void_p)]),
    "qn_pool_threads": (c_int, [c_void_p]),
    "qn_op_count": (c_size_t, []),
    "qn_op_at": (POINTER(OpInfo), [c_size_t]),
    "qn_op_find": (STATUS, [c_char_p, POINTER(POINTER(OpInfo))]),
    "qn_op_defaults": (STATUS, [POINTER(OpInfo), c_void_p, c_size_t]),
    "qn_op_param_default": (c_double, [POINTER(OpInfo), POINTER(OpParam)]),
    "qn_op_role_shape": (STATUS, [POINTER(OpInfo), c_size_t, c_size_t, c_int, c_void_p, POINTER(c_int), c_void_p]),
    "qn_op_step": (STATUS, [POINTER(OpInfo), POINTER(Exec), c_void_p, c_size_t, POINTER(c_void_p)]),
    "qn_op_prepare": (STATUS, [POINTER(OpInfo), POINTER(Exec), c_void_p, c_size_t, POINTER(c_void_p)]),
    "qn_op_workspace_bytes": (c_size_t, [POINTER(OpInfo), c_void_p, c_size_t]),
    "qn_op_call_workspace_bytes": (c_size_t, [POINTER(OpInfo), POINTER(Exec), c_void_p, c_size_t, POINTER(c_void_p)]),
    "qn_op_plan_create": (
        STATUS,
        [POINTER(c_void_p), POINTER(OpInfo), POINTER(Exec), c_void_p, c_size_t, POINTER(c_void_p)],
    ),
    "qn_op_plan_step": (STATUS, [c_void_p, POINTER(Exec), c_void_p, POINTER(c_void_p)]),
    "qn_plan_destroy": (None, [POINTER(c_void_p)]),
    "qn_op_variant_count": (c_size_t, [POINTER(OpInfo)]),
    "qn_op_variant_at": (STATUS, [POINTER(OpInfo), c_size_t, POINTER(Variant)]),
    "qn_op_last_variant": (c_char_p, []),
    "qn_launch_count": (c_uint64, []),
    "qn_xla_cpu_step": (c_void_p, [c_void_p]),
    "qn_xla_cuda_step": (c_void_p, [c_void_p]),
    "qn_lion_count": (STATUS, [POINTER(Exec), c_void_p, c_size_t, *[c_void_p] * 4, c_void_p]),
}


def sized(kind: type[_Struct]) -> _Struct:
    """One of the structs that begin with their own size, zeroed."""
    return kind(size=ctypes.sizeof(kind))
