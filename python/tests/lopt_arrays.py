# SPDX-License-Identifier: Apache-2.0
"""Lists of small arrays for the tests of learned optimizers on plain arrays, and what is asked of all of them alike."""

import inspect

import lopt_golden
import numpy as np
from quern import _lopt

SHAPES = [(3, 4), (5,), ()]


def arrays(seed=0, shapes=SHAPES):
    draw = np.random.default_rng(seed)
    return [draw.normal(0, 0.02, shape).astype(np.float32).reshape(shape) for shape in shapes]


def copied(state):
    return {name: np.copy(value) for name, value in state.items()}


def same(lists, others):
    """Of arrays."""
    return len(lists) == len(others) and all((p == q).all() for p, q in zip(lists, others))


def same_state(state, other):
    return state.keys() == other.keys() and all((value == other[name]).all() for name, value in state.items())


def check_golden_step(params, before, wanted):
    """The parameters are within the tolerance of what is wanted after a step from `before`."""
    for p, old, values in zip(params, before, wanted):
        assert lopt_golden.share_of_tolerance(p, values, old) <= 1, p.shape


def check_golden_state(saved, k, wanted):
    """Of array k, in a dictionary of state."""
    for name, values in zip(_lopt.STATE, wanted):
        np.testing.assert_allclose(saved[f"{name}.{k}"].ravel(), values, rtol=2e-6, atol=1e-7)


def check_option(made, stepped, name, value):
    """An option moves what is stepped, and as much if it is said later."""
    plain, given, late = made(), made(**{name: value}), made()
    setattr(late, name, value)
    one, two, three = map(stepped, (plain, given, late))
    assert not same(one, two) and same(two, three)


def check_signature(kind):
    """The constructor has each option of its family, with the default that is held against the header's; but where a
    file of weights may say the decays, None, which becomes it."""
    parameters = inspect.signature(kind).parameters
    defaults = dict(kind._family.defaults)
    if "weights" in kind._family.weights:
        defaults.update(
            dict.fromkeys({"m_decays", "v_decay", "factor_decays", "step_mult", "exp_mult"} & defaults.keys())
        )
    assert {name: parameters[name].default for name in defaults} == defaults
