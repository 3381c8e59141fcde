# SPDX-License-Identifier: Apache-2.0
"""Convolutions as calls of cuDNN's entries: the graphs are those of a GPU, and the entries' arguments are held against
their schemas by a stand-in that computes on the processor. And as calls of oneDNN's, whose filters are laid once."""

import copy

import pytest

torch = pytest.importorskip("torch")
if not hasattr(torch.export, "default_decompositions"):
    pytest.skip("before torch 2.6 models cannot be captured", allow_module_level=True)

import torch.nn.functional as F  # noqa: E402
from quern.optimize import _capture, _convolutions, _fold, _graph, _onednn, _planner, _program, _search, _verify  # noqa: E402
from quern.optimize._report import Report  # noqa: E402
from torch_optimize_models import of, randn  # noqa: E402

w1, w2, w3 = randn(4, 2, 3), randn(4, 2, 3, 3), randn(4, 2, 2, 3, 3)
own, across, b = randn(4, 4, 3, 3), randn(4, 2, 3, 3), randn(4)
x1, x2, x3, x4 = randn(2, 2, 9), randn(2, 2, 9, 8), randn(2, 2, 5, 6, 7), randn(2, 4, 7, 6)


def residual(x):
    y = F.relu(F.conv2d(x, w2, b))
    return F.relu(F.conv2d(y, own, b, padding=1) + y)


# What is called, with what entries, and how many ReLUs a call takes.
CASES = {
    "1-D": (lambda x: F.relu(F.conv1d(x, w1, b, 2, 1)), x1, "cudnn_convolution", 1),
    "1-D transposed": (lambda x: F.conv_transpose1d(x, across[:, :, 0], b[:2], 2, 1, 1), x4[:, :, 0],
                       "cudnn_convolution_transpose", 0),
    "2-D": (lambda x: F.relu(F.conv2d(x, w2, b, (2, 1), (1, 2), (1, 2))), x2, "cudnn_convolution", 1),
    "no bias": (lambda x: F.conv2d(x, w2).exp(), x2, "cudnn_convolution", 0),
    "groups": (lambda x: F.relu(F.conv2d(x, across, b, 1, 1, 1, 2)), x4, "cudnn_convolution", 1),
    "2-D transposed": (lambda x: F.relu(F.conv_transpose2d(x, across, None, (2, 1), 1, (1, 0), 1, (1, 2))), x4,
                       "cudnn_convolution_transpose", 0),
    "3-D": (lambda x: F.conv3d(x, w3, b, padding=1), x3, "cudnn_convolution", 0),
    "residual": (residual, x2, "cudnn_convolution", 1),
}  # fmt: skip


def test_operands_are_rounded_to_tf32_in_convolutions_alone():
    x, w = randn(2, 2, 9, 8).double(), randn(4, 2, 3, 3).double()
    with _verify._AsTF32():
        got, other = F.conv2d(x, w), x * 3
    rounded = [torch.from_numpy((t.float().numpy().view("i4") + 4096 & -8192).view("f4")).double() for t in (x, w)]
    assert torch.equal(got, F.conv2d(*rounded)) and torch.equal(other, x * 3)
    assert not torch.equal(got, F.conv2d(x, w))


def test_rounding_to_tf32_is_no_error_where_the_switch_is_on(monkeypatch):
    """On data with heavy tails, where the module's own convolution happens to be in float32."""
    model = torch.nn.Conv2d(2, 4, 3, bias=False)
    reference = _verify.Reference(model, model, (x2,), {})
    hard = reference.call(2)
    with _verify._AsTF32():
        rounded = F.conv2d(hard[0][0].double(), model.weight.detach().double()).float()
    with torch.no_grad():
        plain = model(*hard[0])
    assert not reference.rounds and not reference._as_exact(2, hard, rounded, plain)
    reference.rounds = True
    assert reference._as_exact(2, hard, rounded, plain)
    assert not reference._as_exact(2, hard, rounded + 0.01 * rounded.abs().max(), plain)
    reference.device = "cuda"
    assert reference.rounds and reference._may_round()
    monkeypatch.setattr(_convolutions, "allows_tf32", lambda: False)
    assert not reference._may_round()


@pytest.mark.parametrize("model, rounds", [(torch.nn.Conv2d(2, 4, 3), True), (torch.nn.Softmax(1), False)])
def test_a_model_without_convolutions_is_computed_once_in_float64(monkeypatch, model, rounds):
    monkeypatch.setattr(_verify.Reference, "_may_round", lambda self: True)
    reference = _verify.Reference(model, model, (x2,), {})
    assert reference.rounds == rounds and (reference.error > 2e-5) == rounds


