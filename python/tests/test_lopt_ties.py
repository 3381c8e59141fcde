# SPDX-License-Identifier: Apache-2.0
"""The option `ties` of the learned optimizers on plain arrays: JAX's choice is that of the tensor in JAX's layout, the
word is checked, a state says under which choice it was made, and one of the other choice is refused. Catches a choice
that part of the package does not follow, such as the shapes of states, and a state that is read as the other's."""

import lopt_golden
import numpy as np
import pytest
import quern
import velo_golden
from lopt_arrays import arrays, copied, same_state

WEIGHTS = lopt_golden.weights()
SHAPES = [(6, 6), (5, 3, 5), (4, 4, 3), (5, 5, 3, 3), (3, 2, 3, 3), (4, 7), (5,)]


def small_fc(shapes=SHAPES, **options):
    return quern.SmallFCLopt(shapes, WEIGHTS, **options)


def elo(shapes=SHAPES, **options):
    return quern.ELO(shapes, WEIGHTS, **options)


def velo(shapes=SHAPES, **options):
    return quern.VeLO(shapes, *velo_golden.weights(), 10, **options)


def celo2(shapes=SHAPES, **options):
    return quern.Celo2(shapes, lopt_golden.celo2_weights(), **options)


KINDS = [small_fc, elo, velo, celo2]


def step(optimizer, params, grads):
    optimizer.step(params, grads, *([2.0] if isinstance(optimizer, quern.VeLO) else []))


def stepped(optimizer, steps=2):
    params = arrays(0, optimizer.shapes)
    for t in range(steps):
        step(optimizer, params, arrays(1 + t, optimizer.shapes))
    return params


def as_jax(array):
    """(outputs, inputs, places) as (places, inputs, outputs)."""
    return np.ascontiguousarray(array.transpose([*range(2, array.ndim), 1, 0]) if array.ndim > 1 else array)


@pytest.mark.parametrize("kind", [small_fc, elo])
def test_jax_is_the_later_dimension_of_jaxs_layout(kind):
    """There PyLO's choice of small_fc_lopt is JAX's own: the later of equal dimensions is the larger."""
    params = arrays(0, SHAPES)
    theirs = [as_jax(p) for p in params]
    optimizer, other = kind(ties="jax"), kind([p.shape for p in theirs])
    for t in range(1, 4):
        grads, before = arrays(t, SHAPES), [p.copy() for p in params]
        step(optimizer, params, grads)
        step(other, theirs, [as_jax(g) for g in grads])
        for p, q, old in zip(params, theirs, before):
            assert lopt_golden.share_of_tolerance(as_jax(p), q, as_jax(old)) <= 1, p.shape


@pytest.mark.parametrize("kind", KINDS)
def test_only_tensors_of_equal_dimensions_move_otherwise(kind):
    options = {"exp_mult": 0.5, "lr": 1.0}
    one, two = (stepped(kind(ties=ties, **options), 1) for ties in ("pylo", "jax"))
    assert [(p == q).all() for p, q in zip(one[-2:], two[-2:])] == [True, True]
    differ = [not (p == q).all() for p, q in zip(one[:-2], two[:-2])]
    assert differ == ([True] * 5 if kind is not velo else [False, False, False, True, True])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("Jax", "ties is 'Jax', it must be one of 'pylo', 'jax'; did you mean 'jax'?"),
        ("pyl", "ties is 'pyl', it must be one of 'pylo', 'jax'; did you mean 'pylo'?"),
        (1, "ties is 1, it must be one of 'pylo', 'jax'"),
        (None, "ties is None, it must be one of 'pylo', 'jax'"),
    ],
)
def test_other_words_are_refused(kind, word, sentence):
    with pytest.raises(ValueError) as refused:
        kind(ties=word)
    assert str(refused.value).endswith(sentence)


@pytest.mark.parametrize("kind", KINDS)
def test_it_cannot_change(kind):
    optimizer = kind(ties="jax")
    optimizer.ties = "jax"
    with pytest.raises(ValueError, match="ties is 'jax' and cannot change, because the state is of it"):
        optimizer.ties = "pylo"
    assert optimizer.ties == "jax"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shapes", [SHAPES, [(6, 6)]], ids=["shapes differ", "shapes do not"])
@pytest.mark.parametrize("steps", [0, 2])
def test_a_state_of_the_other_choice_is_refused(kind, shapes, steps, tmp_path):
    optimizer, other = kind(shapes), kind(shapes, ties="jax")
    stepped(other, steps)
    np.savez(tmp_path / "state.npz", **other.state_dict())
    saved, kept = dict(np.load(tmp_path / "state.npz")), copied(optimizer.state_dict())
    with pytest.raises(ValueError, match="the state was made with ties='jax', and the optimizer has ties='pylo'"):
        optimizer.load_state_dict(saved)
    assert same_state(optimizer.state_dict(), kept)
    again = kind(shapes, ties="jax")
    again.load_state_dict(saved)
    assert same_state(again.state_dict(), copied(other.state_dict()))


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_of_old_is_pylos(kind):
    optimizer = kind()
    stepped(optimizer)
    saved = dict(optimizer.state_dict())
    assert saved.pop("ties") == "pylo"
    again = kind()
    again.load_state_dict(saved)
    assert same_state(again.state_dict(), copied(optimizer.state_dict()))
    with pytest.raises(ValueError, match="the state was made with ties='pylo', and the optimizer has ties='jax'"):
        kind(ties="jax").load_state_dict(saved)


def test_an_embedding_is_a_vector_under_both():
    optimizers = [celo2([(5, 3, 5), (6, 6)], is_embedding=[False, True], ties=ties) for ties in ("pylo", "jax")]
    one, two = map(stepped, optimizers)
    assert not (one[0] == two[0]).all() and (one[1] == two[1]).all()
    shapes = [[optimizer.state_dict()[f"exp_avg_sq_r.{k}"].shape for k in (0, 1)] for optimizer in optimizers]
    assert shapes == [[(3, 5, 3), (0,)], [(3, 3, 5), (0,)]]
