# SPDX-License-Identifier: Apache-2.0
"""Learned optimizers as the package's two forms of them, on plain arrays and in PyTorch, share them: what each is
called, its options with their defaults, how they become the library's params, and the shapes of a tensor's state.
Nothing is stepped here."""

from __future__ import annotations

import ctypes
import math
import operator
from array import array
from collections.abc import Callable, Mapping, Sequence
from ctypes import Structure, byref, sizeof
from dataclasses import dataclass
from typing import Any

from . import _abi, _lopt_abi, _lopt_weights, _streams
from ._library import DTYPES
from ._lopt_abi import lib
from ._tensors import Tensors

STATE = ("exp_avg", "exp_avg_sq", "exp_avg_sq_r", "exp_avg_sq_c")  # in the order of qn_lopt_state
ROWS = {"hidden": "lstm_init_state.0", "cell": "lstm_init_state.1"}  # of VeLO's state, and what they begin with

# As the headers have them: 1 - (1 - d) e^(10 o) of d = 0.9, 0.99, 0.999 and the offsets that belong to MuLO's weights.
_LEARNED = dict(
    m_decays=(0.5420273867229054, 0.9584413246306187, 0.9980235618709026),
    v_decay=0.9988859850071358,
    factor_decays=(0.35621824044756223, 0.9966259169686501, 0.9994612775091849),
)
_PLAIN = dict(m_decays=(0.9, 0.99, 0.999), v_decay=0.999, factor_decays=(0.9, 0.99, 0.999))


@dataclass(frozen=True)
class Family:
    """One learned optimizer. `title` is the class's name, which sentences begin with; `defaults` are its options, by
    the names that Python has for them; `kinds` are the weights that it takes, by keyword."""

    title: str
    op: str
    ties: int
    kinds: Mapping[str, int]
    Params: type[Structure]
    defaults: Mapping[str, Any]
    step: Callable
    workspace_bytes: Callable
    shards_workspace_bytes: Callable


SMALL_FC = Family(
    title="SmallFCLopt",
    op="small_fc_lopt",
    ties=_lopt_abi.TIES_LATER,
    kinds={"weights": _lopt_abi.SMALL_FC},
    Params=_lopt_abi.SmallFCParams,
    defaults=dict(
        lr=1.0,
        weight_decay=0.0,
        step_mult=0.01,
        exp_mult=0.001,
        max_grad_norm=None,
        **_LEARNED,
        pylo_cuda_compat=False,
        precision="f16x3",
    ),
    step=lib.qn_small_fc_lopt_step,
    workspace_bytes=lib.qn_small_fc_lopt_workspace_bytes,
    shards_workspace_bytes=lib.qn_small_fc_lopt_shards_workspace_bytes,
)
ELO = Family(
    title="ELO",
    op="elo",
    ties=_lopt_abi.TIES_LATER,
    kinds={"weights": _lopt_abi.SMALL_FC},
    Params=_lopt_abi.ELOParams,
    defaults=dict(lr=0.001, weight_decay=0.0, exp_mult=0.001, **_PLAIN, pylo_cuda_compat=False, precision="f16x3"),
    step=lib.qn_elo_step,
    workspace_bytes=lib.qn_elo_workspace_bytes,
    shards_workspace_bytes=lib.qn_elo_shards_workspace_bytes,
)

VELO = Family(
    title="VeLO",
    op="velo",
    ties=_lopt_abi.TIES_VELO,
    kinds={"mlp": _lopt_abi.VELO_MLP, "rnn": _lopt_abi.VELO_RNN},
    Params=_lopt_abi.VeLOParams,
    defaults=dict(
        lr=1.0,
        weight_decay=0.0,
        step_mult=0.001,
        exp_mult=0.001,
        **_PLAIN,
        num_steps=None,
        pylo_cuda_compat=False,
    ),
    step=lib.qn_velo_step,
    workspace_bytes=lib.qn_velo_workspace_bytes,
    shards_workspace_bytes=lib.qn_velo_shards_workspace_bytes,
)


