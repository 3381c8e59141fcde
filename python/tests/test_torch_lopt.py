# SPDX-License-Identifier: Apache-2.0
"""quern.torch's learned optimizers: their steps against the materialising form in float64, groups and the interface
that torch.optim.Optimizer promises, and what is refused, which changes nothing. Catches parameters that are stepped
with another group's numbers, a list that is kept though it does not fit, copies that do not come back, a step
uncounted."""

import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("numpy")

import quern  # noqa: E402
from lopt_arrays import check_signature  # noqa: E402
from quern.bench import materialised  # noqa: E402
from torch_lopt_models import ELO, KINDS, SHAPES, WEIGHTS, SmallFCLopt, VeLO, doubled, share, trained  # noqa: E402
from torch_models import bits, clones, give_grads, parameters, same  # noqa: E402

DOUBLES = doubled(WEIGHTS)
RULES = {SmallFCLopt: materialised.SMALL_FC, ELO: materialised.ELO}
STATE = ["exp_avg", "exp_avg_sq", "exp_avg_sq_r", "exp_avg_sq_c"]


class Oracle:
    """The materialising form over doubles that follow an optimizer's parameters."""

    def __init__(self, kind, params, lr, weight_decay=0.0):
        self.rule, self.lr, self.weight_decay, self.taken = RULES[kind], lr, weight_decay, 0
        self.params = [p.detach().double().clone() for p in params]
        self.states = [materialised.State(p) for p in self.params]

    def step(self, grads):
        before = [p.clone() for p in self.params]
        numbers = (self.taken, self.lr, self.weight_decay)
        materialised.step(self.rule, DOUBLES, self.params, [g.double() for g in grads], self.states, *numbers)
        self.taken += 1
        return before


def follows(optimizer, params, oracle, seed):
    """One step of both; does the optimizer's stay within the tolerance?"""
    give_grads(params, seed)
    before = oracle.step([p.grad for p in params])
    optimizer.step()
    worst = max(share(p, q, old) for p, q, old in zip(params, oracle.params, before))
    assert worst <= 1, worst


@pytest.mark.parametrize("kind", [SmallFCLopt, ELO, VeLO])
def test_signatures_have_the_headers_defaults(kind):
    check_signature(kind)


# ---- numbers ----
@pytest.mark.parametrize("kind", KINDS)
def test_many_shapes_over_several_steps(kind):
    params = parameters(SHAPES)
    lr, decay = (0.7, 0.01) if kind is SmallFCLopt else (0.01, 0.1)
    optimizer, oracle = kind(params, WEIGHTS, lr, decay), Oracle(kind, params, lr, decay)
    for seed in range(4):
        follows(optimizer, params, oracle, seed)
    assert [group["step"] for group in optimizer.param_groups] == [4]


def test_each_group_has_its_options():
    params = parameters(SHAPES[:4])
    says = [dict(lr=0.5), dict(lr=0.25, weight_decay=0.1), dict(width_mult=4.0), dict(step_mult=0.02)]
    optimizer = SmallFCLopt([{"params": [p], **group} for p, group in zip(params, says)], WEIGHTS, lr=1.0)
    oracles = [Oracle(SmallFCLopt, [p], lr, wd) for p, lr, wd in zip(params, (0.5, 0.25, 0.25, 2.0), (0, 0.1, 0, 0))]
    for seed in range(3):
        give_grads(params, seed)
        before = [oracle.step([p.grad]) for oracle, p in zip(oracles, params)]
        optimizer.step()
        assert max(share(p, o.params[0], b[0]) for p, o, b in zip(params, oracles, before)) <= 1


def test_groups_that_differ_in_the_learning_rate_alone_are_one_call(monkeypatch):
    params = parameters(SHAPES[:3])
    groups = [{"params": [p], "lr": lr, "width_mult": w} for p, lr, w in zip(params, (1.0, 0.5, 0.25), (1.0, 2.0, 1.0))]
    optimizer = SmallFCLopt(groups, WEIGHTS)
    give_grads(params, 0)
    optimizer.step()
    assert [len(made) for made in optimizer._lists] == [3]
    optimizer.param_groups[1]["weight_decay"] = 0.1
    optimizer.step()
    assert sorted(len(made) for made in optimizer._lists) == [1, 2]


