# SPDX-License-Identifier: Apache-2.0
"""quern.torch.SwiGLUMLP as one node of autograd against the composition of its layers, which a hook on one of them asks
for: the same results and gradients, and whatever watches or replaces a layer is heard."""

import itertools

import pytest

torch = pytest.importorskip("torch")
import quern.torch  # noqa: E402

SwiGLUMLP = quern.torch.SwiGLUMLP
FORMS = [{}, {"bias": True}, {"fused": True}, {"fused": True, "bias": True, "layout": "interleaved"}]


def pair(seed=0, dtype=torch.float64, **form):
    """A module and its twin of the same weights, which is composed."""
    torch.manual_seed(seed)
    one = SwiGLUMLP(6, 10, dtype=dtype, **form)
    other = SwiGLUMLP(6, 10, dtype=dtype, **form)
    other.load_state_dict(one.state_dict())
    other.down_proj.register_forward_hook(lambda *_: None)
    quern.swiglu(torch.ones(2), torch.ones(2))  # PyTorch is known from here on
    return one, other


def is_one(y):
    return y.grad_fn.name() == "_MLPBackward"


def gradients(module, x, dy):
    x = x.detach().requires_grad_(x.requires_grad)
    module.zero_grad()
    y = module(x)
    y.backward(dy)
    return y, x.grad, [p.grad for p in module.parameters()]


@pytest.mark.parametrize("form, shape", itertools.product(FORMS, [(6,), (1, 6), (5, 6), (2, 3, 6), (0, 6)]))
def test_as_the_composition(form, shape):
    one, other = pair(**form)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    dy = torch.randn((*shape[:-1], 6), dtype=torch.float64)
    (y, dx, made), (wanted, wanted_dx, others) = gradients(one, x, dy), gradients(other, x, dy)
    assert is_one(y) and not is_one(wanted) and torch.equal(y, wanted)
    for mine, its in zip([dx, *made], [wanted_dx, *others]):
        torch.testing.assert_close(mine, its, rtol=1e-12, atol=1e-12)
        assert mine.is_contiguous()
    with torch.no_grad():
        assert torch.equal(one(x), wanted)


@pytest.mark.parametrize("form", FORMS)
def test_gradcheck(form):
    one, _ = pair(**form)
    names = [name for name, _ in one.named_parameters()]
    x = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)

    def call(x, *parameters):
        for name, parameter in zip(names, parameters):
            layer, _, word = name.partition(".")
            getattr(one, layer)._parameters[word] = parameter
        y = one(x)
        assert is_one(y)
        return y

    parameters = [p.detach().clone().requires_grad_() for p in one.parameters()]
    assert torch.autograd.gradcheck(call, (x, *parameters))


@pytest.mark.parametrize("form", FORMS)
def test_only_what_is_needed(form):
    """Every choice of frozen parameters."""
    one, other = pair(**form)
    n = len(list(one.parameters()))
    dy = torch.randn(4, 6, dtype=torch.float64)
    for needed in itertools.product([False, True], repeat=n + 1):
        if not any(needed):
            continue
        for module in (one, other):
            for parameter, is_needed in zip(module.parameters(), needed[1:]):
                parameter.requires_grad_(is_needed)
        x = torch.ones(4, 6, dtype=torch.float64, requires_grad=needed[0])
        (_, dx, made), (_, wanted_dx, others) = gradients(one, x, dy), gradients(other, x, dy)
        for mine, its, is_needed in zip([dx, *made], [wanted_dx, *others], needed):
            assert (mine is not None) == (its is not None) == is_needed
            if is_needed:
                torch.testing.assert_close(mine, its, rtol=1e-12, atol=1e-12)


def test_half_precision_and_spread_out_cotangents():
    one, other = pair(dtype=torch.bfloat16, activation="geglu", gate_multiplier=0.5, down_multiplier=2)
    x = torch.randn(64, 6, dtype=torch.bfloat16, requires_grad=True)
    y, made = one(x), other(x)
    assert is_one(y) and torch.equal(y, made)
    mine = torch.autograd.grad(y.sum(), [x, *one.parameters()])
    its = torch.autograd.grad(made.sum(), [x, *other.parameters()])
    for a, b in zip(mine, its):
        torch.testing.assert_close(a.float(), b.float(), rtol=2**-6, atol=2**-5)


