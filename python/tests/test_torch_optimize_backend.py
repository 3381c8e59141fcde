# SPDX-License-Identifier: Apache-2.0
"""torch.compile(model, backend="quern"): forward, backward and inference graphs, graph breaks, random numbers, dynamic
shapes, against eager mode."""

import copy
import pathlib
import re
import types

import pytest

torch = pytest.importorskip("torch")
if not hasattr(torch.export, "default_decompositions"):
    pytest.skip("before torch 2.6 models cannot be captured", allow_module_level=True)

import quern.optimize  # noqa: E402
from quern.optimize import _backend, _graph, _program  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402
from torch_optimize_models import MODELS, attention, conv_net, gru, mlp, put_where_it_was, randn  # noqa: E402

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    _backend.regions.clear()
    quern.optimize.register()
    yield
    torch._dynamo.reset()


def leaves(value):
    return [x for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor)]


def close(a, b, tolerance=1e-4):
    return len(leaves(a)) == len(leaves(b)) and all(
        x.dtype == y.dtype and torch.allclose(x, y, tolerance, tolerance, equal_nan=True)
        for x, y in zip(leaves(a), leaves(b))
    )


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_inference(make):
    torch.manual_seed(0)
    model, args = make()
    model.eval()
    made = torch.compile(model, backend="quern")
    with torch.no_grad():
        for _ in range(2):
            assert close(made(*args), model(*args))
    assert _backend.regions or make is gru  # which Dynamo runs as it is


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("make", [mlp, conv_net, attention], ids=lambda make: make.__name__)
def test_training_steps(make, device):
    torch.manual_seed(0)
    model, args = make()
    model = model.to(device).train()
    args = [x.to(device) for x in args]
    other = copy.deepcopy(model)
    made = torch.compile(other, backend="quern")
    both = [torch.optim.SGD(m.parameters(), lr=0.01) for m in (model, other)]
    for step in range(8):  # enough for graphs on a GPU
        for function, optimizer in zip((model, made), both):
            optimizer.zero_grad(set_to_none=step % 2 == 0)
            function(*args).square().mean().backward()
            optimizer.step()
        for a, b in zip([*model.parameters(), *model.buffers()], [*other.parameters(), *other.buffers()]):
            assert torch.allclose(a, b, 1e-3, 1e-3), step
        for a, b in zip(model.parameters(), other.parameters()):
            assert torch.allclose(a.grad, b.grad, 1e-2, 1e-2)
    assert len(_backend.regions) >= 2  # forward and backward


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_gradients(make):
    """Of every input and parameter, in double. An op that core ATen takes apart into one
    with other results, which the backward of the whole op reads, gives another gradient."""
    torch.manual_seed(0)
    model, args = make()
    model, args = model.double().train(), pytree.tree_map(lambda x: x.double() if real(x) else x, args)
    made = torch.compile(copy.deepcopy(model), backend="quern")
    found = []
    for function in (model, made):
        own = pytree.tree_map(lambda x: x.detach().clone().requires_grad_() if real(x) else x, args)
        torch.manual_seed(1)
        outputs = [x for x in leaves(function(*own)) if x.requires_grad]
        if not outputs:
            return
        wanted = [x for x in [*leaves(own), *function.parameters()] if x.requires_grad]
        cotangents = [torch.randn(x.shape, generator=torch.Generator().manual_seed(2)).to(x) for x in outputs]
        found.append(torch.autograd.grad(outputs, wanted, cotangents, allow_unused=True))
    for a, b in zip(*found):
        assert (a is None) == (b is None) and (a is None or torch.allclose(a, b, 1e-7, 1e-7))


def test_attention_draws_random_numbers_where_it_drops_out():
    for dropout in (0.0, 0.5):
        torch._dynamo.reset()
        _backend.regions.clear()
        q = randn(1, 2, 5, 8).requires_grad_()
        attend = lambda q, dropout=dropout: F.scaled_dot_product_attention(q, q, q, dropout_p=dropout).exp()  # noqa: E731
        torch.compile(attend, backend="quern")(q).sum().backward()
        assert _backend.regions[0].graph.random == (dropout > 0)