def test_schedulers_multiply_the_learning_rate():
    params = parameters(SHAPES[:3])
    optimizer, oracle = SmallFCLopt(params, WEIGHTS, lr=1.0), Oracle(SmallFCLopt, params, 1.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 0.5**t)
    for seed in range(3):
        oracle.lr = 0.5**seed
        follows(optimizer, params, oracle, seed)
        scheduler.step()


def test_a_learning_rate_that_is_a_tensor():
    one, other = (parameters(SHAPES[:2]) for _ in range(2))
    first, second = SmallFCLopt(one, WEIGHTS, lr=torch.tensor(0.5)), SmallFCLopt(other, WEIGHTS, lr=0.5)
    for params, optimizer in ((one, first), (other, second)):
        give_grads(params, 0)
        optimizer.step()
    assert same(one, other)


def test_bounds_of_norms():
    params, others = (parameters(SHAPES[:3]) for _ in range(2))
    bounded, plain = SmallFCLopt(params, WEIGHTS, max_grad_norm=0.5), SmallFCLopt(others, WEIGHTS)
    give_grads(params, 0)
    kept = bits(p.grad for p in params)
    bounded.step()
    assert same([p.grad for p in params], kept)
    for q, grad in zip(others, kept):
        q.grad = grad * min(1.0, 0.5 / (float(grad.norm()) + 1e-6))
    plain.step()
    assert all(torch.allclose(p, q, rtol=1e-6, atol=1e-7) for p, q in zip(params, others))


def test_elo_bounds_all_groups_together():
    params, others = (parameters(SHAPES[:3]) for _ in range(2))
    bounded = ELO([{"params": params[:1]}, {"params": params[1:], "weight_decay": 0.1}], WEIGHTS, clip_grad=0.5)
    plain = ELO([{"params": others[:1]}, {"params": others[1:], "weight_decay": 0.1}], WEIGHTS)
    give_grads(params, 0)
    with torch.no_grad():
        params[0].grad[0, 0] = float("nan")
    kept = bits(p.grad for p in params)
    bounded.step()
    assert all(torch.equal(p.grad.nan_to_num(), g.nan_to_num()) for p, g in zip(params, kept))
    norm = float(torch.cat([g.nan_to_num().flatten() for g in kept]).double().norm())
    assert norm > 0.5
    for q, grad in zip(others, kept):
        q.grad = grad.nan_to_num() * (0.5 / norm)
    plain.step()
    assert all(torch.allclose(p, q, rtol=1e-6, atol=1e-8) for p, q in zip(params, others))


@pytest.mark.cuda
@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_computes_what_the_processor_does(kind):
    params, there = parameters(SHAPES), parameters(SHAPES, device="cuda")
    one, other = kind(params, WEIGHTS, lr=0.1), kind(there, WEIGHTS, lr=0.1)
    for seed in range(3):
        give_grads(params, seed)
        give_grads(there, seed)
        before = bits(params)
        one.step()
        other.step()
        assert max(share(q.cpu(), p, old) for p, q, old in zip(params, there, before)) <= 2


# ---- parameters and gradients of all kinds ----
def test_a_parameter_without_gradient_is_left_alone():
    a, b = parameters([(3, 4), (5,)])
    optimizer = SmallFCLopt([a, b], WEIGHTS, weight_decay=0.1)
    give_grads([a], 0)
    kept = b.detach().clone()
    optimizer.step()
    assert list(optimizer.state) == [a] and torch.equal(b, kept) and optimizer.param_groups[0]["step"] == 1
    give_grads([a, b], 1)
    a.grad, moved = None, a.detach().clone()
    optimizer.step()
    assert torch.equal(a, moved) and not torch.equal(b, kept) and set(optimizer.state[b]) == set(STATE)
    give_grads([a, b], 2)  # the stepped tensors are unchanged, and one is new
    optimizer.step()
    assert not torch.equal(a, moved)


