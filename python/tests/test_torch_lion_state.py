# SPDX-License-Identifier: Apache-2.0
"""The state of quern.torch.Lion: how it begins, what is saved and loaded, copies, hooks, loss scalers, and the
interface that torch.optim.Optimizer promises."""

import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch")

import quern  # noqa: E402
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook  # noqa: E402
from torch_models import give_grads, parameters  # noqa: E402
from torch_oracle import lion, same_bits  # noqa: E402

Lion = quern.torch.Lion


def trained(dtype=torch.bfloat16, steps=3, **options):
    params = parameters([(20, 3), (40,)], dtype, scale=1.0)
    optimizer = Lion(params, **{"lr": 1e-3, **options})
    for seed in range(steps):
        give_grads(params, seed)
        optimizer.step()
    return params, optimizer


def follow_alike(params, optimizer, others, other, steps=3):
    """Both go on alike, bit for bit."""
    for seed in range(10, 10 + steps):
        give_grads(params, seed)
        give_grads(others, seed)
        optimizer.step()
        other.step()
        assert all(same_bits(p.data, q.data) for p, q in zip(params, others))
        for p, q in zip(params, others):
            assert optimizer.state[p].keys() == other.state[q].keys()
            assert all(same_bits(optimizer.state[p][name], other.state[q][name]) for name in optimizer.state[p])


def clones(params):
    return [torch.nn.Parameter(p.detach().clone()) for p in params]


def test_state_is_made_at_the_first_step_with_a_gradient():
    a, b = parameters([(3,), (4,)])
    optimizer = Lion([a, b])
    assert not optimizer.state
    give_grads([a], 0)
    optimizer.step()
    assert list(optimizer.state) == [a] and set(optimizer.state[a]) == {"exp_avg"}
    assert optimizer.state[a]["exp_avg"].dtype == torch.float32


@pytest.mark.parametrize(
    "options",
    [
        {},
        dict(master_weights=True),
        dict(momentum_dtype=torch.bfloat16, momentum_rounding="stochastic", stochastic_rounding=True, seed=5),
        dict(stochastic_rounding=True, weight_decay=0.1, decay="squared"),
    ],
)
@pytest.mark.parametrize("way", ["dictionary", "file"])
def test_a_round_trip_loses_nothing(options, way):
    params, optimizer = trained(**options)
    saved = optimizer.state_dict()
    if way == "file":
        file = io.BytesIO()
        torch.save(saved, file)
        file.seek(0)
        saved = torch.load(file, weights_only=True)
    else:
        saved = copy.deepcopy(saved)
    others = clones(params)
    other = Lion(others, lr=0.5)
    other.load_state_dict(saved)
    for p, q in zip(params, others):
        assert all(other.state[q][name].dtype == optimizer.state[p][name].dtype for name in optimizer.state[p])
    follow_alike(params, optimizer, others, other)


def test_masters_of_an_optimizer_that_has_none_yet_begin_with_the_parameters():
    params, optimizer = trained()
    others = clones(params)
    other = Lion(others, master_weights=True)
    saved = optimizer.state_dict()
    other.load_state_dict(
        {**saved, "param_groups": [{**group, "master_weights": True} for group in saved["param_groups"]]}
    )
    give_grads(others, 3)
    wanted = lion(others[0].float(), others[0].grad, other.state[others[0]]["exp_avg"])
    other.param_groups[0]["lr"] = 1e-4
    other.step()
    assert same_bits(other.state[others[0]]["master"], wanted[0])


