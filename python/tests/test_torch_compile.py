# SPDX-License-Identifier: Apache-2.0
"""torch ops as PyTorch's compiler sees them: its own checks of schema, fake implementation and functionalization,
whole training steps in one graph, no copy of a parameter that eager mode would not make, and no compilation for a new
learning rate."""

import copy

import pytest

torch = pytest.importorskip("torch")

import torch_oracle as oracle  # noqa: E402
from quern.torch import ops  # noqa: E402
from quern.torch.lion_names import LionOptimizerStep, lion_foreach, lion_step  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402
from torch.library import opcheck  # noqa: E402

NEW = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 5)
needs_lists = pytest.mark.skipif(not NEW, reason="before torch 2.5 no compiler knows ops that mutate lists")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
F32, BF16 = torch.float32, torch.bfloat16


def lists(device, types=(F32, F32, F32), shapes=((5, 7), (), (3,), (0,), (2, 3, 4))):
    random = torch.Generator().manual_seed(0)
    return [[torch.randn(s, generator=random).to(device, dtype) for s in shapes] for dtype in types]


def settings_on(device):
    return [
        {},
        dict(lr=0.1, weight_decay=0.1, cautious=True, maximize=True, decay="relative"),
        dict(rounding="stochastic", seed=3, step=4, tensor_id=[3, 4, 5, 6, 7], first_element=[0, 0, 0, 0, 9]),
        dict(grad_scale=torch.full((), 2.0, device=device), found_inf=torch.zeros((), device=device)),
    ]


@pytest.fixture(autouse=True)
def fresh():
    """Nothing compiled, nothing counted."""
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


# ---- PyTorch's own checks ----
@needs_lists
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("types", [(F32, F32, F32), (BF16, BF16, F32), (BF16, BF16, BF16, F32)])
@pytest.mark.parametrize("which", range(4))
def test_opcheck_finds_nothing_over_lists(device, types, which):
    settings = settings_on(device)[which]
    opcheck(ops.lion_.packet.default, tuple(lists(device, types)), settings)


@needs_lists
@pytest.mark.parametrize("device", DEVICES)
def test_opcheck_finds_nothing_over_tensors_in_the_place_of_numbers(device):
    for place in {"cpu", device}:
        numbers = dict(lr=torch.tensor(0.1, device=place), weight_decay=torch.tensor(0.5, device=place))
        opcheck(ops.lion_.packet.live, tuple(lists(device)), numbers)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("types", [(F32, F32, F32), (BF16, BF16, F32), (BF16, BF16, BF16, F32)])
def test_opcheck_finds_nothing_over_single_tensors(device, types):
    for place in range(4):
        tensors = tuple(of_role[place] for of_role in lists(device, types))
        opcheck(ops.lion_.packet.single, tensors, dict(lr=0.1, weight_decay=0.1))
        opcheck(ops.lion_.packet.single_live, tensors, dict(lr=torch.tensor(0.1)))


@pytest.mark.parametrize("device", DEVICES)
def test_opcheck_finds_nothing_under_the_other_names(device):
    p, g, m = lists(device)
    opcheck(lion_step.packet.default, (p[0], m[0], g[0], 0.1, 0.9, 0.99, 0.1, 1e-8))
    if NEW:
        opcheck(lion_foreach.packet.default, (p, m, g, 0.1, 0.9, 0.99, 0.1, 1e-8))


@needs_lists
def test_opcheck_finds_nothing_over_empty_lists():
    opcheck(ops.lion_.packet.default, ([], [], []), dict(lr=0.1))


# ---- training steps ----
class Training:
    """A small model, its momentum, and a whole training step: forward, backward and update."""

    def __init__(self, device, dtype=F32, masters=False):
        random = torch.Generator().manual_seed(0)
        self.weights = [torch.randn(s, generator=random).mul(0.3).to(device, dtype) for s in ((8, 16), (16,), (16, 1))]
        self.momenta = [torch.zeros_like(weight, dtype=F32) for weight in self.weights]
        self.masters = [weight.float() for weight in self.weights] if masters else None
        self.inputs = torch.randn(4, 8, generator=random).to(device, dtype)

    def loss(self, w1, b, w2):
        return (torch.tanh(self.inputs @ w1 + b) @ w2).square().mean()

    def grads(self):
        leaves = [weight.detach().requires_grad_() for weight in self.weights]
        return torch.autograd.grad(self.loss(*leaves), leaves)

    def state(self):
        return [*self.weights, *self.momenta, *(self.masters or [])]

    def compiled(self, call, **options):
        """`call(weights, grads, momenta, masters, lr, step)` as one graph."""
        update = torch.compile(torch.no_grad()(call), fullgraph=True, **options)
        return lambda lr, step: update(self.weights, self.grads(), self.momenta, self.masters, lr, step)

    def eager(self, call):
        return lambda lr, step: call(self.weights, self.grads(), self.momenta, self.masters, lr, step)


def update(weights, grads, momenta, masters, lr, step):
    ops.lion_(weights, grads, momenta, masters, lr=lr, weight_decay=0.1, rounding="stochastic", seed=1, step=step)


def same(one, other):
    return all(oracle.same_bits(a, b) for a, b in zip(one.state(), other.state()))