def test_empty_parameters_and_none_at_all():
    params = parameters([(0, 3), (4, 2)])
    alone = parameters([(0, 3), (4, 2)])[1:]
    for some in (params, alone):
        optimizer = SmallFCLopt(some, WEIGHTS)
        give_grads(some[-1:], 0)
        some[0].grad = torch.zeros_like(some[0]) if some[0].grad is None else some[0].grad
        optimizer.step()
    assert torch.equal(params[1], alone[0])
    optimizer = SmallFCLopt(alone, WEIGHTS)
    alone[0].grad = None
    optimizer.step()
    assert not optimizer.state


def views():
    base = torch.randn(8, 6, generator=torch.Generator().manual_seed(3))
    return {
        "transposed": base.T,
        "channels last": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "a slice of columns": base[:, 1:4],
        "every other row": base[::2],
    }


@pytest.mark.parametrize("name", views())
def test_parameters_that_are_not_row_major(name):
    p = torch.nn.Parameter(views()[name], requires_grad=True)
    plain = torch.nn.Parameter(p.detach().clone(memory_format=torch.contiguous_format))
    assert not p.is_contiguous() and plain.is_contiguous()
    optimizer, other = SmallFCLopt([p], WEIGHTS), SmallFCLopt([plain], WEIGHTS)
    for seed in range(3):
        give_grads([plain], seed)
        p.grad = torch.empty_like(p).copy_(plain.grad)
        version = p._version
        optimizer.step()
        other.step()
        assert torch.equal(p, plain) and p._version > version


def test_gradients_that_are_laid_out_otherwise_or_negated():
    p, plain = parameters([(5, 4)])[0], parameters([(5, 4)])[0]
    single, other = parameters([(1,)])[0], parameters([(1,)])[0]
    optimizer, straight = SmallFCLopt([p, single], WEIGHTS), SmallFCLopt([plain, other], WEIGHTS)
    for seed in range(3):
        give_grads([plain, other], seed)
        p.grad = plain.grad.T.contiguous().T if seed == 1 else plain.grad.clone()
        negated = torch.complex(torch.zeros(1), -other.grad).conj().imag
        single.grad = negated if seed == 2 else other.grad.clone()
        assert seed < 2 or single.grad.is_neg()
        optimizer.step()
        straight.step()
        assert torch.equal(p, plain) and torch.equal(single, other)


def test_what_moves_between_steps_is_noticed():
    p, q = parameters([(5, 4), (6,)])
    others = clones([p, q])
    optimizer, straight = SmallFCLopt([p, q], WEIGHTS), SmallFCLopt(others, WEIGHTS)
    for seed in range(5):
        give_grads([p, q], seed)
        give_grads(others, seed)
        if seed == 1:
            p.data = p.data.clone()
        if seed == 2:
            optimizer.state[q]["exp_avg"] = optimizer.state[q]["exp_avg"].clone()
        if seed == 3:
            optimizer.state[p] = {name: value.clone() for name, value in optimizer.state[p].items()}
            straight.state[others[0]]["exp_avg"].mul_(3)
            optimizer.state[p]["exp_avg"].mul_(3)
        optimizer.step()
        straight.step()
        assert same([p, q], others), seed


def sparse(p):
    p.grad = torch.zeros_like(p).to_sparse()


