# SPDX-License-Identifier: Apache-2.0
"""Ops over rows and columns on a processor: each is a kernel, right on every kind of data, and in PyTorch's class of
precision, whose own sums and scans are in double or by pairs."""

import pytest

torch = pytest.importorskip("torch")
if not hasattr(torch.export, "default_decompositions"):
    pytest.skip("before torch 2.6 models cannot be captured", allow_module_level=True)

from quern.kernelbench import _compare  # noqa: E402
from quern.optimize import _capture, _fold, _planner, _program, _search, _verify  # noqa: E402
from quern.optimize._report import Report  # noqa: E402
from torch_optimize_models import of, randn  # noqa: E402

SCANS = {
    "cumsum": (lambda x: x.cumsum(1), (20, 4001)),
    "a masked cumsum": (lambda x: (x * (x > 0)).cumsum(1), (20, 1000)),
    "a reverse cumsum": (lambda x: x.flip(1).cumsum(1).flip(1), (20, 1000)),
    "an exclusive cumsum": (lambda x: torch.cat([torch.zeros(20, 1), x], 1).cumsum(1)[:, :-1] * 0.5, (20, 1000)),
    "cumsum of columns": (lambda x: x.cumsum(0), (3000, 40)),
    "cumsum of one row": (lambda x: x.cumsum(0), (1 << 17,)),
    "cumprod": (lambda x: (1 + x / 100).cumprod(1), (20, 4000)),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), (20, 1000)),
}
SUMS = {
    "a mean of columns": (lambda x: x.mean(0), (5000, 96)),
    "a mean of middle columns": (lambda x: x.mean(1), (3, 5000, 40)),
    "a sum of long rows": (lambda x: x.sum(1), (40, 50000)),
    "a variance of columns": (lambda x: x.var(0), (5000, 96)),
}


def fused(function, *args):
    """The reference, and the fused plan, of which every step is a kernel."""
    model = of(function)
    search = _search.Search(model, model, args, {}, Report())
    alternative = next(one for one in search.alternatives() if one.name == "fused")
    assert {step["kind"] for step in alternative.plan["steps"]} == {"kernel"}
    return _verify.Reference(model, model, args, {}), search.fast(alternative)


def errors(reference, fast):
    """(the plan's error against float64, the module's own)"""
    with torch.no_grad():
        return _compare.error(_verify._floats(fast(*reference.call(0)[0])), reference.exact), reference.error


@pytest.mark.parametrize("name", [*SCANS, *SUMS])
def test_a_plan_is_accepted(name):
    function, shape = {**SCANS, **SUMS}[name]
    reference, fast = fused(function, randn(*shape))
    assert reference.wrong(fast) == ""
    own, theirs = errors(reference, fast)
    assert own <= 2 * theirs, f"{own:.3g} beside {theirs:.3g}"


@pytest.mark.parametrize("columns", [5, 12, 20, 31, 32, 45, 100, 128, 513])
def test_short_rows_are_right(columns):
    def run(x):
        return x.softmax(1), x.log_softmax(1), x.amax(1), x.sum(1), torch.nn.functional.layer_norm(x, (columns,))

    reference, fast = fused(run, randn(50, columns))
    assert reference.wrong(fast) == ""


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("name", ["argmax", "argmin", "max", "min", "cummax", "cummin"])
def test_places_are_pytorchs(name, dim):
    x = (randn(90, 70) * 2).round()  # many equals
    reference, fast = fused(lambda x: getattr(x, name)(dim), x)
    assert reference.wrong(fast) == ""


@pytest.mark.parametrize("side", [56, 64])
def test_batch_norm_in_training_reads_channels_along_memory_on_a_gpu(side):
    """Neighbouring threads have neighbours of an image, not of the channels: that took thirty times as long."""
    captured = _capture.capture(torch.nn.BatchNorm2d(64), (randn(2, 64, side, side),), {}, torch.device("cpu"))
    captured.graph.device = "cuda"
    kernels = [step for step in _planner.plan(captured.graph)["steps"] if step["kind"] == "kernel"]
    assert len(kernels) > 1 and not any("threadgroup_position_in_grid.x * 32" in step["source"] for step in kernels)


