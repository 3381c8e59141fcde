# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of quern.jax: lists of arrays of a row of types, the library's own call on them as the answer,
and bits compared. It tests nothing."""

import os
import pathlib
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import quern.jax
from quern import _abi, _ops
from quern._library import DTYPES
from quern._tensors import Tensors

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # a GPU is shared with other tests' processes
ROOT = pathlib.Path(__file__).resolve().parents[2]
LION = _ops.op("lion")
NUMPY = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(jnp.bfloat16)}
SHAPES = [(3, 5), (), (0, 4), (70000,), (1,), (257, 300)]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


def found(kind):
    """The first device of the kind, for jax.default_device; the test is skipped where jax has none."""
    try:
        return jax.devices(kind)[0]
    except RuntimeError as error:
        pytest.skip(f"this jax has no {kind}: {error}")


def lists(row="f32/f32/f32/none", shapes=SHAPES, seed=0):
    """By role a list of NumPy arrays (None: absent); zeros of both signs and subnormals are among the values."""
    rng = np.random.default_rng(seed)
    made = []
    for role, storage in zip(LION.roles, row.split("/")):
        if storage == "none":
            made.append(None)
            continue
        scale = 1e-3 if role.name in ("grad", "momentum") else 0.02
        arrays = []
        for shape in shapes:
            array = (rng.standard_normal(shape) * scale).astype(np.float32)
            odd = rng.integers(0, 40, shape)
            array = np.where(odd == 0, np.float32(0), np.where(odd == 1, np.float32(-0.0), array))
            arrays.append(np.asarray(np.where(odd == 2, np.float32(1e-41), array)).astype(NUMPY[storage]))
        made.append(arrays)
    return made


def direct(arrays, **values):
    """The library's own call, serial on the CPU, on copies: the roles' new arrays."""
    arrays = [role and [np.array(array, order="C") for array in role] for role in arrays]
    params, kept = LION.defaults(), []
    for name, value in values.items():
        if LION.params[name].type == _abi.PARAM_HOST_U64:
            value = np.asarray(value, np.uint64)
        if LION.params[name].is_pointer:
            kept.append(value)
            setattr(params, name, value.ctypes.data)
        else:
            LION.set(params, name, value)
    names = {dtype: name for name, dtype in NUMPY.items()}
    tensors = [
        role and Tensors([a.ctypes.data for a in role], DTYPES[names[role[0].dtype]], [a.shape for a in role])
        for role in arrays
    ]
    n = len(arrays[0])
    workspace = np.zeros(2 * n + 2, np.int64)
    execution = _abi.sized(_abi.Exec)
    execution.workspace = (workspace.ctypes.data + 15) // 16 * 16
    execution.workspace_bytes = LION.workspace_bytes(params, n)
    LION.step(execution, params, n, LION.roles_array(tensors))
    return arrays


def same(one, other):
    """Trees with the same bits, dtypes and shapes."""
    one, other = jax.tree.leaves(one), jax.tree.leaves(other)
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(one, other)]
    return len(one) == len(other) and all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs
    )


def run(arrays, lr=1e-2, donate=False, **keywords):
    """quern.jax.lion on lists; its results by role, grads included, as `direct` gives them."""
    on_device = [role and [jnp.asarray(array) for array in role] for role in arrays]
    params, grads, exp_avgs, masters = on_device
    new = list(quern.jax.lion(params, grads, exp_avgs, lr, masters=masters, donate=donate, **keywords))
    new.insert(1, arrays[1])
    return new + [None] * (4 - len(new))


def pointers(tree):
    return [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(tree)]


def python(program, more=None):
    environment = {**os.environ, **(more or {}), "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout.strip().split("\n")[-1]
