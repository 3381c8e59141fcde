# SPDX-License-Identifier: Apache-2.0
"""A kernel from a body, checked on the CPU: races, bounds, barriers and values. It requires no GPU."""

import pathlib

import numpy as np
import pytest
import quern
from quern.testing import check_kernel

BODY = pathlib.Path(__file__).with_name("rms_norm.metal").read_text(encoding="utf-8")
THREADS = 64


def check(body, x):
    kernel = quern.metal_kernel("rms_norm", ["x"], ["y"], body)
    check_kernel(
        kernel,
        inputs=[x],
        template=[("T", x.dtype)],
        grid=(len(x) * THREADS, 1, 1),
        threadgroup=(THREADS, 1, 1),
        output_shapes=[x.shape],
        output_dtypes=[x.dtype],
        expected=lambda x: (x / np.sqrt((x.astype(float) ** 2).mean(1, keepdims=True) + 1e-6)).astype(x.dtype),
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("shape", [(1, 1), (3, 63), (2, 64), (4, 200)])
def test_rms_norm(shape, dtype):
    check(BODY, np.random.default_rng(0).standard_normal(shape).astype(dtype))


def test_the_barrier_is_required():
    body = BODY.replace("threadgroup_barrier(mem_flags::mem_threadgroup);", "")
    with pytest.raises(AssertionError, match="race|uninitialised|wrote"):
        check(body, np.ones((2, 200), np.float32))
