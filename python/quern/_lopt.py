# SPDX-License-Identifier: Apache-2.0
"""Learned optimizers, for both forms of them, on plain arrays and in PyTorch: options, constructors and documents from
the ops' descriptions, the library's params, and the shapes of a tensor's state. Nothing is stepped here."""

from __future__ import annotations

import ctypes
import functools
import inspect
import logging
import math
import operator
import os
import textwrap
from array import array
from collections.abc import Callable, Mapping, Sequence
from ctypes import Structure, byref, sizeof
from typing import Any

from . import _abi, _lopt_abi, _lopt_weights, _names, _ops, _streams
from ._lopt_abi import lib
from ._tensors import Tensors

_OF_FILE = (*_lopt_weights.MULTIPLIERS, *_lopt_weights.DECAYS)  # options that a file of weights may say
_NONE_IS_ZERO = ("max_grad_norm",)  # None for no bound, which the library calls 0


class Family:
    """One learned optimizer, as its op's description has it. title: the class's name, with which sentences begin;
    weights: by the keyword, their kind; shipped: the path of
    weights that come with quern, or None; options: by the keyword, the params that it fills; defaults: by the keyword,
    None where it must be given; ties: by the option's word, which of equal dimensions is the larger; state: roles of a
    tensor's state; shared: roles of the whole list (of VeLO)."""

    def __init__(self, title: str, op: str, ties: int) -> None:
        self.title, self.ties = title, {"pylo": ties, "jax": _lopt_abi.TIES_JAX}
        self.op = _ops.op(op)
        self.weights: dict[str, int] = {}
        self.options: dict[str, list[_ops.Param]] = {}
        for param in self.op.params.values():
            if param.type == _abi.PARAM_DEVICE_F32S:
                self.weights[param.name] = _lopt_weights.kind_of(int(param.most))
            elif not param.is_pointer and param.name != "step":
                name = param.name[:-1] + "s" if param.name[-1].isdigit() else param.name
                self.options.setdefault(name, []).append(param)
        self.defaults = {name: _default(name, params) for name, params in self.options.items()}
        self.state = [role for role in self.op.roles[2:] if not role.alone]
        self.shared = [role for role in self.op.roles if role.alone]
        path = os.path.join(os.path.dirname(__file__), "weights", f"{op}.safetensors")
        self.shipped = path if len(self.weights) == 1 and os.path.exists(path) else None


def _default(name: str, params: Sequence[_ops.Param]) -> Any:
    if len(params) > 1:
        return tuple(param.default for param in params)
    return None if _must_be_given(params[0]) or name in _NONE_IS_ZERO else params[0].default


def _must_be_given(param: _ops.Param) -> bool:
    return param.type == _abi.PARAM_U64 and float(param.default or 0) < param.least


SMALL_FC = Family("SmallFCLopt", "small_fc_lopt", _lopt_abi.TIES_LATER)
ELO = Family("ELO", "elo", _lopt_abi.TIES_LATER)
VELO = Family("VeLO", "velo", _lopt_abi.TIES_VELO)
CELO2 = Family("Celo2", "celo2", _lopt_abi.TIES_LATER)
STATE = tuple(role.framework_name for role in SMALL_FC.state)
ROWS = {"hidden": "lstm_init_state.0", "cell": "lstm_init_state.1"}  # of VeLO's state, and what they begin with


# ---- constructors ----
class Option:
    """A keyword that no param of the op is behind: its default, and its line of documentation."""

    def __init__(self, default: Any, doc: str) -> None:
        self.default, self.doc = default, doc


_GIVEN = inspect.Parameter.empty
_BY_PLACE, _BY_NAME = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
_WEIGHTS = {
    "weights": "weights of the network",
    "mlp": "weights of the small networks",
    "rnn": "weights of the LSTM",
}


def _words(family: Family, first: str, more: Mapping[str, Option]) -> list[inspect.Parameter]:
    """In the order of the signature: what is trained, weights, what must be given, what may change from step to step
    in device memory, and by name only all others."""
    made = [inspect.Parameter(first, _BY_PLACE)]
    made += [inspect.Parameter(name, _BY_PLACE, default=None if family.shipped else _GIVEN) for name in family.weights]
    from_file = "weights" in family.weights  # whose file may say the decays
    for name, params in family.options.items():
        by_place = params[0].hyper_offset is not None or _must_be_given(params[0])
        default = None if from_file and name in _OF_FILE else family.defaults[name]
        made.append(inspect.Parameter(name, _BY_PLACE if by_place else _BY_NAME, default=default))
    made += [inspect.Parameter(name, _BY_NAME, default=option.default) for name, option in more.items()]

    def place(word: inspect.Parameter) -> tuple:
        return word.kind, word.kind == _BY_PLACE and (0 if word.default is _GIVEN else 1 if word.default is None else 2)

    return sorted(made, key=place)


