# SPDX-License-Identifier: Apache-2.0
"""quern.torch.Lion on the CPU: the bits of its steps, its options, its groups, and what it refuses. State, devices and
shards have files of their own."""

import pytest

torch = pytest.importorskip("torch")

import quern  # noqa: E402
from torch_models import give_grads, parameters  # noqa: E402
from torch_oracle import lion, same_bits  # noqa: E402

Lion = quern.torch.Lion


def follow(params, optimizer, n, **options):
    """n steps of the optimizer beside the oracle's, bit for bit."""
    momenta = [torch.zeros(p.shape) for p in params]
    for step in range(n):
        give_grads(params, step)
        wanted = [lion(p, p.grad, m, **options) for p, m in zip(params, momenta)]
        optimizer.step()
        momenta = [m for _, m in wanted]
        for p, (new, m) in zip(params, wanted):
            assert same_bits(p.data, new)
            assert same_bits(optimizer.state[p]["exp_avg"], m)


@pytest.mark.parametrize(
    "options",
    [
        {},
        dict(lr=3e-3, betas=(0.95, 0.98), weight_decay=0.1),
        dict(lr=1e-2, maximize=True, weight_decay=0.01),
        dict(lr=0.0),
    ],
)
def test_steps_have_the_contracts_bits(options):
    params = parameters()
    follow(params, Lion(params, **options), 5, **options)


@pytest.mark.parametrize(
    ("decay", "keep"), [("relative", lambda lr: 1 - 0.1 * lr / 1e-2), ("squared", lambda lr: 1 - 0.1 * lr * lr / 1e-2)]
)
def test_decays_are_relative_to_the_lr_that_the_group_began_with(decay, keep):
    params = parameters()
    optimizer = Lion(params, lr=1e-2, weight_decay=0.1, decay=decay)
    optimizer.param_groups[0]["lr"] = 2e-3
    follow(params, optimizer, 3, lr=2e-3, keep=keep(2e-3))


def test_cautious_moves_where_step_and_gradient_agree_and_scales_by_their_share():
    (p,) = parameters([(1000,)])
    optimizer = Lion([p], lr=1e-3, cautious=True)
    m = torch.zeros(1000)
    for step in range(3):
        give_grads([p], step)
        c = 0.9 * m + 0.1 * p.grad
        agrees = torch.sign(c) * p.grad > 0
        scale = 1000 / max(int(agrees.sum()), 1)
        new, m = lion(p, p.grad, m, lr=1e-3, scale=scale)
        wanted = torch.where(agrees, new, p.detach())
        optimizer.step()
        assert agrees.sum() > 0 and (step == 0) == bool(agrees.all())
        assert same_bits(p.data, wanted) and same_bits(optimizer.state[p]["exp_avg"], m)


def test_each_group_has_its_own_options():
    a, b = parameters([(40,), (50,)])
    optimizer = Lion([dict(params=[a], lr=1e-2), dict(params=[b], betas=(0.5, 0.6), weight_decay=0.3)], lr=1e-3)
    give_grads([a, b], 0)
    wanted = [
        lion(a, a.grad, torch.zeros(40), lr=1e-2)[0],
        lion(b, b.grad, torch.zeros(50), lr=1e-3, betas=(0.5, 0.6), weight_decay=0.3)[0],
    ]
    optimizer.step()
    assert same_bits(a.data, wanted[0]) and same_bits(b.data, wanted[1])


def test_parameters_without_gradient_are_left_alone_step_by_step():
    params = parameters([(40,), (50,), (60,)])
    optimizer = Lion(params, lr=1e-2)
    for step, absent in enumerate([None, 1, 1, 0, 2, None]):
        give_grads(params, step)
        if absent is not None:
            params[absent].grad = None
        before = [p.detach().clone() for p in params]
        momenta = [optimizer.state[p]["exp_avg"].clone() if p in optimizer.state else None for p in params]
        optimizer.step()
        for k, p in enumerate(params):
            if k == absent:
                assert torch.equal(p, before[k]) and torch.equal(optimizer.state[p]["exp_avg"], momenta[k])
            else:
                m = torch.zeros(p.shape) if momenta[k] is None else momenta[k]
                assert same_bits(p.data, lion(before[k], p.grad, m, lr=1e-2)[0])


def test_no_gradients_at_all_and_empty_groups_do_nothing():
    (p,) = parameters([(5,)])
    optimizer = Lion([dict(params=[p]), dict(params=[])])
    before = p.detach().clone()
    optimizer.step()
    assert torch.equal(p, before) and not optimizer.state


