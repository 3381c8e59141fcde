# SPDX-License-Identifier: Apache-2.0
"""PyLO's checkpoints from and to quern.torch's learned optimizers. They are made here from the materialising form,
whose state lies as PyLO's naive classes' does, and by hand for the CUDA classes. Catches an axis that is taken for
another, rows of the LSTM in the order of the parameters, a step that is off by one, numbers of a group that are
lost."""

import copy
import io

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("numpy")

import quern  # noqa: E402
from quern.bench import materialised, materialised_velo  # noqa: E402
from torch_lopt_models import ELO, MLP, RNN, WEIGHTS, SmallFCLopt, VeLO, doubled, share  # noqa: E402
from torch_models import give_grads, parameters  # noqa: E402

SHAPES = [(7, 5), (3, 3), (3,), (), (1,), (3, 4, 5), (4, 4, 3, 3), (6, 1)]
RULES = {SmallFCLopt: materialised.SMALL_FC, ELO: materialised.ELO}
LAYOUTS = ["naive", "cuda"]


class Run:
    """A run of the materialising form in float64, which is PyLO's naive class's, and its checkpoint."""

    def __init__(self, kind, lr=0.5, weight_decay=0.1, steps=3):
        self.kind, self.lr, self.decay, self.taken = kind, lr, weight_decay, 0
        self.params = [p.detach().double() for p in parameters(SHAPES)]
        self.states = [materialised.State(p) for p in self.params]
        for seed in range(steps):
            self.step(grads(seed))

    def step(self, given):
        before = [p.clone() for p in self.params]
        args = (self.params, [g.double() for g in given], self.states, self.taken, self.lr, self.decay)
        materialised.step(RULES[self.kind], doubled(WEIGHTS), *args)
        self.taken += 1
        return before

    def checkpoint(self, layout):
        state = {}
        for k, (p, s) in enumerate(zip(self.params, self.states)):
            state[k] = naive(p, s) if layout == "naive" else cuda(p, s, self.taken)
        group = {"lr": self.lr, "weight_decay": self.decay, "params": list(range(len(SHAPES)))}
        if layout == "naive":
            group["step"] = self.taken
        return {"state": state, "param_groups": [group]}


def grads(seed):
    params = parameters(SHAPES)
    give_grads(params, seed)
    return [p.grad for p in params]


def naive(p, s):
    if s.dims is None:
        parts = torch.empty(0), torch.empty(0), s.row
    else:
        row, column = s.row.squeeze(s.dims[0]), s.column.squeeze(s.dims[1])
        parts = row, column, torch.empty(0)
    state = {"mom": s.m, "rms": s.v[..., None]}
    return {n: v.float() for n, v in {**state, **dict(zip(("fac_vec_row", "fac_vec_col", "fac_vec_v"), parts))}.items()}


def cuda(p, s, taken):
    means = {"exp_avg": s.m, "exp_avg_sq_r": s.row, "exp_avg_sq_c": s.column}
    first = {name: value.movedim(-1, 0).float() for name, value in means.items()}
    return {**first, "exp_avg_sq": s.v.float(), "step": torch.tensor(float(taken), dtype=torch.float64)}


def over(params):
    return [torch.nn.Parameter(p.float()) for p in params]


@pytest.mark.parametrize("kind", [SmallFCLopt, ELO])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_run_goes_on_as_it_would_have(kind, layout):
    run = Run(kind)
    params = over(run.params)
    optimizer = kind(params, WEIGHTS, lr=3.0)
    quern.torch.import_pylo(optimizer, run.checkpoint(layout))
    assert optimizer.param_groups[0]["step"] == 3 and optimizer.param_groups[0]["lr"] == 0.5
    for seed in range(3, 6):
        for p, g in zip(params, grads(seed)):
            p.grad = g
        before = run.step(grads(seed))
        optimizer.step()
        assert max(share(p, q, old) for p, q, old in zip(params, run.params, before)) <= 1


@pytest.mark.parametrize("kind", [SmallFCLopt, ELO])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_saved_is_pylos_and_is_read_again(kind, layout):
    run = Run(kind)
    first = kind(over(run.params), WEIGHTS, weight_decay=0.1)
    saved = run.checkpoint(layout)
    quern.torch.import_pylo(first, saved)
    file = io.BytesIO()
    torch.save(quern.torch.export_pylo(first, layout), file)
    file.seek(0)
    made = torch.load(file, weights_only=True)
    for k, state in saved["state"].items():
        assert set(made["state"][k]) == set(state)
        for name, value in state.items():
            assert made["state"][k][name].shape == value.shape, (layout, SHAPES[k], name)
            assert torch.equal(made["state"][k][name], value)
    group = made["param_groups"][0]
    assert group["lr"] == 0.5 and group["weight_decay"] == 0.1 and group["step"] == 3
    assert group["initial_momentum_decays"].shape == (3,) and group["params"] == list(range(len(SHAPES)))
    second = kind(over(run.params), WEIGHTS)
    quern.torch.import_pylo(second, made)
    for p, q in zip(first.param_groups[0]["params"], second.param_groups[0]["params"]):
        assert all(torch.equal(first.state[p][name], second.state[q][name]) for name in first.state[p])
    assert second.param_groups[0]["m_decays"] == first.param_groups[0]["m_decays"]