def constructor(family: Family, first: str, more: Mapping[str, Option]) -> Callable[..., None]:
    """An __init__ that calls self._made(first argument, weights by keyword, options by keyword)."""
    signature = inspect.Signature([inspect.Parameter("self", _BY_PLACE), *_words(family, first, more)])

    def __init__(self, *arguments: Any, **options: Any) -> None:
        try:
            bound = signature.bind(self, *arguments, **options)
        except TypeError as error:
            raise TypeError(f"{family.title}: {error}") from None
        bound.apply_defaults()
        given = dict(bound.arguments)
        del given["self"]
        trained, weights = given.pop(first), {name: given.pop(name) for name in family.weights}
        self._made(trained, weights, given)

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    __init__.__qualname__ = f"{family.title}.__init__"
    return __init__


def document(family: Family, first: str, of_first: str, more: Mapping[str, Option], last: str) -> str:
    """The class's docstring."""
    entries = [(first, of_first)]
    for name, kind in family.weights.items():
        where = _lopt_weights.FILES[kind]
        doc = f"{_WEIGHTS[name]}: the path of a safetensors file as {where} publishes it, or a dict of float32 arrays"
        doc += " under the same names"
        entries.append((name, doc + ("; None: those that come with quern" if family.shipped else "")))
    for name, params in family.options.items():
        doc, default = params[0].doc, family.defaults[name]
        if name in _NONE_IS_ZERO:
            doc = doc.replace("0: none", "None: none")
        elif "weights" in family.weights and name in _OF_FILE:
            doc += f"; None: as the file of weights says, else {default}"
        else:
            values = f" ({', '.join(map(repr, params[0].values))})" if params[0].values else ""
            doc += f"{values}; " + ("it must be given" if default is None else f"{default!r} unless given")
        entries.append((name, doc + (f"; {params[0].range}" if params[0].range else "")))
    entries += [(name, option.doc) for name, option in more.items()]
    head = f"{family.op.brief[0].upper()}{family.op.brief[1:]}. {family.op.doc}"
    lines = [textwrap.fill(f"{name} : {doc}", 100, subsequent_indent="    ") for name, doc in entries]
    return "\n\n".join([textwrap.fill(head, 100), "\n".join(lines), textwrap.fill(" ".join(last.split()), 100)]) + "\n"


# ---- weights that come with quern ----
_TESTED = 2048


def width_of(title: str, label: str, shape: Sequence[int], fan_in: float | None) -> float:
    """By what a parameter's learning rate is divided under weights that were trained so, as `quern meta-train` does: of
    two or more dimensions its inputs, all dimensions but the first, over `fan_in`, which the file says. None: by 1."""
    inputs = math.prod(shape[1:])
    if fan_in is None or len(shape) < 2 or inputs == 0:
        return 1.0
    if inputs > _TESTED:
        logging.getLogger("quern").warning(
            "%s: %s has %d inputs, and quern's weights were tested with up to %d: set its width_mult or lr_scale, or "
            "compare with another optimizer",
            title,
            label,
            inputs,
            _TESTED,
        )
    return inputs / fan_in


def given_weights(family: Family, weights: Mapping[str, Any]) -> tuple[dict[str, Any], float | None]:
    """The weights, of which None is what comes with quern, and `fan_in` of width_of()."""
    made = {name: family.shipped if value is None else value for name, value in weights.items()}
    found = [_lopt_weights.fan_in(f"{family.title}: {name}", value) for name, value in made.items()]
    return made, found[0] if len(found) == 1 else None


# ---- options ----
def past_end(title: str, step: int, num_steps: int) -> bool:
    """Is this step one that the training was not to have? Then the log says so."""
    if step < num_steps:
        return False
    logging.getLogger("quern").warning(
        "%s: step %d is taken, and num_steps is %d: the network knows no training past its end, and takes steps that "
        "it was not trained for; num_steps is to be the length of the whole training",
        title,
        step + 1,
        num_steps,
    )
    return True