class DenseBlock(torch.nn.Module):
    """Each layer normalises the tensors of all layers before it, which lie far apart."""

    def __init__(self):
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm2d(n) for n in (2, 5, 7))

    def forward(self, x, y, z):
        outs, features = [], []
        for norm, feature in zip(self.norms, (x, y, z)):
            features.append(feature)
            outs.append(norm(torch.cat(features, 1)))
        return tuple(outs)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("laid", [torch.contiguous_format, torch.channels_last])
def test_statistics_of_a_concatenation_are_those_of_its_tensors(laid, device):
    """The plan is a GPU's too, run on the processor. Statistics in another order would be another tensor's."""
    model = DenseBlock()
    args = [(randn(2, n, 96, 200) * n + 10 * n).to(memory_format=laid) for n in (2, 3, 2)]
    captured = _capture.capture(model, tuple(args), {}, torch.device("cpu"))
    graph = captured.graph
    graph.device = device
    plan = _planner.plan(graph)
    read = [one["ref"] for step in plan["steps"] for one in step["inputs"]]
    assert device == "cpu" or max(map(read.count, ("x", "y", "z"))) < 5  # of 6: three layers, each in two kernels
    values = {slot.name: slot.tensor for slot in captured.slots} | dict(zip(("x", "y", "z"), args))
    doubles = {name: value.double() if value.is_floating_point() else value for name, value in values.items()}
    with torch.no_grad():
        got = _program.build(graph, plan, None, "plan").plan(*(values[name] for name in graph.inputs))
    for one, exact in zip(got, _fold.evaluate(graph, doubles)):
        torch.testing.assert_close(one.double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("laid", ["row-major", "channels_last", "channels_last to row-major"])
@pytest.mark.parametrize("side, stride, shape", [(3, 1, (2, 2, 512, 516)), (5, 1, (1, 4, 512, 516)),
                                                 (3, 2, (2, 4, 516, 1032))])  # fmt: skip
def test_windows_of_several_lines_are_right(side, stride, shape, laid):
    """The plan of a GPU, run on the processor: a thread has the windows of four lines, or of two."""

    def run(x):
        pad = side // 2
        y = torch.nn.functional.max_pool2d(x, side, stride, pad)
        z = torch.nn.functional.avg_pool2d(x, side, stride, pad, count_include_pad=False) * 2
        return (y.contiguous(), z.contiguous()) if "to" in laid else (y, z)

    x = randn(*shape)
    if laid != "row-major":
        x = x.to(memory_format=torch.channels_last)
    x[0, 1, 5, 7] = float("nan")
    captured = _capture.capture(of(run), (x,), {}, torch.device("cpu"))
    captured.graph.device = "cuda"
    plan = _planner.plan(captured.graph)
    assert any("j * " in step["source"] for step in plan["steps"])
    got = _program.build(captured.graph, plan, None, "plan").plan(x)
    for one, want in zip(got, run(x)):
        torch.testing.assert_close(one, want, equal_nan=True)


PICKED = {  # how many kernels; -1: with PyTorch's op
    "cross entropy": (lambda x, y: torch.nn.functional.cross_entropy(x, y), 2),
    "without a mean": (lambda x, y: torch.nn.functional.cross_entropy(x, y, reduction="none", ignore_index=3), 1),
    "of columns": (lambda x, y: torch.softmax(x, 0).gather(0, y[None, :7]), 1),
    "of whole numbers": (lambda x, y: x.round().long().gather(1, y[:, None]) + 1, 1),
    "of memory": (lambda x, y: x.gather(1, y[:, None]) + 1, -1),
    "several of a row": (lambda x, y: torch.softmax(x, 1).gather(1, y[:, None].expand(-1, 2)), -1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", PICKED)
def test_an_element_of_a_row_by_its_place_is_of_its_kernel(case, dtype):
    function, kernels = PICKED[case]
    x, y = (randn(50, 7) * 3).to(dtype), torch.arange(50) % 7
    model = of(function)
    search = _search.Search(model, model, (x, y), {}, Report())
    one = next(one for one in search.alternatives() if one.name == "fused")
    kinds = [step["kind"] for step in one.plan["steps"]]
    assert kinds == ["kernel"] * kernels if kernels > 0 else "extern" in kinds
    with torch.no_grad():
        torch.testing.assert_close(search.fast(one)(x, y), model(x, y))
        assert case != "without a mean" or (model(x, y) == 0).any()