def test_a_gradient_that_is_zero_but_for_rounding_is_right():
    """Of a bias before a BatchNorm; and PyTorch's plan is of the graph that was not taken apart."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
    torch.compile(model, backend="quern")(randn(16, 3, 12, 12)).square().mean().backward()
    backward = _backend.regions[-1]
    assert backward.apart is not None and not any("wrong" in why for why in backward.why), backward.why
    assert any("threshold_backward" in node.op for node in backward.graph.nodes)
    assert not any("threshold_backward" in node.op for node in backward.apart.nodes)


@pytest.mark.parametrize("drawn", [lambda x: F.dropout(x, 0.3), lambda x: x * torch.bernoulli(torch.full_like(x, 0.5))])
def test_a_mean_that_is_zero_but_for_rounding_is_right_where_numbers_are_drawn(drawn, monkeypatch):
    """The second norm's, of what the first one gives: only float64 shows that it is. It draws the same numbers."""
    monkeypatch.setattr(_backend._timing, "ranking", lambda samples: sorted(samples, key=lambda name: name != "fused"))
    monkeypatch.setattr(_backend._timing, "faster", lambda *_: (True, 2.0, None))
    first, second, layer = torch.nn.LayerNorm(96), torch.nn.LayerNorm(96), torch.nn.Linear(96, 96)
    made = torch.compile(lambda x: drawn(layer(second(first(x)))), backend="quern")
    assert made(randn(40, 96)).shape == (40, 96)
    region = _backend.regions[0]
    assert region.graph.random and region.chosen == "fused" and not any("wrong" in why for why in region.why), (
        region.why
    )


def real(x) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def test_gradients_of_inputs_and_a_second_backward():
    x = randn(4, 5).double().requires_grad_()
    made = torch.compile(lambda x: (F.softmax(x, 1) * x).sum(0), backend="quern")
    assert torch.autograd.gradcheck(made, (x,))
    y = made(x).sum()
    first = torch.autograd.grad(y, x, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(y, x)[0])


def test_graph_breaks_prints_and_random_numbers(capsys):
    def function(x):
        y = F.dropout(x, 0.5) + 1
        if y.sum() > 0:
            print("above")
        return y * torch.rand(3)

    made = torch.compile(function, backend="quern")
    for _ in range(2):
        torch.manual_seed(5)
        want = function(torch.ones(4, 3))
        torch.manual_seed(5)
        assert torch.equal(made(torch.ones(4, 3)), want)
    assert capsys.readouterr().out == "above\n" * 4 and len(_backend.regions) >= 2


def test_nothing_watches_what_is_timed(monkeypatch):
    """AOTAutograd looks at each op of the first call, which takes several times as long as the op."""
    race, modes = _backend._timing.race, []

    def look(*given):
        modes.append(torch._C._len_torch_dispatch_stack())
        return race(*given)

    monkeypatch.setattr(_backend._timing, "race", look)
    torch.compile(lambda x: torch.tanh(x) * 2 + 1, backend="quern")(randn(4, 5).requires_grad_()).sum().backward()
    assert modes == [0, 0]


def test_there_are_kernels_between_draws_of_random_numbers(monkeypatch):
    """Every alternative draws the numbers that the call itself draws then: PyTorch's own, after which the generator
    is as PyTorch leaves it."""
    order = lambda samples: sorted(samples, key=lambda name: name != "fused")  # noqa: E731
    monkeypatch.setattr(_backend._timing, "ranking", order)
    monkeypatch.setattr(_backend._timing, "faster", lambda *_: (True, 2.0, None))
    norm, first, second = torch.nn.LayerNorm(24), torch.nn.Linear(24, 40), torch.nn.Linear(40, 24)

    def block(x):
        y = F.dropout(second(F.dropout(F.gelu(first(norm(x))), 0.3)), 0.1) + x
        q = y.view(2, 3, 4, 6).transpose(1, 2)
        return F.scaled_dot_product_attention(q, q, q, dropout_p=0.2).sigmoid() + F.dropout(q, 0.5).exp()

    found = []
    for function in (block, torch.compile(block, backend="quern")):
        torch.manual_seed(5)
        x = randn(2, 3, 24).requires_grad_()
        for _ in range(3):
            y = function(x)
        y.square().sum().backward()
        found.append([y.detach(), x.grad, first.weight.grad.clone(), torch.rand(3)])
        first.zero_grad()
    for a, b in zip(*found):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    forward, backward = _backend.regions
    assert forward.graph.random and forward.chosen == backward.chosen == "fused", (forward.why, backward.why)


