# SPDX-License-Identifier: Apache-2.0
"""Products of a model as calls of gemm_norm: what each takes of the nodes behind it, what it leaves, and the values."""

import pytest

torch = pytest.importorskip("torch")
if not hasattr(torch.export, "default_decompositions"):
    pytest.skip("before torch 2.6 models cannot be captured", allow_module_level=True)

import quern.torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from quern.optimize import _capture, _products, _search, _verify  # noqa: E402
from quern.optimize._graph import Unplannable  # noqa: E402
from quern.optimize._report import Report  # noqa: E402
from torch_optimize_models import of, randn  # noqa: E402

M, K, N = 6, 20, 24
x, w, v = randn(M, K), randn(N, K), [randn(N) for _ in range(4)]
rows, square, batch = randn(M, 1), randn(M, N), randn(2, K, 5)


def linear(t, *bias):
    return F.linear(t, w, *bias)


NOTHING = {"clamp": False, "activation": "none", "norm": "none"}
# The function of x, what its first product is, and how many other nodes than products and views stay.
TAKEN = {
    "plain": (lambda t: t @ w.t(), {}, 0),
    "bias": (lambda t: linear(t, v[0]), {"biases": 1}, 0),
    "two biases": (lambda t: v[1] + linear(t, v[0]), {"biases": 2}, 0),
    "two added": (lambda t: linear(t) + v[0] + v[1], {"biases": 2}, 0),
    "clamp": (lambda t: linear(t).clamp(-0.5, 2), {"clamp": True, "lo": -0.5, "hi": 2.0}, 0),
    "hardtanh": (lambda t: F.hardtanh(linear(t)), {"clamp": True, "lo": -1.0, "hi": 1.0}, 0),
    **{
        name: (lambda t, f=f: f(linear(t, v[0])), {"biases": 1, "activation": name}, 0)
        for name, f in [("relu", F.relu), ("gelu", F.gelu), ("silu", F.silu), ("mish", F.mish),
                        ("gelu_tanh", lambda t: F.gelu(t, approximate="tanh")),
                        ("sigmoid", torch.sigmoid), ("tanh", torch.tanh)]
    },
    "layer": (lambda t: F.layer_norm(linear(t), [N], v[0], v[1], 1e-3), {"norm": "layer", "eps": 1e-3, "affine": 2}, 0),
    "group": (lambda t: F.group_norm(linear(t), 4, v[0], v[1]), {"norm": "group", "groups": 4, "affine": 2}, 0),
    "no affine": (lambda t: F.group_norm(linear(t), 2), {"norm": "group", "groups": 2}, 0),
    "rms": (lambda t: F.rms_norm(linear(t), [N], eps=1e-3), {"norm": "rms", "eps": 1e-3}, 0),
    "rms affine": (lambda t: F.rms_norm(linear(t), [N], v[2], 1e-3), {"norm": "rms", "eps": 1e-3, "affine": 1}, 0),
    "all": (lambda t: F.group_norm(F.mish(F.hardtanh(linear(t, v[0]) + v[1])), 4, v[2], v[3]),
            {"biases": 2, "clamp": True, "activation": "mish", "norm": "group", "groups": 4, "affine": 2}, 0),
    "view": (lambda t: F.layer_norm(F.gelu(F.linear(t.view(2, 3, K), w, v[0])), [N]),
             {"biases": 1, "activation": "gelu", "norm": "layer"}, 0),
    "columns first": (lambda t: torch.relu(t.t() @ square), {"activation": "relu"}, 2),
}  # fmt: skip
LEFT = {
    "read twice": (lambda t: (lambda y: torch.relu(y) * y.exp())(linear(t)), {}, 3),
    "an output": (lambda t: (lambda y: (y, torch.relu(y)))(linear(t)), {}, 1),
    "a third bias": (lambda t: linear(t, v[0]) + v[1] + v[2], {"biases": 2}, 1),
    "a bias of rows": (lambda t: linear(t) + rows, {}, 1),
    "a bias times 2": (lambda t: torch.add(linear(t), v[0], alpha=2), {}, 1),
    "one bound": (lambda t: linear(t).clamp(min=0.5), {}, 1),
    "clamped behind": (lambda t: torch.relu(linear(t)).clamp(-1, 0.5), {"activation": "relu"}, 1),
    "a bias behind": (lambda t: torch.relu(linear(t)) + v[0], {"activation": "relu"}, 1),
    "other columns": (lambda t: F.layer_norm(linear(t).view(M, 2, N // 2), [N // 2]), {}, 1),
    "groups of a view": (lambda t: F.group_norm(F.linear(t.view(2, 3, K), w).transpose(1, 2), 4), {}, 1),
    "another gate": (lambda t: (lambda y: y * torch.sigmoid(2 * y))(linear(t)), {}, 3),
    "another softplus": (lambda t: (lambda y: y * torch.tanh(F.softplus(y, threshold=1)))(linear(t)), {}, 8),
    "the mean of rows": (lambda t: (lambda y: y * torch.rsqrt(y.pow(2).mean(0, True) + 1))(linear(t)), {}, 5),
}
ALL = {**TAKEN, **LEFT}


def settings_of(node):
    vectors = node.args[2:]
    found = {key: value for key, value in node.kwargs.items() if key != "precision"}
    found |= {"biases": sum(v is not None for v in vectors[:2]), "affine": sum(v is not None for v in vectors[2:])}
    return found


def captured(function, *args):
    return _capture.capture(of(function), args, {}, torch.device("cpu")).graph


@pytest.mark.parametrize("name", ALL)
def test_a_product_takes_what_it_can_compute(name):
    function, want, left = ALL[name]
    graph = _products.fuse(captured(function, x), "fp32")
    (product,) = [node for node in graph.nodes if node.op == "quern.gemm_norm.default"]
    default = {**NOTHING, "groups": 1, "lo": -1.0, "hi": 1.0, "eps": 1e-5, "biases": 0, "affine": 0}
    assert settings_of(product) == {**default, **want}
    views = ("aten.view.default", "aten.permute.default", "quern.gemm_norm.default")
    assert len([node for node in graph.nodes if node.op not in views]) == left


@pytest.mark.parametrize("name", ALL)
def test_values_are_the_modules(name):
    model = of(ALL[name][0])
    search = _search.Search(model, model, (x,), {}, Report())
    (alternative,) = [one for one in search.alternatives() if "products" in one.name]
    reference = _verify.Reference(model, model, (x,), {})
    fast = search.fast(alternative)
    assert fast.results((x,), {}) is not None  # the plan ran, not the module
    assert reference.wrong(fast, infinities=False) == ""


def test_bf16_products_read_their_vectors_in_float32():
    half = [t.bfloat16() for t in (x, w, v[0])]
    model = of(lambda a, b, c: torch.relu(F.linear(a, b, c)))
    search = _search.Search(model, model, tuple(half), {}, Report())
    (alternative,) = [one for one in search.alternatives() if one.name == "fused, products in bf16"]
    assert _verify.Reference(model, model, tuple(half), {}).wrong(search.fast(alternative), infinities=False) == ""


def test_products_without_elements_and_others_stay():
    for function in (lambda t: t[:0] @ w.t(), lambda t: t[:, :0] @ w[:, :0].t(), lambda t: torch.relu(t),
                     lambda t: t.view(2, 3, K) @ batch, lambda t: torch.addmm(square, t, w.t()),
                     lambda t: torch.addmm(v[0], t, w.t(), beta=2)):  # fmt: skip
        graph = captured(function, x)
        assert _products.precisions(graph) == []
        with pytest.raises(Unplannable):
            _products.fuse(graph, "fp32")


def test_classes_follow_types_device_and_pytorchs_switch():
    graph = captured(TAKEN["plain"][0], x)
    assert _products.precisions(graph) == ["fp32"]
    graph.device = "cuda"
    assert _products.precisions(graph) == ["fp32", "tf32x3", "f16x3", "bf16x3"]
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        assert _products.precisions(graph) == ["fp32", "tf32x3", "f16x3", "bf16x3", "tf32"]
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    assert _products.precisions(captured(lambda t: t.double() @ w.double().t(), x)) == []


def test_each_class_is_a_graph_and_the_models_own_calls_keep_theirs():
    own = lambda t: quern.torch.gemm_norm(t, w, precision="bf16") + F.linear(t, w)  # noqa: E731
    graph = captured(own, x)
    graph.device = "cuda"
    found = _products.variants(graph)
    assert list(found) == ["fp32", "tf32x3", "f16x3", "bf16x3"]
    for word, made in found.items():
        calls = [node for node in made.nodes if node.op == "quern.gemm_norm.default"]
        assert sorted([node.kwargs.get("precision") or node.args[-1] for node in calls]) == sorted([word, "bf16"])
        assert [len(node.kwargs) for node in calls if node.args[-1] == "bf16"] == [0]
    assert [node.op for node in graph.nodes].count("aten.mm.default") == 1  # is as it was


def test_infinities_are_held_against_the_module_only_where_they_are_promised():
    """silu(-inf) is NaN in PyTorch and 0 in gemm_norm."""
    model = of(TAKEN["silu"][0])
    search = _search.Search(model, model, (x,), {}, Report())
    (alternative,) = [one for one in search.alternatives() if "products" in one.name]
    reference, fast = _verify.Reference(model, model, (x,), {}), search.fast(alternative)
    assert "nan" in reference.wrong(fast)
    assert not alternative.infinities
    assert all(one.infinities for one in search.alternatives() if "products" not in one.name)
