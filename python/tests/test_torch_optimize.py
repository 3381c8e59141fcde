# SPDX-License-Identifier: Apache-2.0
"""Plans of models: every alternative of a corpus of modules against eager PyTorch, itself held against float64; graphs
drawn at random; what a plan keeps alive; the choice by time and the comparison on several kinds of data."""

import copy
import functools
import math
import random
import time

import pytest

torch = pytest.importorskip("torch")
if not hasattr(torch.export, "default_decompositions"):
    pytest.skip("before torch 2.6 models cannot be captured", allow_module_level=True)

import quern  # noqa: E402
from quern._kernel import Kernel  # noqa: E402
from quern.kernelbench import _compare  # noqa: E402
from quern.optimize import _ahead, _capture, _kept, _planner, _program, _search, _select, _timing, _verify  # noqa: E402
from quern.optimize._model import optimize  # noqa: E402
from quern.optimize._report import Report  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402
from torch_optimize_models import MODELS, conv_net, of, put_where_it_was, randn  # noqa: E402

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


@pytest.fixture(autouse=True)
def own_choices(tmp_path, monkeypatch):
    monkeypatch.setattr(_kept, "folder", lambda: tmp_path / "choices")


def on(device, make):
    torch.manual_seed(0)
    model, args = make()
    return model.to(device), pytree.tree_map(lambda x: x.to(device) if isinstance(x, torch.Tensor) else x, args)


def alternatives(model, args):
    """(the alternative, its function) of each."""
    search = _search.Search(model, model, args, {}, Report())
    return [(alternative, search.fast(alternative)) for alternative in search.alternatives()]


def take(monkeypatch, word):
    """The choice falls on the first alternative whose name begins so, whatever its time."""
    order = lambda samples: sorted(samples, key=lambda name: not name.startswith(word))  # noqa: E731
    monkeypatch.setattr(_timing, "ranking", order)
    monkeypatch.setattr(_timing, "faster", lambda *_: (True, 2.0, None))
    monkeypatch.setattr(_search, "FAR", math.inf)


@pytest.mark.parametrize("device", DEVICES)
def test_kernels_are_compiled_before_they_run(device, tmp_path, monkeypatch):
    """All that a plan calls, of values that are parts of a node too: nothing is left to compile for its first run."""
    model, args = on(device, lambda: (torch.nn.Sequential(torch.nn.Softmax(1), torch.nn.Tanh()), (randn(3, 70001),)))
    prepare, prepared = Kernel.prepare, []
    monkeypatch.setattr(Kernel, "prepare", lambda self, **call: (prepare(self, **call), prepared.append(self)))
    search = _search.Search(model, model, args, {}, Report())
    (alternative,) = [one for one in search.alternatives() if one.name == "fused"]
    kernels = {one.func for one in alternative.program.names.values() if isinstance(one, functools.partial)}
    cache = tmp_path / "cache"
    quern.set_option("cache_dir", str(cache))
    try:
        _ahead.compile_kernels([(alternative.main, alternative.plan, alternative.program.names)])
        entries = set(cache.rglob("*"))
        assert entries and set(prepared) == kernels
        search.fast(alternative)(*args)
        assert set(cache.rglob("*")) == entries
    finally:
        quern.set_option("cache_dir", None)


def test_compiled_pytorch_is_timed_and_never_chosen(monkeypatch):
    """Nor where it is the fastest, or does not run."""
    order = lambda samples: sorted(samples, key=lambda name: (name != "torch.compile", name == "original"))  # noqa: E731
    take(monkeypatch, "fused")
    monkeypatch.setattr(_timing, "ranking", order)
    model, x = torch.nn.Softmax(1), randn(5, 33)
    report = optimize(model, x, seconds=0.01, compare=True).report
    assert report.chosen not in ("torch.compile", "original") and len(report.samples["torch.compile"]) >= 11
    times = report.times
    better = min(times["original"], times["torch.compile"])
    assert report.record()["over_better"] == report.record()["over_best"] == better / times[report.chosen]
    assert "times as fast as the better of the module and torch.compile" in str(report)
    assert "CUDA graphs" not in str(report)  # there are none on a processor
    assert "over_better" not in optimize(model, x, seconds=0.01).report.record()

    def broken(forward):
        time.sleep(1)
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", broken)
    start = time.monotonic()
    report = optimize(model, x, seconds=0.01, compare=True).report
    assert report.seconds < time.monotonic() - start - 1  # without what torch.compile takes
    assert report.rejected["torch.compile"] == "it fails: RuntimeError: no compiler" and report.over_better is None