def values_of(captured):
    """Of a graph's inputs, by name."""
    users = {user: leaf for user, leaf in zip(captured.users, captured.leaves) if user}
    return {slot.name: slot.tensor for slot in captured.slots} | users


def convolution(x, w, bias, stride, padding, dilation, groups, transposed=False, more=(0,)):
    return torch.ops.aten.convolution.default(x, w, bias, stride, padding, dilation, transposed, more, groups)


STAND_INS = {
    "aten.cudnn_convolution.default": lambda self, weight, padding, stride, dilation, groups, benchmark, deterministic,
    allow_tf32: convolution(self, weight, None, stride, padding, dilation, groups),
    "aten.cudnn_convolution_transpose.default": lambda self, weight, padding, output_padding, stride, dilation, groups,
    benchmark, deterministic, allow_tf32: convolution(self, weight, None, stride, padding, dilation, groups, True,
                                                      output_padding),
    "aten.cudnn_convolution_relu.default": lambda self, weight, bias, stride, padding, dilation, groups:
        convolution(self, weight, bias, stride, padding, dilation, groups).relu(),
    "aten.cudnn_convolution_add_relu.default": lambda self, weight, z, alpha, bias, stride, padding, dilation, groups:
        (convolution(self, weight, bias, stride, padding, dilation, groups) + alpha * z).relu(),
}  # fmt: skip


def checked(op):
    """The stand-in, called as the op's schema has its arguments."""
    schema, stand_in = _graph_target(op)._schema, STAND_INS[op]

    def run(*args):
        names = [argument.name for argument in schema.arguments]
        assert len(args) == len(names)
        return stand_in(**dict(zip(names, args)))

    return run


_graph_target = _graph.target


@pytest.mark.parametrize("name", CASES)
def test_the_calls_compute_what_the_graph_does(name, monkeypatch):
    function, x, entry, relus = CASES[name]
    monkeypatch.setattr(_graph, "target", lambda op: checked(op) if op in STAND_INS else _graph_target(op))
    captured = _capture.capture(of(function), (x,), {}, torch.device("cpu"))
    graph = copy.deepcopy(captured.graph)
    assert _convolutions.variants(graph, captured.constants) == []  # a processor has no cuDNN
    graph.device = "cuda"
    values = values_of(captured)
    found = dict(_convolutions.variants(graph, captured.constants))
    names = [", convolutions measured"] + [", ReLU in convolutions"] * (relus > 0)
    assert list(found) == [*names, _convolutions.OWN]
    convolutions = sum(node.op == "aten.convolution.default" for node in graph.nodes)
    measured = [node.op for node in found[names[0]].nodes]
    assert measured.count(f"aten.{entry}.default") == convolutions and "aten.convolution.default" not in measured
    if relus:
        joined = [node.op for node in found[names[1]].nodes]
        assert "aten.convolution.default" not in joined and "aten.relu.default" not in joined
        assert ("aten.cudnn_convolution_add_relu.default" in joined) == (name == "residual")
    (want,) = _fold.evaluate(graph, values)
    for made in found.values():

        def hold(node, value, run, made=made):
            assert tuple(value.shape) == node.results[0].shape, node

        (got,) = _fold.evaluate(made, values, hold)
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
        assert made.meta(made.wanted()[0]) == graph.meta(graph.wanted()[0])