REFUSED = {
    "bfloat16": (lambda p, o: setattr(p, "data", p.data.bfloat16()), TypeError, "torch.bfloat16, it must be torch.f"),
    "sparse": (lambda p, o: sparse(p), RuntimeError, "the gradient of .* is torch.sparse_coo"),
    "another state": (lambda p, o: o.state[p].update(exp_avg=torch.zeros(3)), ValueError, r"exp_avg .* \(3,\)"),
    "half a state": (lambda p, o: o.state[p].pop("exp_avg_sq_r"), ValueError, "has exp_avg and no exp_avg_sq_r"),
    "state of another type": (
        lambda p, o: o.state[p].update(exp_avg_sq=torch.zeros(4, 5).double()), TypeError, "must be of torch.float32"),
    "a wrong learning rate": (lambda p, o: o.param_groups[0].update(lr=-1), ValueError, "lr is -1"),
    "another wrong one": (lambda p, o: o.param_groups[1].update(lr=float("nan")), ValueError, "lr is nan"),
    "a width": (lambda p, o: o.param_groups[1].update(width_mult=0), ValueError, "width_mult is 0, it must be above 0"),
    "compat": (lambda p, o: o.param_groups[1].update(pylo_cuda_compat=True), ValueError, "compat is for up to 2"),
    "shared memory": (lambda p, o: setattr(p, "data", o.param_groups[0]["params"][0].data.view(-1)[:20].view(4, 5)),
                      ValueError, "share memory"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", REFUSED)
def test_refused_and_nothing_has_changed(what, kind):
    spoil, error, sentence = REFUSED[what]
    params = parameters([(6, 6), (4, 5), (2, 3, 2)])
    optimizer = kind([{"params": params[:1]}, {"params": params[1:], "weight_decay": 0.1}], WEIGHTS)
    give_grads(params, 0)
    optimizer.step()
    give_grads(params, 1)
    spoil(params[1], optimizer)
    kept, states = bits(params), copy.deepcopy([optimizer.state[p] for p in params])
    with pytest.raises(error, match=sentence):
        optimizer.step()
    assert same(params, kept)
    for p, state in zip(params, states):
        assert all(torch.equal(optimizer.state[p][name], value) for name, value in state.items())
    assert [group["step"] for group in optimizer.param_groups] == [1, 1]


def test_what_only_the_library_finds_is_found_before_the_first_list_is_stepped():
    params = parameters([(6, 6), (4, 5)])
    optimizer = SmallFCLopt([{"params": params[:1]}, {"params": params[1:], "weight_decay": 0.1}], WEIGHTS)
    give_grads(params, 0)
    optimizer.step()
    kept = bits(params)
    memory = optimizer.state[params[1]]["exp_avg_sq"]
    params[1].grad.data = memory.data  # on what its own list writes, after the list was looked at
    with pytest.raises(ValueError, match=r"share memory.*is parameter 0 of group 1"):
        optimizer.step()
    assert same(params, kept)


def test_six_dimensions():
    (p,) = parameters([(1, 1, 1, 1, 1, 2)])
    give_grads([p], 0)
    with pytest.raises(ValueError, match="the shape of parameter 0 of group 0 is .* 6 dimensions"):
        SmallFCLopt([p], WEIGHTS).step()


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        (dict(lr=-1.0), ValueError, "lr is -1"),
        (dict(lr=torch.ones(2)), (TypeError, ValueError), "lr"),
        (dict(weight_decay="1"), TypeError, "weight_decay is '1', it must be a number"),
        (dict(m_decays=(0.9, 0.99)), ValueError, "m_decays is .* three numbers"),
        (dict(width_mult=-2.0), ValueError, "width_mult is -2.0, it must be above 0"),
        (dict(max_grad_norm=0), ValueError, "max_grad_norm is 0, it must be above 0"),
    ],
)
def test_wrong_options_are_refused_when_they_are_given(options, error, sentence):
    p, q = parameters([(2, 3), (4,)])
    with pytest.raises(error, match=sentence):
        SmallFCLopt([p], WEIGHTS, **options)
    optimizer = SmallFCLopt([p], WEIGHTS)
    with pytest.raises(error, match=sentence):
        optimizer.add_param_group({"params": [q], **options})
    assert len(optimizer.param_groups) == 1


def test_wrong_weights():
    with pytest.raises(ValueError, match=r"SmallFCLopt: weights has no 'network\.output\.bias'"):
        SmallFCLopt(parameters([(2,)]), {k: v for k, v in WEIGHTS.items() if k != "network.output.bias"})
    with pytest.raises(TypeError, match=r"ELO: weights\['network\.output\.bias'\] is bfloat16"):
        ELO(parameters([(2,)]), {**WEIGHTS, "network.output.bias": WEIGHTS["network.output.bias"].bfloat16()})


def test_a_loss_is_velos_alone():
    with pytest.raises(
        TypeError, match="SmallFCLopt: step was given Tensor, it takes a closure or nothing; VeLO alone"
    ):
        SmallFCLopt(parameters([(2,)]), WEIGHTS).step(torch.tensor(1.0))