@pytest.mark.cuda
def test_compiled_pytorch_is_timed_in_a_cuda_graph_too():
    model = torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.BatchNorm1d(16), torch.nn.Tanh()).cuda()
    before = {name: t.clone() for name, t in model.named_buffers()}
    report = optimize(model, torch.randn(64, 32, device="cuda"), seconds=0.05, compare=True).report
    peers = ("original", "torch.compile", "torch.compile, CUDA graph", "the module, CUDA graph")
    best = min(report.times[name] for name in peers if name in report.times)
    assert len(report.samples["torch.compile, CUDA graph"]) >= 11
    assert report.record()["over_best"] == best / report.times[report.chosen] <= report.over_better
    assert all(torch.equal(t, before[name]) for name, t in model.named_buffers())


# ---- values ----
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_every_alternative_is_right(make, mode, device):
    model, args = on(device, make)
    model.train(mode == "train")
    reference = _verify.Reference(model, model, args, {})
    found = alternatives(model, args)
    assert found
    for alternative, fast in found:
        wrong = reference.wrong(fast, infinities=alternative.infinities)
        if device == "cuda" and "x3" in alternative.name and wrong.startswith("its error against float64"):
            continue  # that class is less exact than the model here
        assert wrong == "", alternative.name
        with torch.no_grad(), _capture.kept_state(model):
            assert fast.results(args, {}) is not None, alternative.name  # the plan ran, not the module


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_a_plan_gives_the_same_bits_again(make):
    model, args = on("cpu", make)
    model.eval()
    for _, fast in alternatives(model, args):
        with torch.no_grad():
            first, again = ([x.clone() for x in pytree.tree_leaves(fast(*args)) if isinstance(x, torch.Tensor)]
                            for _ in range(2))  # fmt: skip
        assert _compare.same_bits(first, again)


UNARY = ["relu", "tanh", "exp", "neg", "abs", "sigmoid", "sqrt", "isnan", "floor", "square", "erf", "sign"]
BINARY = ["add", "sub", "mul", "div", "maximum", "minimum", "lt", "eq", "atan2"]
# Without the halves: a kernel rounds once where PyTorch rounds after every op, and eq or a power shows that.
TYPES = [torch.float32, torch.float32, torch.float64, torch.int64, torch.int32, torch.bool, torch.uint8]


def fuzzed(seed):
    """A function of two tensors, drawn: pointwise ops with broadcasting, views, reductions, mixed types."""
    draw = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    rows, columns = draw.choice([0, 1, 2, 7, 33]), draw.choice([1, 3, 8, 65])

    def tensor(shape):
        made = torch.randn(shape, generator=generator) * 3
        if made.numel() and draw.random() < 0.3:
            made.view(-1)[0] = draw.choice([float("nan"), float("inf"), -float("inf")])
        dtype = draw.choice(TYPES)
        return made.nan_to_num(1, 2, 3).to(dtype) if not dtype.is_floating_point else made.to(dtype)

    args = tensor((rows, columns)), tensor(draw.choice([(columns,), (rows, 1), (rows, columns), ()]))
    steps = [(draw.random(), draw.random(), draw.random(), draw.random()) for _ in range(draw.randint(2, 12))]

    def run(x, y):
        values = [x, y]
        for k, (kind, first, second, third) in enumerate(steps):
            if k in refused:
                continue
            a, b = values[int(first * len(values))], values[int(second * len(values))]
            try:
                if kind < 0.3:
                    values.append(getattr(torch, UNARY[int(third * len(UNARY))])(a))
                elif kind < 0.6:
                    values.append(getattr(torch, BINARY[int(third * len(BINARY))])(a, b))
                elif kind < 0.7:
                    values.append(a.to(TYPES[int(third * len(TYPES))]))
                elif kind < 0.8 and a.dim() == 2:
                    values.append([a.t(), a[:, ::2], a.reshape(-1), a.flip(1)][int(third * 4)])
                elif kind < 0.9 and a.dim():
                    values.append([a.sum(-1), a.float().mean(0), a.amax(-1), a.cumsum(0)][int(third * 4)])
                else:
                    values.append(torch.where(a > 0, a, b) if third < 0.5 else torch.cat([a, a]) * 2)
            except (RuntimeError, IndexError, TypeError, NotImplementedError):
                refused.add(k)  # not for these types and shapes
        return tuple(values[2:]) or (x + 0,)

    refused = set()
    run(*args)
    return of(run), args