def test_closure_runs_with_gradients_and_its_loss_is_returned():
    (p,) = parameters([(5,)])
    optimizer = Lion([p], lr=1e-2)

    def closure():
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    before = p.detach().clone()
    with torch.no_grad():
        loss = optimizer.step(closure)
    assert loss.requires_grad and float(loss.detach()) == float((before * before).sum())
    assert same_bits(p.data, lion(before, 2 * before, torch.zeros(5), lr=1e-2)[0])


def test_schedulers_and_tensor_lr():
    (p,) = parameters([(50,)])
    lr = torch.tensor(1e-2)
    optimizer = Lion([p], lr=lr)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    m = torch.zeros(50)
    for step in range(4):
        give_grads([p], step)
        assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(1e-2 * 0.5**step)
        new, m = lion(p, p.grad, m, lr=float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
        assert same_bits(p.data, new)


def test_one_cycle_cycles_the_first_beta():
    (p,) = parameters([(50,)])
    optimizer = Lion([p], lr=1e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=10)
    m, seen = torch.zeros(50), set()
    for step in range(8):
        give_grads([p], step)
        group = optimizer.param_groups[0]
        seen.add(group["betas"][0])
        new, m = lion(p, p.grad, m, lr=group["lr"], betas=group["betas"])
        optimizer.step()
        scheduler.step()
        assert same_bits(p.data, new)
    assert len(seen) > 3


def test_a_learning_rate_that_a_scheduler_spoils_is_refused_and_nothing_moves():
    a, b = parameters([(4,), (5,)])
    optimizer = Lion([dict(params=[a]), dict(params=[b])], lr=1e-3)
    give_grads([a, b], 0)
    optimizer.step()
    before = [a.detach().clone(), b.detach().clone()]
    optimizer.param_groups[1]["lr"] = float("nan")
    with pytest.raises(ValueError, match="lr is -?nan"):
        optimizer.step()
    assert torch.equal(a, before[0]) and torch.equal(b, before[1])


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        (dict(lr=-1.0), ValueError, "lr is -1"),
        (dict(lr=float("nan")), ValueError, "lr is"),
        (dict(lr=torch.ones(2)), ValueError, "2 elements"),
        (dict(betas=(1.0, 0.9)), ValueError, r"beta1 is 1, it must lie in \[0, 1\)"),
        (dict(betas=(0.9, -0.1)), ValueError, "beta2 is -0.1"),
        (dict(betas=0.9), ValueError, "betas is 0.9"),
        (dict(weight_decay=-0.1), ValueError, "weight_decay is -0.1"),
        (dict(decay="adamw"), ValueError, "decay is 'adamw'"),
        (dict(decay="relative", lr=0.0), ValueError, "reference_lr is 0"),
        (dict(momentum_rounding="up"), ValueError, "momentum_rounding is 'up'"),
        (dict(momentum_dtype=torch.int8), ValueError, "momentum_dtype is torch.int8"),
        (dict(differentiable=True), ValueError, "differentiable"),
    ],
)
def test_wrong_options_are_refused_at_once(options, error, sentence):
    with pytest.raises(error, match=sentence):
        Lion(parameters([(3,)]), **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.complex64])
@pytest.mark.parametrize("said", [None, torch.float32, torch.bfloat16, torch.float16, "param"])
@pytest.mark.parametrize("masters", [False, True])
def test_a_momentum_is_refused_at_once_or_steps(dtype, said, masters):
    """The sentence has what may be said instead, and that is so."""
    params = [torch.nn.Parameter(torch.ones(5, dtype=dtype))]
    try:
        optimizer = Lion(params, momentum_dtype=said, master_weights=masters)
    except ValueError as error:
        assert "its momentum may be" in str(error) and "parameter 0 of group 0" in str(error)
        assert said in (torch.bfloat16, torch.float16) or (dtype, said, masters) == (torch.float16, "param", False)
        for word in str(error).rpartition("may be ")[2].split(" or "):
            Lion(params, momentum_dtype=getattr(torch, word.rpartition(".")[2]), master_weights=masters)
        return
    params[0].grad = torch.ones_like(params[0])
    optimizer.step()
    assert (
        params[0].real[0] < 1 if dtype is torch.complex64 else params[0].dtype is not torch.float32 or params[0][0] < 1
    )


def test_a_wrong_group_is_not_added():
    a, b = parameters([(3,), (4,)])
    optimizer = Lion([a])
    with pytest.raises(ValueError, match="lr is -1"):
        optimizer.add_param_group(dict(params=[b], lr=-1.0))
    assert len(optimizer.param_groups) == 1


def test_other_names_of_one_implementation_are_accepted():
    for options in (dict(foreach=True), dict(fused=True), dict(foreach=False, fused=False), dict(eps=1e-8)):
        params = parameters([(9,), (10,)])
        follow(params, Lion(params, **options), 2)
