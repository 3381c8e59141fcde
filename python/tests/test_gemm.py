# SPDX-License-Identifier: Apache-2.0
"""quern.gemm_norm on NumPy arrays: values against float64, views and leading dimensions, and what is refused."""

import pytest

np = pytest.importorskip("numpy")

import quern  # noqa: E402


def draw(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def mish(v):
    return v * np.tanh(np.log1p(np.exp(-abs(v))) + np.maximum(v, 0))


ACTIVATIONS = {
    "none": lambda v: v,
    "relu": lambda v: np.maximum(v, 0),
    "silu": lambda v: v / (1 + np.exp(-v)),
    "mish": mish,
    "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
    "tanh": np.tanh,
}


def wanted(x, w, vectors=(), activation="mish", norm="group", groups=1, clamp=True, eps=1e-5):
    z = x.astype(np.float64) @ w.astype(np.float64).T
    for vector in vectors:
        z = z + vector
    v = ACTIVATIONS[activation](np.clip(z, -1, 1) if clamp else z)
    if norm == "none":
        return v
    parts = v.reshape(*v.shape[:-1], groups if norm == "group" else 1, -1)
    mean = 0 if norm == "rms" else parts.mean(-1, keepdims=True)
    variance = ((parts - mean) ** 2).mean(-1, keepdims=True)
    return ((parts - mean) / np.sqrt(variance + eps)).reshape(v.shape)


@pytest.mark.parametrize("norm", ["none", "group", "layer", "rms"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_values(activation, norm):
    x, w, bias, bias2 = draw(5, 40), draw(24, 40, seed=2) / 6, draw(24, seed=3), draw(24, seed=4)
    got = quern.gemm_norm(x, w, bias, bias2, activation=activation, norm=norm, groups=6)
    want = wanted(x, w, (bias, bias2), activation, norm, groups=6)
    assert got.dtype == np.float32 and got.shape == (5, 24)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
@pytest.mark.parametrize(
    "rows, columns, depth", [(12400, 9, 300), (12400, 64, 20), (450, 30, 530), (450, 65, 530), (50, 200, 2100)]
)
def test_more_than_fits_into_what_a_processor_takes_at_once(rows, columns, depth, precision):
    x, w = draw(rows, depth), draw(columns, depth, seed=2)
    got = quern.gemm_norm(x, w, activation="none", norm="none", clamp=False, precision=precision)
    want = x.astype(np.float64) @ w.astype(np.float64).T
    bound = (2e-6 if precision == "fp32" else 2e-3) * np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(w, axis=1)
    assert (abs(got - want) <= bound).all()


def test_scale_and_shift_without_a_clamp():
    x, w, gamma, beta = draw(3, 16), draw(8, 16, seed=2), draw(8, seed=3), draw(8, seed=4)
    got = quern.gemm_norm(x, w, gamma=gamma, beta=beta, groups=2, clamp=False)
    np.testing.assert_allclose(got, wanted(x, w, groups=2, clamp=False) * gamma + beta, rtol=1e-4, atol=2e-5)


def test_leading_dimensions_and_views_and_out():
    x, w = draw(2, 3, 32)[..., ::2], draw(16, 8, seed=2).T
    assert x.shape == (2, 3, 16) and w.shape == (8, 16)
    got = quern.gemm_norm(x, w, groups=4)
    np.testing.assert_allclose(got, wanted(x, w, groups=4), rtol=1e-4, atol=2e-5)
    out = np.zeros((2, 3, 8), np.float32)
    assert quern.gemm_norm(x, w, groups=4, out=out) is out and np.array_equal(out, got)


@pytest.mark.parametrize("precision", ["tf32", "bf16x3", "tf32x3", "f16x3"])
def test_precisions_by_name(precision):
    x, w = draw(7, 64), draw(32, 64, seed=2) / 8
    got = quern.gemm_norm(x, w, norm="none", activation="none", clamp=False, precision=precision)
    exact = x.astype(np.float64) @ w.astype(np.float64).T
    worst = abs(got - exact).max()
    assert worst < 2e-6 if precision.endswith("x3") else 1e-5 < worst < 5e-3


@pytest.mark.parametrize("rows", [3, 9, 100])
@pytest.mark.parametrize("bits", [0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F80FFFF])
def test_every_nan_stays_nan_as_bf16(rows, bits):
    """Rounding its bits would make an infinity or zero of some."""
    x, w = draw(rows, 40), draw(24, 40, seed=2)
    x[1, 7] = np.uint32(bits).view(np.float32)
    w[5, 39] = np.uint32(bits).view(np.float32)
    got = quern.gemm_norm(x, w, norm="none", clamp=False, activation="none", precision="bf16")
    wrong = np.isnan(got)
    assert wrong[1].all() and wrong[:, 5].all() and wrong.sum() == 24 + rows - 1


def test_bf16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x, w = draw(4, 32).astype(ml_dtypes.bfloat16), draw(16, 32, seed=2).astype(ml_dtypes.bfloat16)
    got = quern.gemm_norm(x, w, groups=4, precision="bf16")
    assert got.dtype == ml_dtypes.bfloat16
    want = wanted(x.astype(np.float32), w.astype(np.float32), groups=4)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=2**-8, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"groups": 5}, "cannot be cut into groups"),
        ({"weight": draw(8, 3)}, r"must be \(..., k\) and \(n, k\)"),
        ({"bias": draw(3)}, "bias has the shape 3"),
        ({"precision": "fp8"}, "precision is 'fp8'"),
        ({"activation": "swish"}, "activation is 'swish'"),
        ({"lo": 2.0}, "lo is 2 and hi is 1"),
        ({"eps": -1.0}, "eps is -1"),
        ({"out": np.zeros((3, 9), np.float32)}, r"out is \(3, 9\)"),
        ({"out": np.zeros((3, 8), np.float64)}, "there is no kernel for y f64"),
        ({"weight": "text"}, "weight is a str"),
    ],
)
def test_refused(change, words):
    x, held = draw(3, 16), draw(3, 16)
    arguments = {"weight": draw(8, 16, seed=2), "groups": 4} | change
    with pytest.raises((TypeError, ValueError), match=words):
        quern.gemm_norm(x, **arguments)
    assert np.array_equal(x, held)
