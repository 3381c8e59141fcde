# SPDX-License-Identifier: Apache-2.0
"""Weights of learned optimizers: which tensors the published files hold, and how a path or a dict of arrays becomes the
one array that the library takes. Nothing is made up where something is missing, and no framework is needed."""

from __future__ import annotations

import ast
import ctypes
import functools
import hashlib
import math
import os
from array import array
from collections.abc import Iterable, Mapping
from ctypes import byref
from dataclasses import dataclass

from . import _arrays, _lopt_abi, _safetensors, _streams
from ._lopt_abi import lib

MULTIPLIERS = ("step_mult", "exp_mult")
DECAYS = ("m_decays", "v_decay", "factor_decays")  # options that may lie in a file of weights
FILES = {
    _lopt_abi.SMALL_FC: "btherien/mulo or DiamondXL/elo",
    _lopt_abi.VELO_MLP: "Pauljanson002/VeLO_MLP",
    _lopt_abi.VELO_RNN: "Pauljanson002/VeLO_RNN",
    _lopt_abi.CELO2_MLP: "DiamondXL/celo2 or DiamondXL/elo-celo2",
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
        what_it_is = _safetensors.foreign(weights)
        if what_it_is == "msgpack":
            return _from_mapping(kind, what, _of_theta(kind, what, weights))
        made = array("f", bytes(4 * n))
        try:
            lib.qn_lopt_weights_read(kind, os.fsencode(weights), made.buffer_info()[0], n)
        except (ValueError, OSError) as error:
            is_name = os.fsdecode(weights) in FILES[kind].split(" or ")
            why = "; nothing is downloaded: give the path of the safetensors file of that name" if is_name else ""
            why = f"; {what_it_is}" if what_it_is else why
            raise type(error)(f"{what}: {error}{why}") from None
        return made
    if isinstance(weights, Mapping):
        return _from_mapping(kind, what, weights)
    raise TypeError(
        f"{what} is {_arrays._a(weights)}, it must be the path of a safetensors file or a dict of arrays under the "
        f"names of {FILES[kind]}"
    )


def _of_theta(kind: int, what: str, path: str | bytes | os.PathLike) -> Mapping:
    """The weights of one kind in a file of theta, as flax writes it."""
    from . import _msgpack, convert_learned_optimizer

    try:
        theta = _msgpack.read(path)
        if kind == _lopt_abi.CELO2_MLP:
            raise ValueError(f"a file of theta is not read for this optimizer: give the safetensors of {FILES[kind]}")
        if kind == _lopt_abi.SMALL_FC:
            return convert_learned_optimizer.small_fc(theta)
        return convert_learned_optimizer.velo(theta)[kind == _lopt_abi.VELO_RNN]
    except (ValueError, TypeError) as error:
        raise ValueError(f"{what}: {os.fsdecode(path)}: {error}") from None


def decays(what: str, weights: object) -> dict[str, object]:
    """The decays and multipliers that belong to weights, by the options' names, where the file says them, as the
    converter writes it (convert_learned_optimizer.py). ValueError for what is no number there, or no three."""
    made: dict[str, object] = {}
    if not isinstance(weights, (str, bytes, os.PathLike)):
        return made
    if _safetensors.foreign(weights) == "msgpack":
        from . import _msgpack, convert_learned_optimizer

        return convert_learned_optimizer.decays(_msgpack.read(weights))
    words = _safetensors.metadata(weights)
    for name in MULTIPLIERS:
        if name in words:
            try:
                number = float(words[name])
            except ValueError:
                number = math.nan
            if not math.isfinite(number):
                raise ValueError(
                    f"{what}: {os.fsdecode(weights)} says that {name} is {words[name][:80]!r}, which must be a number"
                )
            made[name] = number
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


CHECKSUM = "weights_checksum"  # of a state: of the weights under which it was made


def checksum(parts: Iterable[memoryview | array | bytes]) -> int:
    """Of all weights of an optimizer, as the library takes them: 63 bits of SHA-256, a number that every format of
    checkpoints keeps."""
    made = hashlib.sha256()
    for part in parts:
        made.update(part)
    return int.from_bytes(made.digest()[:8], "big") >> 1


def check_checksum(title: str, said: object, own: int) -> None:
    """ValueError where a state that is loaded was made under other weights; one without a checksum is an older one."""
    if hasattr(said, "item"):  # as numpy.load gives numbers back
        said = said.item()
    if said is None or said == own:
        return
    theirs = f"{said:016x}" if isinstance(said, int) else repr(said)[:80]
    raise ValueError(
        f"{title}: the state that is loaded was made under network weights of the checksum {theirs}, and this "
        f"optimizer's have {own:016x}: make it with the weights of that run, or, to go on under these, take "
        f"{CHECKSUM!r} out of the state"
    )


def fan_in(what: str, weights: object) -> float | None:
    """The inputs of a weight whose learning rate is not divided, where the file says that its network was trained with
    learning rates divided by inputs, as `quern meta-train` does. ValueError for what is no number there."""
    if not isinstance(weights, (str, bytes, os.PathLike)):
        return None
    said = _safetensors.metadata(weights).get("fan_in")
    if said is None:
        return None
    try:
        made = float(said)
    except ValueError:
        made = math.nan
    if not 0 < made < math.inf:
        raise ValueError(f"{what}: {os.fsdecode(weights)} says that fan_in is {said[:80]!r}, which must be above 0")
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
    return b"".join(_rows(view.address, tuple(view.shape), tuple(view.strides or ())))


def _rows(address: int, shape: tuple[int, ...], strides: tuple[int, ...]):
    """Of an array whose elements lie anyhow, such as a transposed one, the bytes of each row in row-major order."""
    if len(shape) > 1:
        for k in range(shape[0]):
            yield from _rows(address + 4 * k * strides[0], shape[1:], strides[1:])
        return
    n, step = (shape[0], strides[0]) if shape else (1, 1)
    span = (n - 1) * abs(step)
    row = memoryview((ctypes.c_float * (span + 1)).from_address(address - 4 * span * (step < 0)))
    yield row[::step].tobytes() if step else row.tobytes() * n
