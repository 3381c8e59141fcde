# SPDX-License-Identifier: Apache-2.0
"""Calls of a plan that are like the one before, in one entry into C: they answer what the longer way answers, and leave
every other call to it."""

import contextlib
import ctypes
import functools
import types

import pytest

torch = pytest.importorskip("torch")
if not hasattr(torch.export, "default_decompositions"):
    pytest.skip("before torch 2.6 models cannot be captured", allow_module_level=True)

from quern import _fast  # noqa: E402
from quern.optimize import _backend, _capture, _replay, runtime  # noqa: E402
from test_torch_optimize_replay import Player  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch_optimize_models import of, randn  # noqa: E402


class Case:
    """A plan w * x * factor + twice, where `twice` is a constant made of w, in the place of a module."""

    def __init__(self, several=False):
        self.model = of(lambda a, x: x, torch.nn.Dropout())
        self.model.w = torch.nn.Parameter(randn(4, 6))
        self.model.eval()
        self.x, self.runs = randn(4, 6), 0

        def plan(w, twice, x):
            self.runs += 1
            made = [w * x * 0.5 + twice]
            return [*made, x + 1] if several else made

        spec = runtime.flat_tuple(2) if several else None
        slots, modes = [(self.model._parameters, "w")], {"out_spec": spec, "graphed": False}
        self.fast = runtime.Fast(
            self.model, self.answer, plan, lambda w: [w * 2], slots, [0], [], [0], [0], (self.x, 0.5), {}, **modes
        )

    def answer(self, x, factor):
        return self.model.w * x * factor + self.model.w * 2

    def again(self, *args):
        return self.fast.again(*(args or (self.x, 0.5)))


@pytest.fixture
def case():
    made = Case()
    with torch.no_grad():
        made.fast(made.x, 0.5)
        yield made


def test_a_call_like_the_one_before_takes_the_short_way(case):
    assert torch.equal(case.again(), case.answer(case.x, 0.5))
    case.x.add_(1)
    assert torch.equal(case.fast(case.x, 0.5), case.answer(case.x, 0.5))
    other = randn(5, 6)[1:]
    assert torch.equal(case.again(other, 0.5), case.answer(other, 0.5))
    assert case.runs == 4


def test_what_is_no_call_of_it_is_left_alone(case):
    function, parts = case.fast.again.func, case.fast.again.args[0]
    for arguments in [(), (parts,), (None, case.x, 0.5), (parts[:-1], case.x, 0.5), (parts, case.x)]:
        assert function(*arguments) is NotImplemented


def test_what_has_no_short_way_is_refused(case):
    function, parts = ctypes.py_object(), case.fast.again.args[0]
    create = functools.partial(_fast.pylib.qn_fast_plan_create, parts)
    with pytest.raises(ValueError, match="a plan has 2 parts, it must have 17"):
        _fast.pylib.qn_fast_plan_create((1, 2), (), ctypes.byref(function))
    with pytest.raises(ValueError, match="a plan of 4097 arguments, at most 4096 have fast calls"):
        create((0,) * 4097, ctypes.byref(function))
    with pytest.raises(RuntimeError, match="argument 1 is a tensor that has no fast calls"):
        create((0, torch.zeros(2, dtype=torch.complex64)), ctypes.byref(function))
    assert _fast.plan((torch.zeros(2, dtype=torch.complex64),), (None,), [0], None) is None
    create((0,) * 128, ctypes.byref(function))


def test_tensors_without_dimensions_and_elements():
    model, values = of(lambda x, y: x), (torch.tensor(2.0), torch.zeros(0, 3))
    fast = runtime.Fast(
        model, None, lambda x, y: [x + 1, y + 1], None, [], [], [], [], [0, 1], values, {}, runtime.flat_tuple(2), False
    )
    with torch.no_grad():
        fast.results(values, {})
        x, y = fast.again(*values)
        assert float(x) == 3 and y.shape == (0, 3)
        assert fast.again(torch.ones(1), values[1]) is NotImplemented
        assert fast.again(values[0], torch.zeros(3, 0)) is NotImplemented


def test_several_results_are_a_tuple():
    case = Case(several=True)
    with torch.no_grad():
        case.fast(case.x, 0.5)
        a, b = case.again()
        assert type(case.again()) is tuple
        assert torch.equal(a, case.answer(case.x, 0.5)) and torch.equal(b, case.x + 1)


def test_keywords_take_the_short_way():
    model, x = of(lambda x: x), randn(4, 6)
    words = {"scale": 0.5, "y": randn(4, 6)}
    fast = runtime.Fast(
        model, None, lambda x, y: [x * 0.5 + y], None, [], [], [], [], [0, 2], (x,), words, None, False
    )  # fmt: skip
    with torch.no_grad():
        want = x * 0.5 + words["y"]
        for _ in range(2):
            assert torch.equal(fast.results((x,), words)[0], want)
        assert torch.equal(fast.again(x, 0.5, words["y"]), want)
        assert fast.results((x,), {"y": words["y"], "scale": 0.5}) is None
        assert fast.results((x, 0.5, words["y"]), {}) is None
        assert fast.results((x,), {**words, "scale": 1.0}) is None
        assert fast.results((x,), {"scale": 0.5}) is None


