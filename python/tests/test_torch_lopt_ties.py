# SPDX-License-Identifier: Apache-2.0
"""The option `ties` of quern.torch's learned optimizers: steps as on plain arrays, groups of both choices, checkpoints
of the other choice and of old, and PyLO's. Catches a group that is stepped under another's choice, and a state that
goes on under the other one."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("numpy")

import lopt_golden  # noqa: E402
import quern  # noqa: E402
import velo_golden  # noqa: E402
from torch_lopt_models import ELO, MLP, RNN, WEIGHTS, SmallFCLopt, VeLO  # noqa: E402
from torch_models import bits, clones, give_grads, parameters, same  # noqa: E402

Celo2 = quern.torch.Celo2
SHAPES = [(6, 6), (5, 3, 5), (5, 5, 3, 3), (3, 2, 3, 3), (4, 7), (5,)]


CELO2 = {name: torch.from_numpy(array) for name, array in lopt_golden.celo2_weights().items()}


def made(kind, params, **options):
    if kind is VeLO:
        return kind(params, MLP, RNN, 100, **options)
    return kind(params, CELO2 if kind is Celo2 else WEIGHTS, **options)


def step(optimizer, params, seed):
    give_grads(params, seed)
    optimizer.step(*([2.0] if isinstance(optimizer, VeLO) else []))


def trained(kind, steps=2, **options):
    params = parameters(SHAPES)
    optimizer = made(kind, params, **options)
    for seed in range(steps):
        step(optimizer, params, seed)
    return params, optimizer


@pytest.mark.parametrize("kind", [SmallFCLopt, ELO, VeLO, Celo2])
@pytest.mark.parametrize("ties", ["pylo", "jax"])
def test_steps_are_those_on_arrays(kind, ties):
    arrays = [p.detach().clone().numpy() for p in parameters(SHAPES)]
    weights = velo_golden.weights() if kind is VeLO else [lopt_golden.weights()]
    weights = [lopt_golden.celo2_weights()] if kind is Celo2 else weights
    number = [100] if kind is VeLO else []
    other = getattr(quern, kind.__name__)(SHAPES, *weights, *number, ties=ties, lr=0.5)
    params = parameters(SHAPES)
    optimizer = made(kind, params, ties=ties, lr=0.5)
    for seed in range(2):
        step(optimizer, params, seed)
        other.step(arrays, [p.grad.numpy() for p in params], *([2.0] if kind is VeLO else []))
    assert all((p.detach().numpy() == q).all() for p, q in zip(params, arrays))


@pytest.mark.parametrize("kind", [SmallFCLopt, ELO, Celo2])
def test_groups_have_each_its_own(kind):
    params, grown = parameters(SHAPES), parameters(SHAPES)
    optimizer = made(kind, [{"params": params[:2], "ties": "jax"}, {"params": params[2:]}])
    for seed in range(2):
        step(optimizer, params, seed)
    for ties, part in (("jax", slice(0, 2)), ("pylo", slice(2, None))):
        grown = parameters(SHAPES)
        other = made(kind, grown, ties=ties)
        for seed in range(2):
            step(other, grown, seed)
        assert same(params[part], grown[part])
    assert [group["ties"] for group in optimizer.state_dict()["param_groups"]] == ["jax", "pylo"]


def test_velos_groups_have_one():
    params = parameters(SHAPES)
    with pytest.raises(ValueError, match="VeLO: ties is 'jax' in group 0 and 'pylo' in group 1"):
        made(VeLO, [{"params": params[:2], "ties": "jax"}, {"params": params[2:]}])


@pytest.mark.parametrize("kind", [SmallFCLopt, ELO, VeLO, Celo2])
def test_other_words_are_refused(kind):
    with pytest.raises(ValueError, match=f"{kind.__name__}: ties is 'jxa', it must be one of .*; did you mean 'jax'?"):
        made(kind, parameters(SHAPES), ties="jxa")


@pytest.mark.parametrize("kind", [SmallFCLopt, ELO, VeLO, Celo2])
def test_it_changes_before_the_first_step_alone(kind):
    params = parameters(SHAPES)
    optimizer = made(kind, params)
    optimizer.param_groups[0]["ties"] = "jax"
    step(optimizer, params, 0)
    wanted, _ = trained(kind, 1, ties="jax")
    assert same(params, wanted)
    before = bits(params)
    optimizer.param_groups[0]["ties"] = "pylo"
    with pytest.raises(ValueError, match="ties is 'pylo', and the group's state was made with 'jax': it cannot change"):
        step(optimizer, params, 1)
    assert same(params, before)


@pytest.mark.parametrize("kind", [SmallFCLopt, ELO, VeLO, Celo2])
def test_checkpoints_of_the_other_choice_are_refused_and_those_of_old_are_pylos(kind):
    params, optimizer = trained(kind, ties="jax")
    saved = copy.deepcopy(optimizer.state_dict())
    other = made(kind, clones(params))
    with pytest.raises(ValueError, match="group 0 of the state that is loaded was made with ties='jax', and the"):
        other.load_state_dict(saved)
    assert not other.state and other.param_groups[0]["step"] == 0
    others = clones(params)
    again = made(kind, others, ties="jax")
    again.load_state_dict(saved)
    step(optimizer, params, 5)
    step(again, others, 5)
    assert same(params, others)
    _, old = trained(kind)
    saved = copy.deepcopy(old.state_dict())
    assert saved["param_groups"][0].pop("ties") == "pylo"
    other.load_state_dict(saved)
    assert other.param_groups[0]["ties"] == "pylo" and other.param_groups[0]["step"] == 2
    with pytest.raises(ValueError, match="was made with ties='pylo', and the optimizer has ties='jax'"):
        made(kind, clones(params), ties="jax").load_state_dict(saved)


@pytest.mark.parametrize("kind", [SmallFCLopt, VeLO])
@pytest.mark.parametrize("way", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))])
def test_copies_keep_it(kind, way):
    params, optimizer = trained(kind, ties="jax")
    others, other = way((params, optimizer))
    step(optimizer, params, 5)
    step(other, others, 5)
    assert same(params, others)


@pytest.mark.parametrize("kind", [SmallFCLopt, ELO, VeLO])
def test_pylos_checkpoints_are_of_its_own(kind):
    params, optimizer = trained(kind, ties="jax")
    _, theirs = trained(kind)
    saved = quern.torch.export_pylo(theirs, "naive")
    sentence = "group 0 has ties='jax', and PyLO's states are of ties='pylo'"
    with pytest.raises(ValueError, match=sentence):
        quern.torch.export_pylo(optimizer, "naive")
    with pytest.raises(ValueError, match=sentence):
        quern.torch.import_pylo(optimizer, saved)


def test_celo2_has_no_pylos_checkpoints():
    _, optimizer = trained(Celo2)
    with pytest.raises(TypeError, match="the optimizer is Celo2, it must be a SmallFCLopt, ELO or VeLO"):
        quern.torch.export_pylo(optimizer, "naive")
