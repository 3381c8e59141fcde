# SPDX-License-Identifier: Apache-2.0
"""quern.torch.VeLO: its steps against the materialising form in float64, groups, the loss, state, and what is refused,
which changes nothing. Catches rows of the LSTM that go with another parameter, groups' numbers that are another's."""

import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("numpy")

import quern  # noqa: E402
from quern.bench import materialised_velo  # noqa: E402
from torch_lopt_models import MLP, RNN, doubled, share  # noqa: E402
from torch_models import bits, clones, give_grads, parameters, same  # noqa: E402

DOUBLES = [doubled(part) for part in (MLP, RNN)]
SHAPES = [(7, 5), (6, 6), (64,), (), (3, 4, 4), (4, 4, 3, 3), (2, 1, 3, 2, 4), (33, 31)]
STEPS = 50


def velo(params, num_steps=STEPS, **options):
    return quern.torch.VeLO(params, MLP, RNN, num_steps, **options)


def follow(optimizer, params, lrs, decays, steps=4):
    """Both go on, the optimizer within the tolerance."""
    oracle = materialised_velo.Session(*DOUBLES, [p.detach().double() for p in params], STEPS)
    for seed in range(steps):
        give_grads(params, seed)
        before, loss = [p.clone() for p in oracle.params], (2.5, 2.25, 9.0, 1.75)[seed % 4]
        oracle.step([p.grad.double() for p in params], loss, lrs, decays)
        optimizer.step(torch.tensor(loss))
        worst = max(share(p, q, old) for p, q, old in zip(params, oracle.params, before))
        assert worst <= 1, (seed, worst)


def trained(steps=3, **options):
    params = parameters([(20, 3), (40,)], scale=1.0)
    optimizer = velo(params, **options)
    for seed in range(steps):
        give_grads(params, seed)
        optimizer.step(2.0 - 0.25 * seed)
    return params, optimizer


def test_many_shapes_over_several_steps():
    params = parameters(SHAPES)
    follow(velo(params, lr=0.8, weight_decay=0.01), params, [0.8] * len(SHAPES), [0.01] * len(SHAPES))


def test_groups_have_their_rates_and_decays():
    params = parameters(SHAPES[:4])
    says = [dict(lr=0.5), dict(weight_decay=0.1), dict(width_mult=4.0), dict(lr=0.25, weight_decay=0.05)]
    optimizer = velo([{"params": [p], **group} for p, group in zip(params, says)])
    follow(optimizer, params, [0.5, 1.0, 0.25, 0.25], [0.0, 0.1, 0.0, 0.05])


def test_num_steps_is_required():
    with pytest.raises(TypeError, match="VeLO: num_steps is missing: say how many steps the whole training has"):
        quern.torch.VeLO(parameters([(2,)]), MLP, RNN)


@pytest.mark.parametrize("way", ["number", "tensor", "closure", "keyword", "float64"])
def test_losses_of_all_forms(way):
    params, others = (parameters([(5, 4), (6,)]) for _ in range(2))
    optimizer, other = velo(params), velo(others)
    loss = torch.tensor(1.5, requires_grad=True)
    for seed in range(4):
        give_grads(params, seed)
        give_grads(others, seed)
        other.step(1.5)
        if way == "closure":
            assert optimizer.step(lambda: loss * torch.ones(())) == 1.5
        elif way == "keyword":
            optimizer.step(loss=loss)
        else:
            optimizer.step({"number": 1.5, "tensor": loss, "float64": loss.double()}[way])
    assert same(params, others)


@pytest.mark.parametrize("decays", [(0.0, 0.0), (0.1, 0.0)])
@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_skips_the_step(loss, decays):
    params = parameters([(5, 4), (6,)])
    optimizer = velo([{"params": [p], "weight_decay": d} for p, d in zip(params, decays)])
    give_grads(params, 0)
    optimizer.step(1.0)
    kept, state = bits(params), copy.deepcopy(optimizer.state_dict()["state"])
    assert optimizer.skipped_steps == 0
    optimizer.step(torch.tensor(loss))
    assert same(params, kept) and optimizer.skipped_steps == 1
    now = optimizer.state_dict()["state"]
    assert all(torch.equal(now[k][name], state[k][name]) for k in state for name in state[k])


