# SPDX-License-Identifier: Apache-2.0
"""Lion in NumPy, for tests: written from the contract's words (src/op/lion/README.md), not from the C. Every line is
one correctly rounded float32 operation; fma is exact before it rounds. Slow, plain, float32 throughout."""

import numpy as np


def fma(a, b, c):
    """float32(a * b + c), rounded once. The product of two float32 is exact in float64. Their sum with c is rounded
    there to odd, which keeps enough of what is lost that rounding again, to float32, is right."""
    product = np.asarray(a, np.float32).astype(np.float64) * np.asarray(b, np.float32).astype(np.float64)
    c = np.asarray(c, np.float32).astype(np.float64)
    with np.errstate(all="ignore"):
        total = np.atleast_1d(product + c)
        back = total - product
        lost = (product - (total - back)) + (c - back)
        bits = total.view(np.int64).copy()
        inexact = np.isfinite(total) & np.isfinite(lost) & (lost != 0) & (bits & 1 == 0)
        away = (lost > 0) == (total > 0)
        bits[inexact] += np.where(away, 1, -1)[inexact]
        return bits.view(np.float64).astype(np.float32).reshape(np.shape(product + c))


def step(param, grad, momentum, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
    """(new param, new momentum) in float32; numbers are rounded to float32 once, after arithmetic in double."""
    f32 = np.float32
    beta1, beta2 = betas
    with np.errstate(all="ignore"):
        c = fma(f32(beta1), momentum, f32(1 - beta1) * grad.astype(f32))
        sign = np.where(np.isnan(c), f32(np.nan), np.sign(c).astype(f32))
        new_param = fma(param, f32(1 - lr * weight_decay), -(f32(lr) * sign))
        new_momentum = fma(f32(beta2), momentum, f32(1 - beta2) * grad.astype(f32))
    return new_param, new_momentum


def same_bits(a, b):
    """Equal bit for bit; any NaN equals any NaN."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    words = {4: np.uint32, 2: np.uint16}[a.dtype.itemsize]
    return bool(
        np.all((np.ascontiguousarray(a).view(words) == np.ascontiguousarray(b).view(words)) | (a != a) & (b != b))
    )


_ODD = np.array([0, -0.0, 1e-30, -1e-42, 1e-45, 3e15, -2e15, np.inf, -np.inf, np.nan, 1.17549435e-38], np.float32)


def draw(rng, shape, scale, odd=0.1):
    """Normal numbers, with zeros of both signs, denormals, huge ones, infinities and NaN among them."""
    x = np.asarray(rng.normal(0, scale, shape), np.float32)
    return np.where(rng.random(shape) < odd, rng.choice(_ODD, shape), x).astype(np.float32)


def lists(rng, shapes, dtypes=("float32", "float32", "float32")):
    """params, grads, exp_avgs of those shapes."""
    import ml_dtypes  # noqa: F401  (gives NumPy the name bfloat16)

    scales = (0.02, 0.3, 0.1)
    return tuple(
        [draw(rng, shape, scale).astype(np.dtype(dtype)) for shape in shapes] for scale, dtype in zip(scales, dtypes)
    )