class Branches(torch.nn.Module):
    """Five convolutions of one tensor, of which two are alike in all but channels, with and without a bias, and one of
    these has a filter that is computed between them."""

    def __init__(self):
        super().__init__()
        sides = {"a": (5, 1, True), "b": (3, 1, False), "c": (2, 3, True), "d": (4, 3, True)}
        for name, (channels, side, bias) in sides.items():
            self.add_module(name, torch.nn.Conv2d(4, channels, side, padding=side // 2, bias=bias))
        self.behind = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.d.dilation, self.d.padding = (2, 2), (2, 2)
        self.e = torch.nn.Conv2d(4, 2, 3)

    def forward(self, x):
        first, second = self.a(x), F.conv2d(x, self.b.weight * 2)
        return torch.cat([first, self.behind(second), self.c(x), self.d(x)], 1), self.e(x)


@pytest.mark.parametrize("last", [False, True])
def test_convolutions_of_one_tensor_are_one_call(last, monkeypatch):
    monkeypatch.setattr(_graph, "target", lambda op: checked(op) if op in STAND_INS else _graph_target(op))
    captured = _capture.capture(Branches(), (x4,), {}, torch.device("cpu"))
    graph = _fold.channels_last(captured.graph, captured.constants) if last else captured.graph
    graph.device = "cuda"
    made = dict(_convolutions.variants(graph, captured.constants))[", convolutions together"]
    assert [node.op for node in made.nodes].count("aten.cudnn_convolution.default") == 5  # a with b, and four others
    prepare, main = _fold.split(made, captured.constants, captured.users)
    assert any(node.op == "aten.cat.default" for node in prepare.nodes)  # filters are put together once
    reads = [step for step in _planner.plan(main)["steps"] if step["kind"] == "extern"]
    assert len(reads) == 5  # slices are no copies of their own

    def hold(node, value, run):
        said = node.results[0]
        assert tuple(value.shape) == said.shape, node
        assert all(a == b or n == 1 for a, b, n in zip(value.stride(), said.strides, said.shape)), node

    values = values_of(captured)
    with torch.no_grad():
        want, got = _fold.evaluate(graph, values), _fold.evaluate(made, values, hold)
    torch.testing.assert_close(got, want)


def test_the_plans_own_kernels_compute_convolutions_in_tf32():
    """The plan of a GPU, run on the processor; and one where the second convolution is cuDNN's."""

    def model(x):
        y = F.conv3d(x, w3, b, padding=1).relu()
        y = F.conv3d(y, w4, None, stride=(1, 2, 1))
        return F.conv_transpose3d(y, w5, b[:3], stride=2, padding=1, output_padding=1)

    w4, w5 = randn(8, 4, 1, 3, 2), randn(8, 3, 3, 2, 3)
    captured = _capture.capture(of(model), (x3,), {}, torch.device("cpu"))
    graph = captured.graph
    values = values_of(captured)
    graph.device = "cuda"
    names = [node.name for node in graph.nodes if node.op == "aten.convolution.default"]
    whole = dict(_convolutions.variants(graph, captured.constants))[_convolutions.OWN]
    mixed = _convolutions.own(graph, names[1:2])
    plans = [_planner.plan(made) for made in (whole, mixed)]
    for plan, kernels in zip(plans, (names, [names[0], names[2]])):
        steps = [step for step in plan["steps"] if step["kind"] == "kernel" and "convolution" in step["name"]]
        assert [step["nodes"][0] for step in steps] == kernels
        assert all(step["dialect"] == "cuda" for step in steps)
    assert [node.op for node in mixed.nodes].count("aten.cudnn_convolution.default") == 1
    (exact,) = _fold.evaluate(graph, {name: value.double() for name, value in values.items()})
    (got,) = _program.build(whole, plans[0], None, "own").plan(*(values[name] for name in whole.inputs))
    far = (got.double() - exact).abs().max() / exact.abs().max()
    assert got.stride() == exact.stride() and 1e-6 < far < 2e-3  # rounded to tf32, and to nothing shorter


def depthwise(*sizes, **how):
    w, bias = randn(sizes[1], 1, *how.pop("kernel")), randn(sizes[1])
    function = (F.conv1d, F.conv2d, F.conv3d)[len(sizes) - 3]
    return randn(*sizes), lambda x: function(x, w, bias, groups=sizes[1], **how)


# Convolutions of each channel alone, between ops of one element; whether the op before is in their kernel.
ALONE = {
    "1-D": (depthwise(2, 6, 40, kernel=(5,), stride=2, padding=3), F.relu, True),
    "2-D": (depthwise(2, 3, 13, 11, kernel=(5, 3), stride=(2, 1), padding=(2, 1)), F.relu6, True),
    "dear": (depthwise(2, 3, 13, 11, kernel=(3, 3), padding=1), F.silu, False),
    "dilated": (depthwise(1, 4, 15, 14, kernel=(3, 3), padding=3, dilation=(2, 3)), F.hardswish, True),
    "3-D": (depthwise(1, 3, 6, 7, 8, kernel=(2, 3, 3), stride=(1, 2, 1), padding=1), F.relu, True),
    "no padding": (depthwise(2, 3, 13, 11, kernel=(3, 3)), F.relu, True),
}  # fmt: skip


@pytest.mark.parametrize("name, last", [*((name, False) for name in ALONE), ("2-D", True), ("dilated", True)])
def test_convolutions_of_each_channel_alone_are_fused(name, last):
    """The plan of a GPU, run on the processor."""
    (x, function), before, joined = ALONE[name]
    x = x.contiguous(memory_format=torch.channels_last) if last else x.clone()
    x.select(2, 0)[0, 0], x.select(2, 4)[0, 1] = float("nan"), float("inf")
    captured = _capture.capture(of(lambda x: function(before(x)).tanh()), (x,), {}, torch.device("cpu"))
    graph, values = captured.graph, values_of(captured)
    graph.device = "cuda"
    assert [step["kind"] for step in _planner.plan(graph)["steps"]].count("extern") == 1
    made = _convolutions.own(graph)
    _, main = _fold.split(made, captured.constants, captured.users)
    assert [step["kind"] for step in _planner.plan(main)["steps"]] == ["kernel"] * (1 if joined else 2)
    (want,) = _fold.evaluate(graph, values)
    (got,) = _program.build(made, _planner.plan(made), None, "own").plan(*(values[name] for name in made.inputs))
    assert want.isnan().any() and got.stride() == want.stride()
    torch.testing.assert_close(got, want, equal_nan=True)
    (name,) = [node.name for node in graph.nodes if node.op == "aten.convolution.default"]
    assert [node.op for node in _convolutions.own(graph, [name]).nodes].count("aten.cudnn_convolution.default") == 1


tall = randn(4, 1, 13, 5)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda x: F.conv2d(x, tall, None, 1, (6, 2), 1, 4), "a filter of more than 64 elements"),
        (
            lambda x: F.conv_transpose2d(x, tall, None, 2, (6, 2), 0, 4),
            "a transposed convolution of each channel",
        ),
    ],
)
def test_convolutions_of_each_channel_alone_that_stay(function, why):
    graph = _capture.capture(of(function), (x4,), {}, torch.device("cpu")).graph
    graph.device = "cuda"
    (note,) = _planner.plan(_convolutions.own(graph))["notes"]
    assert note["why"].startswith(why)