def with_decays(family: Family, weights: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, of which what is None and a weights' file may say becomes what that says, else the default."""
    made, said = dict(options), {}
    for name, value in weights.items():
        said.update(_lopt_weights.decays(f"{family.title}: {name}", value))
    for name in _OF_FILE:
        if name in family.defaults and made.get(name) is None:
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


def _value(title: str, param: _ops.Param, value: object) -> float | int:
    """As the params struct holds it. Ranges of numbers are the library's to check."""
    name = param.name
    if param.type == _abi.PARAM_BOOL:
        return _flag(title, name, value)
    if param.type == _abi.PARAM_ENUM:
        if value not in param.values:
            near = _names.nearest(value, param.values) if isinstance(value, str) else None
            raise ValueError(
                f"{title}: {name} is {value!r}, it must be one of {', '.join(map(repr, param.values))}"
                + (f"; did you mean {near!r}?" if near else "")
            )
        return param.values.index(value)  # type: ignore[arg-type]
    if param.type == _abi.PARAM_U64:
        if value is None:
            raise TypeError(
                f"{title}: {name} is missing: say how many steps the whole training has, of which the network sees "
                "how many are done"
            )
        return counter(title, name, value, max(0, int(param.least)))
    if name in _NONE_IS_ZERO:
        return 0.0 if value is None else _positive(title, name, value)
    return number(title, name, value)


def params_of(family: Family, options: Mapping[str, Any], step: int) -> Structure:
    """The library's params, but for the pointers."""
    made = _abi.sized(family.op.Params)
    for name, params in family.options.items():
        value = options[name]
        if len(params) > 1:
            for param, one in zip(params, _three(family.title, name, value)):
                setattr(made, param.name, one)
        else:
            setattr(made, name, _value(family.title, params[0], value))
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


def check(family: Family, options: Mapping[str, Any]) -> None:
    """Has the library check the options, over an empty list. ValueError or TypeError with a sentence."""
    params = params_of(family, options, 0)
    for k, name in enumerate(family.weights):
        setattr(params, name, (k + 1) << 40)  # nothing is read there
    memory = (ctypes.c_double * 64)()
    ctypes.memset(memory, 0xFF, 4)  # a loss that is NaN, with which VeLO's step changes nothing
    roles: list[Tensors | None] = [None] * len(family.op.roles)
    at = ctypes.addressof(memory)
    for role in family.shared:
        shape = role_shape(family, role, 0, ())
        roles[role.index] = Tensors([at], dtype_of(family, role), [shape])
        at += 8 * math.prod(shape)
    family.op.step(_abi.sized(_abi.Exec), params, 0, family.op.roles_array(roles))


def dtype_of(family: Family, role: _ops.Role) -> int:
    """The library's code of a role's storage type, of which there is one."""
    return family.op.rows[0][role.index][0]


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


def role_shape(family: Family, role: _ops.Role, n: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of a role's tensor that belongs to a parameter of this shape, in a list of n."""
    extents, ndim, made = array("q", shape), ctypes.c_int(), (ctypes.c_int64 * _abi.MAX_NDIM)()
    at = extents.buffer_info()[0]
    lib.qn_op_role_shape(family.op.info, role.index, n, len(extents), at, byref(ndim), made)
    return tuple(made[: ndim.value])


def state_shapes(family: Family, ties: int, shape: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The shapes of a parameter's state, in the order of STATE."""
    return _state_shapes(family, ties, tuple(shape))


@functools.lru_cache(4096)
def _state_shapes(family: Family, ties: int, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    if len(shape) < 2:  # nothing is factored: as the op's description has it
        return tuple(role_shape(family, role, 1, shape) for role in family.state)
    extents, ndim, made = array("q", shape), ctypes.c_int(), (ctypes.c_int64 * _abi.MAX_NDIM)()
    shapes = []
    for entry in range(len(STATE)):
        lib.qn_lopt_state_shape(ties, entry, len(shape), extents.buffer_info()[0], byref(ndim), made)
        shapes.append(tuple(made[: ndim.value]))
    return tuple(shapes)


def check_ties(title: str, what: str, said: object, ties: str) -> None:
    """ValueError where a state that is loaded was made under other ties; those of old had no such word."""
    made = SMALL_FC.defaults["ties"] if said is None else said
    if made != ties:
        raise ValueError(
            f"{title}: {what} was made with ties={made!r}, and the optimizer has ties={ties!r}: of equal dimensions "
            f"its means are along others; make the optimizer with ties={made!r}"
        )


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
