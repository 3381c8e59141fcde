# SPDX-License-Identifier: Apache-2.0
"""The matrix product with what follows it, on plain arrays, as a function that gives a new one."""

from __future__ import annotations

import sys

from . import _arrays, _fast
from ._call import Call
from ._ops import op
from ._swiglu import new_array, of_torch

_call = Call(op("gemm_norm"))
NAMES = ("groups", "lo", "hi", "eps", "clamp", "activation", "norm", "precision")
fast = _fast.create(op("gemm_norm"), NAMES, ["y"])


def _dense(name: str, array):
    """Row-major; a copy only where it is not."""
    if not _arrays.is_array(array):
        raise TypeError(f"gemm_norm: {name} is {_arrays._a(array)}, it must be an array")
    if of_torch(array):
        if array.requires_grad and sys.modules["torch"].is_grad_enabled():
            said = "which only quern.torch.gemm_norm computes; or give its .detach()"
            raise TypeError(f"gemm_norm: {name} requires a gradient, {said}")
        return array.contiguous()
    library = sys.modules.get(type(array).__module__.partition(".")[0])
    ascontiguous = getattr(library, "ascontiguousarray", None)
    if ascontiguous is None:
        raise TypeError(f"gemm_norm: {name} is {_arrays._a(array)}: arrays of NumPy, CuPy and PyTorch are taken")
    return ascontiguous(array)


def result_shape(x, weight) -> tuple:
    """Of what x (..., k) and weight (n, k) make: (..., n). ValueError for others."""
    one, other = tuple(x.shape), tuple(weight.shape)
    if len(one) < 1 or len(other) != 2 or one[-1] != other[1]:
        raise ValueError(f"gemm_norm: x is {one} and weight {other}, they must be (..., k) and (n, k)")
    return (*one[:-1], other[0])


def gemm_norm(
    x,
    weight,
    bias=None,
    bias2=None,
    gamma=None,
    beta=None,
    *,
    groups=1,
    lo=-1.0,
    hi=1.0,
    eps=1e-5,
    clamp=True,
    activation="mish",
    norm="group",
    precision="fp32",
    out=None,
    stream=None,
):
    """norm(activation(clamp(x @ weight.T + bias + bias2, lo, hi))) * gamma + beta, in the product's own kernel.

    x : (..., k), weight : (n, k), arrays of float32, or of bfloat16 with precision "bf16"
    bias, bias2, gamma, beta : (n,) of float32, each optional
    groups : of consecutive columns, for norm "group"; n is a multiple of it
    clamp : False leaves it out
    activation : "none", "relu", "gelu" (erf), "gelu_tanh", "silu", "mish", "sigmoid", "tanh"
    norm : "none", "group", "layer", "rms"; its variance is taken about the mean, in two passes
    precision : how the product is taken, never changed in silence: "fp32"; "tf32" and "bf16", operands rounded;
        "bf16x3", "tf32x3" and "f16x3", each operand in two words, results as of fp32
    out : row-major array (..., n) to write, of x's type, that shares no memory with the others; None: a new one
    stream : where work on a GPU goes; None: the current stream of the arrays' library

    Arrays that are not row-major are copied first. Returns (..., n) of x's type. Raises TypeError or ValueError with a
    sentence; then nothing was written."""
    made = fast(
        out, x, weight, bias, bias2, gamma, beta, groups, lo, hi, eps, clamp, activation, norm, precision, stream
    )  # fmt: skip
    if made is not NotImplemented:
        return made
    x, weight = _dense("x", x), _dense("weight", weight)
    vectors = [
        None if vector is None else _dense(name, vector)
        for name, vector in (("bias", bias), ("bias2", bias2), ("gamma", gamma), ("beta", beta))
    ]
    shape = result_shape(x, weight)
    y = new_array(shape, x) if out is None else out
    if tuple(getattr(y, "shape", ())) != shape:
        raise ValueError(f"gemm_norm: out is {tuple(getattr(y, 'shape', ()))}, it must be {shape}")
    if out is not None and len(shape) != 2 and _dense("out", out) is not out:
        raise ValueError("gemm_norm: out is not row-major")
    given = dict(zip(NAMES, (groups, lo, hi, eps, clamp, activation, norm, precision)))
    rows = y.reshape(-1, shape[-1]) if len(shape) != 2 else y, x.reshape(-1, x.shape[-1]) if len(shape) != 2 else x
    arrays = [None if array is None else [array] for array in (*rows, weight, *vectors)]
    _call(arrays, [given[word.name] for word in _call.words], stream)
    return y