@pytest.mark.cuda
@pytest.mark.parametrize("attends", [False, True])
def test_a_cuda_graph_draws_the_numbers_that_calls_would(attends):
    """Dropout in a CUDA graph, forward and backward, also where a user sets the seed between calls. Attention that
    drops out runs without a graph."""
    first, second = torch.nn.Linear(48, 64).cuda(), torch.nn.Linear(64, 48).cuda()

    def block(x):
        y = F.dropout(second(F.dropout(F.gelu(first(x)), 0.3)), 0.1) + x
        if attends:
            q = y.view(2, 8, 4, 12).transpose(1, 2)
            y = F.scaled_dot_product_attention(q, q, q, dropout_p=0.2)
        return y * torch.rand_like(y)

    found = []
    for function in (block, torch.compile(block, backend="quern")):
        torch.manual_seed(5)
        seen, start = [], randn(2, 8, 48).cuda()
        for k in range(9):
            if k == 7:
                torch.manual_seed(11)
            x = start.clone().requires_grad_()
            y = function(x)
            y.square().sum().backward()
            seen += [y.detach().clone(), x.grad, first.weight.grad, torch.rand(3, device="cuda")]
            first.weight.grad = None
        found.append(seen)
    for a, b in zip(*found):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    forward, backward = _backend.regions
    assert forward.graph.random and [r.graph.replayable for r in (forward, backward)] == [not attends] * 2
    assert all((region.replay is None) == attends for region in _backend.regions), [r.why for r in _backend.regions]
    assert all(region.replay.instances for region in _backend.regions if not attends)


def test_what_a_cuda_graph_would_freeze_is_known():
    """Random numbers of the processor, and attention whose seed lies on the host, forward and backward."""

    def replays(op, device, **given):
        node = types.SimpleNamespace(target=op.default, args=(), kwargs=given)
        node.meta = {"val": [types.SimpleNamespace(device=torch.device(device))]}
        return _graph._replays(node)

    aten = torch.ops.aten
    for op in (aten._scaled_dot_product_efficient_attention, aten._scaled_dot_product_efficient_attention_backward):
        assert replays(op, "cuda", dropout_p=0.0) and not replays(op, "cuda", dropout_p=0.25)
    assert replays(aten.native_dropout, "cuda") and replays(aten.relu, "cpu") and not replays(aten.rand, "cpu")
    torch.compile(lambda x: x + torch.rand(8), backend="quern")(randn(8))
    assert not _backend.regions[0].graph.replayable


def test_dynamic_shapes():
    made = torch.compile(lambda x: torch.relu(x) * x.shape[0], backend="quern", dynamic=True)
    for n in (3, 4, 5, 0, 1):
        x = randn(n, 2)
        assert torch.equal(made(x), torch.relu(x) * n)


def test_inputs_changed_in_place():
    def function(x):
        x.mul_(2)
        return x + 1

    x = randn(3)
    y = x.clone()
    assert torch.equal(torch.compile(function, backend="quern")(x), function(y)) and torch.equal(x, y)


def twice(region):
    """PyTorch's ops, under two names."""
    for name in ("PyTorch's ops", "fused"):
        yield name, _program.build(region.graph, _program.extern_plan(region.graph), None, name).plan


def test_an_update_happens_once_although_alternatives_are_timed(monkeypatch):
    plan = _program.extern_plan
    monkeypatch.setattr(_backend._planner, "plan", lambda graph: {**plan(graph), "steps": [*plan(graph)["steps"]]})
    monkeypatch.setattr(_backend.Region, "_programs", twice)
    norm = torch.nn.BatchNorm1d(3)
    made = torch.compile(norm, backend="quern")
    with torch.no_grad():
        made(randn(5, 3))
    assert int(norm.num_batches_tracked) == 1 and "times as fast" in _backend.regions[0].why[0]