# ---- what torch.optim.Optimizer promises ----
def test_closure_loss_and_hooks():
    (p,) = parameters([(3, 2)])
    optimizer, seen = SmallFCLopt([p], WEIGHTS), []
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))

    def closure():
        optimizer.zero_grad()
        loss = (p**2).sum()
        loss.backward()
        return loss

    before = p.detach().clone()
    assert optimizer.step(closure).item() == (before**2).sum().item()
    assert seen == ["after"] and not torch.equal(p, before)


def test_named_parameters_are_called_by_their_names():
    p, q = parameters([(3, 2), (1,)])
    try:
        optimizer = SmallFCLopt([("layer.weight", p), ("layer.bias", q)], WEIGHTS)
    except TypeError:
        pytest.skip("before torch 2.5 an optimizer takes no names")
    q.data = q.data.double()
    give_grads([p, q], 0)
    with pytest.raises(TypeError, match="parameter 1 of group 0, 'layer.bias' is torch.float64"):
        optimizer.step()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["dictionary", "file"])
def test_a_round_trip_loses_nothing(kind, way):
    params, optimizer = trained(kind, weight_decay=0.1, lr=0.01)
    saved = optimizer.state_dict()
    if way == "file":
        file = io.BytesIO()
        torch.save(saved, file)
        file.seek(0)
        saved = torch.load(file, weights_only=True)
    else:
        saved = copy.deepcopy(saved)
    others = clones(params)
    other = kind(others, WEIGHTS, lr=0.5)
    other.load_state_dict(saved)
    for seed in range(10, 13):
        give_grads(params, seed)
        give_grads(others, seed)
        optimizer.step()
        other.step()
        assert same(params, others)
    assert other.param_groups[0]["step"] == 6
    assert all(torch.equal(optimizer.state[p][n], other.state[q][n]) for p, q in zip(params, others) for n in STATE)


def test_a_checkpoint_of_other_weights_is_refused_and_an_older_one_is_not():
    weights = dict(WEIGHTS)
    weights["network.output.bias"] = weights["network.output.bias"] * 2
    params, optimizer = trained()
    saved = copy.deepcopy(optimizer.state_dict())
    other = quern.torch.SmallFCLopt(clones(params), weights)
    with pytest.raises(ValueError, match="SmallFCLopt: .* under network weights of the checksum .* optimizer's have"):
        other.load_state_dict(saved)
    assert not other.state and other.param_groups[0]["step"] == 0
    for group in saved["param_groups"]:
        assert group.pop("weights_checksum") != other.param_groups[0]["weights_checksum"]
    other.load_state_dict(saved)
    own = quern.torch.SmallFCLopt(clones(params), weights).param_groups[0]["weights_checksum"]
    assert other.param_groups[0]["step"] == 3 and other.param_groups[0]["weights_checksum"] == own


@pytest.mark.parametrize("way", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))])
def test_copies_go_on_by_themselves(way):
    params, optimizer = trained()
    others, other = way((params, optimizer))
    for seed in range(3):
        give_grads(params, seed)
        give_grads(others, seed)
        optimizer.step()
        other.step()
        assert same(params, others)
    assert all(p is not q for p, q in zip(params, others))


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (
            lambda s: s["state"][0].update(exp_avg=torch.zeros(20, 3)),
            r"parameter 0.*exp_avg.*\(20, 3\) where \(3, 20, 3\)",
        ),
        (lambda s: s["state"][1].pop("exp_avg_sq_c"), "no exp_avg_sq_c of parameter 1; PyLO's"),
        (lambda s: s["param_groups"][0]["params"].pop(), "doesn't match the size"),
    ],
)
def test_state_that_does_not_fit_is_refused_and_nothing_is_loaded(spoil, sentence):
    params, optimizer = trained()
    saved = copy.deepcopy(optimizer.state_dict())
    spoil(saved)
    kept = copy.deepcopy(optimizer.state_dict()["state"])
    with pytest.raises(ValueError, match=sentence):
        optimizer.load_state_dict(saved)
    now = optimizer.state_dict()["state"]
    assert all(torch.equal(now[k][name], kept[k][name]) for k in kept for name in STATE)


