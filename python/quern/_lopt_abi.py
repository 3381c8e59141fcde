# SPDX-License-Identifier: Apache-2.0
"""What ctypes knows of the learned optimizers of libquern (quern/lopt.h and the headers of each): structs and calls,
held against the loaded library when this is imported, which is when the first of them is used."""

from __future__ import annotations

from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
)

from . import _library
from ._abi import STATUS, Device, Exec

MOST_DIMENSIONS = 5  # QN_LOPT_MOST_DIMENSIONS
SMALL_FC, VELO_MLP, VELO_RNN = range(3)  # qn_lopt_weights
TIES_LATER, TIES_VELO = range(2)  # qn_lopt_ties
PRECISIONS = ("fp32", "tf32", "bf16x3", "f16x3", "f16")  # qn_lopt_precision

_DECAYS = [
    (name, c_double)
    for name in ("m_decay0", "m_decay1", "m_decay2", "v_decay", "factor_decay0", "factor_decay1", "factor_decay2")
]


_LAST: list[tuple[str, type[c_void_p | c_int32]]] = [
    ("weights", c_void_p),
    ("lr_scale", c_void_p),
    ("hyper", c_void_p),
    ("precision", c_int32),
    ("shards", c_void_p),
]


class Weight(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("ndim", c_int),
        ("shape", c_int64 * 3),
        ("begin", c_size_t),
        ("n", c_size_t),
    ]


class Hyper(Structure):
    """Numbers in device memory, in place of the params' own."""

    _fields_ = [("lr", c_double), ("weight_decay", c_double), ("step", c_uint64)]


class Shards(Structure):
    """Tensors of which each process holds rows."""

    _fields_ = [("size", c_size_t), ("extents", c_void_p), ("add", c_void_p), ("user", c_void_p)]


DRIVER_ERROR = 8  # QN_DRIVER_ERROR
# The status, of the user's pointer, the call's qn_exec, and the numbers and how many they are.
ADD = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_size_t)


class SmallFCParams(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("lr", c_double),
        ("step_mult", c_double),
        ("exp_mult", c_double),
        ("weight_decay", c_double),
        ("max_grad_norm", c_double),
        *_DECAYS,
        ("step", c_uint64),
        ("pylo_cuda_compat", c_int32),
        *_LAST,
    ]


class ELOParams(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("lr", c_double),
        ("exp_mult", c_double),
        ("weight_decay", c_double),
        *_DECAYS,
        ("step", c_uint64),
        ("pylo_cuda_compat", c_int32),
        *_LAST,
    ]


class VeLOParams(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("lr", c_double),
        ("step_mult", c_double),
        ("exp_mult", c_double),
        ("weight_decay", c_double),
        *_DECAYS,
        ("num_steps", c_uint64),
        ("step", c_uint64),
        ("pylo_cuda_compat", c_int32),
        ("mlp", c_void_p),
        ("rnn", c_void_p),
        ("lr_scale", c_void_p),
        ("hyper", c_void_p),
        ("shards", c_void_p),
    ]


# How many numbers a tensor has in the LSTM's two states, how many the loss's buffer has, and which of them counts the
# steps that were skipped (quern/velo.h).
VELO_HIDDEN, VELO_LOSS_BUFFER, VELO_LOSS_SKIPPED = 512, 22, 21

STRUCTS: dict[str, type[Structure]] = {
    "qn_lopt_weight": Weight,
    "qn_lopt_shards": Shards,
    "qn_small_fc_lopt_params": SmallFCParams,
    "qn_elo_params": ELOParams,
    "qn_velo_params": VeLOParams,
}

_STEP = [POINTER(Exec), c_void_p, c_size_t, *[c_void_p] * 6]
PROTOTYPES: dict[str, tuple[object, list[object]]] = {
    "qn_lopt_factored": (STATUS, [c_int, c_int, c_void_p, c_void_p]),
    "qn_lopt_state_shape": (STATUS, [c_int, c_int, c_int, c_void_p, POINTER(c_int), c_void_p]),
    "qn_lopt_weights_read": (STATUS, [c_int, c_char_p, c_void_p, c_size_t]),
    "qn_lopt_weight_at": (STATUS, [c_int, c_size_t, POINTER(Weight)]),
    "qn_small_fc_lopt_step": (STATUS, _STEP),
    "qn_small_fc_lopt_workspace_bytes": (c_size_t, [c_size_t, c_void_p]),
    "qn_small_fc_lopt_shards_workspace_bytes": (c_size_t, [c_void_p, c_size_t, c_void_p]),
    "qn_elo_step": (STATUS, _STEP),
    "qn_elo_workspace_bytes": (c_size_t, [c_size_t, c_void_p]),
    "qn_elo_shards_workspace_bytes": (c_size_t, [c_void_p, c_size_t, c_void_p]),
    "qn_velo_step": (STATUS, [*_STEP, *[c_void_p] * 4]),
    "qn_velo_shards_workspace_bytes": (c_size_t, [c_void_p, c_size_t, c_void_p]),
    "qn_velo_workspace_bytes": (c_size_t, [c_size_t, c_void_p]),
    "qn_memory_write": (STATUS, [Device, c_void_p, c_void_p, c_void_p, c_size_t]),
}

_library.declare(_library.lib, _library.path, PROTOTYPES)
_library.compare(_library.lib, _library.path, STRUCTS)
lib = _library.lib
