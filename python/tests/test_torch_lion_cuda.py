# SPDX-License-Identifier: Apache-2.0
"""quern.torch.Lion on GPUs: the CPU's bits, streams, several devices, captured graphs, learning rates and loss
scalers that the host does not wait for."""

import pytest

torch = pytest.importorskip("torch")

import quern  # noqa: E402
from torch_models import give_grads, parameters  # noqa: E402
from torch_oracle import lion, same_bits  # noqa: E402

Lion = quern.torch.Lion
pytestmark = pytest.mark.cuda
SHAPES = [(7, 5), (64,), (), (0, 3), (33, 31), (100000,)]


@pytest.fixture
def no_waiting():
    """Whatever makes the host wait for the device raises."""
    before = torch.cuda.get_sync_debug_mode()

    class Strict:
        def __enter__(self):
            torch.cuda.synchronize()
            torch.cuda.set_sync_debug_mode("error")

        def __exit__(self, *_):
            torch.cuda.set_sync_debug_mode(before)

    yield Strict()
    torch.cuda.set_sync_debug_mode(before)


def alike(params, optimizer, others, other):
    for p, q in zip(params, others):
        assert same_bits(p.data.cpu(), q.data.cpu())
        for name, value in other.state[q].items():
            assert same_bits(optimizer.state[p][name].cpu(), value.cpu())


OPTIONS = [
    dict(weight_decay=0.1),
    dict(cautious=True),
    dict(stochastic_rounding=True, momentum_rounding="stochastic", momentum_dtype="bfloat16", seed=3),
    dict(master_weights=True, decay="relative", weight_decay=0.1),
    dict(capturable=True, stochastic_rounding=True),
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: next(iter(options)))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gpu_has_the_cpus_bits(dtype, options, no_waiting):
    if dtype == torch.float32:
        options = {name: value for name, value in options.items() if name != "momentum_dtype"}
    params, others = parameters(SHAPES, dtype, device="cuda"), parameters(SHAPES, dtype)
    optimizer, other = Lion(params, lr=1e-3, **options), Lion(others, lr=1e-3, **options)
    for seed in range(4):
        give_grads(params, seed)
        give_grads(others, seed)
        other.step()
        if seed < 2:
            optimizer.step()
            continue
        with no_waiting:
            optimizer.step()
    alike(params, optimizer, others, other)


def test_work_is_put_on_the_current_stream():
    """Gradients are written late on a side stream; a launch on any other stream would read what was there before."""
    (p,) = parameters([(1 << 20,)], device="cuda")
    optimizer = Lion([p], lr=1e-2)
    p.grad = torch.full_like(p, -1.0)
    optimizer.step()  # compiled, planned
    start, m = p.detach().clone(), optimizer.state[p]["exp_avg"].clone()
    side = torch.cuda.Stream()
    late = torch.full_like(p, 3.0)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(400_000_000)
        p.grad.copy_(late)
        optimizer.step()
    assert not side.query(), "the side stream did not sleep long enough for this test to show anything"
    torch.cuda.synchronize()
    wanted = lion(start, late, m, lr=1e-2)
    assert same_bits(p.data.cpu(), wanted[0].cpu()) and same_bits(optimizer.state[p]["exp_avg"].cpu(), wanted[1].cpu())


@pytest.mark.two_gpus
def test_each_device_has_its_own_list_and_stream():
    on = ["cuda:1", "cuda:0", "cpu", "cuda:1"]
    params = [q for k, where in enumerate(on) for q in parameters([(1 << 18,)], seed=k, device=where)]
    others = [torch.nn.Parameter(p.detach().cpu().clone()) for p in params]
    optimizer, other = Lion(params, lr=1e-2), Lion(others, lr=1e-2)
    sides = [torch.cuda.Stream(k) for k in range(2)]
    for seed in range(3):
        give_grads(params, seed)
        give_grads(others, seed)
        late = [p.grad for p in params]
        for p in params:
            p.grad = torch.zeros_like(p)
        for k in range(2):
            torch.cuda.synchronize(k)
        with torch.cuda.stream(sides[0]), torch.cuda.stream(sides[1]):  # each is its own device's current stream
            for k in range(2):
                with torch.cuda.device(k), torch.cuda.stream(sides[k]):
                    torch.cuda._sleep(200_000_000)
            for p, grad in zip(params, late):
                if p.is_cuda:
                    with torch.cuda.stream(sides[p.device.index]):
                        p.grad.copy_(grad)
                else:
                    p.grad.copy_(grad)
            before = torch.cuda.current_device()
            optimizer.step()
            assert torch.cuda.current_device() == before
        other.step()
        for k in range(2):
            torch.cuda.synchronize(k)
        alike(params, optimizer, others, other)