@pytest.mark.parametrize("seed", range(24))
def test_random_graphs(seed):
    model, args = fuzzed(seed)
    reference = _verify.Reference(model, model, args, {})
    try:
        found = alternatives(model, args)
    except _search.Unplannable as error:
        assert "captured" in str(error) or "tensor of" in str(error)
        return
    for name, fast in found:
        assert reference.wrong(fast) == "", f"{name}: {fast.plan}"


# ---- folding ----
def test_norms_go_into_the_weights_and_follow_them():
    model, args = on("cpu", conv_net)
    model.eval()
    report = Report()
    search = _search.Search(model, model, args, {}, report)
    made = search.alternatives()[0]
    assert report.folded == 3 and "norm" not in made.program.text.split("def quern_plan")[1]
    fast = search.fast(made)
    with torch.no_grad():
        fast(*args)
        model[1].weight.mul_(3)
        model[1].running_mean.add_(1)
        assert torch.allclose(fast(*args), model(*args), atol=1e-5)
        model[9].weight = torch.nn.Parameter(torch.randn(5, 16))
        assert torch.allclose(fast(*args), model(*args), atol=1e-5)
        for k in range(8):
            put_where_it_was(model[4].weight, k / 8)
            assert torch.allclose(fast(*args), model(*args), atol=1e-5)


def test_a_norm_in_training_is_not_folded_and_counts():
    model, args = on("cpu", conv_net)
    other = copy.deepcopy(model)
    report = Report()
    search = _search.Search(model, model, args, {}, report)
    fast = search.fast(search.alternatives()[0])
    assert report.folded == 0 and int(model[1].num_batches_tracked) == 0
    with torch.no_grad():
        for _ in range(2):
            assert torch.allclose(fast(*args), other(*args), atol=1e-5)
    for a, b in zip(model.buffers(), other.buffers()):
        assert torch.allclose(a, b) and int(model[1].num_batches_tracked) == 2


# ---- memory ----
def test_a_value_is_let_go_after_its_last_use():
    def chain(x):
        for _ in range(6):
            x = torch.fft.fft(x).real.contiguous()  # an op that stays PyTorch's
        return x

    def cos_chain(x):
        for k in range(6):
            x = torch.cumsum(x, 0) * (k + 1)
        return x

    search = _search.Search(of(cos_chain), of(cos_chain), (randn(50),), {}, Report())
    text = _program.build(search.captured.graph, _program.extern_plan(search.captured.graph), None, "x").text
    alive, most = set(), 0
    for line in text.splitlines():
        if " = torch." in line or " = aten_" in line:
            alive.add(line.split(" = ")[0].strip())
        if line.strip().startswith("del "):
            most = max(most, len(alive))
            alive -= set(line.strip()[4:].split(", "))
    assert most == 2 and len(alive) == 1


