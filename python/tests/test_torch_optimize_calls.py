# SPDX-License-Identifier: Apache-2.0
"""quern.torch.optimize as a user calls it: a module that no plan can take the place of runs as it was, with the reason;
calls of another kind than the example's, changed weights, modes and gradients give what the module gives."""

import copy
import threading

import pytest

torch = pytest.importorskip("torch")
if not hasattr(torch.export, "default_decompositions"):
    pytest.skip("before torch 2.6 models cannot be captured", allow_module_level=True)

import quern.torch  # noqa: E402
from quern.optimize import _kept, _timing, runtime  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch_optimize_models import of, randn, whole  # noqa: E402


@pytest.fixture(autouse=True)
def own_choices(tmp_path, monkeypatch):
    monkeypatch.setattr(_kept, "folder", lambda: tmp_path / "choices")


@pytest.fixture
def planned(monkeypatch):
    """The first plan is taken, whatever its time."""
    order = lambda samples: sorted(samples, key=lambda name: name == "original")  # noqa: E731
    monkeypatch.setattr(_timing, "ranking", order)
    monkeypatch.setattr(_timing, "faster", lambda *_: (True, 2.0, None))


def optimize(model, *args, **words):
    return quern.torch.optimize(model, args, seconds=0.01, **words)


def ran(made, *args, **kwargs):
    """(the result, whether a plan gave it)."""
    calls = []
    real = runtime.Fast.results

    def count(self, args, kwargs):
        made = real(self, args, kwargs)
        calls.extend([1] * (made is not None))
        return made

    runtime.Fast.results = count
    try:
        with torch.no_grad():
            result = made(*args, **kwargs)
    finally:
        runtime.Fast.results = real
    return result, bool(calls)


# ---- what runs as it was ----
class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * 2


class Moves(nn.Module):
    """A state that the first call alone changes, as one that moves to the input's device."""

    def __init__(self):
        super().__init__()
        self.state = torch.ones(4, dtype=torch.float64)

    def forward(self, x):
        self.state = self.state.to(x.dtype)
        return torch.tanh(x + self.state) * 2


class Grows(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x):
        self.seen.append(1)
        return x * 2


def prints(x):
    print("here")
    return x + 1


def branches(x):
    return x + 1 if x.sum() > 0 else x - 1


def in_place(x):
    x.add_(1)
    return x * 2


def hooked():
    made = nn.Linear(4, 4)
    made.register_forward_hook(lambda module, args, out: out + 1)
    return made


AS_IT_WAS = {
    "prints": (lambda: of(prints), "it prints"),
    "random": (lambda: of(lambda x: x + torch.rand_like(x)), "it draws random numbers"),
    "dropout": (lambda: nn.Dropout(0.5), "it draws random numbers"),
    "control flow": (lambda: of(branches), "it cannot be captured"),
    "control flow by a number": (lambda: of(lambda x: x + 1 if int(x.sum()) == 1 else x * 2), "it cannot be captured"),
    "a number of the data": (lambda: of(lambda x: x * x.sum().item()), ""),
    "a shape of the data": (lambda: of(lambda x: x[x > 0]), ""),
    "in place on its input": (lambda: of(in_place), "it changes its inputs"),
    "a changed attribute": (Counts, "it changes its attribute calls"),
    "a grown list": (Grows, "it changes its attribute seen"),
    "hooks": (hooked, "hooks on its forward"),
    "a sparse constant": (lambda: of(lambda x: torch.sparse.mm(torch.eye(4).to_sparse(), x)), ""),
}


@pytest.mark.parametrize("name", AS_IT_WAS)
def test_it_runs_as_it_was(planned, name, capfd):
    make, why = AS_IT_WAS[name]
    model, x = make(), randn(4, 4)
    other, y = copy.deepcopy(model), x.clone()
    capfd.readouterr()
    made = optimize(model, x)
    assert capfd.readouterr().err == ""  # nor does torch.export write there
    assert made.report.chosen == "original" and why in " ".join(made.report.why)
    assert torch.equal(x, y) or name == "in place on its input"
    x = y.clone()
    torch.manual_seed(3)
    got, by_plan = ran(made, x)
    torch.manual_seed(3)
    assert torch.equal(got, other(y)) and torch.equal(x, y) and not by_plan


