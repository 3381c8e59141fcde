# SPDX-License-Identifier: Apache-2.0
"""Lion as JAX users hold an optimizer: init makes a state, apply makes new params and a new state. Settings and their
defaults are the op's; what is added here is the state, its types and schedules of the learning rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .. import _ops
from ._functions import apply
from ._keywords import entry, keywords, listing, signature, split

_OP = _ops.op("lion")
_STEP = "step"
_PARAM, _GRAD, _MOMENTUM, _MASTER = range(4)  # roles, in the description's order
_SETTINGS = tuple(k for k in keywords(_OP) if k.name != _STEP and not any(param.is_pointer for param in k.params))
_PER_CALL = tuple(k for k in keywords(_OP) if any(param.is_pointer for param in k.params))


class LionState(NamedTuple):
    """A tree like any other: step, a uint32 of (); exp_avgs, the momenta; masters, f32 originals of 16-bit params (None
    for f32 leaves), or None where none are kept."""

    step: jax.Array
    exp_avgs: Any
    masters: Any


class Lion:
    __signature__ = signature(_SETTINGS, exp_avg_dtype=None, master_weights=False)
    __doc__ = f"""{_OP.brief[0].upper()}{_OP.brief[1:]}, with its state.

    opt = quern.jax.Lion(1e-4, weight_decay=0.1)
    state = opt.init(params)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def train(params, state, batch):
        grads = jax.grad(loss)(params, batch)
        return opt.apply(grads, state, params)

This is no optax.GradientTransformation: those return updates, which somebody else adds, and a fused step has no
updates to return. `apply` takes its arguments in the order of optax's update and returns the new params.

{listing([entry(word) for word in _SETTINGS])}
    lr may also be a schedule, a function of the step's number (from 0) as optax has them.
    exp_avg_dtype: of the momenta; None: float32, whatever the params are.
    master_weights: keep an f32 original of every 16-bit param."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        bound = type(self).__signature__.bind(*args, **kwargs)
        bound.apply_defaults()
        self._exp_avg_dtype = jnp.dtype(bound.arguments["exp_avg_dtype"] or jnp.float32)
        self._master_weights = bool(bound.arguments["master_weights"])
        self._given: dict[str, object] = {}
        for word in _SETTINGS:
            self._given.update(split(_OP, word, bound.arguments[word.name]))
        self._lr: object | Callable = self._given["lr"]

    def init(self, params) -> LionState:
        """A state for these params (one array or a tree)."""

        def master(param):
            return param.astype(jnp.float32) if jnp.dtype(param.dtype).itemsize == 2 else None

        exp_avgs = jax.tree.map(lambda param: jnp.zeros_like(param, dtype=self._exp_avg_dtype), params)
        masters = jax.tree.map(master, params) if self._master_weights else None
        return LionState(jnp.zeros((), jnp.uint32), exp_avgs, masters)

    def apply(self, grads, state: LionState, params, *, donate: bool = False, **arrays) -> tuple[Any, LionState]:
        """(new params, new state). donate: params and state's arrays may be used up; inside a jit of your own its
        `donate_argnums` does that. arrays: what the op takes a call, by name: grad_scale, found_inf ..."""
        unknown = arrays.keys() - {keyword.name for keyword in _PER_CALL}
        if unknown:
            raise TypeError(f"lion: apply has no keyword {', '.join(sorted(unknown))}")
        lr = self._lr(state.step) if callable(self._lr) else self._lr
        given = {**self._given, **arrays, "lr": lr, _STEP: state.step}
        trees = {_PARAM: params, _GRAD: grads, _MOMENTUM: state.exp_avgs}
        if state.masters is not None:
            trees[_MASTER] = state.masters
        new = apply(_OP, trees, given, donate)
        masters = new[2] if len(new) > 2 else None
        return new[0], LionState(state.step + 1, new[1], masters)
