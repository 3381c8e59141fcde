# SPDX-License-Identifier: Apache-2.0
"""Convolutions as calls of cuDNN's entries: the graphs are those of a GPU, and the entries' arguments are held against
their schemas by a stand-in that computes on the processor."""

import copy

import pytest

torch = pytest.importorskip("torch")
if not hasattr(torch.export, "default_decompositions"):
    pytest.skip("before torch 2.6 models cannot be captured", allow_module_level=True)

import torch.nn.functional as F  # noqa: E402
from quern.optimize import _capture, _convolutions, _fold, _graph, _verify  # noqa: E402
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
    assert _convolutions.variants(graph) == []  # a processor has no cuDNN
    graph.device = "cuda"
    values = {slot.name: slot.tensor for slot in captured.slots} | {
        user: leaf for user, leaf in zip(captured.users, captured.leaves) if user
    }
    found = dict(_convolutions.variants(graph))
    names = [", convolutions measured"] + [", ReLU in convolutions"] * (relus > 0)
    assert list(found) == names
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
        assert made.meta(made.wanted()[0]) == graph.meta(graph.wanted()[0])
