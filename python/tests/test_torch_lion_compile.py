# SPDX-License-Identifier: Apache-2.0
"""quern.torch.Lion under torch.compile: one graph without a break, the eager step's bits, and nothing compiled anew
when the learning rate and the counter move on."""

import copy

import pytest

torch = pytest.importorskip("torch")

import quern  # noqa: E402
from torch_oracle import same_bits  # noqa: E402

Lion = quern.torch.Lion
RECENT = torch.__version__ >= "2.5"


@pytest.fixture(autouse=True)
def fresh():
    import torch._dynamo

    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def nets(dtype=torch.float32, device="cpu"):
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)).to(device, dtype)
    return net, copy.deepcopy(net)


def counting(backend):
    from torch._dynamo.testing import CompileCounterWithBackend

    return CompileCounterWithBackend(backend)


def backward(net, step):
    generator = torch.Generator().manual_seed(step)
    p = next(net.parameters())
    data = torch.randn(3, 8, generator=generator).to(p.device, p.dtype)
    net.zero_grad()
    net(data).square().sum().backward()


@pytest.mark.parametrize("options", [dict(weight_decay=0.1), dict(stochastic_rounding=True), dict(cautious=True)])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"] if RECENT else ["aot_eager"])
def test_a_schedule_compiles_once_and_has_the_eager_bits(backend, options):
    net, same = nets(torch.bfloat16)
    optimizer, other = Lion(net.parameters(), lr=1e-2, **options), Lion(same.parameters(), lr=1e-2, **options)
    counter = counting(backend)

    @torch.compile(backend=counter, fullgraph=RECENT)
    def step():
        optimizer.step()

    for k in range(5):
        backward(net, k)
        backward(same, k)
        step()
        other.step()
        for o in (optimizer, other):
            o.param_groups[0]["lr"] *= 0.7
        for p, q in zip(net.parameters(), same.parameters()):
            assert same_bits(p.data, q.data)
            assert same_bits(optimizer.state[p]["exp_avg"], other.state[q]["exp_avg"])
    assert optimizer.param_groups[0]["step"] == 5
    assert counter.frame_count == (1 if RECENT else 0)


def test_a_gradient_that_is_made_in_the_graph():
    (net, same) = nets()
    params, others = list(net.parameters()), list(same.parameters())
    optimizer, other = Lion(params, lr=1e-2), Lion(others, lr=1e-2)
    counter = counting("aot_eager")
    values = [torch.randn_like(p) for p in params]

    @torch.compile(backend=counter, fullgraph=RECENT)
    def step(grads):
        for p, g in zip(params, grads):
            p.grad = g * 2
        optimizer.step()
        return [p * 1 for p in params]

    for _ in range(3):
        made = step(values)
        for q, g in zip(others, values):
            q.grad = g * 2
        other.step()
        for p, q, value in zip(params, others, made):
            assert same_bits(p.data, q.data) and same_bits(value, q.data), "the graph read parameters before the step"
    assert counter.frame_count == 1 or not RECENT


def test_what_is_refused_is_refused_with_its_sentence():
    net, _ = nets()
    optimizer = Lion(net.parameters(), lr=1e-2)
    backward(net, 0)
    before = [p.detach().clone() for p in net.parameters()]
    optimizer.param_groups[0]["lr"] = -1.0
    with pytest.raises(Exception, match="lr is -1, it must be a finite number"):
        torch.compile(optimizer.step, backend="aot_eager")()
    assert all(torch.equal(p, b) for p, b in zip(net.parameters(), before))


@pytest.mark.cuda
def test_on_a_gpu():
    net, same = nets(device="cuda")
    optimizer, other = Lion(net.parameters(), lr=1e-2), Lion(same.parameters(), lr=1e-2)
    counter = counting("inductor")
    step = torch.compile(optimizer.step, backend=counter, fullgraph=True)
    for k in range(4):
        backward(net, k)
        backward(same, k)
        optimizer.param_groups[0]["lr"] = other.param_groups[0]["lr"] = 1e-2 / (k + 1)
        step()
        other.step()
        assert all(same_bits(p.data.cpu(), q.data.cpu()) for p, q in zip(net.parameters(), same.parameters()))
    assert counter.frame_count == 1