# ---- the choice ----
def test_the_fastest_is_taken_if_it_is_right(monkeypatch):
    take(monkeypatch, "PyTorch")
    model, x = of(lambda x: torch.tanh(x) * 2 + 1), randn(64)
    made = optimize(model, x, seconds=0.01)
    assert made.report.chosen == "PyTorch's ops" and "tanh" in made.report.program
    with torch.no_grad():
        assert torch.equal(made(x), model(x))
    assert "aten.tanh" in str(made.report) and made.report.floor_ns > 0


def test_what_is_far_behind_is_not_timed_in_turns(monkeypatch):
    took = iter([10**6, 2 * 10**6 + _timing.NOISE_NS + 1, *[10**6] * 9])  # of PyTorch's ops, fused and its variants
    monkeypatch.setattr(_timing, "fastest", lambda run, cuda: next(took))
    monkeypatch.setattr(_select, "losers", lambda *_: [])
    report = optimize(of(lambda x: torch.tanh(x) * 2 + 1), randn(64), seconds=0.01).report
    assert set(report.times) == {"original", "PyTorch's ops"}


@pytest.mark.parametrize("peak, wrong", [(2 * 1000 + (512 << 20), False), (2 * 1000 + (512 << 20) + 1, True)])
def test_a_plan_takes_no_more_than_twice_the_memory(monkeypatch, peak, wrong):
    """A GPU's allocator is asked; here its answers are given: the module's own, then the plan's."""
    model, x = of(lambda x: torch.tanh(x) * 2), randn(8)
    search = _search.Search(model, model, (x,), {}, Report())
    fast = search.fast(search.alternatives()[0])
    search.cuda, answers = True, iter([1000, peak])
    monkeypatch.setattr(_search, "_peak", lambda run: next(answers))
    assert search._hungry(fast).startswith("a call takes 512 MiB") == wrong


def test_the_report_has_the_time_of_each_kernel(monkeypatch):
    take(monkeypatch, "fused")
    report = optimize(of(lambda x: torch.tanh(x) * 2 + 1), randn(64), seconds=0.01).report
    (step,) = report.kernels
    assert step["ns"] > 0 and step["theirs_ns"] > 0
    assert "bytes" in step and " us alone, PyTorch's ops " in str(report) and ", floor " in str(report)


@pytest.mark.parametrize("off, wrong", [(1e-6, False), (1e-2, True)])
def test_a_buffer_is_held_to_the_scale_of_its_module(off, wrong):
    """The mean is 0 but for rounding, the variance beside it is not."""
    model, half = torch.nn.BatchNorm1d(4), randn(1, 4)
    reference = _verify.Reference(model, model, (torch.cat([half, -half]),), {})

    def moved(x):
        y = model(x)
        model.running_mean.add_(off)
        return y

    assert reference.wrong(moved, 1).startswith("a buffer or an attribute: ") == wrong


@pytest.mark.parametrize("wrong", ["values", "nan", "strides", "sharing", "buffer"])
def test_a_wrong_plan_is_rejected(monkeypatch, wrong):
    take(monkeypatch, "PyTorch")
    model = torch.nn.BatchNorm1d(4)
    real = _program.build

    def build(*args):
        program = real(*args)
        plan = program.plan

        def bad(*values):
            (y,) = plan(*values)
            if wrong == "values":
                y = y + 0.01 * (y > y.amax() * 0.99)  # one element, one part in a hundred
            elif wrong == "nan":
                y = y.nan_to_num(0)
            elif wrong == "strides":
                y = y.t().contiguous().t()
            elif wrong == "sharing":
                y = values[-1].copy_(y)
            else:
                model.running_mean.add_(1)
            return [y]

        program.plan = bad
        return program

    monkeypatch.setattr(_program, "build", build)
    made = optimize(model, randn(8, 4), seconds=0.01)
    assert made.report.chosen == "original"
    assert set(made.report.rejected) >= {"PyTorch's ops"}