def test_a_state_that_the_first_call_alone_changes_is_planned(planned):
    model, x = Moves(), randn(4, 4)
    made = optimize(model, x)
    for _ in range(2):
        got, by_plan = ran(made, x)
        assert by_plan and torch.allclose(got, model(x))
        model.state = model.state * -3  # is read at each call


def test_random_numbers_are_not_used_up(planned):
    torch.manual_seed(1)
    want = torch.rand(3)
    torch.manual_seed(1)
    optimize(of(lambda x: F.dropout(x)), randn(4))
    assert torch.equal(torch.rand(3), want)


def test_an_error_of_the_module_is_its_own(planned):
    made = optimize(nn.Linear(4, 3), randn(2, 5))
    assert made.report.chosen == "original" and "RuntimeError" in " ".join(made.report.why)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        made(randn(2, 5))


def test_bad_arguments_have_sentences():
    with pytest.raises(TypeError, match="model is a function, it must be a torch.nn.Module"):
        quern.torch.optimize(lambda x: x, randn(3))
    with pytest.raises(TypeError, match="example_inputs is a int, it must be a tensor or a tuple"):
        quern.torch.optimize(nn.ReLU(), 3)
    with pytest.raises(TypeError, match="example_kwargs is a Tensor, it must be a dict; several inputs are one tuple"):
        quern.torch.optimize(nn.Bilinear(3, 3, 3), randn(3), randn(3))
    with pytest.raises(ValueError, match="seconds is 0, it must be above 0"):
        quern.torch.optimize(nn.ReLU(), randn(3), seconds=0)


# ---- kinds of calls ----
def test_other_calls_than_the_example(planned):
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU())
    made = optimize(model, randn(3, 6))
    with torch.no_grad():
        for x in (
            randn(3, 6),
            randn(5, 6),
            randn(6, 3).t(),
            randn(2, 3, 6),
            randn(0, 6),
            randn(6),
            randn(4, 12)[:, ::2],
        ):
            assert torch.equal(made(x), model(x)) or torch.allclose(made(x), model(x), atol=1e-6)
    assert len(made.reports) == 7 and all(report.chosen != "original" for report in made.reports)
    assert ran(made, randn(5, 6))[1]
    with pytest.raises(RuntimeError):
        made(randn(3, 6).double())
    assert torch.equal(made.double()(randn(3, 6).double()), model(randn(3, 6).double()))


def test_the_number_of_plans_is_bounded(planned):
    model = nn.ReLU()
    made = optimize(model, randn(3), shapes=2)
    for n in range(1, 7):
        assert torch.equal(made(randn(n)), model(randn(n)))
    assert len(made.reports) == len(made._plans) == 2


def test_numbers_and_keywords_are_part_of_the_kind(planned):
    class Scaled(nn.Module):
        def forward(self, x, power=2, *, flag=True, more=None):
            y = x**power if flag else x - power
            return y if more is None else y + more["b"]

    model = Scaled()
    made = quern.torch.optimize(model, (randn(4), 3), seconds=0.01)
    x = randn(4)
    for args, kwargs in [
        ((x, 3), {}), ((x, 2), {}), ((x,), {"power": 3}), ((x, 3), {"flag": False}), ((x, 3.0), {}),
        ((x, True), {}), ((x,), {"more": {"b": x}}), ((x,), {"more": {"b": randn(4) * 2}}),
    ]:  # fmt: skip
        assert torch.allclose(made(*args, **kwargs), model(*args, **kwargs)), (args, kwargs)
    assert ran(made, x, 3)[1]


def test_one_tensor_given_twice(planned):
    model = of(lambda x, y: x * 2 + y)
    x = randn(5)
    made = optimize(model, x, x)
    assert torch.equal(made(x, randn(5) + 1), model(x, randn(5) + 1))


def test_weights_are_read_at_each_call(planned):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    made = optimize(model, randn(3, 4))
    x = randn(3, 4)
    with torch.no_grad():
        model[0].weight.add_(1)
        assert ran(made, x)[1] and torch.allclose(made(x), model(x))
        model[0].weight = nn.Parameter(randn(4, 4))
        assert torch.allclose(made(x), model(x))
        model[1].running_mean = randn(4)
        assert torch.allclose(made(x), model(x))
        model[0].weight.data = randn(4, 4) * 3
        assert torch.allclose(made(x), model(x))
        made.load_state_dict({name: value * 2 for name, value in made.state_dict().items()})
        assert torch.allclose(made(x), model(x)) and ran(made, x)[1]
        model.half().float()
        assert torch.allclose(made(x), model(x))