def test_a_failure_of_the_plan_is_the_callers(case):
    def fail(*values):
        raise RuntimeError("no memory for it")

    parts = list(case.fast.again.args[0])
    parts[10] = fail
    with pytest.raises(RuntimeError, match="no memory for it"):
        case.fast.again.func(tuple(parts), case.x, 0.5)


class Subclass(torch.Tensor):
    pass


class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


OTHER_ARGUMENTS = {
    "shape": lambda x: (x[:3].clone(), 0.5),
    "strides": lambda x: (x.t().contiguous().t(), 0.5),
    "type": lambda x: (x.double(), 0.5),
    "subclass": lambda x: (x.as_subclass(Subclass), 0.5),
    "no tensor": lambda x: (x.tolist(), 0.5),
    "a view that negates": lambda x: (torch._neg_view(x), 0.5),
    "number": lambda x: (x, 0.25),
    "kind of number": lambda x: (x, torch.tensor(0.5)),
    "fewer": lambda x: (x,),
    "more": lambda x: (x, 0.5, None),
    "requires_grad, while it counts": lambda x: (x.clone().requires_grad_(), 0.5),
}


@pytest.mark.parametrize("kind", OTHER_ARGUMENTS)
def test_other_arguments_are_left_alone(case, kind):
    with torch.enable_grad() if "counts" in kind else contextlib.nullcontext():
        case.model.w.requires_grad_("counts" not in kind)
        assert case.again() is not NotImplemented
        assert case.again(*OTHER_ARGUMENTS[kind](case.x)) is NotImplemented
        assert case.fast.results(OTHER_ARGUMENTS[kind](case.x), {}) is None


def test_strides_of_extents_of_1_count():
    model, x = of(lambda x: x + 1), randn(1, 6)
    fast = runtime.Fast(model, model, lambda x: [x + 1], None, [], [], [], [], [0], (x,), {}, None, False)
    with torch.no_grad():
        fast(x)
        assert fast.again(x) is not NotImplemented
        assert fast.again(x.as_strided((1, 6), (7, 1))) is NotImplemented


@contextlib.contextmanager
def default_dtype():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


SWITCHES = {
    "autograd": torch.enable_grad,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "default type": default_dtype,
    "deterministic": deterministic,
    "mode": Mode,
    "forward-mode tangents": torch.autograd.forward_ad.dual_level,
}


@pytest.mark.parametrize("switch", SWITCHES)
def test_other_switches_are_left_alone(case, switch):
    with SWITCHES[switch]():
        assert case.again() is NotImplemented
    assert case.again() is not NotImplemented


def test_transforms_are_left_alone(case):
    def one(x):
        assert case.again(case.x, 0.5) is NotImplemented
        return x

    torch.func.vmap(one)(randn(2, 3))


def replace(case):
    case.model.w = torch.nn.Parameter(randn(5, 6)[1:])


def point_elsewhere(case):
    case.model.w.data = randn(5, 6)[1:]


def change(case):
    case.model.w.mul_(2)


def take_away(case):
    case.kept = case.model._parameters.pop("w")


def train(case):
    case.model.parts[0].train()


@pytest.mark.parametrize("step", [replace, point_elsewhere, change, take_away, train])
def test_another_module_is_left_alone(case, step):
    step(case)
    assert case.again() is NotImplemented
    if step is take_away:
        case.model.w = case.kept
    if step is not train:
        assert torch.equal(case.fast(case.x, 0.5), case.answer(case.x, 0.5))
        assert torch.equal(case.again(), case.answer(case.x, 0.5))


def test_a_copy_makes_its_own(case):
    import copy

    other = copy.deepcopy(case.fast)
    assert other.again is None and other.seen is None


def test_arguments_are_not_held(case):
    import gc
    import weakref

    x = randn(5, 6)[1:]
    case.fast.seen = None
    case.fast(x, 0.5)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


def test_the_functions_parts_are_seen_by_the_collector():
    import gc
    import weakref

    case = Case()
    case.model.fast = case.fast  # a circle through the parts
    with torch.no_grad():
        case.fast(case.x, 0.5)
    assert case.fast.again is not None
    gone = weakref.ref(case.model)
    del case
    gc.collect()
    assert gone() is None


# ---- graphs ----
def inputs(player, copied):
    player.copied = list(copied)
    return [copied.get(k, value) for k, value in enumerate(player.values)]


@pytest.fixture
def graphed(monkeypatch):
    player = Player(monkeypatch)
    model, x = of(lambda x: torch.tanh(x) * 2), randn(4, 6)
    fast = runtime.Fast(model, model, lambda x: [torch.tanh(x) * 2], None, [], [], [], [], [0], (x,), {}, None, True)
    player.plan, player.inputs, player.values = fast._direct, functools.partial(inputs, player), [x]
    with torch.no_grad():
        for _ in range(_replay.STEADY + 1):
            fast(x)
        yield player, model, fast, x


