# SPDX-License-Identifier: Apache-2.0
"""Attributes that forward replaces by new tensors, such as a recurrent net's state: a plan reads and replaces them once
a call, as the module does."""

import copy
import runpy
import warnings

import pytest

torch = pytest.importorskip("torch")
if not hasattr(torch.export, "default_decompositions"):
    pytest.skip("before torch 2.6 models cannot be captured", allow_module_level=True)

import quern.torch  # noqa: E402
from quern.optimize import __main__ as command  # noqa: E402
from quern.optimize import _capture, _search, _verify  # noqa: E402
from quern.optimize._report import Report  # noqa: E402
from test_torch_optimize_calls import optimize, own_choices, planned, ran  # noqa: E402, F401
from test_torch_optimize_replay import Player  # noqa: E402
from torch import nn  # noqa: E402
from torch_optimize_models import randn  # noqa: E402

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


class Recurrent(nn.Module):
    """As KernelBench's; whole: its state is its result. The first call moves the state."""

    def __init__(self, whole=False, dtype=torch.float32):
        super().__init__()
        self.inner = nn.Module()
        self.inner.hidden = randn(3, 6).to(dtype)
        self.count = torch.zeros(())
        self.last = torch.ones(3, 5)
        self.turn, self.out, self.whole = nn.Linear(11, 6), nn.Linear(6, 2), whole

    def forward(self, x):
        self.inner.hidden = self.inner.hidden.to(x)
        before, self.count = self.last.mean(), self.count.to(x.device) + 1
        self.inner.hidden = torch.tanh(self.turn(torch.cat((x, self.inner.hidden), dim=1)) + before)
        self.last = x
        return self.inner.hidden if self.whole else self.out(self.inner.hidden) * self.count


def state(model):
    return [model.inner.hidden, model.count, model.last]


def alike(made, model, x):
    got, by_plan = ran(made, x)
    with torch.no_grad():
        want = model(x)
    original = getattr(made, "original", made)
    for a, b in zip([got, *state(original)], [want, *state(model)]):
        assert torch.allclose(a, b, atol=1e-5)
    return by_plan


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["stays", "is moved"])
@pytest.mark.parametrize("whole", [False, True])
def test_a_state_advances_once_a_call(planned, device, dtype, whole):  # noqa: F811
    model = Recurrent(whole, dtype).to(device)
    other = copy.deepcopy(model)
    x = randn(3, 5).to(device)
    made = optimize(model, x)
    assert all(torch.equal(a, b.to(a)) for a, b in zip(state(model), state(other))), made.report
    held = [model.inner.hidden]
    kept = [held[0].clone()]
    for k in range(6):
        assert alike(made, other, x * (k - 2)), made.report
        held.append(model.inner.hidden)
        kept.append(held[-1].clone())
    assert all(map(torch.equal, held, kept))  # a replaced state is the holder's
    for model in (made.original, other):
        model.inner.hidden = held[2] * 0.5
    assert alike(made, other, x)


def test_a_state_of_another_kind_leads_to_the_module(planned):  # noqa: F811
    model = Recurrent()
    other, x = copy.deepcopy(model), randn(3, 5)
    made = optimize(model, x)
    for model in (made.original, other):
        model.last = torch.ones(7)
    assert not alike(made, other, x) and alike(made, other, x)
    for model in (made.original, other):
        model.count = torch.nn.Parameter(torch.zeros(()), requires_grad=False)
    with pytest.raises(TypeError, match="cannot assign"):  # the module's own
        ran(made, x)
    del made.original._parameters["count"]
    with pytest.raises(AttributeError, match="count"):
        ran(made, x)


class Delays(nn.Module):
    """Its result is its old state, which is not converted with its weights."""

    def __init__(self):
        super().__init__()
        self.state, self.turn = randn(3, 5), nn.Linear(5, 5)

    def forward(self, x):
        before = self.state
        self.state = torch.tanh(self.turn(before) + x)
        return before


def test_a_result_may_be_an_old_state(planned):  # noqa: F811
    model, x = Delays(), randn(3, 5)
    other, reference = copy.deepcopy(model), _verify.Reference(model, model, (x,), {})
    assert reference.exact is not None and _search.Search(model, model, (x,), {}, Report()).aliases
    made = optimize(model, x)
    for k in range(3):
        got, by_plan = ran(made, x * k)
        assert by_plan and torch.allclose(got, other(x * k)) and torch.allclose(model.state, other.state)


@pytest.mark.parametrize("make", [nn.utils.weight_norm, nn.utils.spectral_norm])
def test_weights_that_pytorchs_hooks_compute_are_computed_at_each_call(planned, make):  # noqa: F811
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # weight_norm's hooks are the older form
        model, other = (nn.Sequential(make(nn.Conv1d(4, 6, 3)), nn.ReLU(), make(nn.Conv1d(6, 3, 1))) for _ in "ab")
    other.load_state_dict(model.eval().state_dict())
    other.eval()
    x = randn(2, 4, 9)
    made = optimize(model, x)
    for k in range(3):
        got, by_plan = ran(made, x * k)
        assert by_plan and torch.allclose(got, other(x * k), atol=1e-6), made.report
        with torch.no_grad():
            for model in (made.original, other):
                for p in model.parameters():
                    p.mul_(1.5)
    hook = lambda module, args, out: out + 1  # noqa: E731
    made.original[1].register_forward_hook(hook)
    assert quern.torch.optimize(made.original, x).report.why == ["it runs as it was: 1 has hooks on its forward"]
    hook.__module__ = "transformers.utils.output_capturing"
    assert quern.torch.optimize(made.original, x, seconds=0.01).report.chosen != "original"


