# SPDX-License-Identifier: Apache-2.0
"""Weights of learned optimizers: which tensors the published files hold, and how a path or a dict of arrays becomes the
one array that the library takes. Nothing is made up where something is missing, and no framework is needed."""

from __future__ import annotations

import ast
import ctypes
import functools
import math
import os
from array import array
from collections.abc import Mapping
from ctypes import byref
from dataclasses import dataclass

from . import _arrays, _lopt_abi, _safetensors, _streams
from ._lopt_abi import lib

DECAYS = ("m_decays", "v_decay", "factor_decays")  # options that may lie in a file of weights
FILES = {
    _lopt_abi.SMALL_FC: "btherien/mulo or DiamondXL/elo",
    _lopt_abi.VELO_MLP: "Pauljanson002/VeLO_MLP",
    _lopt_abi.VELO_RNN: "Pauljanson002/VeLO_RNN",
}


@dataclass(frozen=True)
class Weight:
    """One tensor of the published files; `begin` counts floats of the array."""

    name: str
    shape: tuple[int, ...]
    begin: int
    n: int


@functools.cache
def table(kind: int) -> tuple[Weight, ...]:
    """The tensors that weights of that kind are made of, in the array's order."""
    made: list[Weight] = []
    raw = _lopt_abi.Weight()
    while True:
        try:
            lib.qn_lopt_weight_at(kind, len(made), byref(raw))
        except ValueError:  # past the last
            return tuple(made)
        made.append(Weight(raw.name.decode(), tuple(raw.shape[: raw.ndim]), raw.begin, raw.n))


def kind_of(n: int) -> int:
    """The kind of weights that are n floats."""
    return next(kind for kind in FILES if sum(weight.n for weight in table(kind)) == n)


def place(kind: int, name: str) -> slice:
    """Where one of them lies in the array."""
    weight = next(weight for weight in table(kind) if weight.name == name)
    return slice(weight.begin, weight.begin + weight.n)


def unread(kind: int) -> dict[str, tuple[int, ...]]:
    """Tensors that the published files hold besides, and their shapes: scratch of VeLO's network, which is a bank's
    tensor without the bank, and a layer that nothing uses."""
    if kind == _lopt_abi.VELO_MLP:
        return {weight.name.replace("_.", ".").removesuffix("_"): weight.shape[1:] for weight in table(kind)}
    if kind == _lopt_abi.VELO_RNN:
        layer = "mix_layer2."
        return {
            weight.name.replace(layer, "mix_layer1."): weight.shape
            for weight in table(kind)
            if weight.name.startswith(layer)
        }
    return {}


def flat(kind: int, what: str, weights: object) -> array:
    """The weights as one array of floats in host memory. `weights`: the path of a safetensors file, or a mapping from
    the published names to arrays in host memory; `what` is how sentences call it. ValueError, TypeError or OSError for
    what is not these weights."""
    n = sum(weight.n for weight in table(kind))
    if isinstance(weights, (str, bytes, os.PathLike)):
        made = array("f", bytes(4 * n))
        try:
            lib.qn_lopt_weights_read(kind, os.fsencode(weights), made.buffer_info()[0], n)
        except (ValueError, OSError) as error:
            is_name = os.fsdecode(weights) in FILES[kind].split(" or ")
            why = "; nothing is downloaded: give the path of the safetensors file of that name" if is_name else ""
            raise type(error)(f"{what}: {error}{why}") from None
        return made
    if isinstance(weights, Mapping):
        return _from_mapping(kind, what, weights)
    raise TypeError(
        f"{what} is {_arrays._a(weights)}, it must be the path of a safetensors file or a dict of arrays under the "
        f"names of {FILES[kind]}"
    )


def decays(what: str, weights: object) -> dict[str, object]:
    """The decays that belong to weights, by the options' names, where the file says them, as the converter writes it
    (convert_learned_optimizer.py). ValueError for what is no number there, or no three."""
    made: dict[str, object] = {}
    if not isinstance(weights, (str, bytes, os.PathLike)):
        return made
    words = _safetensors.metadata(weights)
    for name in DECAYS:
        if name not in words:
            continue
        try:
            value = ast.literal_eval(words[name])
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            value = None
        numbers = (value,) if name == "v_decay" else value if isinstance(value, tuple) and len(value) == 3 else (None,)
        if not all(isinstance(each, (int, float)) and 0 <= each <= 1 for each in numbers):
            raise ValueError(
                f"{what}: {os.fsdecode(weights)} says that {name} is {words[name][:80]!r}, which must be "
                f"{'a decay' if name == 'v_decay' else 'three decays'} in [0, 1]"
            )
        made[name] = value
    return made


def _from_mapping(kind: int, what: str, weights: Mapping) -> array:
    known = {weight.name for weight in table(kind)} | set(unread(kind))
    for name in weights:
        if name not in known:
            raise ValueError(f"{what} has {name!r}, which does not belong to the weights of {FILES[kind]}")
    made = array("f")
    for weight in table(kind):
        if weight.name not in weights:
            raise ValueError(f"{what} has no {weight.name!r}, which the weights of {FILES[kind]} have")
        made.frombytes(_bytes_of(f"{what}[{weight.name!r}]", weight, weights[weight.name]))
    _check_finite(kind, what, made)
    return made


def _check_finite(kind: int, what: str, values: array) -> None:
    if math.isfinite(math.fsum(map(abs, values))):
        return
    for weight in table(kind):
        for k, value in enumerate(values[weight.begin : weight.begin + weight.n]):
            if not math.isfinite(value):  # it would make every parameter one
                raise ValueError(f"{what}[{weight.name!r}] is {value} at element {k}")


def _bytes_of(name: str, weight: Weight, value: object) -> bytes:
    """The array's elements, row-major."""
    detach = getattr(value, "detach", None)  # PyTorch's, which may require gradients or lie elsewhere
    if callable(detach):
        value = detach().cpu().contiguous()
    view = _arrays.view(name, value, _streams.Order(), False)
    if isinstance(view, _arrays.Later) or view.device != _arrays.CPU_DEVICE:
        raise ValueError(f"{name} is on a GPU: give weights in host memory, which is where a step takes them from")
    if view.dtype != "float32":
        raise TypeError(f"{name} is {view.dtype}, it must be float32")
    if tuple(view.shape) != weight.shape:
        raise ValueError(f"{name} has the shape {tuple(view.shape)}, it must be {weight.shape}")
    if _arrays.is_row_major(view.shape, view.strides):
        return ctypes.string_at(view.address, 4 * weight.n)
    return b"".join(_elements(view.address, tuple(view.shape), tuple(view.strides or ())))


def _elements(address: int, shape: tuple[int, ...], strides: tuple[int, ...]):
    """Of an array whose elements lie anyhow, such as a transposed one, each element's bytes in row-major order."""
    if not shape:
        yield ctypes.string_at(address, 4)
        return
    for k in range(shape[0]):
        yield from _elements(address + 4 * k * strides[0], shape[1:], strides[1:])