def test_decays_that_are_others_are_taken():
    run = Run(SmallFCLopt)
    saved = run.checkpoint("naive")
    saved["param_groups"][0]["initial_momentum_decays"] = torch.tensor([0.5, 0.9, 0.99])
    saved["param_groups"][0]["initial_rms_decays"] = torch.tensor([0.99888599])
    optimizer = SmallFCLopt(over(run.params), WEIGHTS)
    own = optimizer.param_groups[0]["v_decay"]
    quern.torch.import_pylo(optimizer, saved)
    assert optimizer.param_groups[0]["m_decays"] == pytest.approx((0.5, 0.9, 0.99))
    assert optimizer.param_groups[0]["v_decay"] == own


@pytest.mark.parametrize("layout", LAYOUTS)
def test_numbers_in_device_memory_are_copied(layout):
    params = parameters([(3, 2)])
    optimizer = SmallFCLopt(params, WEIGHTS, lr=torch.tensor(0.5), capturable=True)
    for seed in range(2):
        give_grads(params, seed)
        optimizer.step()
    made = quern.torch.export_pylo(optimizer, layout)
    optimizer.param_groups[0]["lr"].fill_(0.25)
    optimizer.step()
    (group,) = made["param_groups"]
    assert type(group["step"]) is int and group["step"] == 2 and group["lr"] == 0.5


# ---- VeLO ----
class Recurrent:
    """The same of VeLO."""

    def __init__(self, steps=4):
        self.params = [p.detach().double() for p in parameters(SHAPES)]
        self.session = materialised_velo.Session(doubled(MLP), doubled(RNN), self.params, 50)
        for seed in range(steps):
            self.step(seed)

    def step(self, seed):
        before = [p.clone() for p in self.params]
        n = len(SHAPES)
        self.session.step([g.double() for g in grads(seed)], 2.0 - 0.25 * seed, [0.5] * n, [0.1] * n)
        return before

    def checkpoint(self, layout):
        s, state = self.session, {}
        for k, (p, one) in enumerate(zip(self.params, s.states)):
            state[k] = naive(p, one)
            if layout == "cuda":
                factored = one.dims is not None
                state[k] = {n: v.movedim(-1, 0) for n, v in state[k].items()}
                for name, kept in (("fac_vec_row", one.row), ("fac_vec_col", one.column)) if factored else ():
                    state[k][name] = kept.movedim(-1, 0).float()
                state[k]["rank_onehot"] = torch.eye(5)[sum(n > 1 for n in p.shape)]
            state[k]["layer_idx"] = k
        loss = {"means": s.loss.means, "running_min": s.loss.least, "decays": s.loss.decays}
        return {
            "state": state,
            "param_groups": [{"lr": 0.5, "weight_decay": 0.1, "step": s.taken, "params": list(range(len(SHAPES)))}],
            "loss_buffer": {**{n: v.float() for n, v in loss.items()}, "iteration": torch.tensor(4, dtype=torch.int32)},
            "lstm_hidden_state": (s.hidden.flip(0).float(), s.cell.flip(0).float()),
            "num_steps": 50,
        }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_velo_goes_on_as_it_would_have_and_comes_back(layout):
    run = Recurrent()
    saved = run.checkpoint(layout)
    params = over(run.params)
    optimizer = VeLO(params, MLP, RNN, 7)
    quern.torch.import_pylo(optimizer, copy.deepcopy(saved))
    made = quern.torch.export_pylo(optimizer, layout)
    for k, state in saved["state"].items():
        assert set(made["state"][k]) == set(state)
        for name, value in state.items():
            kept = made["state"][k][name]
            assert kept == value if name == "layer_idx" else kept.shape == value.shape and torch.equal(kept, value)
    assert all(torch.equal(a, b) for a, b in zip(made["lstm_hidden_state"], saved["lstm_hidden_state"]))
    assert made["num_steps"] == 50
    for name, value in saved["loss_buffer"].items():
        assert made["loss_buffer"][name].dtype == value.dtype
        assert torch.allclose(made["loss_buffer"][name].double(), value.double(), rtol=1e-6)
    for seed in range(4, 7):
        for p, g in zip(params, grads(seed)):
            p.grad = g
        before = run.step(seed)
        optimizer.step(2.0 - 0.25 * seed)
        assert max(share(p, q, old) for p, q, old in zip(params, run.params, before)) <= 1