class Grows(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = torch.zeros(0)

    def forward(self, x):
        self.seen = torch.cat((self.seen, x))
        return x * 2


def test_a_state_whose_shape_changes_is_not_planned(planned):  # noqa: F811
    made = optimize(Grows(), randn(4))
    assert made.report.why == ["it runs as it was: it changes its attribute seen"]


def test_a_plan_that_leaves_or_changes_a_state_otherwise_is_wrong():
    model, x = Recurrent(), randn(3, 5)
    reference = _verify.Reference(model, model, (x,), {})

    def leaves(x):
        with _capture.kept_state(model):
            return model(x)

    def turns(x):
        y = model(x)
        model.inner.hidden = -model.inner.hidden
        return y

    assert reference.error > 0 and reference.wrong(model) == ""
    for function in (leaves, turns):
        assert reference.wrong(function, 1)


FILE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.randn(3, 6, dtype=torch.float64)
        self.turn = torch.nn.Linear(11, 6)

    def forward(self, x):
        self.hidden = self.hidden.to(x)
        self.hidden = torch.tanh(self.turn(torch.cat((x, self.hidden), dim=1)))
        return self.hidden

def get_inputs():
    return [torch.randn(3, 5)]
"""


def test_a_graph_does_not_write_into_a_state_that_is_held(monkeypatch):
    """The attribute holds its value as a caller does; a state that is memory of an input goes into no graph."""
    assert _search.Search(Recurrent(), Recurrent(), (randn(3, 5),), {}, Report()).aliases
    names: dict = {}
    exec(FILE, names)
    player, model, x = Player(monkeypatch), names["Model"](), randn(3, 5)
    search = _search.Search(model, model, (x,), {}, Report())
    assert not search.aliases
    fast, other, held = search.fast(search.alternatives()[0]), copy.deepcopy(model), []
    with torch.no_grad():
        with _capture.kept_state(model):
            fast(x)
        call = player.made(fast._direct)
        fast.replay = lambda values: call(*values)
        fast.replay.instances = []
        for k in range(6):
            assert torch.allclose(fast(x * k), other(x * k), atol=1e-5)
            assert torch.allclose(model.hidden, other.hidden, atol=1e-5)
            held += [(model.hidden, model.hidden.clone())] if k > 2 else []
    assert (player.captures, player.replays) == (2, 5)  # two are held, so that the last call runs without a graph
    assert all(torch.equal(*pair) for pair in held)


def test_a_file_advances_its_state(planned, tmp_path):  # noqa: F811
    problem, new = tmp_path / "problem.py", tmp_path / "new.py"
    problem.write_text(FILE)
    assert command.main([str(problem), "--out", str(new), "--device", "cpu", "--seconds", "0.01"]) == 0
    names = runpy.run_path(str(new))
    torch.manual_seed(1)
    made = names["ModelNew"]()
    torch.manual_seed(1)
    model, x = names["Model"](), torch.randn(3, 5)
    with torch.no_grad():
        for k in range(5):
            if k == 3:
                made.hidden = model.hidden = torch.ones(3, 6)
            assert torch.allclose(made(x * k), model(x * k), atol=1e-5)
            assert torch.allclose(made.hidden, model.hidden, atol=1e-5)
            assert (made.quern_rebuilt.fast is None) == (k == 0)  # the first call moves the state
        assert made.quern_rebuilt.fast.results((x,), {}) is not None


# ---- buffers ----
class Exchange(nn.Module):
    """A buffer gets the former value of another one, as it is or through a view."""

    def __init__(self, order, through):
        super().__init__()
        for name in order:
            self.register_buffer(name, randn(3, 3))
        self.through = through

    def forward(self, x):
        before = self.a.clone()
        self.a.copy_(self.b.t() if self.through == "view" else self.b)
        self.b.copy_(before if self.through == "copy" else self.b + x)
        return self.a * 2 + self.b


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("order", ["ab", "ba"])
@pytest.mark.parametrize("through", ["copy", "view", "itself"])
def test_buffers_get_values_of_before_the_call(device, order, through):
    model, x = Exchange(order, through).to(device), randn(3, 3).to(device)
    search = _search.Search(model, model, (x,), {}, Report())
    start = {name: t.clone() for name, t in model.state_dict().items()}
    for alternative in search.alternatives():
        model.load_state_dict(start)
        other, run = copy.deepcopy(model), search.fast(alternative)
        for k in range(3):
            want, got = other(x * k), run(x * k)
            for a, b in [(got, want), (model.a, other.a), (model.b, other.b)]:
                assert torch.allclose(a, b, atol=1e-5), alternative.name


def test_statistics_of_many_norms_are_few_calls():
    """Counters one kernel, as far as its tensors are at most 32, and each type's new values one copy."""
    model = nn.Sequential(*(m for _ in range(19) for m in (nn.Linear(6, 6), nn.BatchNorm1d(6))))
    search = _search.Search(model, model, (x := randn(4, 6),), {}, Report())
    (fused,) = (one for one in search.alternatives() if one.name == "fused")
    ops = {node.name: node.op for node in fused.main.nodes}
    kernels = [step for step in fused.plan["steps"] if step["kind"] == "kernel"]
    adding = [step for step in kernels if {ops[name] for name in step["nodes"]} == {"aten.add.Tensor"}]
    assert [len(step["inputs"]) for step in adding] == [16, 3]
    assert fused.program.text.count("_foreach_copy_") == 2 and ".copy_(" not in fused.program.text
    search.fast(fused)(x)
    assert all(int(model[k].num_batches_tracked) == 1 for k in range(1, 38, 2))
