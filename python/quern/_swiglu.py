# SPDX-License-Identifier: Apache-2.0
"""Gated activations of plain arrays, as functions that give new arrays: the registry's ops work in place, and this
makes what they write. Arrays that are not dense (the halves of one array, interleaved columns) are copied first."""

from __future__ import annotations

import sys

from . import _arrays


def _of_torch(array: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _dense(name: str, array):
    """Row-major; a copy only where it is not."""
    if not _arrays.is_array(array):
        raise TypeError(f"{name} is {_arrays._a(array)}, it must be an array")
    if _of_torch(array):
        if array.requires_grad and sys.modules["torch"].is_grad_enabled():
            raise TypeError(
                f"{name} requires a gradient, which only quern.torch.swiglu computes; or give its .detach()"
            )
        return array.contiguous()
    library = sys.modules.get(type(array).__module__.partition(".")[0])
    ascontiguous = getattr(library, "ascontiguousarray", None)
    if ascontiguous is None:
        raise TypeError(
            f"{name} is {_arrays._a(array)}: new arrays are made of NumPy's, CuPy's and PyTorch's; "
            "quern.swiglu_ works on others in place"
        )
    return ascontiguous(array)


def _like(array):
    library = sys.modules[type(array).__module__.partition(".")[0]]
    return library.empty_like(array)


def swiglu(
    a,
    b,
    gate_multiplier=1.0,
    down_multiplier=1.0,
    *,
    activation="swiglu",
    alpha=1.702,
    limit=7.0,
    out=None,
    stream=None,
):
    """activation(a * gate_multiplier) * b * down_multiplier in one pass: SwiGLU and its kin, forward.

    a, b : arrays of one shape, float32, bfloat16 or float16, of NumPy, CuPy or PyTorch
    activation : "swiglu", "clamped" (with alpha and limit, the gpt-oss form), "geglu" (tanh), "reglu", "glu"
    out : array to write, of their shape and type, that shares no memory with them; None: a new one
    stream : where work on a GPU goes; None: the current stream of the arrays' library

    Arithmetic is float32's, rounded to the storage type after the activation and after each product; the same bits on
    every processor and GPU. Raises as quern.swiglu_ does; then nothing was written."""
    from . import swiglu_

    a, b = _dense("swiglu: a", a), _dense("swiglu: b", b)
    c = _like(a) if out is None else out
    numbers = {"gate_multiplier": gate_multiplier, "down_multiplier": down_multiplier, "alpha": alpha, "limit": limit}
    swiglu_(c, a, b, activation=activation, stream=stream, **numbers)
    return c


def swiglu_backward(
    dc,
    a,
    b,
    gate_multiplier=1.0,
    down_multiplier=1.0,
    *,
    activation="swiglu",
    alpha=1.702,
    limit=7.0,
    in_place=False,
    stream=None,
):
    """(da, db): the gradients of swiglu(a, b, ...) with respect to a and b, where dc is that of its result.

    in_place : write them over a and b, which must be dense, and give these back; what they held is gone, and a second
    call over them would compute with gradients. All else as for swiglu."""
    from . import swiglu_backward_

    words = {"gate_multiplier": gate_multiplier, "down_multiplier": down_multiplier, "alpha": alpha, "limit": limit}
    words.update(activation=activation, stream=stream)
    dc = _dense("swiglu_backward: dc", dc)
    if in_place:
        swiglu_backward_(dc, a, b, **words)
        return a, b
    a, b = _dense("swiglu_backward: a", a), _dense("swiglu_backward: b", b)
    da, db = _like(a), _like(b)
    swiglu_backward_(dc, a, b, grad_gates=da, grad_ups=db, **words)
    return da, db