@pytest.mark.two_gpus
def test_a_loss_scaler_on_one_device_serves_another():
    params = [*parameters([(50,)], device="cuda:0"), *parameters([(60,)], seed=1, device="cuda:1")]
    others = [torch.nn.Parameter(p.detach().cpu().clone()) for p in params]
    optimizer, other = Lion(params, lr=1e-2), Lion(others, lr=1e-2)
    scaler = torch.amp.GradScaler("cuda", init_scale=64.0)
    for seed in range(3):
        give_grads(params, seed)
        give_grads(others, seed)
        for p in params:
            p.grad.mul_(64)
        if seed == 1:
            params[1].grad[5] = float("inf")
        scaler.scale(torch.ones((), device="cuda:0"))
        scaler.step(optimizer)
        if seed != 1:
            other.step()
        scaler.update(64.0)
        alike(params, optimizer, others, other)


def test_a_loss_scaler_makes_the_host_wait_for_nothing(no_waiting):
    params, others = parameters(SHAPES, device="cuda"), parameters(SHAPES)
    optimizer, other = Lion(params, lr=1e-2), Lion(others, lr=1e-2)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=1000)
    scaler.scale(torch.ones((), device="cuda"))

    def once(seed, spoiled=False):
        give_grads(others, seed)
        for p, q in zip(params, others):
            p.grad = (q.grad * scaler.get_scale()).cuda()
        if spoiled:
            params[1].grad[3] = float("nan")
        else:
            other.step()

    once(0)
    scaler.step(optimizer)
    scaler.update()
    for seed, spoiled in ((1, False), (2, True), (3, False)):
        once(seed, spoiled)
        with no_waiting:
            scaler.step(optimizer)
            scaler.update()
        alike(params, optimizer, others, other)
    assert scaler.get_scale() == 512.0


def test_a_learning_rate_on_the_device_is_read_there(no_waiting):
    params, others = parameters(SHAPES, device="cuda"), parameters(SHAPES)
    lr = torch.tensor(1e-2, device="cuda")
    optimizer, other = Lion(params, lr=lr), Lion(others, lr=1e-2)
    for seed in range(3):
        value = torch.tensor(1e-2) / (seed + 1)
        lr.copy_(value)
        other.param_groups[0]["lr"] = float(value)
        give_grads(params, seed)
        give_grads(others, seed)
        if seed:
            with no_waiting:
                optimizer.step()
        else:
            optimizer.step()
        other.step()
    alike(params, optimizer, others, other)