def test_it_trains_a_model_with_a_scaler_and_zeroed_gradients():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = SmallFCLopt(model.parameters(), WEIGHTS, lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(2, 4)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert optimizer.param_groups[0]["step"] == 2
    for p in model.parameters():
        p.grad = torch.full_like(p, float("inf"))
    kept = bits(model.parameters())
    scaler.scale(torch.ones(()))
    scaler.step(optimizer)
    assert same(model.parameters(), kept) and optimizer.param_groups[0]["step"] == 2


# ---- muP ----
class Infshape:
    """The attribute that mup.set_base_shapes sets on a parameter."""

    def __init__(self, ninf, width_mult):
        self.ninf, self.width_mult = lambda: ninf, lambda: width_mult


def test_width_multipliers_divide_learning_rates():
    params, others = (parameters([(6, 5), (5,), (3, 4), (4, 4)]) for _ in range(2))
    for p, (ninf, width) in zip(params, ((2, 4.0), (1, 4.0), (2, 4.0), (2, 8.0))):
        p.infshape = Infshape(ninf, width)
    optimizer = quern.torch.MuLO(params, WEIGHTS, lr=0.5, weight_decay=0.1)
    assert [(len(g["params"]), g["width_mult"]) for g in optimizer.param_groups] == [(2, 4.0), (1, 1.0), (1, 8.0)]
    plain = SmallFCLopt([{"params": [q], "lr": lr} for q, lr in zip(others, (0.125, 0.5, 0.125, 0.0625))], WEIGHTS,
                        weight_decay=0.1)  # fmt: skip
    for seed in range(2):
        give_grads(params, seed)
        give_grads(others, seed)
        optimizer.step()
        plain.step()
        assert same(params, others)


@pytest.mark.parametrize(
    ("infshape", "sentence"), [(None, "has no infshape: call mup.set_base_shapes"), (Infshape(3, 1.0), "3 infinite")]
)
def test_what_mup_has_not_seen_is_refused(infshape, sentence):
    (p,) = parameters([(2, 2)])
    if infshape:
        p.infshape = infshape
    with pytest.raises(ValueError, match=f"MuLO: parameter 0 of group 0 has .*{sentence.split('has ')[-1]}"):
        quern.torch.MuLO([p], WEIGHTS)


# ---- weights that come with quern ----
def test_weights_come_with_quern_and_divide_rates_by_inputs(tmp_path):
    shapes = [(6, 64), (6,), (5, 4, 3, 3), (64, 16)]
    params, others = (parameters(shapes) for _ in range(2))
    shipped = quern._lopt.SMALL_FC.shipped
    optimizer = SmallFCLopt(params)
    widths = (64 / 32, 1.0, 36 / 32, 16 / 32)
    plain = SmallFCLopt([{"params": [q], "width_mult": w} for q, w in zip(others, widths)], shipped)
    for seed in range(3):
        give_grads(params, seed)
        give_grads(others, seed)
        optimizer.step()
        plain.step()
        assert same(params, others)
    saved = pickle.loads(pickle.dumps(optimizer))
    assert saved._fan_in == 32.0
    optimizer.param_groups[0]["width_mult"] = 1.0
    kept = bits(params)
    give_grads(params, 7)
    optimizer.step()
    assert not same(params, kept)


def test_weights_from_elsewhere_divide_nothing():
    params, others = (parameters([(6, 64), (6,)]) for _ in range(2))
    optimizer, plain = SmallFCLopt(params, WEIGHTS), SmallFCLopt([{"params": others, "width_mult": 1.0}], WEIGHTS)
    give_grads(params, 1)
    give_grads(others, 1)
    optimizer.step()
    plain.step()
    assert same(params, others)


def test_a_wide_parameter_is_warned_about(caplog):
    params = parameters([(2, 4096)])
    optimizer = SmallFCLopt(params)
    give_grads(params, 1)
    with caplog.at_level("WARNING", "quern"):
        optimizer.step()
        optimizer.step()
    assert [("4096 inputs" in r.message) for r in caplog.records] == [True]


def test_a_network_learns_with_nothing_set():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    optimizer = SmallFCLopt(model.parameters())
    x = torch.randn(256, 8)
    y = (x[:, 0] * x[:, 1] > 0).long()
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 0.6 and losses[-1] < 0.15
