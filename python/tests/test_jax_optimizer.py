# SPDX-License-Identifier: Apache-2.0
"""quern.jax.Lion, the optimizer: its steps are the op's with the state that it keeps, compiled once and in place."""

import pytest

pytest.importorskip("numpy")
jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import quern.jax  # noqa: E402
from jax_lists import DEVICES, NUMPY, direct, found, lists, pointers, same  # noqa: E402

P, G, M = (np.full(4, x, np.float32) for x in (1, 2, 3))


@pytest.fixture(autouse=True, params=DEVICES)
def device(request):
    """jax's default device while a test runs."""
    kind = found(request.param)
    with jax.default_device(kind):
        yield kind


def test_the_optimizer_is_the_op_and_a_state():
    rows = {"a": "bf16/bf16/f32/f32", "b": "f32/f32/f32/none"}
    leaves = {name: lists(row, [(600,)]) for name, row in rows.items()}
    opt = quern.jax.Lion(lambda step: 0.25 / (1 + step), weight_decay=0.5, betas=(0.8, 0.9), master_weights=True)
    params = {name: jnp.array(leaf[0][0], copy=True) for name, leaf in leaves.items()}
    state = opt.init(params)
    assert state.masters["b"] is None and state.masters["a"].dtype == jnp.float32
    assert {leaf.dtype for leaf in jax.tree.leaves(state.exp_avgs)} == {jnp.dtype(jnp.float32)}
    for leaf in leaves.values():
        leaf[2] = [np.zeros((600,), np.float32)]
    leaves["a"][3] = [leaves["a"][0][0].astype(np.float32)]
    step = jax.jit(lambda params, state, grads: opt.apply(grads, state, params), donate_argnums=(0, 1))
    for k in range(3):
        grads = {name: jnp.asarray(leaf[1][0]) for name, leaf in leaves.items()}
        before = pointers((params, state.exp_avgs, state.masters))
        params, state = step(params, state, grads)
        assert pointers((params, state.exp_avgs, state.masters)) == before
        lr = float(np.float32(0.25) / np.float32(1 + k))
        for name in leaves:
            leaves[name] = direct(leaves[name], lr=lr, weight_decay=0.5, beta1=0.8, beta2=0.9)
    assert same(params, {name: leaf[0][0] for name, leaf in leaves.items()})
    assert same(state.exp_avgs, {name: leaf[2][0] for name, leaf in leaves.items()})
    assert same(state.masters["a"], leaves["a"][3][0])
    assert int(state.step) == 3 and step._cache_size() == 1


def test_the_optimizer_draws_other_numbers_each_step():
    opt = quern.jax.Lion(1e-4, rounding="stochastic", seed=3, exp_avg_dtype=jnp.bfloat16)
    arrays = lists("bf16/bf16/bf16/none", [(4096,)])
    params, grads = jnp.asarray(arrays[0][0]), jnp.asarray(arrays[1][0])
    state = opt.init(params)
    assert state.masters is None and state.exp_avgs.dtype == jnp.bfloat16
    arrays[2] = [np.zeros(4096, NUMPY["bf16"])]
    for k in range(3):
        params, state = opt.apply(grads, state, params)
        arrays = direct(arrays, lr=1e-4, rounding="stochastic", seed=3, step=k)
    assert same([params, state.exp_avgs], [arrays[0][0], arrays[2][0]])


def test_the_optimizers_words():
    with pytest.raises(TypeError, match="'weight_decy'"):
        quern.jax.Lion(1e-4, weight_decy=0.1)
    opt = quern.jax.Lion()
    state = opt.init(jnp.asarray(P))
    with pytest.raises(TypeError, match="apply has no keyword momentum"):
        opt.apply(G, state, P, momentum=1)
    assert same(opt.apply(G, state, P, found_inf=True)[0], P)
    assert not same(opt.apply(G, state, P, found_inf=False)[0], P)