# ---- options ----
def with_decays(family: Family, weights: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, of which decays that are None become those that the weights' file says, else the published ones'."""
    made, said = dict(options), {}
    for name, value in weights.items():
        said.update(_lopt_weights.decays(f"{family.title}: {name}", value))
    for name in _lopt_weights.DECAYS:
        if made.get(name) is None:
            made[name] = said.get(name, family.defaults[name])
    return made


def number(title: str, name: str, value: object) -> float:
    """ValueError or TypeError for what is no finite number. Ranges are the library's to check."""
    try:
        if isinstance(value, (str, bytes, bool)):
            raise TypeError
        made = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise TypeError(f"{title}: {name} is {value!r}, it must be a number") from None
    if not math.isfinite(made):
        raise ValueError(f"{title}: {name} is {made}, it must be a finite number")
    return made


def _flag(title: str, name: str, value: object) -> int:
    if value is True or value is False:
        return int(value)
    raise TypeError(f"{title}: {name} is {value!r}, it must be True or False")


def _choice(title: str, name: str, value: object, values: Sequence[str]) -> int:
    if value in values:
        return values.index(value)  # type: ignore[arg-type]
    raise ValueError(f"{title}: {name} is {value!r}, it must be one of {', '.join(map(repr, values))}")


def _three(title: str, name: str, value: object) -> tuple[float, float, float]:
    try:
        first, second, third = (number(title, name, each) for each in value)  # type: ignore[attr-defined]
    except TypeError:
        raise TypeError(f"{title}: {name} is {value!r}, it must be three numbers") from None
    except ValueError as error:
        if str(error).startswith(title):
            raise
        raise ValueError(f"{title}: {name} is {value!r}, it must be three numbers") from None
    return first, second, third


def params_of(family: Family, options: Mapping[str, Any], step: int) -> Structure:
    """The library's params, but for the pointers; what is none of `family.defaults` is left alone."""
    made = _abi.sized(family.Params)
    for name in family.defaults:
        value = options[name]
        if name.endswith("_decays"):
            for k, one in enumerate(_three(family.title, name, value)):
                setattr(made, f"{name[:-1]}{k}", one)
        elif name == "pylo_cuda_compat":
            setattr(made, name, _flag(family.title, name, value))
        elif name == "num_steps":
            made.num_steps = _whole_training(family.title, value)
        elif name == "precision":
            made.precision = _choice(family.title, name, value, _lopt_abi.PRECISIONS)
        elif name == "max_grad_norm":
            setattr(made, name, 0.0 if value is None else _positive(family.title, name, value))
        else:
            setattr(made, name, number(family.title, name, value))
    made.step = counter(family.title, "step", step)
    return made


def _positive(title: str, name: str, value: object) -> float:
    made = number(title, name, value)
    if made <= 0:
        raise ValueError(f"{title}: {name} is {made:g}, it must be above 0, or None for no bound")
    return made


def bound(title: str, name: str, value: object) -> float | None:
    """A bound of a norm, or None for none."""
    return None if value is None else _positive(title, name, value)


def counter(title: str, name: str, value: object, least: int = 0) -> int:
    """A number of steps."""
    try:
        made = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{title}: {name} is {value!r}, it must be an integer") from None
    if not least <= made < 1 << 64:
        raise ValueError(f"{title}: {name} is {made}, it must lie in [{least}, 2^64)")
    return made


def _whole_training(title: str, value: object) -> int:
    if value is None:
        raise TypeError(
            f"{title}: num_steps is missing: say how many steps the whole training has, of which the network sees how "
            "many are done"
        )
    return counter(title, "num_steps", value, 1)


_NUMBERS = (ctypes.c_double * (1 + _lopt_abi.VELO_LOSS_BUFFER))()
_AT = ctypes.addressof(_NUMBERS)
_EMPTY = (0, _lopt_abi.VELO_HIDDEN)
# What VeLO's step takes besides, for no tensors: a loss, the LSTM's two states and the loss's buffer.
_NO_TENSORS = [
    Tensors([_AT], DTYPES["f32"], [(1,)]),
    Tensors([_AT], DTYPES["f32"], [_EMPTY]),
    Tensors([_AT], DTYPES["f32"], [_EMPTY]),
    Tensors([_AT + 8], DTYPES["f64"], [(_lopt_abi.VELO_LOSS_BUFFER,)]),
]


def check(family: Family, options: Mapping[str, Any]) -> None:
    """Has the library look at the options, over an empty list. ValueError or TypeError with a sentence."""
    params = params_of(family, options, 0)
    for k, name in enumerate(family.kinds):
        setattr(params, name, (k + 1) << 40)  # nothing is read there
    execution = _abi.sized(_abi.Exec)
    more = [tensors.address for tensors in _NO_TENSORS] if family is VELO else []
    ctypes.memset(_NUMBERS, 0xFF, 4)  # a loss that is NaN, of which VeLO takes nothing
    family.step(byref(execution), byref(params), 0, *[None] * 6, *more)


def scales(title: str, values: object, n: int) -> array | None:
    """Factors of the learning rate, one a tensor, for params.lr_scale; None: all 1."""
    if values is None:
        return None
    try:
        made = array("d", [number(title, f"lr_scale[{k}]", value) for k, value in enumerate(values)])  # type: ignore
    except TypeError as error:
        if "lr_scale[" in str(error):
            raise
        raise TypeError(f"{title}: lr_scale must be a sequence of numbers, one an array") from None
    if len(made) != n:
        raise ValueError(f"{title}: lr_scale has {len(made)} numbers, and there are {n} arrays")
    for k, value in enumerate(made):
        if value < 0:
            raise ValueError(f"{title}: lr_scale[{k}] is {value:g}, it must not be negative")
    return made


# ---- shapes ----
def check_shape(title: str, name: str, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of a parameter. ValueError for more dimensions than there may be."""
    try:
        made = tuple(operator.index(extent) for extent in shape)
    except TypeError:
        said = f"an array of the shape {tuple(shape.shape)}" if hasattr(shape, "shape") else repr(shape)
        raise TypeError(f"{title}: {name} is {said}, it must be a sequence of integers") from None
    if len(made) > _lopt_abi.MOST_DIMENSIONS:
        raise ValueError(
            f"{title}: {name} is {made}, of {len(made)} dimensions: from 0 to {_lopt_abi.MOST_DIMENSIONS} are possible"
        )
    if any(extent < 0 for extent in made):
        raise ValueError(f"{title}: {name} is {made}, and an extent is not negative")
    return made


def state_shapes(ties: int, shape: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The shapes of a parameter's state, in the order of STATE."""
    extents = array("q", shape)
    ndim, made = ctypes.c_int(), (ctypes.c_int64 * (_lopt_abi.MOST_DIMENSIONS + 1))()
    shapes = []
    for which in range(len(STATE)):
        lib.qn_lopt_state_shape(ties, which, len(extents), extents.buffer_info()[0], byref(ndim), made)
        shapes.append(tuple(made[: ndim.value]))
    return tuple(shapes)


def factored(ties: int, shape: Sequence[int]) -> tuple[int, int]:
    """The largest dimension and the second largest, or (-1, -1)."""
    extents, d = array("q", shape), (ctypes.c_int * 2)()
    lib.qn_lopt_factored(ties, len(extents), extents.buffer_info()[0], d)
    return d[0], d[1]


def first_axis(ties: int, entry: int, shape: Sequence[int]) -> int | None:
    """The dimension of a part of the state that is the parameter's first, or None where it has none."""
    d, name = factored(ties, shape), STATE[entry]
    if not shape or (name == "exp_avg_sq_c" and d[0] < 0):
        return None
    if (name == "exp_avg_sq_r" and d[0] == 0) or (name == "exp_avg_sq_c" and d[1] == 0):
        return None
    return 0 if name == "exp_avg_sq" else 1


class DeviceWeights:
    """Weights in a GPU's memory, for arrays of whom there is no allocator of a framework. Kept as long as this."""

    def __init__(self, values: array, device: tuple[int, int], stream: int) -> None:
        self._device = _abi.Device(*device)
        memory = ctypes.c_void_p()
        lib.qn_memory_allocate(self._device, 4 * len(values), byref(memory))
        self.address = memory.value or 0
        lib.qn_memory_write(self._device, stream, memory, values.buffer_info()[0], 4 * len(values))

    def __del__(self) -> None:
        if getattr(self, "address", 0) and lib is not None:
            lib.qn_memory_release(self._device, self.address)


def execution_on(device: tuple[int, int], order: _streams.Order, pool) -> _abi.Exec:
    """Where a call on that device runs."""
    made = _abi.Exec(sizeof(_abi.Exec), _abi.Device(*device))
    if device[0] == _streams.KINDS["cuda"]:
        made.stream = order.stream(device[1])
    elif pool is not None:
        made.pool = pool.handle
    return made
