# SPDX-License-Identifier: Apache-2.0
"""Properties of the shipped kernels that a check does not cover: that extended precision matters where it should, that
factors multiply back to their matrix, and that a matrix that is not positive definite is told."""

import json
import pathlib

import numpy as np
import pytest
import quern

HERE = pathlib.Path(__file__).resolve().parent.parent.parent / "kernels"
EPS = float(np.finfo(np.float32).eps)


def kernel_of(name):
    about = json.loads((HERE / name / "kernel.json").read_text())
    return quern.metal_kernel(
        name=name,
        input_names=list(about["inputs"]),
        output_names=list(about["outputs"]),
        source=(HERE / name / about["source"]).read_text(),
        header=(HERE / name / about["header"]).read_text(),
    )


def cholesky(a, extended, name="cholesky"):
    batch, n, _ = a.shape
    if name == "cholesky":
        group, values = min(1024, (n + 31) // 32 * 32), {"BLOCK": 8, "LARGEST": 8192}
        threads = batch * group
    else:
        lanes = 8 if n <= 8 else 16 if n <= 16 else 32
        group, values, threads = 128, {"N": n, "LANES": lanes}, batch * lanes
    return kernel_of(name)(
        inputs=[a],
        template=[("T", np.float32), ("EXTENDED", extended), *values.items()],
        grid=(threads, 1, 1),
        threadgroup=(group, 1, 1),
        output_shapes=[a.shape, (batch, 16)],
        output_dtypes=[np.float32, np.float32],
    )


def qr(a, extended, again=False):
    batch, m, n = a.shape
    k, group = min(m, n), 64
    values = {"PANEL": 8, "PANEL_FLOATS": 3072, "SIMDS": 8, "EXTENDED": extended, "REORTHOGONALISE": again}
    return kernel_of("qr")(
        inputs=[a],
        template=[("T", np.float32), *values.items()],
        grid=(batch * group, 1, 1),
        threadgroup=(group, 1, 1),
        output_shapes=[(batch, m, k), (batch, k, n), a.shape, (batch, k), (batch, 16)],
        output_dtypes=[np.float32] * 5,
    )


def ill_conditioned(n):
    """Positive definite as stored in f32 (in double its factor exists), with its least eigenvalue near one rounding of
    the largest entry: points on a line under a wide Gaussian kernel, as regression with such kernels has them."""
    at = np.arange(n) / n
    a = np.exp(-((at[:, None] - at[None, :]) ** 2) / 0.5)
    return (a + 4e-7 * np.eye(n)).astype(np.float32)


@pytest.mark.parametrize("name", ["cholesky", "cholesky_small"])
def test_extended_precision_matters_where_the_matrix_is_ill_conditioned(name):
    a = ill_conditioned(24)
    true = np.linalg.cholesky(a.astype(np.float64))
    assert np.linalg.cond(a.astype(np.float64)) > 1e7
    (plain, plain_health), (extended, health) = (cholesky(a[None], e, name) for e in (False, True))
    assert health[0, 15] == 1 and health[0, 13] == 0
    assert np.abs(extended[0] - true).max() < 4 * EPS
    assert plain_health[0, 13] == 4 or np.abs(plain[0] - true).max() > 1000 * EPS


@pytest.mark.parametrize("name", ["cholesky", "cholesky_small"])
def test_a_pivot_that_is_not_positive_is_told_and_not_clamped(name):
    a = np.stack([np.eye(12), np.eye(12)]).astype(np.float32)
    a[1, 7, 7] = -1e-10
    factor, health = cholesky(a, False, name)
    assert health[0, 15] == 1 and np.array_equal(factor[0], np.eye(12))
    assert health[1, 13] == 4 and health[1, 14] == 8 and health[1, 15] == 0
    assert np.isnan(np.diag(factor[1])).all() and not np.triu(factor[1], 1).any()


@pytest.mark.parametrize("shape", [(40, 33), (33, 40), (70, 9)])
@pytest.mark.parametrize("extended", [False, True])
def test_qr_multiplies_back_and_is_orthogonal(shape, extended):
    a = np.random.default_rng(3).standard_normal((2, *shape)).astype(np.float32)
    a[1, :, 4] = a[1, :, 2]  # rank-deficient
    q, r, _, _, health = (x.astype(np.float64) for x in qr(a, extended))
    k = min(shape)
    assert np.abs(np.swapaxes(q, 1, 2) @ q - np.eye(k)).max() < 8 * k * EPS
    assert np.linalg.norm(a - q @ r) < 4 * k * EPS * np.linalg.norm(a)
    assert not np.tril(r, -1).any() and (health[:, 15] == 1).all()


def test_qr_of_one_more_pass_is_nearer_to_orthogonal():
    a = np.random.default_rng(4).standard_normal((4, 64, 48)).astype(np.float32)
    worst = []
    for again in (False, True):
        q = qr(a, True, again)[0].astype(np.float64)
        worst.append(np.abs(np.swapaxes(q, 1, 2) @ q - np.eye(48)).max())
    assert worst[1] < 0.7 * worst[0]
