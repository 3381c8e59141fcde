# SPDX-License-Identifier: Apache-2.0
"""Gated activations of plain arrays, as functions that give new arrays: the registry's ops work in place, and this
makes what they write. Rows at a distance, the halves of one array and its even and odd columns are taken where they
lie; what is laid out otherwise is copied first."""

from __future__ import annotations

import sys

from . import _arrays, _fast
from ._ops import op

NAMES = ("gate_multiplier", "down_multiplier", "activation", "alpha", "limit")
fast_forward = _fast.create(op("swiglu"), NAMES, ["c"])
fast_backward = _fast.create(op("swiglu_backward"), NAMES, ["da", "db"])


def of_torch(array: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _are_rows(shape, strides, steps) -> bool:
    """Rows at one distance, the columns of each so many elements apart? Strides are in elements."""
    if 0 in shape or not shape:
        return True
    step = strides[-1] if shape[-1] > 1 else 1
    wanted = None
    for extent, stride in reversed(list(zip(shape[:-1], strides[:-1]))):
        if extent == 1:
            continue
        if stride != wanted if wanted is not None else stride < (shape[-1] - 1) * step + 1:
            return False
        wanted = stride * extent
    return step in steps


def _in_rows(name: str, array, steps=(1, 2)):
    """The array itself where it is rows of columns, so many elements apart; else a copy that is row-major."""
    if not _arrays.is_array(array):
        raise TypeError(f"{name} is {_arrays._a(array)}, it must be an array")
    if of_torch(array):
        if array.requires_grad and sys.modules["torch"].is_grad_enabled():
            raise TypeError(
                f"{name} requires a gradient, which only quern.torch.swiglu computes; or give its .detach()"
            )
        return array if _are_rows(array.shape, array.stride(), steps) else array.contiguous()
    library = sys.modules.get(type(array).__module__.partition(".")[0])
    ascontiguous = getattr(library, "ascontiguousarray", None)
    if ascontiguous is None:
        raise TypeError(
            f"{name} is {_arrays._a(array)}: new arrays are made of NumPy's, CuPy's and PyTorch's; "
            "quern.swiglu_ works on others in place"
        )
    size = array.dtype.itemsize
    in_elements = [step // size for step in array.strides]
    whole = array.dtype.isnative and not any(step % size for step in array.strides)
    if whole and _are_rows(array.shape, in_elements, steps):
        return array
    return ascontiguous(array)


def new_array(shape, like):
    """Row-major, of another's library, type and device."""
    if of_torch(like):
        return like.new_empty(shape)
    return sys.modules[type(like).__module__.partition(".")[0]].empty(shape, like.dtype)


_LAYOUTS = ("halves", "interleaved")
_SAID = ", ".join(map(repr, _LAYOUTS))


def split(name: str, both, layout):
    """(a, b): the views of an array that holds both, in its last dimension."""
    if layout is None:
        raise ValueError(f"{name}: b is missing; of one array that holds both, layout says how: {_SAID}")
    if layout not in _LAYOUTS:
        raise ValueError(f"{name}: layout is {layout!r}, it must be one of {_SAID}")
    try:  # what the oldest PyTorch can trace
        shape = tuple(both.shape)
    except (AttributeError, TypeError):  # no array, or the class of one
        shape = ()
    if not len(shape) or shape[-1] % 2:
        raise ValueError(f"{name}: an array of the shape {shape} holds no two of one width in its last dimension")
    half = shape[-1] // 2
    if layout == "halves":
        return both[..., :half], both[..., half:]
    return both[..., ::2], both[..., 1::2]


def _both(name: str, a, b, layout):
    if b is None:
        return split(name, a, layout)
    if layout is not None:
        raise TypeError(f"{name}: layout is {layout!r}, which is for one array that holds a and b, and b is given")
    return a, b


def swiglu(
    a,
    b=None,
    gate_multiplier=1.0,
    down_multiplier=1.0,
    *,
    activation="swiglu",
    alpha=1.702,
    limit=7.0,
    layout=None,
    out=None,
    out_dtype=None,
    scale=None,
    stream=None,
):
    """activation(a * gate_multiplier) * b * down_multiplier in one pass: SwiGLU and its kin, forward.

    a, b : arrays of one shape, float32, bfloat16 or float16 (on the processor float64 too), of NumPy, CuPy or
        PyTorch; views with rows at a distance and columns 1 or 2 elements apart (x[..., :n], x[..., ::2]) are taken as
        they are, others are copied
    layout : for one array a that holds both in its last dimension, with no b: "halves" or "interleaved"
    activation : "swiglu", "clamped" (with alpha and limit, the gpt-oss form), "geglu" (tanh),
        "geglu_erf" (GELU itself), "reglu", "glu"
    out : array to write, of their shape and type, that shares no memory with them; None: a new one
    out_dtype : "float8_e4m3fn" (or PyTorch's, ml_dtypes'): the result is c / scale in it, to nearest even, and what is
        beyond 448 becomes 448; columns that are not side by side are copied then
    scale : with out_dtype: float32 array of one element, or of one for each row (all but the last dimension); None:
        they are computed, the row's largest finite magnitude / 448, and (c, scale) is given back
    stream : where work on a GPU goes; None: the current stream of the arrays' library

    Arithmetic is float32's, rounded to the storage type after the activation and after each product; the same bits on
    every processor and GPU. That of float64 is in double. Raises as quern.swiglu_ does; then nothing was written."""
    if layout is out_dtype is scale is None:
        made = fast_forward(out, a, b, gate_multiplier, down_multiplier, activation, alpha, limit, stream)
        if made is not NotImplemented:
            return made
    from . import swiglu_

    a, b = _both("swiglu", a, b, layout)
    steps = (1, 2) if out_dtype is None else (1,)
    a, b = _in_rows("swiglu: a", a, steps), _in_rows("swiglu: b", b, steps)
    numbers = {"gate_multiplier": gate_multiplier, "down_multiplier": down_multiplier, "alpha": alpha, "limit": limit}
    if out_dtype is not None:
        from . import _quantize

        c, scales = _quantize.swiglu(a, b, numbers, activation, out_dtype, scale, out, stream)
        return (c, scales) if scale is None else c
    if scale is not None:
        raise TypeError("swiglu: scale is given and out_dtype is not: only float8_e4m3fn has scales")
    c = new_array(a.shape, a) if out is None else out
    swiglu_(c, a, b, activation=activation, stream=stream, **numbers)
    return c


def swiglu_backward(
    dc,
    a,
    b=None,
    gate_multiplier=1.0,
    down_multiplier=1.0,
    *,
    activation="swiglu",
    alpha=1.702,
    limit=7.0,
    layout=None,
    in_place=False,
    stream=None,
):
    """(da, db): the gradients of swiglu(a, b, ...) with respect to a and b, where dc is that of its result. With a
    layout, of one array a that holds both: one gradient, which holds both as that does.

    in_place : write them over a and b, which must be rows of columns, and give these back; what they held is gone, and
    a second call over them would compute with gradients. All else as for swiglu."""
    if layout is None and not in_place:
        made = fast_backward(
            dc, a, b, None, None, gate_multiplier, down_multiplier, activation, alpha, limit, stream
        )  # fmt: skip
        if made is not NotImplemented:
            return made
    from . import swiglu_backward_

    words = {"gate_multiplier": gate_multiplier, "down_multiplier": down_multiplier, "alpha": alpha, "limit": limit}
    words.update(activation=activation, stream=stream)
    whole, one = a, b is None
    a, b = _both("swiglu_backward", a, b, layout)
    dc = _in_rows("swiglu_backward: dc", dc)
    if in_place:
        swiglu_backward_(dc, a, b, **words)
        return whole if one else (a, b)
    a, b = _in_rows("swiglu_backward: a", a), _in_rows("swiglu_backward: b", b)
    made = new_array(whole.shape, whole) if one else None
    da, db = split("swiglu_backward", made, layout) if one else (new_array(a.shape, a), new_array(b.shape, b))
    swiglu_backward_(dc, a, b, grad_gates=da, grad_ups=db, **words)
    return made if one else (da, db)