def test_products_become_calls_of_gemm_norm_forward_and_backward(monkeypatch):
    order = lambda samples: sorted(samples, key=lambda name: "products" not in name)  # noqa: E731
    monkeypatch.setattr(_backend._timing, "ranking", order)
    monkeypatch.setattr(_backend._timing, "faster", lambda *_: (True, 2.0, None))
    layer, x = torch.nn.Linear(20, 24), randn(6, 20)
    made = torch.compile(lambda x: torch.relu(layer(x)).square().sum(), backend="quern")
    made(x).backward()
    found = [p.grad.clone() for p in layer.parameters()]
    assert [region.chosen for region in _backend.regions] == ["fused, products in fp32"] * 2
    layer.zero_grad()
    torch.relu(layer(x)).square().sum().backward()
    for p, gradient in zip(layer.parameters(), found):
        torch.testing.assert_close(gradient, p.grad)


def test_a_wrong_kernel_is_not_taken(monkeypatch):
    real = _program.build

    def build(graph, plan, prepare, name):
        made = real(graph, plan, prepare, name)
        if name == "fused":
            function = made.plan
            made.plan = lambda *values: [y + 1 for y in function(*values)]
        return made

    monkeypatch.setattr(_program, "build", build)
    monkeypatch.setattr(_backend.Region, "_programs", twice)
    x = randn(5)
    with torch.no_grad():
        assert torch.equal(torch.compile(torch.sin, backend="quern")(x), torch.sin(x))
    assert _backend.regions[0].chosen == "PyTorch's ops" and "elements are wrong" in _backend.regions[0].why[0]


@pytest.fixture
def last_is_chosen(monkeypatch):
    """Of the alternatives that are right, which are those of the weights' own layout."""
    monkeypatch.setattr(_backend._timing, "ranking", lambda samples: list(samples)[::-1])
    monkeypatch.setattr(_backend._timing, "faster", lambda *_: (True, 2.0, None))
    prepared = []
    prepare = _backend.Prepared.__init__

    def init(self, *given):
        prepare(self, *given)
        self.prepare = lambda *weights, of=self.prepare: (prepared.append(self), of(*weights))[1]

    monkeypatch.setattr(_backend.Prepared, "__init__", init)
    return prepared


def convolutions():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 3), torch.nn.BatchNorm2d(64), torch.nn.ReLU(), torch.nn.Conv2d(64, 4, 3, bias=False)
    ).eval()
    with torch.no_grad():
        for norm in (model[1].weight, model[1].bias, model[1].running_mean, model[1].running_var):
            norm.copy_(torch.rand(64) + 0.5)
    return model


WEIGHTS_CHANGE = {
    "in place": lambda model: model[0].weight.mul_(2),
    "a buffer": lambda model: model[1].running_var.mul_(2),
    "another where it was": lambda model: put_where_it_was(model[0].weight, 2.0),
    "loaded": lambda model: model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()}),
}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("change", WEIGHTS_CHANGE.values(), ids=WEIGHTS_CHANGE)
def test_weights_are_prepared_once_and_again_where_they_change(change, mode, last_is_chosen):
    model, x = convolutions(), randn(2, 3, 9, 9)
    made = torch.compile(model, backend="quern")
    with mode():
        for _ in range(2):
            assert close(made(x), model(x))
        (region,) = _backend.regions
        assert isinstance(region.run, _backend.Prepared), region.why
        assert last_is_chosen.count(region.run) == 1
        change(model)
        for _ in range(2):
            assert close(made(x), model(x))
    assert last_is_chosen.count(region.run) == 2 and len(_backend.regions) == 1


def test_weights_that_count_no_changes_are_not_prepared(last_is_chosen):
    """Tensors made in inference mode; and a model may get such ones later."""
    x = randn(2, 3, 9, 9)
    with torch.inference_mode():
        model = convolutions()
        made = torch.compile(model, backend="quern")
        for _ in range(2):
            assert close(made(x), model(x))
            model[0].weight.mul_(2)
    assert not last_is_chosen


def test_options_have_a_sentence():
    with pytest.raises(Exception, match="the backend quern has no option mode"):
        torch.compile(torch.sin, backend="quern", options={"mode": 1})(randn(3))


def test_an_installed_package_is_found_by_name():
    text = (pathlib.Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    module, name = re.search(r'torch_dynamo_backends\]\nquern = "([\w.]+):(\w+)"', text).groups()
    assert module == _backend.__name__ and getattr(_backend, name) is _backend.quern
