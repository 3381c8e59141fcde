# SPDX-License-Identifier: Apache-2.0
"""VeLO on plain arrays: golden vectors of several steps, the loss in all its forms, what is refused (and then nothing
has changed), state. Catches an LSTM state that is not kept or is another tensor's, a loss that does not arrive."""

import pytest

np = pytest.importorskip("numpy")

import quern  # noqa: E402
import velo_golden  # noqa: E402
from lopt_arrays import (  # noqa: E402
    SHAPES,
    arrays,
    check_golden_state,
    check_golden_step,
    check_option,
    copied,
    same,
    same_state,
)
from quern import _safetensors  # noqa: E402

MLP, RNN = velo_golden.weights()


def made(shapes=SHAPES, num_steps=100, **options):
    return quern.VeLO(shapes, MLP, RNN, num_steps, **options)


def stepped(optimizer, steps=2, first=1):
    params = arrays()
    for t in range(steps):
        optimizer.step(params, arrays(first + t), 2.0 - 0.25 * t)
    return params


@pytest.mark.parametrize("case", velo_golden.cases(), ids=lambda case: case.name)
def test_golden(case):
    params = case.start()
    optimizer = quern.VeLO(case.shapes, MLP, RNN, case.num_steps, case.lr, case.weight_decay, ties=case.ties)
    optimizer.pylo_cuda_compat = case.compat
    for t in range(case.steps):
        before = [p.copy() for p in params]
        optimizer.step(params, case.grads(t), case.losses[t])
        check_golden_step(params, before, case.wanted[t])
    state = optimizer.state_dict()
    for k in range(len(case.shapes) if case.state else 0):  # cases of NaN say what becomes of params alone
        states, rows = velo_golden.states_of(case, k)
        check_golden_state(state, k, states)
        for name, wanted in zip(("hidden", "cell"), rows):
            np.testing.assert_allclose(state[name][k], wanted, rtol=1e-5, atol=1e-6)
    assert state["step"] == state["loss_buffer"][20] == case.steps


OPTIONS = dict(
    lr=0.5,
    weight_decay=0.1,
    step_mult=0.002,
    exp_mult=0.002,
    num_steps=10,
    m_decays=(0.5, 0.99, 0.999),
    v_decay=0.9,
    factor_decays=(0.5, 0.99, 0.999),
    lr_scale=[1, 0.5, 1],
    pylo_cuda_compat=True,
)


@pytest.mark.parametrize("name", OPTIONS)
def test_each_option_is_told_the_library_at_the_beginning_and_later(name):
    check_option(made, stepped, name, OPTIONS[name])


def test_weights_of_files(tmp_path):
    paths = []
    unread = {name.replace("_.", ".").removesuffix("_"): value[0] for name, value in MLP.items()}
    for name, weights in (("mlp", {**MLP, **unread}), ("rnn", RNN)):
        paths.append(tmp_path / f"{name}.safetensors")
        _safetensors.write(paths[-1], {n: (w.shape, np.ascontiguousarray(w).tobytes()) for n, w in weights.items()})
    for given in (paths, [{**MLP, **unread}, RNN]):
        optimizer = quern.VeLO(SHAPES, *given, 100)
        assert same(stepped(optimizer), stepped(made()))
    with pytest.raises(ValueError, match="VeLO: rnn has no 'lstm.linear.bias'"):
        quern.VeLO(SHAPES, MLP, {k: v for k, v in RNN.items() if k != "lstm.linear.bias"}, 100)
    with pytest.raises(ValueError, match="VeLO: mlp has 'extra', which does not belong"):
        quern.VeLO(SHAPES, {**MLP, "extra": MLP["input_bias_"]}, RNN, 100)