def test_velo_before_the_first_step():
    optimizer = VeLO(parameters(SHAPES), MLP, RNN, 50)
    made = quern.torch.export_pylo(optimizer, "naive")
    assert made["loss_buffer"]["running_min"].min() > 9e11
    other = VeLO(parameters(SHAPES), MLP, RNN, 7)
    quern.torch.import_pylo(other, made)
    assert other.param_groups[0]["num_steps"] == 50 and not other.param_groups[0]["loss_buffer"].any()


# ---- what is refused ----
@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda s: s.pop("state"), "no optimizer's checkpoint"),
        (lambda s: s["param_groups"][0]["params"].pop(), r"groups of \[7\] parameters and the optimizer of \[8\]"),
        (lambda s: s["state"][0].pop("rms"), "parameter 0 of group 0 in the checkpoint has no rms"),
        (lambda s: s["state"].update({0: {"momentum": 3}}), "neither mom nor exp_avg; it has momentum"),
        (lambda s: s["state"][0].update(fac_vec_row=torch.zeros(7, 3)), r"fac_vec_row of parameter 0.*\(7, 3\)"),
        (lambda s: s["state"][0].update(mom=3), "the mom of parameter 0 of group 0 in the checkpoint is int"),
        (lambda s: [s["state"][k].update(step=k) for k in (0, 1)], "have taken 0 and 1 steps"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_loaded(spoil, sentence):
    saved = Run(SmallFCLopt, steps=1).checkpoint("naive")
    spoil(saved)
    optimizer = SmallFCLopt(parameters(SHAPES), WEIGHTS)
    with pytest.raises(ValueError, match=f"quern: .*{sentence}"):
        quern.torch.import_pylo(optimizer, saved)
    assert not optimizer.state and optimizer.param_groups[0]["step"] == 0


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda s: s.pop("num_steps"), "the checkpoint has no num_steps: it is not one of PyLO's VeLO"),
        (lambda s: s.update(lstm_hidden_state=(torch.zeros(7, 512),) * 2), r"\(7, 512\), for 8 parameters"),
    ],
)
def test_what_is_not_velos_is_refused(spoil, sentence):
    saved = Recurrent(1).checkpoint("naive")
    spoil(saved)
    optimizer = VeLO(parameters(SHAPES), MLP, RNN, 50)
    with pytest.raises(ValueError, match=sentence):
        quern.torch.import_pylo(optimizer, saved)
    assert not optimizer.state


# The keys of a group that step() of PyLO's classes reads (at commit d05c6c1); lr, params besides.
READ = {
    (SmallFCLopt, "naive"): "exp_mult step_mult max_grad_norm weight_decay initial_momentum_decays initial_rms_decays "
    "initial_adafactor_decays",
    (SmallFCLopt, "cuda"): "max_grad_norm foreach eps weight_decay momentum_dtype clipping_threshold unscaled_wd",
    (ELO, "naive"): "clip_grad clip_norm exp_mult weight_decay",
    (ELO, "cuda"): "clip_grad clip_norm exp_mult weight_decay",
    (VeLO, "naive"): "exp_mult step_mult step weight_decay initial_momentum_decays initial_rms_decays "
    "initial_adafactor_decays",
}
READ[VeLO, "cuda"] = READ[VeLO, "naive"]


def made(kind, **options):
    params = parameters(SHAPES)
    return kind(params, MLP, RNN, 50, **options) if kind is VeLO else kind(params, WEIGHTS, **options)


def stepped(kind, **options):
    optimizer = made(kind, **options)
    give_grads(optimizer.param_groups[0]["params"], 1)
    optimizer.step(*((2.0,) if kind is VeLO else ()))
    return optimizer


@pytest.mark.parametrize("kind", [SmallFCLopt, ELO, VeLO])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_groups_have_all_that_a_step_of_pylos_reads(kind, layout):
    (group,) = quern.torch.export_pylo(stepped(kind), layout)["param_groups"]
    assert set(READ[kind, layout].split()) <= set(group)
    if layout == "cuda" and kind is SmallFCLopt:  # as the class has them by default
        assert (group["eps"], group["clipping_threshold"], group["unscaled_wd"]) == (None, None, False)
        assert group["momentum_dtype"] is torch.float32


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_bound_of_elos_norm_is_a_word_and_a_number_there(layout):
    saved = quern.torch.export_pylo(stepped(ELO, clip_grad=0.25), layout)
    assert (saved["param_groups"][0]["clip_grad"], saved["param_groups"][0]["clip_norm"]) == (True, 0.25)
    other = made(ELO, clip_grad=3.0)
    quern.torch.import_pylo(other, saved)
    assert other.param_groups[0]["clip_grad"] == 0.25
    saved["param_groups"][0]["clip_grad"] = False
    quern.torch.import_pylo(other, saved)
    assert other.param_groups[0]["clip_grad"] is None


