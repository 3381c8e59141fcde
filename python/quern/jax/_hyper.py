# SPDX-License-Identifier: Apache-2.0
"""An op's hyper struct as an array in device memory: the numbers that may change from step to step without compiling
again. Numbers of Python's go in as the doubles that they are; arrays are widened by integer arithmetic, because XLA has
no doubles unless jax is told so, and so that no value, subnormals included, is changed."""

from __future__ import annotations

import numbers

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .. import _abi, _ops


def is_number(value) -> bool:
    """Known on the host already, so no device is asked."""
    return isinstance(value, (numbers.Real, np.generic)) or (isinstance(value, np.ndarray) and value.ndim == 0)


def base(op: _ops.Op, values: dict[str, object]) -> np.ndarray:
    """The struct as 32-bit words, with the defaults where nothing is known yet. TypeError, ValueError as Op.set."""
    if op.Hyper is None:
        return np.empty(0, np.uint32)
    struct, params = op.Hyper(), op.defaults()
    for name in op.hyper:
        if name in values:
            op.set(params, name, values[name])
        setattr(struct, name, getattr(params, name))
    return np.frombuffer(bytes(struct), np.uint32)


def checked(op: _ops.Op, name: str, value) -> jax.Array:
    """An array, traced or not, as the value of a member: TypeError, ValueError if it cannot be one."""
    whole = op.params[name].type == _abi.PARAM_U64
    try:
        array = jnp.asarray(value)
    except TypeError:
        raise TypeError(f"{op.name}: {name} is {value!r}, it must be a number or an array of ()") from None
    if not jnp.issubdtype(array.dtype, jnp.integer if whole else jnp.floating):
        raise TypeError(
            f"{op.name}: {name} is an array of {array.dtype}, it must be {'an integer' if whole else 'a float'}"
        )
    if array.shape != ():
        raise ValueError(f"{op.name}: {name} has the shape {array.shape}, it must be one number")
    return array


def _words_of_single(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The low and high word of the double that equals a float32. The exponent's bias grows by 896; a subnormal's
    significand is first shifted up until its leading one, which a double does not store, drops out."""
    bits = lax.bitcast_convert_type(x, jnp.uint32)
    sign, exponent, fraction = bits & np.uint32(1 << 31), (bits >> 23) & 0xFF, bits & 0x7FFFFF
    shift = lax.clz(fraction) - 8  # of a subnormal: from 1 to 23
    subnormal = (exponent == 0) & (fraction != 0)
    fraction = jnp.where(subnormal, (fraction << shift) & 0x7FFFFF, fraction)
    wide = jnp.where(subnormal, 897 - shift, exponent + 896)
    wide = jnp.where(exponent == 0xFF, jnp.uint32(0x7FF), wide)  # infinities, NaN
    wide = jnp.where(bits << 1 == 0, jnp.uint32(0), wide)
    return fraction << 29, sign | wide << 20 | fraction >> 3


def _words(x: jax.Array) -> jax.Array:
    if x.dtype.itemsize == 8:
        return lax.bitcast_convert_type(x, jnp.uint32)
    if jnp.issubdtype(x.dtype, jnp.integer):
        return jnp.stack([x.astype(jnp.uint32), jnp.uint32(0)])  # modulo 2^32, as the op takes it
    return jnp.stack(_words_of_single(x.astype(jnp.float32)))


def fill(op: _ops.Op, base_words, names: tuple[str, ...], arrays) -> jax.Array:
    """The base with the members `names` taken from arrays (as `checked` gave them)."""
    live = dict(zip(names, arrays))
    pieces = []
    for name, offset in op.hyper.items():
        at = offset // 4
        pieces.append(_words(live[name]) if name in live else base_words[at : at + 2])
    return jnp.concatenate(pieces) if pieces else base_words  # of an op without such a struct