def test_an_error_of_precision_is_rejected(monkeypatch):
    take(monkeypatch, "PyTorch")
    real = _program.build

    def build(*args):
        program = real(*args)
        plan = program.plan
        program.plan = lambda *values: [y * (1 + 2e-5) for y in plan(*values)]  # passes any tolerance of the judge's
        return program

    monkeypatch.setattr(_program, "build", build)
    made = optimize(torch.nn.Linear(8, 8), randn(4, 8), seconds=0.01)
    assert "float64" in made.report.rejected["PyTorch's ops"]


def test_a_slower_plan_is_not_taken(monkeypatch):
    import time

    real = _program.build

    def build(*args):
        program = real(*args)
        plan = program.plan
        program.plan = lambda *values: time.sleep(0.001) or plan(*values)
        return program

    monkeypatch.setattr(_program, "build", build)
    made = optimize(torch.nn.Linear(8, 8), randn(4, 8), seconds=0.01)
    assert made.report.chosen == "original" and made.report.why and not made._plans


def test_a_graph_that_the_planner_refuses_runs_as_pytorchs_ops(monkeypatch):
    def refuse(graph):
        raise _search.Unplannable("the planner refuses it: so")

    take(monkeypatch, "PyTorch")
    monkeypatch.setattr(_planner, "plan", refuse)
    made = optimize(torch.nn.Linear(8, 8), randn(4, 8), seconds=0.01)
    assert made.report.chosen == "PyTorch's ops" and made.report.rejected["fused"].endswith("so")


@pytest.mark.parametrize("kind", ["cumsum", "cumprod", "reverse", "masked", "exclusive"])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_scan_and_what_is_around_it_are_one_kernel(kind, dim, target):
    """As KernelBench's level 1 has them."""
    functions = {
        "cumsum": lambda x, mask: torch.cumsum(x, dim),
        "cumprod": lambda x, mask: torch.cumprod(x, dim),
        "reverse": lambda x, mask: torch.cumsum(x.flip(dim), dim).flip(dim),
        "masked": lambda x, mask: torch.cumsum(x * mask, dim),
        "exclusive": lambda x, mask: torch.cumsum(
            torch.cat((torch.zeros_like(x.select(dim, 0).unsqueeze(dim)), x), dim)[:-1], dim
        ),
    }
    model, args = of(functions[kind]), (randn(12, 4096), randn(12, 4096) > 0)
    graph = _search.Search(model, model, args, {}, Report()).captured.graph
    graph.device = target
    steps = _planner.plan(graph)["steps"]
    assert [step["kind"] for step in steps] == ["kernel"]


def test_the_planner_is_asked(monkeypatch):
    asked = []
    real = _planner.plan
    monkeypatch.setattr(_planner, "plan", lambda graph, *rest: asked.append(graph.text()) or real(graph, *rest))
    optimize(torch.nn.Linear(8, 8), randn(4, 8), seconds=0.01)
    assert asked and '"op":"aten.addmm.default"' in asked[0]


# ---- choices that were made before ----
def test_a_choice_is_kept_and_verified_again(monkeypatch):
    model, x = torch.nn.Linear(8, 8), randn(4, 8)
    with monkeypatch.context() as patch:
        take(patch, "PyTorch")
        assert optimize(model, x, seconds=0.01).report.chosen == "PyTorch's ops"
    monkeypatch.setattr(_search.Search, "_race", lambda *_: pytest.fail("it was timed again"))
    again = optimize(model, x, seconds=0.01).report
    assert again.chosen == "PyTorch's ops" and "before" in again.why[0]
    real = _program.build

    def build(*args):
        program = real(*args)
        plan = program.plan
        program.plan = lambda *values: [y + 1 for y in plan(*values)]
        return program

    monkeypatch.setattr(_program, "build", build)
    made = optimize(model, x, seconds=0.01).report
    assert made.chosen == "original" and "PyTorch's ops" in made.rejected