def test_modes_follow_the_module(planned):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    made = optimize(model.eval(), randn(3, 4))
    x = randn(3, 4)
    assert ran(made, x)[1]
    made.train()
    torch.manual_seed(0)
    got, by_plan = ran(made, x)
    torch.manual_seed(0)
    model[1].reset_running_stats()
    assert not by_plan and torch.equal(got, model(x)) and model[1].training
    made.eval()
    assert ran(made, x)[1]
    model[1].train()
    before = model[1].running_mean.clone()
    ran(made, x)
    assert not torch.equal(before, model[1].running_mean)


def test_running_statistics_advance_once_a_call(planned):
    model = nn.BatchNorm1d(4)
    other = copy.deepcopy(model)
    made = optimize(model, randn(6, 4))
    for k in range(3):
        got, by_plan = ran(made, randn(6, 4) + k)
        assert torch.allclose(got, other(randn(6, 4) + k), atol=1e-6) and by_plan
    assert int(model.num_batches_tracked) == 3 and torch.allclose(model.running_var, other.running_var)


def test_gradients_are_the_modules_own(planned):
    model = nn.Linear(4, 2)
    made = optimize(model, randn(3, 4))
    x = randn(3, 4).requires_grad_()
    made(x).sum().backward()
    assert x.grad is not None and model.weight.grad is not None
    y = of(lambda x: x * 2)
    z = optimize(y, randn(3, 4))
    z(x).sum().backward()


def test_autocast_inference_mode_and_vmap(planned):
    model = nn.Linear(4, 2)
    made = optimize(model, randn(3, 4))
    x = randn(3, 4)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert made(x).dtype == torch.bfloat16
    with torch.inference_mode():
        assert torch.equal(made(x), model(x)) and made(x).is_inference()
    assert torch.equal(made(x), model(x))
    with torch.no_grad():
        assert torch.allclose(torch.func.vmap(made)(randn(5, 3, 4)), model(randn(5, 3, 4)), atol=1e-6)


@pytest.mark.parametrize("name", ["itself", "a view", "twice", "a weight"])
def test_what_shares_memory_still_does(planned, name):
    class Of(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(randn(4))

        def forward(self, x):
            y = x * 2
            return {"itself": (x, y), "a view": (x[1:], y), "twice": (y, y.t()), "a weight": (self.w, y)}[name]

    model, x = Of(), randn(4, 4)
    made = optimize(model, x)
    with torch.no_grad():
        got, want = made(x), model(x)
    assert [a.data_ptr() == x.data_ptr() + 4 * 4 * (name == "a view") for a in got] == [
        name in ("itself", "a view"),
        False,
    ]
    assert (got[0].data_ptr() == got[1].data_ptr()) == (want[0].data_ptr() == want[1].data_ptr())
    assert (got[0].data_ptr() == model.w.data_ptr()) == (name == "a weight")


def test_outputs_are_fresh_at_each_call(planned):
    model = of(lambda x: (x * 2, torch.ones(3), torch.tensor([1.0, 2.0])))
    made = optimize(model, randn(4))
    first = made(randn(4))
    for value in first:
        value.fill_(7)
    assert all(torch.equal(a, b) for a, b in zip(made(randn(4)), model(randn(4))))


def test_it_is_a_module_in_the_models_place(planned):
    model = nn.Sequential(nn.Linear(4, 2))
    made = optimize(model, randn(3, 4))
    assert set(made.state_dict()) == set(model.state_dict()) and made.original is model and made.training
    assert optimize(nn.Linear(4, 2), randn(3, 4)).in_features == 4
    assert {id(p) for p in made.parameters()} == {id(p) for p in model.parameters()}
    assert "PyTorch" in str(made.report)


def test_threads(planned):
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh())
    made = optimize(model, randn(4, 16))
    wrong = []

    def work(seed):
        x = randn(4, 16) + seed
        with torch.no_grad():
            for _ in range(50):
                if not torch.allclose(made(x), model(x)):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_whole_numbers_keep_their_range(planned):
    model = nn.Embedding(5, 3)
    made = optimize(model, whole(5, 7))
    assert made.report.chosen != "original"
    with pytest.raises(IndexError):
        made(torch.tensor([5, 0, 0, 0, 0, 0, 0]))
