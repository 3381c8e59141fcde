# SPDX-License-Identifier: Apache-2.0
"""Plans in CUDA graphs, over graphs that a processor plays: a graph writes its inputs' and outputs' own memory at each
replay, as on a device. On a GPU the same with real ones."""

import contextlib
import types

import pytest

torch = pytest.importorskip("torch")
if not hasattr(torch.export, "default_decompositions"):
    pytest.skip("before torch 2.6 models cannot be captured", allow_module_level=True)

from quern.optimize import _replay, runtime  # noqa: E402
from torch_optimize_models import of, randn  # noqa: E402

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


class Player:
    """What CUDA's graphs do, by running the captured function again into the same memory."""

    def __init__(self, monkeypatch):
        self.captures = self.replays = self.runs = 0
        self.copied = []  # places, of the last replay
        self.capturing = False
        stream = types.SimpleNamespace(cuda_stream=0, wait_stream=lambda other: None)
        player = self

        class Graph:
            def replay(self):
                player.replays += 1
                for to, value in zip(self.outputs, self.run()):
                    if isinstance(to, torch.Tensor):
                        to.copy_(value)

        for name, value in {
            "CUDAGraph": Graph,
            "graph_pool_handle": lambda: 1,
            "is_current_stream_capturing": lambda: self.capturing,
            "current_stream": lambda device=None: stream,
            "Stream": lambda device=None: stream,
            "stream": lambda stream: contextlib.nullcontext(),
            "synchronize": lambda device=None: None,
            "device": lambda device: contextlib.nullcontext(),
            "graph": lambda graph, **words: contextlib.nullcontext(),
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        real = _replay._Instance.__init__

        def init(instance, copied, fixed, graph, outputs):
            player.captures += 1
            real(instance, copied, fixed, graph, outputs)
            graph.outputs = outputs
            graph.run = lambda: player.plan(*player.inputs(copied))

        monkeypatch.setattr(_replay._Instance, "__init__", init)

    @property
    def plain(self):
        """Calls without a graph."""
        return self.runs - self.captures * (_replay.WARMUPS + 1)

    def made(self, plan, updated=(), **words):
        """A Replay of a plan."""
        self.values = []

        def inputs(copied):
            self.copied = list(copied)
            return [copied.get(k, value) for k, value in enumerate(self.values)]

        def run(*values):
            self.runs += 1
            return plan(*values)

        self.plan, self.inputs = plan, inputs
        replay = _replay.Replay(run, torch.device("cpu"), updated, **words)

        def call(*values):
            self.values = values
            return replay(values)

        return call


@pytest.fixture
def player(monkeypatch):
    return Player(monkeypatch)


def test_an_output_that_is_held_does_not_change(player):
    call = player.made(lambda x: [x * 2])
    held = [call(torch.full((3,), float(k)))[0] for k in range(6)]
    assert [float(x[0]) for x in held] == [0, 2, 4, 6, 8, 10]
    assert player.captures == _replay.MOST


def test_a_loop_that_drops_its_outputs_needs_two_graphs(player):
    call = player.made(lambda x: [x * 2, x + 1])
    for k in range(8):
        y = call(torch.full((3,), float(k)))
    assert float(y[0][0]) == 14 and player.captures == 2 and player.replays == 8
    view = y[0][1:]
    del y
    for k in range(4):
        z = call(torch.full((3,), float(k)))
    assert float(view[0]) == 14 and float(z[1][0]) == 4


def test_values_that_stay_where_they_are_are_not_copied(player):
    """The first graph copies both; one that reads w where it is comes after a few calls, and reads its new numbers."""
    call = player.made(lambda w, x: [w * x])
    w, kept = torch.full((3,), 2.0), []
    for k in range(8):
        kept.append(x := torch.full((3,), float(k)))  # so that the next one is elsewhere
        w.add_(1)
        assert float(call(w, x)[0][0]) == (3 + k) * k
        assert player.captures == (1 if k < _replay.STEADY else 2)
        assert len(player.copied) == (2 if k < _replay.STEADY else 1)
    assert float(call(torch.full((3,), 5.0), kept[1])[0][0]) == 5  # by the first graph
    assert player.captures == 2 and len(player.copied) == 2


def test_a_caller_whose_values_move_from_time_to_time_captures_no_more(player):
    call = player.made(lambda x: [x * 2])
    kept = [torch.full((3,), float(k)) for k in range(30)]
    for x in kept:
        for _ in range(_replay.STEADY + 1):
            assert float(call(x)[0][0]) == 2 * float(x[0])
    assert player.captures == _replay.MOST_CAPTURES and player.plain == 0


def test_without_copies_the_plan_runs_until_it_is_known_what_stays(player):
    call = player.made(lambda w, x: [w * x], copies=False)
    w, kept = torch.full((3,), 2.0), [torch.full((3,), float(k)) for k in range(6)]
    assert [float(call(w, x)[0][0]) for x in kept] == [0, 2, 4, 6, 8, 10]
    assert player.replays == 6 - _replay.STEADY and player.captures == 1 and len(player.copied) == 1


def test_what_a_plan_changes_is_never_a_copy(player):
    def plan(counter, x):
        counter.add_(1)
        return [x + counter]

    counter = torch.zeros(3)
    call = player.made(plan, updated=[counter], copies=False, changed=[0])
    kept = [torch.full((3,), float(k)) for k in range(6)]
    assert [float(call(counter, x)[0][0]) for x in kept] == [1, 3, 5, 7, 9, 11] and player.replays
    other = torch.zeros(3)
    assert float(call(other, kept[1])[0][0]) == 2 and float(other[0]) == 1 and float(counter[0]) == 6


def test_runs_before_a_capture_change_nothing(player):
    counter = torch.zeros(1)

    def plan(x):
        counter.add_(1)
        return [x + 1]

    call = player.made(plan, updated=[counter])
    call(torch.zeros(2))
    assert float(counter) == 1
    call(torch.zeros(2))
    assert float(counter) == 2


def test_a_graph_within_a_callers_capture_is_none(player):
    call = player.made(lambda x: [x * 2])
    player.capturing = True
    assert float(call(torch.ones(2))[0][0]) == 2 and not player.replays


def test_no_memory_for_another_graph_is_no_failure(player, monkeypatch):
    call = player.made(lambda x: [x * 2])
    first = call(torch.ones(2))

    def fail(self, values, fixed):
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(_replay.Replay, "_capture", fail)
    assert float(call(torch.ones(2) * 3)[0][0]) == 6 and float(first[0][0]) == 2
    call = player.made(lambda x: [x * 2])
    with pytest.raises(torch.OutOfMemoryError):
        call(torch.ones(2))


def test_outputs_of_one_memory_and_numbers(player):
    def plan(x):
        y = x * 2
        return [y, y.t(), 3]

    call = player.made(plan)
    first = call(randn(2, 2))
    assert first[0].data_ptr() == first[1].data_ptr() and first[2] == 3


@pytest.mark.cuda
def test_on_a_gpu():
    model = of(lambda a, x: torch.tanh(a(x)) * 2, torch.nn.Linear(64, 64)).cuda()
    x = randn(8, 64).cuda()
    slots = [(model.parts[0]._parameters, name) for name in ("weight", "bias")]
    fast = runtime.Fast(model, model, None, None, slots, [], [], [], [0], (x,), {}, None, True)
    with torch.no_grad():
        held = [fast(x * k) for k in range(6)]
        for k, y in enumerate(held):
            assert torch.allclose(y, model(x * k), atol=1e-5)
        assert _replay.MOST <= len(fast.replay.instances) <= 2 * _replay.MOST
        del held, y
        for _ in range(2 * _replay.STEADY):
            x.add_(1)
            assert torch.allclose(fast(x), model(x), atol=1e-5)
        assert any(list(one.fixed.values()) == [x.data_ptr()] for one in fast.replay.instances)
        for _ in range(2):
            y = fast(x)  # the one before is held until here: a second graph
        for _ in range(4):
            x.add_(1)
            y = fast.again(x)  # all in one entry into C
            assert y is not NotImplemented and torch.allclose(y, model(x), atol=1e-5)
        for k in range(4):
            other = x * k  # elsewhere than the one before, which is alive: it is copied
            y = fast.again(other)
            assert y is not NotImplemented and torch.allclose(y, model(other), atol=1e-5)
            del y
        with torch.cuda.stream(torch.cuda.Stream()):
            assert fast.again(x) is NotImplemented
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            assert fast.again(x) is NotImplemented
        model.parts[0].weight.add_(1)
        assert torch.allclose(fast(x), model(x), atol=1e-5)
        model.parts[0].weight = torch.nn.Parameter(torch.randn(64, 64, device="cuda"))
        assert torch.allclose(fast(x), model(x), atol=1e-5)
        with torch.cuda.stream(torch.cuda.Stream()):
            y = fast(x)
        torch.cuda.synchronize()
        assert torch.allclose(y, model(x), atol=1e-5)