@pytest.mark.parametrize("change", ["shape", "training", "flag", "corrupt", "other key", "another alternative"])
def test_a_stale_choice_is_made_anew(monkeypatch, change):
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)).eval(), randn(4, 8)
    with monkeypatch.context() as patch:
        take(patch, "PyTorch")
        optimize(model, x, seconds=0.01)
    (file,) = _kept.folder().glob("*.json")
    if change == "shape":
        x = randn(5, 8)
    elif change == "training":
        model.train()
    elif change == "flag":
        monkeypatch.setattr(_kept, "state", lambda cuda: "another")
    elif change == "corrupt":
        file.write_text("{")
    elif change == "other key":
        file.write_text(file.read_text().replace(file.stem, "0" * 64))
    else:
        file.write_text(file.read_text().replace("PyTorch's ops", "no such thing"))
    timed = []
    real = _timing.race
    monkeypatch.setattr(_timing, "race", lambda functions, *rest: timed.append(functions) or real(functions, *rest))
    optimize(model, x, seconds=0.01)
    assert "original" in timed[0]


def test_an_order_of_sums_is_no_error_and_a_wrong_element_is():
    """With heavy-tailed data float32 alone is farther off than the tolerance near zero."""
    model = torch.nn.Linear(4096, 64, bias=False)
    x = 8 * randn(64, 4096)
    with torch.no_grad():
        model.weight.copy_(randn(64, 4096))
    reference = _verify.Reference(model, model, (x,), {})
    backwards = lambda x: x.flip(1) @ model.weight.flip(1).t()  # noqa: E731
    with torch.no_grad():
        heavy = reference.call(2)[0][0]
        assert _compare.compare([backwards(heavy)], [model(heavy)], reference.tolerance).wrong

    def off(x):
        y = backwards(x)
        y[-1, -1] += 2e-6 * y.abs().max()
        return y

    assert reference.wrong(backwards) == ""
    assert "wrong" in reference.wrong(off)


@pytest.mark.parametrize("seconds, leave", [(600.0, {"behind"}), (0.0, {"behind", "near"})])  # 0: calls are long
def test_who_is_behind_leaves_the_race_and_is_not_chosen(monkeypatch, seconds, leave):
    took = {"original": 900, "compiled": 50, "near": 120, "nearer": 107, "first": 100, "behind": 126}
    functions = {name: functools.partial(int, ns * 10**6) for name, ns in took.items()}
    monkeypatch.setattr(_timing, "_once", lambda run, cuda: run())
    samples = _timing.race(functions, False, seconds, 2)
    rounds = _timing.MOST_ROUNDS if seconds else _timing.FEWEST
    assert {name: len(each) for name, each in samples.items()} == {
        name: _timing.LEAVE_FROM if name in leave else rounds for name in took
    }
    samples["behind"] = [1] * _timing.LEAVE_FROM  # as if all had been slower since
    staying = [name for name in ("compiled", "first", "nearer", "near", "original") if name not in leave]
    assert _timing.ranking(samples)[: len(staying)] == staying
    assert _timing.faster([8, 8, 8, 100], [4, 4, 4])[1] == 2


def test_the_host_alone_drives_no_short_call_out_of_the_race(monkeypatch):
    """A call of 10 us that the host delays at first."""
    delays = iter([30_000] * _timing.LEAVE_FROM)
    functions = {"original": lambda: 60_000, "late": lambda: 9_000 + next(delays, 0), "first": lambda: 10_000}
    monkeypatch.setattr(_timing, "_once", lambda run, cuda: run())
    samples = _timing.race(functions, False, 0.0)
    assert _timing.ranking(samples)[0] == "late"


def test_slow_runs_are_few(monkeypatch):
    monkeypatch.setattr(_timing, "_once", lambda run, cuda: run())
    for each, n in ((1000, _timing.RUNS), (_timing.ENOUGH_NS / 2.5, 3), (_timing.ENOUGH_NS * 9, 2)):
        runs = []
        assert _timing.fastest(lambda runs=runs, each=each: runs.append(0) or each, False) == each and len(runs) == n