def test_a_graph_runs_the_short_way(graphed):
    player, model, fast, x = graphed
    replays = player.replays
    for k in range(3):
        x.add_(1)
        assert torch.equal(fast.again(x), model(x)) and player.replays == replays + k + 1


def test_an_output_of_the_short_way_does_not_change_while_it_is_held(graphed):
    player, model, fast, x = graphed
    held, want = [], []
    for _ in range(5):
        x.add_(1)
        held.append(fast(x)[1:])  # a view holds it as well
        want.append(model(x)[1:])
    assert all(torch.equal(a, b) for a, b in zip(held, want))
    assert fast.again(x) is NotImplemented  # both graphs' outputs are held
    del held[:]
    replays = player.replays
    for _ in range(4):
        y = fast.again(x)
        assert torch.equal(y, model(x))
    assert player.replays == replays + 4 and player.captures == 1 + _replay.MOST  # the first copies


def test_a_value_that_moves_is_copied_the_short_way(graphed):
    player, model, fast, x = graphed
    captures, replays = player.captures, player.replays
    moved = [randn(6, 6)[k : k + 4] for k in range(3)]  # each elsewhere
    for k in range(6):
        other = moved[k % 3].add_(1)
        player.values = [other]
        assert torch.equal(fast.again(other), model(other))
        assert player.copied == [0]
    player.values = [x]
    assert torch.equal(fast.again(x), model(x)) and player.copied == []
    assert player.captures == captures and player.replays == replays + 7


def test_a_value_that_may_stay_is_counted_the_longer_way(graphed):
    player, model, fast, x = graphed
    other, captures = randn(6, 6)[1:5], player.captures
    player.values = [other]
    assert fast.again(other) is not NotImplemented
    for _ in range(_replay.STEADY + 1):
        assert fast.again(other) is NotImplemented
        assert torch.equal(fast(other), model(other))
    assert player.captures == captures + 1  # a graph that reads it there
    replays = player.replays
    assert torch.equal(fast.again(other), model(other))
    assert player.replays == replays + 1 and player.copied == []


def test_a_graph_on_another_stream_is_left_alone(graphed):
    player, model, fast, x = graphed
    fast.replay.stream = types.SimpleNamespace(cuda_stream=7)
    assert fast.again(x) is NotImplemented


def test_a_plan_that_returns_its_input(monkeypatch):
    """No storage of a graph's own is handed out."""
    player, model, x = Player(monkeypatch), of(lambda x: x), randn(4, 6)
    fast = runtime.Fast(model, model, lambda x: [x], None, [], [], [], [], [0], (x,), {}, None, True)
    player.plan, player.inputs = fast._direct, lambda copied: [copied.get(0, x)]
    with torch.no_grad():
        for _ in range(_replay.STEADY + 3):
            assert fast(x).data_ptr() == x.data_ptr() or not fast.replay.instances[0].fixed
        assert fast.again(x).data_ptr() == x.data_ptr()


def test_a_replay_that_fails_goes_the_longer_way(graphed, monkeypatch):
    player, model, fast, x = graphed

    def fail():
        raise RuntimeError("the launch failed")

    parts = list(fast.again.args[0])
    parts[11] = tuple((fail, *graph[1:]) for graph in parts[11])
    assert fast.again.func(tuple(parts), x) is NotImplemented
    assert not fast.replay.lock.locked()
    assert torch.equal(fast.again(x), model(x))  # nobody holds the outputs that were not handed out

    class Lock:
        def acquire(self):
            raise KeyboardInterrupt

    parts = list(fast.again.args[0])
    parts[13] = Lock()
    with pytest.raises(KeyboardInterrupt):
        fast.again.func(tuple(parts), x)


def test_a_region_of_a_compiled_model_takes_the_short_way(monkeypatch):
    """As AOTAutograd calls it, with inputs that stay where they are."""
    player, x = Player(monkeypatch), randn(4, 6)
    weights = [randn(4, 6) for _ in range(300)]
    model = of(lambda x, *weights: (torch.tanh(x) * 2, x + weights[-1]))
    graph = _capture.capture(model, (x, *weights), {}, torch.device("cpu")).graph
    region = _backend.Region(graph, None, [])
    region.run, region.graphable = lambda x, *weights: [torch.tanh(x) * 2, x + weights[-1]], True
    player.plan, player.inputs = region.run, lambda copied: [x, *weights]
    with torch.no_grad():
        for _ in range(_replay.STEADY + 5):
            x.add_(1)
            given = [x, *weights]
            made = region(given)
            assert type(made) is list and not given
            assert all(torch.equal(a, b) for a, b in zip(made, model(x, *weights)))
        assert player.captures == 2 and region.again is not None  # the last outputs are held while the next are made
        replays = player.replays
        del made
        assert all(torch.equal(a, b) for a, b in zip(region.again(x, *weights), model(x, *weights)))
        assert player.replays == replays + 1
        assert region.again(x, *weights[:-1], weights[-1].clone()) is NotImplemented
        region.close()
        assert region.again is None