BACKENDS = ["aot_eager", "inductor"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "masters"), [(F32, False), (BF16, False), (BF16, True)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_compiled_steps_have_the_bits_of_eager_ones(device, dtype, masters, backend):
    ours, theirs = Training(device, dtype, masters), Training(device, dtype, masters)
    step, expected = ours.compiled(update, backend=backend), theirs.eager(update)
    before = copy.deepcopy(ours)
    for k in range(4):
        step(0.01, k)
        expected(0.01, k)
    assert same(ours, theirs)
    assert not same(ours, before)
    assert not counters["graph_break"]


def by_step(weights, grads, momenta, masters, lr, step):
    for p, g, m in zip(weights, grads, momenta):
        lion_step(p, m, g, lr, 0.9, 0.99, 0.1, 1e-8)


def by_foreach(weights, grads, momenta, masters, lr, step):
    lion_foreach(weights, momenta, grads, lr, 0.9, 0.99, 0.1, 1e-8)


def by_layer(weights, grads, momenta, masters, lr, step):
    layer = LionOptimizerStep()
    for p, g, m in zip(weights, grads, momenta):
        layer(p, m, g, lr, 0.9, 0.99, 0.1, 1e-8)


@pytest.mark.parametrize(
    "call",
    [by_step, by_layer, pytest.param(by_foreach, marks=needs_lists)],
)
def test_the_other_names_are_traced_too(call):
    ours, theirs = Training("cpu"), Training("cpu")
    step, expected = ours.compiled(call, backend="aot_eager"), theirs.eager(call)
    for k in range(3):
        step(0.01, k)
        expected(0.01, k)
    assert same(ours, theirs)


@needs_lists
@pytest.mark.parametrize("device", DEVICES)
def test_a_model_forward_backward_and_update_in_one_graph(device):
    """The parameters require grad, as a model's do; what the graph mutates are the parameters themselves."""
    ours, theirs = Training(device), Training(device)

    def train(weights, momenta, inputs, lr):
        def loss(w1, b, w2):
            return (torch.tanh(inputs @ w1 + b) @ w2).square().mean()

        grads = torch.func.grad(loss, argnums=(0, 1, 2))(*weights)
        with torch.no_grad():
            ops.lion_(weights, list(grads), momenta, lr=lr)

    compiled = torch.compile(train, fullgraph=True, backend="aot_eager")
    for weight in ours.weights + theirs.weights:
        weight.requires_grad_()
    places = [weight.data_ptr() for weight in ours.weights]
    for _ in range(3):
        compiled(ours.weights, ours.momenta, ours.inputs, 0.01)
        train(theirs.weights, theirs.momenta, theirs.inputs, 0.01)
    for a, b in zip(ours.state(), theirs.state()):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    assert [weight.data_ptr() for weight in ours.weights] == places
    assert not counters["graph_break"]


@pytest.mark.parametrize("device", DEVICES)
def test_no_copy_of_what_is_updated_is_made(device, monkeypatch):
    """Functionalization makes copies, and inductor must take them out again: the code that it generates calls the op on
    the graph's own inputs, and nothing else."""
    ours = Training(device)
    codes = []
    from torch._inductor.graph import GraphLowering

    name = "codegen"
    whole = getattr(GraphLowering, name)

    def seen(self, *args, **kwargs):
        code = whole(self, *args, **kwargs)
        codes.append(code[0] if isinstance(code[0], str) else code[0].value)
        return code

    monkeypatch.setattr(GraphLowering, name, seen)
    with torch._inductor.config.patch(force_disable_caches=True):
        ours.compiled(update)(0.01, 3)
    (code,) = codes
    body = code[code.index("def call(") : code.index("def benchmark_compiled_module")]
    assert "quern.lion_" in body
    for word in ("empty_strided", "clone", "copy_", "reinterpret_tensor", "fused"):
        assert word not in body, body


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_schedule_of_floats_is_compiled_for_once(backend):
    """The first value is taken for a constant, the second shows that it is none; then nothing is compiled any more. A
    step that counts up is the same."""
    ours, theirs = Training("cpu"), Training("cpu")
    step, expected = ours.compiled(update, backend=backend), theirs.eager(update)
    graphs = []
    for k in range(6):
        step(0.01 / (k + 1), k)
        expected(0.01 / (k + 1), k)
        graphs.append(counters["stats"]["unique_graphs"])
    assert same(ours, theirs)
    if NEW:
        assert graphs == [1, 2, 2, 2, 2, 2]
    else:  # before torch 2.5 floats are constants, whoever asks
        assert graphs == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_schedule_of_tensors_is_compiled_for_once(device, backend):
    ours, theirs = Training(device), Training(device)
    step, expected = ours.compiled(update, backend=backend), theirs.eager(update)
    lr = torch.tensor(0.01, device=device)
    graphs = []
    for k in range(5, 10):  # 0 and 1 are constants to torch.compile
        step(lr, k)
        expected(lr.clone(), k)
        lr *= 0.5
        graphs.append(counters["stats"]["unique_graphs"])
    assert same(ours, theirs)
    assert graphs == [1, 2, 2, 2, 2]  # the second for the step, which is seen to change


def test_inputs_that_autograd_would_follow_are_refused_when_traced():
    weights = [torch.ones(3, requires_grad=True)]
    others = [torch.ones(3)], [torch.ones(3)]
    call = torch.compile(lambda: ops.lion_(weights, *others), fullgraph=True, backend="eager")
    with pytest.raises(Exception, match="requires grad while gradients are recorded"):
        call()
    assert torch.equal(weights[0], torch.ones(3))


@needs_lists
def test_lists_that_do_not_fit_are_refused_when_traced():
    call = torch.compile(lambda a, b, c: ops.lion_(a, b, c), fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="params has 2 tensors and grads 1"):
        call([torch.ones(3)] * 2, [torch.ones(3)], [torch.zeros(3)] * 2)