def test_convolutions_stay_cudnns_without_tf32(monkeypatch):
    captured = _capture.capture(of(lambda x: F.conv2d(x, w2)), (x2,), {}, torch.device("cpu"))
    graph = copy.deepcopy(captured.graph)
    graph.device = "cuda"
    assert [way for way, _ in _convolutions.variants(graph, captured.constants)] == [
        ", convolutions measured",
        _convolutions.OWN,
    ]
    monkeypatch.setattr(_convolutions, "allows_tf32", lambda: False)
    assert [way for way, _ in _convolutions.variants(graph, captured.constants)] == [", convolutions measured"]


@pytest.mark.parametrize("name", [name for name in CASES if "1-D" not in name])
def test_filters_are_laid_once_for_onednn(name):
    function, x, _, _ = CASES[name]
    x = x.clone()
    x[0, 0, 0, 0], x[1, 1, 1, 1] = float("nan"), float("inf")
    captured = _capture.capture(of(function), (x,), {}, torch.device("cpu"))
    graph, values, n = captured.graph, values_of(captured), 1 + (name == "residual")
    assert _convolutions.variants(graph, captured.constants) == []  # such a call gives channels_last
    last = _fold.channels_last(graph, captured.constants)
    assert _convolutions.variants(last, []) == []  # filters that each call brings
    ((way, made),) = _convolutions.variants(last, captured.constants)
    assert way == _onednn.LAID
    prepare, main = _fold.split(made, captured.constants, captured.users)
    assert sum("_reorder_" in node.op for node in prepare.nodes) == n
    assert sum("_pointwise" in node.op for node in main.nodes) == n
    assert all(node.op != "aten.convolution.default" for node in main.nodes)

    def hold(node, value, run):
        if node.op.startswith("mkldnn._convolution"):
            assert (value.shape, value.stride()) == (node.results[0].shape, node.results[0].strides), node

    (want,), (got,) = _fold.evaluate(graph, values), _fold.evaluate(made, values, hold)
    assert want.isnan().any()
    torch.testing.assert_close(got, want, equal_nan=True)
    assert got.stride() == want.stride()


def test_filters_laid_once_follow_the_weights():
    """An optimizer's step changes them in place."""
    model = torch.nn.Sequential(torch.nn.Conv2d(2, 8, 3), torch.nn.ReLU(), torch.nn.ConvTranspose2d(8, 3, 2))
    search = _search.Search(model, model.forward, (x2,), {}, Report())
    (laid,) = [one for one in search.alternatives() if one.name.endswith(_onednn.LAID)]
    fast = search.fast(laid)
    with torch.no_grad():
        for change in (1.0, 0.5):
            for weight in model.parameters():
                weight.mul_(change)
            torch.testing.assert_close(fast(x2), model(x2))
