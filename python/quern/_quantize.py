# SPDX-License-Identifier: Apache-2.0
"""Gated activations with a float8_e4m3fn result and its scales, of plain arrays: what quern.swiglu hands on to where
an out_dtype is given."""

from __future__ import annotations

import ctypes
import math
import sys
from array import array

from . import _abi, _arrays, _fast, _streams, _threads
from ._ops import op
from ._swiglu import NAMES, _are_rows, of_torch
from ._versions import count_writes

NAME = "float8_e4m3fn"
_OP = op("swiglu_quantize")
fast = _fast.create(_OP, (*NAMES, "computes"))


def _check_float8(dtype: object) -> None:
    """float8_e4m3fn, by name or as ml_dtypes or PyTorch have it; TypeError for any other."""
    words = (str(dtype), getattr(dtype, "__name__", ""), getattr(dtype, "name", ""))
    if not any(str(word).rpartition(".")[2] == NAME for word in words):
        raise TypeError(
            f"swiglu: out_dtype is {dtype}, it must be {NAME}; without it the result has the type of a and b"
        )


def _new(array, shape: tuple[int, ...], float8: bool):
    """Of the library and device of `array`, of float8_e4m3fn or float32."""
    if of_torch(array):
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=torch.float8_e4m3fn if float8 else torch.float32, device=array.device)
    library = sys.modules[type(array).__module__.partition(".")[0]]
    if not float8:
        return library.empty(shape, "float32")
    if library.__name__ != "numpy":
        raise TypeError(f"swiglu: {library.__name__} has no {NAME}; NumPy (with ml_dtypes) and PyTorch have")
    try:
        import ml_dtypes
    except ImportError:
        raise ImportError(f"NumPy has no {NAME} of its own; ml_dtypes has it: pip install ml_dtypes") from None
    return library.empty(shape, ml_dtypes.float8_e4m3fn)


def _roles(views: dict[str, _arrays.View], keep: list) -> ctypes.Array:
    """By role: matrices, and a scale as the row of its elements."""
    extents, words = array("q", bytes(8 * 4 * len(views))), array("q")
    at = extents.buffer_info()[0]
    for k, (name, view) in enumerate(views.items()):
        if view.code is None:
            raise TypeError(f"{view.name} is {view.dtype}, which quern does not store")
        ndim = 1 if name == "scale" else 2
        rows = math.prod(view.shape if ndim == 1 else view.shape[:-1])
        cols, apart = (1, 1) if ndim == 1 else (view.shape[-1], _apart(view))
        extents[4 * k], extents[4 * k + 1], extents[4 * k + 2], extents[4 * k + 3] = rows, cols, apart, 1
        kind, index = view.device
        words.extend((view.address, view.code | ndim << 32, at + 32 * k, at + 32 * k + 16, kind | index << 32))
    keep += extents, words
    first = words.buffer_info()[0]
    return _abi.Roles(*(first + 40 * k for k in range(len(views))))


def _apart(view: _arrays.View) -> int:
    """How far its rows are apart, in elements."""
    for extent, stride in zip(reversed(view.shape[:-1]), reversed((view.strides or ())[:-1])):
        if extent > 1:
            return stride
    return view.shape[-1]


def _views(arrays: dict[str, tuple[object, bool]], order: _streams.Order) -> dict[str, _arrays.View]:
    first = {name: _arrays.view(f"swiglu: {name}", array, order, written) for name, (array, written) in arrays.items()}
    views = {name: view.view(order) if isinstance(view, _arrays.Later) else view for name, view in first.items()}
    for name, view in views.items():
        if name == "scale":
            if not _arrays.is_row_major(view.shape, view.strides):
                raise ValueError(f"{view.name} is not contiguous")
        elif view.strides is not None and not _are_rows(view.shape, view.strides, (1,)):
            raise ValueError(f"{view.name} is not laid out as rows with their columns side by side")
        if arrays[name][1] and view.read_only:
            raise ValueError(f"{view.name} is read-only")
    return views


def swiglu(a, b, numbers: dict[str, float], activation: str, out_dtype, scale, out, stream):
    """(c, scale) with c of float8_e4m3fn. a and b are rows with their columns side by side; scale None: computed, one
    a row, in the shape of a with a last extent of 1."""
    _check_float8(out_dtype)
    computes = scale is None
    if tuple(a.shape) != tuple(b.shape) or not a.shape:
        raise ValueError(
            f"swiglu: a has the shape {tuple(a.shape)} and b {tuple(b.shape)}; they must be one, with rows"
        )
    shape = tuple(a.shape)
    c = _new(a, shape, True) if out is None else out
    scales = _new(a, (*shape[:-1], 1), False) if computes else scale
    if tuple(c.shape) != shape:
        raise ValueError(f"swiglu: out has the shape {tuple(c.shape)} and a has {shape}")
    given = dict(numbers, activation=activation)
    row = scales[..., 0] if computes else scales
    values = [given[name] for name in NAMES]
    plain = not any(value is None for value in values)  # which a fast call takes for the default
    if plain and fast(c, row, a, b, *values, computes, stream) is None:
        return c, scales
    _fast.bind()
    params = _OP.Params(size=ctypes.sizeof(_OP.Params), computes=computes)
    for name, value in given.items():
        _OP.set(params, name, value)
    order = _streams.Order(stream)
    views = _views({"out": (c, True), "scale": (scales, computes), "a": (a, False), "b": (b, False)}, order)
    _run(views, params, order)
    count_writes([c])
    return c, scales


def _run(views: dict[str, _arrays.View], params: ctypes.Structure, order: _streams.Order) -> None:
    device = views["a"].device
    execution = _abi.Exec(ctypes.sizeof(_abi.Exec), _abi.Device(*device))
    pool = None
    if device[0] == _arrays.CUDA:
        execution.stream = order.stream(device[1])
    else:
        pool = _threads.pool()
        execution.pool = pool.handle if pool is not None else None
    keep: list = []
    roles = _roles(views, keep)
    followed = device[0] == _arrays.CUDA and order.wait_for_others(device[1])
    _OP.step(execution, params, 1, roles)
    if followed:
        order.finish(device[1])