@pytest.mark.parametrize("loss", [1.5, np.float32(1.5), np.float64(1.5), np.array(1.5, "f4"), np.array([1.5], "f4")])
def test_losses_of_all_forms(loss):
    params, wanted = arrays(), arrays()
    for p, given in ((params, loss), (wanted, 1.5)):
        optimizer = made()
        for t in range(4):
            optimizer.step(p, arrays(1 + t), given)
    assert same(params, wanted)
    others, optimizer = arrays(), made()
    for t in range(4):
        optimizer.step(others, arrays(1 + t), 1.5 + t)
    assert any((p != q).any() for p, q in zip(others, wanted))


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), -float("inf")])
def test_a_loss_that_is_no_number_skips_the_step_and_is_counted(loss):
    optimizer = made()
    assert optimizer.skipped_steps == 0
    params = stepped(optimizer)
    assert optimizer.skipped_steps == 0
    kept, state = [p.copy() for p in params], copied(optimizer.state_dict())
    optimizer.step(params, arrays(5), loss)
    now = optimizer.state_dict()
    assert same(params, kept)
    assert now["loss_buffer"][21] == 1 and (now["loss_buffer"][:21] == state["loss_buffer"][:21]).all()
    assert all((now[name] == state[name]).all() for name in now if name not in ("loss_buffer", "step"))
    assert optimizer.skipped_steps == 1 and optimizer.steps == 3
    other = made()
    other.load_state_dict(now)
    assert other.skipped_steps == 1


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: quern.VeLO(SHAPES, MLP, RNN), TypeError, "VeLO: num_steps is missing: say how many steps the whole"),
        (lambda: made(num_steps=0), ValueError, r"num_steps is 0, it must lie in \[1, 2\^64\)"),
        (lambda: made(num_steps=1.5), TypeError, "num_steps is 1.5, it must be an integer"),
        (lambda: made(lr=-1), ValueError, "lr is -1"),
        (lambda: made().step(arrays(), arrays(1), None), ValueError, "loss is missing"),
        (lambda: made().step(arrays(), arrays(1), "1"), TypeError, "loss is '1', it must be a number"),
        (lambda: made().step(arrays(), arrays(1), np.zeros(2, "f4")), ValueError, "loss has the shape 2, it must be"),
        (lambda: made().step(arrays(), arrays(1), np.zeros(1)), TypeError, "loss is float64, it must be float32"),
        (lambda: made().step(arrays(), arrays(1)), TypeError, "missing 1 required positional argument: 'loss'"),
        (lambda: made().step(arrays(), [None, *arrays(1)[1:]], 1.0), ValueError, r"grads\[0\] is missing"),
        (lambda: stepped(made(shapes=[(2,) * 5])), ValueError, "params has 3 arrays"),
        (lambda: made(shapes=[(2,) * 5]).step(*(arrays(k, [(2,) * 5]) for k in range(2)), 1.0), ValueError,
         "5 dimensions greater than 1, the LSTM knows up to 4"),
    ],
)  # fmt: skip
def test_refused_by_a_sentence(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call()


@pytest.mark.parametrize("after", [0, 1])
def test_refused_and_nothing_has_changed(after):
    optimizer = made()
    params = stepped(optimizer, after)
    kept, state = [p.copy() for p in params], copied(optimizer.state_dict())
    wrong = [np.asfortranarray(params[0]), *params[1:]]
    with pytest.raises(ValueError, match="not row-major"):
        optimizer.step(wrong, arrays(5), 1.0)
    assert same(params, kept)
    assert same_state(optimizer.state_dict(), state)


def test_a_round_trip_through_a_file_loses_nothing(tmp_path):
    optimizer, other = made(), made()
    params = stepped(optimizer, 3)
    np.savez(tmp_path / "state.npz", **optimizer.state_dict())
    other.load_state_dict(dict(np.load(tmp_path / "state.npz")))
    others = [p.copy() for p in params]
    for t in range(2):
        optimizer.step(params, arrays(10 + t), 1.0)
        other.step(others, arrays(10 + t), 1.0)
    assert other.steps == 5 and same(params, others)


@pytest.mark.parametrize(
    ("spoil", "error", "sentence"),
    [
        (lambda s: s.pop("hidden"), ValueError, "the state has no 'hidden'"),
        (lambda s: s.update(cell=s["cell"][:2]), ValueError, r"cell has the shape \(2, 512\), it must be \(3, 512\)"),
        (lambda s: s.update(loss_buffer=s["loss_buffer"].astype("f4")), TypeError, "float32, it must be float64"),
    ],
)
def test_state_that_does_not_fit_is_refused_and_nothing_is_loaded(spoil, error, sentence):
    optimizer, other = made(), made()
    stepped(optimizer)
    stepped(other, 3, 7)
    kept, saved = copied(optimizer.state_dict()), dict(other.state_dict())
    spoil(saved)
    with pytest.raises(error, match=sentence):
        optimizer.load_state_dict(saved)
    assert same_state(optimizer.state_dict(), kept)


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    wanted, params = stepped(made()), [torch.from_numpy(p) for p in arrays()]
    optimizer = made()
    for t in range(2):
        optimizer.step(params, [torch.from_numpy(g) for g in arrays(1 + t)], torch.tensor(2.0 - 0.25 * t))
    assert all((p.numpy() == q).all() for p, q in zip(params, wanted))
    assert all(isinstance(value, (int, str, torch.Tensor)) for value in optimizer.state_dict().values())


def test_a_step_past_the_end_is_said_once(caplog):
    stepped(made(num_steps=2), 2)
    assert not caplog.records
    stepped(made(num_steps=2), 4)
    assert [record.getMessage().partition(":")[2][:36] for record in caplog.records] == [
        " step 3 is taken, and num_steps is 2"
    ]