def test_a_graph_that_is_kept_and_second_derivatives():
    one, other = pair()
    x = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    y = one(x)
    first, again = (torch.autograd.grad(y.sum(), x, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, again)
    for module in (one, other):
        dx, dw = torch.autograd.grad(module(x).square().sum(), [x, module.down_proj.weight], create_graph=True)
        assert dx.requires_grad and torch.allclose(dx, torch.autograd.grad(other(x).square().sum(), x)[0])
        with pytest.raises(RuntimeError, match="has no second derivative"):
            torch.autograd.grad(dx.sum(), x)


def test_a_weight_that_changed_before_the_backward_is_refused():
    one, _ = pair()
    y = one(torch.ones(2, 6, dtype=torch.float64))
    with torch.no_grad():
        one.down_proj.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def hooked(module, layer):
    seen = []
    layer.register_forward_hook(lambda *_: seen.append(1))
    return lambda: seen


def backward_hooked(module, layer):
    seen = []
    layer.register_full_backward_hook(lambda *_: seen.append(1))
    return lambda: seen


def watched(module, layer):
    seen = []
    handle = torch.nn.modules.module.register_module_forward_pre_hook(lambda *_: seen.append(1))
    return lambda: handle.remove() or len(seen) > 1


def patched(module, layer):
    seen, before = [], layer.forward
    layer.forward = lambda x: seen.append(1) or before(x)
    return lambda: seen


def patched_class(module, layer):
    seen, before = [], torch.nn.Linear.forward
    torch.nn.Linear.forward = lambda self, x: seen.append(1) or before(self, x)

    def end():
        torch.nn.Linear.forward = before
        return seen

    return end


def replaced(module, layer):
    seen = []

    class Mine(torch.nn.Linear):
        def forward(self, x):
            seen.append(1)
            return super().forward(x)

    module.up_proj = Mine(6, 10, bias=False, dtype=torch.float64)
    return lambda: seen


def parametrized(module, layer):
    seen = []

    class Twice(torch.nn.Module):
        def forward(self, w):
            seen.append(1)
            return 2 * w

    torch.nn.utils.parametrize.register_parametrization(layer, "weight", Twice())
    return lambda: seen


def pruned(module, layer):
    from torch.nn.utils import prune

    prune.l1_unstructured(layer, "weight", 0.5)
    return lambda: torch.count_nonzero(layer.weight) == 30


def compiled(module, layer):
    seen = []
    layer._compiled_call_impl = lambda x: seen.append(1) or torch.nn.Linear.forward(layer, x)
    return lambda: seen


def moved(module, layer):
    """The weight is an attribute and no parameter, as of modules under torch.nn.utils."""
    weight = layer.weight.detach()
    del layer.weight
    layer.weight = weight
    return lambda: True


WATCHERS = [hooked, backward_hooked, watched, patched, patched_class, replaced, parametrized, pruned, compiled, moved]


@pytest.mark.parametrize("watch", WATCHERS)
def test_whoever_watches_a_layer_is_heard(watch):
    one, _ = pair()
    x = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)
    assert is_one(one(x))
    heard = watch(one, one.up_proj)
    try:
        y = one(x)
        y.sum().backward()
    finally:
        found = heard()
    assert found and not is_one(y)


def test_autocast_casts():
    one, _ = pair(dtype=torch.float32)
    x = torch.randn(2, 6, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = one(x)
    assert y.dtype is torch.bfloat16 and not is_one(y)
    y.float().sum().backward()
    assert all(p.grad.dtype is torch.float32 for p in one.parameters())
    y = one(x)  # a backward within autocast
    with torch.autocast("cpu", torch.bfloat16):
        y.sum().backward()
    assert is_one(y)


def test_transforms_and_odd_tensors_are_left_to_pytorch():
    one, other = pair()
    x = torch.randn(3, 2, 6, dtype=torch.float64)
    with torch.no_grad():
        assert one.to("meta")(x.to("meta")).shape == x.shape
    one = pair()[0]
    y = torch.func.functional_call(one, dict(other.named_parameters()), x)
    assert is_one(y) and torch.equal(y, other(x))

    class Sub(torch.Tensor):
        pass

    found = []
    y = one(x.as_subclass(Sub))
    assert isinstance(y, Sub)
    assert torch.equal(y.as_subclass(torch.Tensor), one(x))
    with torch.no_grad():
        torch.func.jvp(lambda x: found.append(one._as_one(x)) or 2 * x, (x,), (x,))
        torch.vmap(lambda x: found.append(one._as_one(x)) or 2 * x)(x)
    assert found == [NotImplemented] * 2


@pytest.mark.parametrize("wrong", ["width", "type", "activation"])
def test_what_is_refused_is_refused_likewise(wrong):
    """The same exception with the same sentence as from the composition."""
    said = []
    for module in pair():
        if wrong == "activation":
            module.activation = "softmax"
        x = torch.ones(2, 5 if wrong == "width" else 6, dtype=torch.float32 if wrong == "type" else torch.float64)
        with pytest.raises((RuntimeError, ValueError)) as caught:
            module(x)
        said.append((caught.type, str(caught.value)))
    assert said[0] == said[1]


@pytest.mark.parametrize("is_tied", [False, True])
def test_a_graph_of_gradients_counts_no_way_twice(is_tied):
    """Where x comes from the same weights, or two weights are one tensor, each gradient is still of one place."""
    one, _ = pair()
    if is_tied:
        one.up_proj.weight = one.gate_proj.weight
    x = torch.randn(5, 6, dtype=torch.float64)
    found = [
        torch.autograd.grad(one(one(x)).sum(), list(one.parameters()), create_graph=more) for more in (False, True)
    ]
    for plain, graphed in zip(*found):
        torch.testing.assert_close(graphed, plain, rtol=1e-12, atol=1e-12)
