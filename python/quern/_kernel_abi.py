# SPDX-License-Identifier: Apache-2.0
"""What include/quern/kernel.h declares, as ctypes sees it: loaded with the first kernel, so that the package alone does
not pay for it. The structs are held against the library's own sizes then, as those of _abi.py are."""

from __future__ import annotations

from ctypes import (
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)

from . import _library
from ._abi import STATUS, Exec, Tensor

METAL, CUDA = 0, 1  # qn_dialect
MATH = {"safe": 0, "relaxed": 1, "fast": 2}  # qn_math
NONE, BOOL, INT, FLOAT, DTYPE = range(5)  # qn_value_kind
EMIT = {"cuda": 0, "hip": 1, "metal": 2, "mlx": 3}  # qn_emit
HEALTH_COUNT = 16
MAX_TENSORS = MAX_TEMPLATES = 32


class KernelSource(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("body", c_char_p),
        ("header", c_char_p),
        ("file", c_char_p),
        ("dialect", c_int),
        ("math", c_int),
        ("n_inputs", c_size_t),
        ("n_outputs", c_size_t),
        ("inputs", POINTER(c_char_p)),
        ("outputs", POINTER(c_char_p)),
        ("strided", c_uint64),
        ("atomic", c_uint64),
        ("cluster", c_uint32),
        ("contracts", POINTER(c_char_p)),
    ]


class Value(Structure):
    _fields_ = [("kind", c_int), ("dtype", c_int), ("integer", c_int64), ("real", c_double)]


class Template(Structure):
    _fields_ = [("name", c_char_p), ("value", Value)]


class KernelCall(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("inputs", POINTER(Tensor)),
        ("outputs", POINTER(Tensor)),
        ("n_templates", c_size_t),
        ("templates", POINTER(Template)),
        ("grid", c_uint64 * 3),
        ("group", c_uint32 * 3),
        ("init", POINTER(Value)),
        ("stored_in", POINTER(c_int)),
        ("shared_bytes", c_size_t),
        ("limit_ns", c_int64),
        ("check", c_int),
        ("seed", c_uint64),
        ("ignore", c_uint32),
    ]


class KernelFolder(Structure):
    _fields_ = [
        ("path", c_char_p),
        ("doc", c_char_p),
        ("source", KernelSource),
        ("n_templates", c_size_t),
        ("templates", POINTER(c_char_p)),
        ("scalars", c_uint64),
    ]


class KernelInfo(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("registers", c_int),
        ("shared_bytes", c_int),
        ("local_bytes", c_int),
        ("most_threads", c_int),
        ("group", c_uint32 * 3),
        ("groups_at_once", c_int),
        ("fibers", c_int),
    ]


class Finding(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("kind", c_int),
        ("line", c_int),
        ("other_line", c_int),
        ("thread", c_uint32 * 3),
        ("other", c_uint32 * 3),
        ("where", c_char * 64),
        ("first", c_int64),
        ("last", c_int64),
        ("text", c_char * 512),
    ]


STRUCTS: dict[str, type[Structure]] = {
    "qn_kernel_source": KernelSource,
    "qn_value": Value,
    "qn_template": Template,
    "qn_kernel_call": KernelCall,
    "qn_kernel_folder": KernelFolder,
    "qn_kernel_info": KernelInfo,
    "qn_finding": Finding,
}

PROTOTYPES: dict[str, tuple[object, list[object]]] = {
    "qn_kernel_create": (STATUS, [POINTER(c_void_p), POINTER(KernelSource)]),
    "qn_kernel_destroy": (None, [POINTER(c_void_p)]),
    "qn_kernel_folder_create": (STATUS, [POINTER(POINTER(KernelFolder)), c_char_p]),
    "qn_kernel_folder_destroy": (None, [POINTER(POINTER(KernelFolder))]),
    "qn_kernel_folder_call": (STATUS, [POINTER(KernelFolder), POINTER(KernelCall), POINTER(POINTER(KernelCall))]),
    "qn_kernel_folder_shape": (STATUS, [POINTER(KernelCall), c_size_t, POINTER(c_void_p)]),
    "qn_kernel_call_release": (None, [POINTER(POINTER(KernelCall))]),
    "qn_kernel_launch": (STATUS, [c_void_p, POINTER(Exec), POINTER(KernelCall)]),
    "qn_kernel_prepare": (STATUS, [c_void_p, POINTER(Exec), POINTER(KernelCall)]),
    "qn_kernel_workspace_bytes": (STATUS, [c_void_p, POINTER(KernelCall), POINTER(c_size_t)]),
    "qn_kernel_query": (STATUS, [c_void_p, POINTER(Exec), POINTER(KernelCall), POINTER(KernelInfo)]),
    "qn_kernel_text": (STATUS, [c_void_p, POINTER(Exec), POINTER(KernelCall), POINTER(c_void_p)]),
    "qn_kernel_emit": (STATUS, [c_void_p, c_int, POINTER(KernelCall), POINTER(c_void_p)]),
    "qn_text_release": (None, [POINTER(c_void_p)]),
    "qn_kernel_finding_count": (c_size_t, []),
    "qn_kernel_finding_at": (STATUS, [c_size_t, POINTER(Finding)]),
    "qn_finding_kind_name": (c_char_p, [c_int]),
    "qn_finding_kinds": (STATUS, [c_char_p, POINTER(c_uint32)]),
    "qn_health_status": (STATUS, [c_char_p, POINTER(c_float)]),
    "qn_capture_start": (STATUS, [c_char_p]),
    "qn_capture_stop": (STATUS, [POINTER(c_size_t)]),
}

_library.declare(_library.lib, _library.path, PROTOTYPES)
_library.compare(_library.lib, _library.path, STRUCTS)
lib = _library.lib
