# SPDX-License-Identifier: Apache-2.0
"""Structs and calls of quern/lopt.h that no op's description says: tables of weights, and tensors of which each process
holds rows."""

from __future__ import annotations

from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_size_t, c_void_p

from . import _library
from ._abi import STATUS, Device

MOST_DIMENSIONS = 5  # QN_LOPT_MOST_DIMENSIONS
SMALL_FC, VELO_MLP, VELO_RNN, CELO2_MLP = range(4)  # qn_lopt_weights
TIES_LATER, TIES_VELO, TIES_JAX = range(3)  # qn_lopt_ties
LOSS_SKIPPED = 21  # of VeLO's loss_buffer: the number of steps that were skipped (quern/velo.h)
DRIVER_ERROR = 8  # QN_DRIVER_ERROR
# The status, of the user's pointer, the call's qn_exec, and the numbers and how many they are.
ADD = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_size_t)


class Weight(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("ndim", c_int),
        ("shape", c_int64 * 3),
        ("begin", c_size_t),
        ("n", c_size_t),
    ]


class Shards(Structure):
    """Tensors of which each process holds rows."""

    _fields_ = [("size", c_size_t), ("extents", c_void_p), ("add", c_void_p), ("user", c_void_p)]


PROTOTYPES: dict[str, tuple[object, list[object]]] = {
    "qn_lopt_factored": (STATUS, [c_int, c_int, c_void_p, c_void_p]),
    "qn_lopt_state_shape": (STATUS, [c_int, c_int, c_int, c_void_p, POINTER(c_int), c_void_p]),
    "qn_lopt_weights_read": (STATUS, [c_int, c_char_p, c_void_p, c_size_t]),
    "qn_lopt_weight_at": (STATUS, [c_int, c_size_t, POINTER(Weight)]),
    "qn_memory_write": (STATUS, [Device, c_void_p, c_void_p, c_void_p, c_size_t]),
}

_library.declare(_library.lib, _library.path, PROTOTYPES)
_library.compare(_library.lib, _library.path, {"qn_lopt_weight": Weight, "qn_lopt_shards": Shards})
lib = _library.lib
