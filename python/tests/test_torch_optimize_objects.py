# SPDX-License-Identifier: Apache-2.0
"""Objects in a model that quern.torch.optimize takes: results that are objects with tensors in them, built anew at each
call; and changes inside a module's attributes, of which a plan would lose all but the first."""

import copy

import pytest

torch = pytest.importorskip("torch")
if not hasattr(torch.export, "default_decompositions"):
    pytest.skip("before torch 2.6 models cannot be captured", allow_module_level=True)

from quern.optimize import _objects, runtime  # noqa: E402
from test_torch_optimize_calls import optimize, own_choices, planned, ran  # noqa: E402, F401
from torch import nn  # noqa: E402
from torch_optimize_models import of, randn  # noqa: E402

pytestmark = pytest.mark.usefixtures("planned")


class Layer:
    def __init__(self, keys, values):
        self.keys, self.values, self.device, self.seen = keys, values, keys.device, {0: True}


class Cache:
    """As Transformers' caches are."""

    def __init__(self, *layers):
        self.layers, self.n, self.kind, self.where = list(layers), len(layers), Layer, {"a": [1, 2]}


def cached(x):
    return {"y": x.exp() * 2, "cache": Cache(Layer(x * 3 + 1, x.sum(1)), Layer(x.sin() * 2, x + 1)), "none": None}


# ---- results ----
def test_a_result_may_hold_objects():
    x = randn(6, 5)
    made = optimize(of(cached), x)
    assert made.report.chosen != "original", made.report.why
    for more in range(3):
        x = x + more
        got, by_plan = ran(made, x)
        want = cached(x)
        assert by_plan and type(got) is dict and got.keys() == want.keys() and got["none"] is None
        assert torch.allclose(got["y"], want["y"])
        cache, other = got["cache"], want["cache"]
        assert type(cache) is Cache and vars(cache).keys() == vars(other).keys() and cache.kind is Layer
        assert (cache.n, cache.where) == (2, {"a": [1, 2]})
        for layer, like in zip(cache.layers, other.layers, strict=True):
            assert type(layer) is Layer and (layer.device, layer.seen) == (like.device, like.seen)
            assert torch.allclose(layer.keys, like.keys) and torch.allclose(layer.values, like.values)
        cache.layers.append(1)  # the next call has its own
        cache.where["a"].append(3)
        cache.layers[0].seen.clear()


def test_a_distribution_is_one_again():
    class Policy(nn.Module):
        def forward(self, x):
            normal = torch.distributions.Normal(torch.tanh(x) * 2, nn.functional.softplus(x), validate_args=False)
            return torch.distributions.Independent(normal, 1, validate_args=False)

    x = randn(9, 4)
    made = optimize(Policy(), x)
    got, by_plan = ran(made, x)
    want = Policy()(x)
    assert by_plan and type(got) is type(want) and got.event_shape == want.event_shape
    assert torch.allclose(got.log_prob(x), want.log_prob(x), atol=1e-5) and torch.allclose(got.mean, want.mean)


def test_states_and_objects_together():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.state = torch.ones(5)

        def forward(self, x):
            self.state = torch.tanh(self.state + x.sum(0))
            return Cache(Layer(x * self.state, x + 1))

    model, x = Recurrent(), randn(3, 5)
    other = copy.deepcopy(model)
    made = optimize(model, x)
    for _ in range(3):
        got, by_plan = ran(made, x)
        want = other(x)
        assert by_plan and torch.allclose(got.layers[0].keys, want.layers[0].keys)
        assert torch.allclose(model.state, other.state)


def test_the_form_of_a_result_may_be_known_after_the_call_alone():
    """As of the module itself in a CUDA graph."""
    model, x = of(cached), randn(4, 5)
    fast = runtime.Fast(model, model, None, None, [], [], [], [], [0], (x,), {}, None, False)
    got, again = fast(x), fast(x)
    assert type(got["cache"]) is Cache and torch.equal(got["cache"].layers[1].keys, x.sin() * 2)
    assert again["cache"] is not got["cache"]


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x


class Own(list):
    """A list's subclass: its items are not in its attributes."""


class Refuses:
    def __init__(self, x):
        self.x = x

    def __reduce_ex__(self, protocol):
        raise TypeError("it cannot be copied")


class Odd:
    def __init__(self, x):
        self.x, self.lock = x, object()


def cycle(x):
    made = Cache()
    made.own, made.x = made, x
    return made


@pytest.mark.parametrize("make", [Slotted, lambda x: Own([x]), Refuses, Odd, cycle])
def test_an_object_that_no_copy_by_attributes_gives_again_runs_as_it_was(make):
    x = randn(4, 4)
    assert not _objects.are_in(_objects.held([make(x)]))
    made = optimize(of(lambda x: (make(x * 2), x + 1)), x)
    assert made.report.chosen == "original" and "it cannot be captured" in made.report.why[0]
    assert type(made(x)[0]) is type(make(x))


def test_values_without_objects_are_held_as_they_are():
    x = randn(3)
    value = {"a": [x, 1, None, "b"], "b": (x, Layer)}
    assert _objects.held(value) == value and not _objects.are_in(_objects.held(value))
    assert not _objects.are_in(_objects.held(Cache()))  # no tensor in it


# ---- attributes ----
class Holds(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.change = change
        self.box, self._last, self.both = (
            Cache(Layer(torch.zeros(4), torch.ones(4))),
            {},
            [torch.ones(4), torch.ones(4)],
        )
        self.hidden = [nn.BatchNorm1d(4)]
        self.box.back = self  # round and round

    def forward(self, x):
        y = torch.tanh(x) * 2 + self.both[0]
        self.change(self, y)
        return y + 1


def in_object(model, y):
    model.box.layers[0].keys = y.sum(0)


def in_place(model, y):
    model.box.layers[0].values.add_(y.sum(0))


def counts(model, y):
    model.box.n += 1


def keeps(model, y):
    model._last["y"] = y


def puts(model, y):
    model.both[1] = y


def trains(model, y):
    model.hidden[0](y)


@pytest.mark.parametrize(
    "change, name",
    [(in_object, "box"), (in_place, "box"), (counts, "box"), (keeps, "_last"), (puts, "both"), (trains, "hidden")],
)
def test_changes_inside_an_attribute_are_seen(change, name):
    model, x = Holds(change), randn(6, 4)
    made = optimize(model, x)
    assert made.report.why == [f"it runs as it was: it changes its attribute {name}"]
    assert torch.equal(made(x), Holds(change)(x))
    assert type(model.box.layers[0].keys) is torch.Tensor


def same_again(model, y):
    """As torchvision's anchors."""
    model.both = [t.to(y) for t in model.both]


@pytest.mark.parametrize("change", [lambda model, y: None, same_again])
def test_an_attribute_that_does_not_change_is_no_hindrance(change):
    model, x = Holds(change), randn(6, 4)
    made = optimize(model, x)
    got, by_plan = ran(made, x)
    assert by_plan and torch.allclose(got, model(x), atol=1e-6)