# ---- captured graphs ----
def graph_of(optimizer, params):
    """A graph of one step over gradients that stay where they are."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    return graph


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("cautious", [False, True])
def test_a_captured_step_sees_learning_rate_and_counter_change(dtype, as_tensor, cautious):
    options = dict(weight_decay=0.1, stochastic_rounding=True, seed=5, cautious=cautious)
    params, others = parameters(SHAPES, dtype, device="cuda"), parameters(SHAPES, dtype)
    lr = torch.tensor(1e-2, dtype=torch.float64, device="cuda") if as_tensor else 1e-2
    optimizer, other = Lion(params, lr=lr, capturable=True, **options), Lion(others, lr=1e-2, **options)
    give_grads(params, 0)
    give_grads(others, 0)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # as torch documents: warm up on a side stream
        optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    other.step()
    optimizer.prepare()
    graph = graph_of(optimizer, params)
    for seed in range(1, 5):
        give_grads(others, seed)
        for p, q in zip(params, others):
            p.grad.copy_(q.grad)
        value = 1e-2 / seed
        other.param_groups[0]["lr"] = value
        if as_tensor:
            lr.fill_(value)
        else:
            optimizer.param_groups[0]["lr"] = value
            optimizer.prepare()
        graph.replay()
        other.step()
        alike(params, optimizer, others, other)
    assert int(optimizer.param_groups[0]["step"]) == other.param_groups[0]["step"] == 5


def test_prepare_alone_is_enough_before_a_capture():
    params, others = parameters(SHAPES, device="cuda"), parameters(SHAPES)
    optimizer, other = Lion(params, lr=1e-2, capturable=True), Lion(others, lr=1e-2)
    give_grads(params, 0)
    give_grads(others, 0)
    optimizer.prepare()
    graph = graph_of(optimizer, params)
    graph.replay()
    other.step()
    alike(params, optimizer, others, other)


def test_a_captured_training_step():
    torch.manual_seed(0)
    net, same = (torch.nn.Linear(16, 4).cuda() for _ in range(2))
    same.load_state_dict(net.state_dict())
    optimizer, other = Lion(net.parameters(), lr=1e-2, capturable=True), Lion(same.parameters(), lr=1e-2)
    data = torch.randn(8, 16, device="cuda")

    def train(model, opt):
        opt.zero_grad(set_to_none=True)
        model(data).square().sum().backward()
        opt.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        train(net, optimizer)
    torch.cuda.current_stream().wait_stream(side)
    train(same, other)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        train(net, optimizer)
    for _ in range(3):
        data.normal_()
        graph.replay()
        train(same, other)
    alike(list(net.parameters()), optimizer, list(same.parameters()), other)


def test_a_capture_that_would_repeat_this_moments_numbers_is_refused():
    def capture(optimizer, sentence):
        with pytest.raises(RuntimeError, match=sentence):
            graph_of(optimizer, optimizer.param_groups[0]["params"])
        torch.cuda.synchronize()

    (p,) = parameters([(50,)], device="cuda")
    give_grads([p], 0)
    optimizer = Lion([p], lr=1e-2)
    optimizer.step()
    before = p.detach().clone()
    capture(optimizer, "capturable is False")
    capture(Lion([p], lr=1e-2, capturable=True), "no exp_avg yet")
    optimizer = Lion([p], lr=1e-2, capturable=True)
    optimizer.prepare()
    optimizer.param_groups[0]["lr"] = 1e-3
    capture(optimizer, "lr is 0.001")
    assert torch.equal(p, before)


def test_memory_that_was_lent_is_not_reused_too_early():
    """The workspace of a cautious step and the copy of a gradient that is not dense go back to torch's allocator
    while the step still waits on a side stream; what is allocated next on another stream must not lie there."""
    (p,) = parameters([(1 << 18,)], device="cuda")
    (q,) = parameters([(1 << 18,)])
    optimizer, other = Lion([p], lr=1e-2, cautious=True), Lion([q], lr=1e-2, cautious=True)
    side = torch.cuda.Stream()
    for seed in range(3):
        give_grads([q], seed)
        wide = torch.empty(2 << 18, device="cuda")
        wide[::2] = q.grad.cuda()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(100_000_000)
            p.grad = wide[::2]
            optimizer.step()
        junk = [torch.full((1 << 18,), float("nan"), device="cuda") for _ in range(4)]
        junk += [torch.full((16,), -1, dtype=torch.uint8, device="cuda") for _ in range(64)]
        torch.cuda.synchronize()
        other.step()
        alike([p], optimizer, [q], other)
        del junk


def test_a_model_moved_to_the_gpu_takes_its_state_along():
    params = parameters(SHAPES)
    others = parameters(SHAPES)
    optimizer, other = Lion(params, lr=1e-2), Lion(others, lr=1e-2)
    for seed in range(4):
        if seed == 2:
            for p in params:
                p.data = p.data.cuda()
                p.grad = None
                for name, value in optimizer.state[p].items():
                    optimizer.state[p][name] = value.cuda()
        give_grads(params, seed)
        give_grads(others, seed)
        optimizer.step()
        other.step()
    alike(params, optimizer, others, other)


def test_loading_moves_state_to_its_parameters_device():
    params, others = parameters(SHAPES, device="cuda"), parameters(SHAPES)
    optimizer, other = Lion(params, lr=1e-2), Lion(others, lr=1e-2)
    give_grads(others, 0)
    other.step()
    for p, q in zip(params, others):
        p.data.copy_(q.data)
    optimizer.load_state_dict(other.state_dict())
    give_grads(params, 1)
    give_grads(others, 1)
    optimizer.step()
    other.step()
    alike(params, optimizer, others, other)


def test_state_on_another_device_is_refused():
    (p,) = parameters([(5,)], device="cuda")
    optimizer = Lion([p], lr=1e-2)
    give_grads([p], 0)
    optimizer.step()
    state = optimizer.state[p]
    state["exp_avg"] = state["exp_avg"].cpu()
    before = p.detach().clone()
    with pytest.raises(ValueError, match="parameter 0 of group 0 is on cuda:0 and its exp_avg on cpu"):
        optimizer.step()
    assert torch.equal(p, before)