REFUSED = {
    "no gradient": (lambda p, o: setattr(p, "grad", None), {}, ValueError, "parameter 0 of group 1 has no gradient"),
    "no loss": (lambda p, o: None, dict(loss=None), ValueError, "the loss is missing"),
    "no number": (lambda p, o: None, dict(loss="1"), TypeError, "the loss is '1'"),
    "a word": (lambda p, o: None, dict(loss=True), TypeError, "the loss is True, it must be a number"),
    "complex": (lambda p, o: None, dict(loss=torch.tensor(1j)), TypeError, "of torch.complex64, it must be a real"),
    "two losses": (lambda p, o: None, dict(loss=torch.ones(2)), ValueError, r"the loss has the shape \(2,\)"),
    "num_steps": (lambda p, o: o.param_groups[1].update(num_steps=7), {}, ValueError, "num_steps is 50 in .* 0 and 7"),
    "step_mult": (lambda p, o: o.param_groups[1].update(step_mult=1.0), {}, ValueError, "groups differ in lr, weight"),
    "bfloat16": (lambda p, o: setattr(p, "data", p.data.bfloat16()), {}, TypeError, "is torch.bfloat16"),
    "a row": (lambda p, o: o.state[p].update(hidden=torch.zeros(3)), {}, ValueError, r"hidden of .* \(512,\)"),
    "a buffer": (lambda p, o: o.param_groups[0].update(loss_buffer=3), {}, ValueError, "the loss_buffer must be"),
    "a buffer of float32": (
        lambda p, o: o.param_groups[0].update(loss_buffer=torch.zeros(22)), {}, ValueError, "the loss_buffer must be"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_refused_and_nothing_has_changed(what):
    spoil, words, error, sentence = REFUSED[what]
    params = parameters([(6, 6), (4, 5)])
    optimizer = velo([{"params": params[:1]}, {"params": params[1:]}])
    give_grads(params, 0)
    optimizer.step(1.0)
    give_grads(params, 1)
    spoil(params[1], optimizer)
    kept, states = bits(params), copy.deepcopy([optimizer.state[p] for p in params])
    with pytest.raises(error, match=sentence):
        optimizer.step(**{"loss": 1.0, **words})
    assert same(params, kept)
    for p, state in zip(params, states):
        assert all(torch.equal(optimizer.state[p][name], value) for name, value in state.items())
    assert [group["step"] for group in optimizer.param_groups] == [1, 1]


def test_what_is_frozen_or_empty_takes_no_part():
    a, b, frozen, empty = parameters([(3, 4), (5,), (2,), (0, 3)])
    others = clones([a, b])
    frozen.requires_grad_(False)
    optimizer, other = velo([frozen, a, empty, b]), velo(others)
    for seed in range(2):
        give_grads([a, b], seed)
        give_grads(others, seed)
        optimizer.step(1.0)
        other.step(1.0)
    assert same([a, b], others) and set(optimizer.state) == {a, b}


def test_rows_stay_with_their_parameters():
    params, others = (parameters([(5, 4), (6,), (3, 3)]) for _ in range(2))
    optimizer, other = velo(params), velo([{"params": others[:1]}, {"params": others[1:]}])
    for seed in range(4):
        give_grads(params, seed)
        give_grads(others, seed)
        if seed == 2:  # rows by themselves, in another order
            for q in reversed(others):
                other.state[q] = {name: value.clone() for name, value in other.state[q].items()}
        optimizer.step(1.0)
        other.step(1.0)
    assert same(params, others)
    assert all(torch.equal(optimizer.state[p][n], other.state[q][n]) for p, q in zip(params, others)
               for n in ("hidden", "cell"))  # fmt: skip
    assert not torch.equal(optimizer.state[params[0]]["hidden"], optimizer.state[params[1]]["hidden"])


@pytest.mark.parametrize("way", ["dictionary", "file"])
def test_a_round_trip_loses_nothing(way):
    params, optimizer = trained(weight_decay=0.1)
    saved = optimizer.state_dict()
    if way == "file":
        file = io.BytesIO()
        torch.save(saved, file)
        file.seek(0)
        saved = torch.load(file, weights_only=True)
    else:
        saved = copy.deepcopy(saved)
    others = clones(params)
    other = velo(others, lr=0.5)
    other.load_state_dict(saved)
    for seed in range(10, 13):
        give_grads(params, seed)
        give_grads(others, seed)
        optimizer.step(1.0)
        other.step(1.0)
        assert same(params, others)
    assert other.param_groups[0]["step"] == 6


@pytest.mark.parametrize("way", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))])
def test_copies_go_on_by_themselves(way):
    params, optimizer = trained()
    others, other = way((params, optimizer))
    for seed in range(3):
        for some, one in ((params, optimizer), (others, other)):
            give_grads(some, seed)
            one.step(1.0)
        assert same(params, others)


def test_state_that_does_not_fit_is_refused():
    params, optimizer = trained()
    saved = copy.deepcopy(optimizer.state_dict())
    saved["state"][1].pop("cell")
    with pytest.raises(ValueError, match="no cell of parameter 1"):
        optimizer.load_state_dict(saved)


def test_a_step_past_the_end_is_said_once(caplog):
    params, optimizer = trained(num_steps=2)
    assert [record.getMessage()[:50] for record in caplog.records] == [
        "VeLO: step 3 is taken, and num_steps is 2: the net"
    ]
    caplog.clear()
    trained(num_steps=3)
    assert not caplog.records