def test_a_learning_rate_that_was_divided_comes_back():
    params = parameters(SHAPES)
    optimizer = SmallFCLopt([{"params": params, "width_mult": 4.0}], WEIGHTS, lr=0.5)
    saved = quern.torch.export_pylo(optimizer, "naive")
    assert saved["param_groups"][0]["lr"] == 0.125
    quern.torch.import_pylo(optimizer, saved)
    assert optimizer.param_groups[0]["lr"] == 0.5


@pytest.mark.parametrize("kind", [SmallFCLopt, ELO, VeLO])
@pytest.mark.parametrize("other", [SmallFCLopt, ELO, VeLO])
def test_checkpoints_of_another_class_are_refused(kind, other):
    optimizer, source = made(kind), stepped(other)
    for saved in (quern.torch.export_pylo(source, layout) for layout in LAYOUTS if kind is not other):
        with pytest.raises(ValueError, match="the checkpoint is one of PyLO's .*, and the optimizer is"):
            quern.torch.import_pylo(optimizer, saved)
    if kind is other:
        optimizer.load_state_dict(source.state_dict())
        return
    with pytest.raises(ValueError, match=f"the state that is loaded is one of {other.__name__}: its groups have"):
        optimizer.load_state_dict(source.state_dict())
    assert all("exp_avg" not in optimizer.state[p] for p in optimizer.param_groups[0]["params"])


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda s: s.update(loss_buffer={}), "loss_buffer is a dict with nothing, it must have means, iteration"),
        (lambda s: s.update(loss_buffer=None), "loss_buffer is None, it must have means"),
        (lambda s: s.update(loss_buffer=torch.zeros(0)), r"loss_buffer is tensor\(\[\]\), it must have means"),
        (lambda s: s["loss_buffer"].update(means=torch.zeros(9)), "the means of the checkpoint's loss_buffer must be"),
        (lambda s: s["loss_buffer"].update(iteration="x"), "the iteration .* is 'x', it must be a count"),
        (lambda s: s.update(lstm_hidden_state=None), "lstm_hidden_state must be two tensors"),
        (lambda s: s.update(num_steps=None), "num_steps is None"),
        (lambda s: s["state"].update({0: 3}), "the state of parameter 0 in the checkpoint is int"),
        (lambda s: s["param_groups"][0].pop("params"), "param_groups, a list of dicts with params"),
    ],
)
def test_a_recurrent_checkpoint_that_is_damaged_is_refused(spoil, sentence):
    saved = Recurrent(1).checkpoint("naive")
    spoil(saved)
    optimizer = VeLO(parameters(SHAPES), MLP, RNN, 50)
    with pytest.raises(ValueError, match=f"quern: .*{sentence}"):
        quern.torch.import_pylo(optimizer, saved)
    assert not optimizer.state


@pytest.mark.parametrize("make", [lambda p: quern.torch.Lion(p), lambda p: torch.optim.Adam(p), lambda p: None])
def test_optimizers_that_are_not_learned_are_refused(make):
    optimizer = make(parameters(SHAPES))
    with pytest.raises(TypeError, match="it must be a SmallFCLopt, ELO or VeLO of quern.torch"):
        quern.torch.export_pylo(optimizer, "naive")
    with pytest.raises(TypeError, match="it must be a SmallFCLopt, ELO or VeLO of quern.torch"):
        quern.torch.import_pylo(optimizer, Run(SmallFCLopt, steps=1).checkpoint("naive"))
    for wrong in (None, [], 3):
        with pytest.raises(TypeError, match="the checkpoint is .*, it must be the dict"):
            quern.torch.import_pylo(made(ELO), wrong)


def test_wrong_words():
    optimizer = SmallFCLopt(parameters(SHAPES), WEIGHTS)
    with pytest.raises(ValueError, match="layout is 'torch', it must be one of 'naive', 'cuda'"):
        quern.torch.export_pylo(optimizer, "torch")
    with pytest.raises(ValueError, match="like must be the dict that state_dict"):
        quern.torch.export_pylo(optimizer, "cuda", {"state": {}})
    with pytest.raises(ValueError, match="like has 0 groups"):
        quern.torch.export_pylo(optimizer, "cuda", {"param_groups": []})
    like = {"param_groups": [{"foreach": False, "lr": 3.0}]}
    group = quern.torch.export_pylo(optimizer, "cuda", like)["param_groups"][0]
    assert group["foreach"] is False and group["lr"] == 1.0