def test_state_of_another_layout_and_type_is_laid_out_anew():
    p = torch.nn.Parameter(torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last))
    optimizer = Lion([p], lr=1e-2)
    give_grads([p], 0)
    optimizer.step()
    saved = optimizer.state_dict()
    m = saved["state"][0]["exp_avg"].contiguous().to(torch.float64)
    optimizer.load_state_dict({**saved, "state": {0: {"exp_avg": m}}})
    wanted = lion(p, p.grad, m, lr=1e-2)
    optimizer.step()
    assert same_bits(p.data.contiguous(), wanted[0].contiguous())
    assert optimizer.state[p]["exp_avg"].stride() == p.stride()


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda saved: saved["state"][0].update(exp_avg=torch.zeros(3)), r"parameter 0.*\(20, 3\).*exp_avg.*\(3,\)"),
        (lambda saved: saved["param_groups"].append(saved["param_groups"][0]), "number of parameter groups"),
        (lambda saved: saved["param_groups"][0]["params"].pop(), "doesn't match the size"),
    ],
)
def test_a_state_dict_that_does_not_fit_is_refused_and_nothing_is_loaded(spoil, sentence):
    params, optimizer = trained()
    saved = copy.deepcopy(optimizer.state_dict())
    before = [optimizer.state[p]["exp_avg"] for p in params]
    spoil(saved)
    with pytest.raises(ValueError, match=sentence):
        optimizer.load_state_dict(saved)
    assert all(optimizer.state[p]["exp_avg"] is m for p, m in zip(params, before))
    give_grads(params, 3)
    optimizer.step()


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "save"])
def test_copies_go_on_alike(way):
    params, optimizer = trained(master_weights=True)
    if way == "deepcopy":
        others, other = copy.deepcopy((params, optimizer))
    elif way == "pickle":
        others, other = pickle.loads(pickle.dumps((params, optimizer)))
    else:
        file = io.BytesIO()
        torch.save((params, optimizer), file)
        file.seek(0)
        others, other = torch.load(file, weights_only=False)
    assert other.param_groups[0]["params"][0] is others[0] and others[0] is not params[0]
    follow_alike(params, optimizer, others, other)


def test_loading_in_mid_training_and_going_on():
    params, optimizer = trained(torch.float32)
    saved, start = copy.deepcopy(optimizer.state_dict()), [p.detach().clone() for p in params]
    results = []
    for _ in range(2):
        for p, value in zip(params, start):
            p.data.copy_(value)
        optimizer.load_state_dict(copy.deepcopy(saved))
        give_grads(params, 77)
        optimizer.step()
        results.append([p.detach().clone() for p in params])
    assert all(same_bits(one, other) for one, other in zip(*results))


def test_groups_can_be_added_later():
    params, optimizer = trained(torch.float32)
    new = parameters([(9,)], seed=3)
    optimizer.add_param_group(dict(params=new, lr=0.5))
    give_grads([*params, *new], 9)
    wanted = lion(new[0], new[0].grad, torch.zeros(9), lr=0.5)
    optimizer.step()
    assert same_bits(new[0].data, wanted[0])


def test_zero_grad_and_accumulation():
    (p,) = parameters([(5,)])
    optimizer = Lion([p], foreach=True, lr=1e-2)
    m = torch.zeros(5)
    for seed in range(3):
        optimizer.zero_grad(set_to_none=seed == 1)
        (p * torch.arange(5.0) * (seed - 1)).sum().backward()
        (p * torch.ones(5)).sum().backward()
        new, m = lion(p, torch.arange(5.0) * (seed - 1) + 1, m, lr=1e-2)
        optimizer.step()
        assert same_bits(p.data, new)


@pytest.mark.parametrize("kind", ["own", "derived"])
def test_a_watched_step_is_seen_once(kind):
    """By hooks of this optimizer and of all, and by a profiler; a class derived from Lion is no exception."""

    class Derived(Lion):
        def step(self, closure=None):
            return super().step(closure)

    made, calls = {"own": Lion, "derived": Derived}[kind], []
    params = parameters([(3,)])
    optimizer = made(params, lr=1e-3)
    give_grads(params, 0)
    handles = [
        register_optimizer_step_pre_hook(lambda *_: calls.append("all before")),
        register_optimizer_step_post_hook(lambda *_: calls.append("all after")),
    ]
    try:
        assert optimizer.step(lambda: 5.0) == 5.0
    finally:
        for handle in handles:
            handle.remove()
    assert calls == ["all before", "all after"]
    with torch.autograd.profiler.profile() as profile:
        optimizer.step()
    seen = [event for event in profile.function_events if event.name == f"Optimizer.step#{made.__name__}.step"]
    assert len(seen) == 1
    optimizer.register_step_pre_hook(lambda of, *_: ((of, lambda: 7.0), {}))
    assert optimizer.step() == 7.0, "a hook's arguments are taken"


def test_hooks_are_called_in_order():
    (p,) = parameters([(5,)])
    optimizer, calls = Lion([p]), []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    optimizer.register_state_dict_pre_hook(lambda *_: calls.append("saving"))

    def loading(_, saved):
        calls.append("loading")
        assert all(isinstance(v, torch.Tensor) for entries in saved["state"].values() for v in entries.values())
        return {**saved, "state": {k: {"exp_avg": v["exp_avg"] * 2} for k, v in saved["state"].items()}}

    optimizer.register_load_state_dict_pre_hook(loading)
    optimizer.register_load_state_dict_post_hook(lambda *_: calls.append("loaded"))
    give_grads([p], 0)
    optimizer.step()
    m = optimizer.state[p]["exp_avg"].clone()
    optimizer.load_state_dict(optimizer.state_dict())
    assert calls == ["before", "after", "saving", "loading", "loaded"]
    assert torch.equal(optimizer.state[p]["exp_avg"], 2 * m)