# ---- kernels that are slower than PyTorch's ops ----
def two_kernels():
    """A sum along columns and one along rows, which no kernel does together."""
    model = of(lambda x: (x.exp().sum(0), x.sin().sum(1)))
    search = _search.Search(model, model, (randn(40, 30),), {}, Report())
    (fused,) = [one for one in search.alternatives() if one.name == "fused"]
    kernels = [step for step in fused.plan["steps"] if step["kind"] == "kernel"]
    assert len(kernels) == 2
    return search, fused, kernels


def test_slower_kernels_are_found():
    search, fused, kernels = two_kernels()
    run = dict(fused.program.names)
    slow, quick = (step["name"] for step in kernels)
    run[slow], run[quick] = lambda inputs: time.sleep(0.02), lambda inputs: None
    leaves = search.captured.leaves
    assert _select.losers(fused.main, fused.plan, run, leaves, {}) == kernels[0]["nodes"]
    run[slow] = run[quick]
    assert _select.losers(fused.main, fused.plan, run, leaves, {}) == []


def test_what_computes_alike_is_compiled_and_timed_once(monkeypatch):
    """Blocks of a network: the same kernel and the same PyTorch's op again, whatever the nodes are called."""
    model = of(lambda x, y, z: [(torch.softmax(one, 1) * 2).sort()[0] for one in (x, y, z)])
    search = _search.Search(model, model, (randn(40, 30), randn(40, 30), randn(40, 31)), {}, Report())
    (fused,) = [one for one in search.alternatives() if one.name == "fused"]
    steps = [step["name"] for step in fused.plan["steps"] if step["kind"] == "kernel"]
    first, again, other = (fused.program.names[name] for name in steps)
    assert first is again and first is not other and f"{steps[1]} = {steps[0]}\n" in fused.program.text
    timed, times = [], {}
    monkeypatch.setattr(_timing, "fastest", lambda run, cuda: timed.append(run) or len(timed))
    for _ in range(2):
        _select.losers(fused.main, fused.plan, fused.program.names, search.captured.leaves, times)
    ops = {"_softmax", "mul", "sort"}
    assert len(timed) == 2 * (len(ops) + 1) == len(times)  # of two shapes: each op and the kernel
    kernels = [step for step in fused.plan["steps"] if step["kind"] == "kernel"]
    assert kernels[0]["ns"] == kernels[1]["ns"] != kernels[2]["ns"]


def test_slower_kernels_become_pytorchs_ops(monkeypatch):
    lost = []

    def losers(main, plan, kernels, values, times):
        lost[:] = next(step["nodes"] for step in plan["steps"] if step["kind"] == "kernel")
        return lost

    monkeypatch.setattr(_select, "losers", losers)
    take(monkeypatch, "fused, faster kernels alone")
    model, args = of(lambda x: (x.exp().sum(0), x.sin().sum(1))), (randn(40, 30),)
    for why in (None, "it was the fastest when the alternatives were timed before"):
        fast = optimize(model, args)
        report = fast.report
        assert report.chosen == "fused, faster kernels alone", report
        assert why is None or report.why == [why]
        assert len(report.kernels) == 1 and sum(report.externs.values()) == len(lost)
        assert set(report.reasons.values()) == {"its kernel was slower"}
        for a, b in zip(fast(*args), model(*args)):
            assert torch.allclose(a, b)


def test_a_module_that_was_the_fastest_is_taken_at_once(monkeypatch):
    take(monkeypatch, "original")
    model, x = of(lambda x: x.exp().sum(0)), randn(40, 30)
    assert optimize(model, x, seconds=0.01).report.why == ["the module itself is the fastest"]
    monkeypatch.setattr(_search.Search, "alternatives", lambda self: pytest.fail("it makes plans again"))
    report = optimize(model, x).report
    assert report.why == ["the module itself was the fastest when the alternatives were timed before"]
    assert report.chosen == "original"


def test_a_plan_whose_kernels_are_all_slower_is_none(monkeypatch):
    monkeypatch.setattr(_select, "losers", lambda main, *rest: [node.name for node in main.nodes])
    report = optimize(of(lambda x: x.exp().sum(0)), (randn(40, 30),)).report
    assert not any("alone" in name for name in report.times)
