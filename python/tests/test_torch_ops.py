# SPDX-License-Identifier: Apache-2.0
"""torch ops: what they compute, what they refuse, and that PyTorch's own checks and torch.compile find nothing
wrong."""

import pytest

torch = pytest.importorskip("torch")

from quern.torch import ops  # noqa: E402

SHAPES = [(5, 7), (), (33,), (0,), (2, 3, 4)]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


def lists(device="cpu", param=torch.float32, grad=None, momentum=None, shapes=SHAPES, seed=0):
    """params, grads, exp_avgs of these types."""
    random = torch.Generator().manual_seed(seed)
    types = (param, grad or param, momentum or param)
    return tuple([torch.randn(s, generator=random).to(device, dtype) for s in shapes] for dtype in types)


def copies(many):
    return [[tensor.clone() for tensor in of_role] for of_role in many]


def same(one, other):
    """The very bits."""
    return all(torch.equal(a, b) for of_one, of_other in zip(one, other) for a, b in zip(of_one, of_other))


def lion(params, grads, exp_avgs, lr, beta1=0.9, beta2=0.99, weight_decay=0.0):
    """One step in float64, of tensors that are float64 already."""
    for p, g, m in zip(params, grads, exp_avgs):
        step = (beta1 * m + (1 - beta1) * g).sign()
        p.mul_(1 - lr * weight_decay).sub_(lr * step)
        m.mul_(beta2).add_((1 - beta2) * g)


@pytest.mark.parametrize("device", DEVICES)
def test_steps_are_those_of_the_formula(device):
    ours = lists(device)
    oracle = [[tensor.double().cpu() for tensor in of_role] for of_role in ours]
    grads = [lists(device, seed=seed)[1] for seed in range(1, 6)]
    for step_grads in grads:
        torch.ops.quern.lion_(ours[0], step_grads, ours[2], lr=0.01, weight_decay=0.1)
        lion(oracle[0], [g.double().cpu() for g in step_grads], oracle[2], 0.01, weight_decay=0.1)
    for role in (0, 2):
        for a, b in zip(ours[role], oracle[role]):
            torch.testing.assert_close(a.double().cpu(), b, rtol=1e-6, atol=2e-6)


def test_versions_are_counted_so_that_autograd_sees_the_change():
    params, grads, exp_avgs = lists()
    torch.ops.quern.lion_(params, grads, exp_avgs)
    assert [tensor._version for tensor in params + exp_avgs] == [1] * 2 * len(params)
    assert [tensor._version for tensor in grads] == [0] * len(grads)


def test_an_empty_list_is_a_step_over_nothing_and_settings_are_still_checked():
    torch.ops.quern.lion_([], [], [])
    with pytest.raises(ValueError, match="lr is -1"):
        torch.ops.quern.lion_([], [], [], lr=-1.0)


def test_inputs_that_autograd_would_follow_are_refused_by_name():
    params, grads, exp_avgs = lists()
    params[1].requires_grad_()
    before = copies((params, exp_avgs))
    with pytest.raises(RuntimeError, match=r"params\[1\] requires grad .* torch.no_grad"):
        torch.ops.quern.lion_(params, grads, exp_avgs)
    assert same(before, (params, exp_avgs))
    with torch.no_grad():
        torch.ops.quern.lion_(params, grads, exp_avgs)
    assert not same(before, (params, exp_avgs))


def test_a_learning_rate_may_be_a_tensor():
    one, two = lists(), lists()
    ops.lion_(*one, lr=0.25, weight_decay=0.5)
    ops.lion_(*two, lr=torch.tensor(0.25), weight_decay=0.5)
    assert same(one, two)