def test_options_that_an_older_checkpoint_lacks_are_the_optimizers_own():
    params, optimizer = trained(torch.bfloat16)
    saved = optimizer.state_dict()
    kept = ("lr", "betas", "weight_decay", "params")
    saved["param_groups"] = [{name: group[name] for name in kept} for group in saved["param_groups"]]
    other = Lion(clones(params), cautious=True, seed=3, momentum_dtype=torch.bfloat16)
    other.load_state_dict(saved)
    group = other.param_groups[0]
    assert group["cautious"] and group["seed"] == 3 and group["lr"] == 1e-3 and group["step"] == 0
    assert all(entries["exp_avg"].dtype == torch.bfloat16 for entries in other.state.values())


def test_a_live_counter_in_a_checkpoint_becomes_a_number_and_the_other_way_round():
    params, optimizer = trained(stochastic_rounding=True, capturable=True)
    assert int(optimizer.param_groups[0]["step"]) == 3 and isinstance(optimizer.param_groups[0]["step"], torch.Tensor)
    saved = copy.deepcopy(optimizer.state_dict())
    saved["param_groups"][0]["capturable"] = False
    others = clones(params)
    other = Lion(others)
    other.load_state_dict(saved)
    follow_alike(params, optimizer, others, other)
    assert other.param_groups[0]["step"] == 6
    again = Lion(others)
    saved = copy.deepcopy(other.state_dict())
    saved["param_groups"][0]["capturable"] = True
    again.load_state_dict(saved)
    follow_alike(params, optimizer, others, again)


def test_capturable_steps_are_the_same_steps():
    lr = torch.tensor(1e-3, dtype=torch.float64)
    params, optimizer = trained(capturable=True, lr=lr, weight_decay=0.1, stochastic_rounding=True)
    others, other = trained(lr=1e-3, weight_decay=0.1, stochastic_rounding=True)
    assert all(same_bits(p.data, q.data) for p, q in zip(params, others))
    lr.fill_(3e-3)
    other.param_groups[0]["lr"] = 3e-3
    follow_alike(params, optimizer, others, other)


def test_numbers_that_go_to_device_memory_are_held_against_their_ranges_too():
    params, optimizer = trained(capturable=True)
    before = [p.detach().clone() for p in params]
    give_grads(params, 9)
    optimizer.param_groups[0]["lr"] = -1.0
    with pytest.raises(ValueError, match="lr is -1"):
        optimizer.step()
    assert all(torch.equal(p, b) for p, b in zip(params, before))


@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("cautious", [False, True])
def test_a_loss_scalers_scale_is_divided_out_and_infinities_leave_everything(unscale, cautious):
    (p,) = parameters([(50,)])
    (q,) = parameters([(50,)])
    options = dict(lr=1e-2, weight_decay=0.1, cautious=cautious)
    optimizer, other = Lion([p], **options), Lion([q], **options)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    generator = torch.Generator().manual_seed(3)
    for step in range(4):
        data = torch.randn(50, generator=generator)
        if step == 2:
            data[7] = float("inf")
        optimizer.zero_grad()
        scaler.scale((p * data).sum()).backward()
        if unscale:
            scaler.unscale_(optimizer)
        before, m = p.detach().clone(), optimizer.state[p].get("exp_avg", torch.zeros(50)).clone()
        scaler.step(optimizer)
        scaler.update()
        if step == 2:
            assert torch.equal(p, before) and torch.equal(optimizer.state[p]["exp_avg"], m)
        else:
            q.grad = data
            other.step()
            assert same_bits(p.data, q.data) and same_bits(optimizer.state[p]["exp_avg"], other.state[q]["exp_avg"])
    assert scaler.get_scale() == 512.0
    assert not hasattr(optimizer, "grad_scale") and not hasattr(optimizer, "found_inf")


def test_it_is_an_optimizer_for_torchs_own_tools():
    (p,) = parameters([(5,)])
    optimizer = Lion([p], lr=1e-2)
    assert isinstance(optimizer, torch.optim.Optimizer) and "lr: 0.01" in repr(optimizer)
    averaged = torch.optim.swa_utils.SWALR(optimizer, swa_lr=1e-3)
    give_grads([p], 0)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        optimizer.step()
    averaged.step()
    assert any("Optimizer.step#Lion.step" in event.key for event in profile.key_averages())
