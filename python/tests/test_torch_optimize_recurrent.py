# SPDX-License-Identifier: Apache-2.0
"""Recurrent nets as kernels of the plan's: the graph on a processor, the kernels on a GPU that has clusters."""

import copy

import pytest

torch = pytest.importorskip("torch")
if not hasattr(torch.export, "default_decompositions"):
    pytest.skip("before torch 2.6 models cannot be captured", allow_module_level=True)

import quern  # noqa: E402
from quern.optimize import _capture, _convolutions, _fold, _graph, _planner, _program, _recurrent  # noqa: E402
from quern.optimize._graph import Unplannable  # noqa: E402

cuda = pytest.mark.cuda


class Net(torch.nn.Module):
    """A net whose states are inputs."""

    def __init__(self, kind, *sizes, **how):
        super().__init__()
        torch.manual_seed(1)
        self.net = kind(*sizes, **how)

    def forward(self, x, *states):
        out, state = self.net(x, states if len(states) > 1 else states[0])
        return (out, *state) if isinstance(state, tuple) else (out, state)


def net(kind, batch=3, steps=5, inputs=4, hidden=6, layers=2, **how):
    """(the module, what it is called with)"""
    model = Net(kind, inputs, hidden, layers, **how)
    first = how.get("batch_first", False)
    torch.manual_seed(2)
    x = torch.randn(batch, steps, inputs) if first else torch.randn(steps, batch, inputs)
    shape = layers * (2 if how.get("bidirectional") else 1), batch, hidden
    return model, (x, *(torch.randn(shape) for _ in range(2 if kind is torch.nn.LSTM else 1)))


def packed(model, args):
    """(what was captured, its graph with nets whose parameters lie in one tensor, what is computed once, the rest)"""
    captured = _capture.capture(model, args, {}, args[0].device)
    made = copy.deepcopy(captured.graph)
    for node in [node for node in made.nodes if _recurrent._is_net(made, node)]:
        _recurrent._pack(made, node)
    return captured, made, *_fold.split(made, captured.constants, captured.users)


NETS = {
    "lstm": dict(kind=torch.nn.LSTM),
    "lstm, both directions": dict(kind=torch.nn.LSTM, bidirectional=True, batch_first=True),
    "gru": dict(kind=torch.nn.GRU, batch_first=True),
    "gru without biases, both directions": dict(kind=torch.nn.GRU, bidirectional=True, bias=False),
    "tanh": dict(kind=torch.nn.RNN),
    "relu": dict(kind=torch.nn.RNN, nonlinearity="relu", layers=1, bidirectional=True),
}


@pytest.mark.parametrize("name", NETS)
def test_packed_parameters_are_those_of_the_net(name):
    model, args = net(**NETS[name])
    captured, made, prepare, main = packed(model, args)
    assert not captured.graph.random
    values = {slot.name: slot.tensor.detach() for slot in captured.slots} | dict(zip(captured.users, args))
    want, got = _fold.evaluate(captured.graph, values), _fold.evaluate(made, values)
    for a, b in zip(want, got):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert [node.op for node in main.nodes] == [_recurrent.OP]  # the parameters are packed once
    assert prepare is not None and len(prepare.outputs) == 1


@pytest.mark.parametrize("name", NETS)
def test_a_plan_has_one_kernel_for_a_net(name):
    model, args = net(**NETS[name], hidden=40)
    _, _, _, main = packed(model, args)
    with pytest.raises(Unplannable, match="whose kernel is a GPU's"):
        _planner.plan(main)
    main.device = "cuda"
    (step,) = _planner.plan(main)["steps"]
    assert step["kind"] == "kernel" and step["cluster"] == 4  # of 16 hidden units each, and a power of two
    assert len(step["inputs"]) == len(args) + 1
    results = 3 if NETS[name]["kind"] is torch.nn.LSTM else 2
    assert [out["index"] for out in step["outputs"]] == [*range(results + 2)]
    assert step["outputs"][-1]["init"] == 0 and not any("init" in out for out in step["outputs"][:-1])
    assert "cluster=4" in _program.definition(step) and "init_value=[None, " in _program.definition(step)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (dict(kind=torch.nn.LSTM, hidden=257), "more than 256 hidden units"),
        (dict(kind=torch.nn.LSTM, hidden=256, inputs=600), "do not fit into registers"),
        (dict(kind=torch.nn.RNN, hidden=16, inputs=2000, batch=10), "do not fit into shared memory"),
    ],
)
def test_what_has_no_kernel(given, why):
    _, _, _, main = packed(*net(**given))
    main.device = "cuda"
    with pytest.raises(Unplannable, match=why):
        _planner.plan(main)


def test_nets_stay_cudnns_without_tf32_or_clusters(monkeypatch):
    captured = _capture.capture(*net(torch.nn.GRU), {}, torch.device("cpu"))
    graph = captured.graph
    assert _recurrent.variants(graph) == []  # a processor's
    graph.device = "cuda"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    assert [way for way, _ in _recurrent.variants(graph)] == [_recurrent.OWN]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (10, 0))
    assert _recurrent.variants(graph) == []
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(_convolutions, "allows_tf32", lambda: False)
    assert _recurrent.variants(graph) == []


def test_states_have_their_shapes_though_pytorch_describes_others():
    """Before PyTorch 2.13 an export describes an LSTM's states with four dimensions."""
    model, args = net(torch.nn.LSTM, hidden=40)
    captured = _capture.capture(model, args, {}, torch.device("cpu"))
    (node,) = captured.graph.nodes
    right = node.results[1:]
    node.results[1:] = [_graph.Meta(m.dtype, (m.shape[0], 1, *m.shape[1:]), (m.strides[0], *m.strides)) for m in right]
    graph = copy.deepcopy(captured.graph)
    assert _recurrent._is_net(graph, graph.nodes[0])
    _recurrent._pack(graph, graph.nodes[0])
    assert graph.nodes[-1].results[1:] == right
    graph = captured.graph
    graph.nodes.append(_graph.Node("view", "aten.view.default", [_graph.Ref("lstm", 1), [-1]], {}, right[:1]))
    assert not _recurrent._is_net(graph, graph.nodes[0])


def test_a_net_with_dropout_that_trains_stays():
    model, args = net(torch.nn.GRU, dropout=0.5)
    for trains in (False, True):
        graph = _capture.capture(model.train(trains), args, {}, torch.device("cpu")).graph
        assert graph.random == trains and _recurrent._is_net(graph, graph.nodes[0]) != trains


# ---- on a GPU ----
SHAPES = [
    dict(kind=torch.nn.LSTM, batch=10, steps=33, inputs=128, hidden=256, layers=3, batch_first=True),
    dict(kind=torch.nn.LSTM, batch=3, steps=20, inputs=50, hidden=256, layers=2, bidirectional=True),
    dict(kind=torch.nn.LSTM, batch=21, steps=9, inputs=37, hidden=100, layers=2, bidirectional=True, bias=False),
    dict(kind=torch.nn.GRU, batch=10, steps=40, inputs=128, hidden=256, layers=4),
    dict(kind=torch.nn.GRU, batch=70, steps=9, inputs=300, hidden=72, layers=1, bidirectional=True, batch_first=True),
    dict(kind=torch.nn.GRU, batch=1, steps=1, inputs=1, hidden=1, layers=1),
    dict(kind=torch.nn.RNN, batch=5, steps=17, inputs=20, hidden=50, layers=3, batch_first=True),
    dict(kind=torch.nn.RNN, batch=16, steps=2, inputs=16, hidden=16, layers=8, nonlinearity="relu", bias=False),
]


def on_gpu(model, args):
    """What computes the net by the plan's kernel, and its arguments there."""
    args = [torch.empty_strided(a.shape, a.stride(), device="cuda").copy_(a) for a in args]
    captured, _, prepare, main = packed(copy.deepcopy(model).cuda(), tuple(args))
    weights = {slot.name: slot.tensor.detach() for slot in captured.slots}
    ready = dict(zip([name for name in main.inputs if name not in captured.users], _fold.evaluate(prepare, weights)))
    plan = _program.build(main, _planner.plan(main), None, "own").plan

    def run(*given):
        values = ready | dict(zip(captured.users, given))
        return plan(*(values[name] for name in main.inputs))

    return run, args


@cuda
@pytest.mark.parametrize("shape", SHAPES, ids=lambda given: "-".join(str(v) for v in list(given.values())[1:6]))
def test_a_kernel_computes_its_net(shape):
    """Within 2^-15 of the largest value of each result, where TF32 would be off by some 2^-11; the same bits again."""
    if torch.cuda.get_device_capability() != _recurrent.CAPABILITY:
        pytest.skip("a GPU without clusters")
    model, args = net(**shape)
    run, given = on_gpu(model, args)
    got = run(*given)
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(*(a.double() for a in args))
    for a, b in zip(got, exact, strict=True):
        assert a.shape == b.shape and (a.cpu().double() - b).abs().max() <= 2**-15 * max(1, b.abs().max())
    for _ in range(3):
        assert all(torch.equal(a, b) for a, b in zip(got, run(*given), strict=True))


@cuda
def test_a_kernel_reads_strided_inputs_and_keeps_nan_in_its_sequence():
    if torch.cuda.get_device_capability() != _recurrent.CAPABILITY:
        pytest.skip("a GPU without clusters")
    model, (x, h0, c0) = net(torch.nn.LSTM, batch=12, steps=7, inputs=20, hidden=64, bidirectional=True)
    across = torch.empty(12, 20, 7).permute(2, 0, 1).copy_(x)
    across[3, 5, 2] = float("nan")
    run, given = on_gpu(model, (across, h0, c0))
    with torch.no_grad():
        want = model(across, h0, c0)
    for a, b in zip(run(*given), want, strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=0, atol=1e-4, equal_nan=True)
        assert b.isnan().any() and not b.isnan().all()


@cuda
def test_optimize_chooses_it():
    if torch.cuda.get_device_capability() != _recurrent.CAPABILITY:
        pytest.skip("a GPU without clusters")
    model, args = net(torch.nn.GRU, batch=10, steps=256, inputs=64, hidden=256, layers=3, batch_first=True)
    model, args = model.cuda(), [a.cuda() for a in args]
    with torch.no_grad():
        fast = quern.torch.optimize(model, tuple(args))
        assert _recurrent.OWN in fast.report.chosen, fast.report
        for a, b in zip(fast(*args), model(*args), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=2e-3)


@cuda
def test_blocks_of_a_cluster_reach_each_others_memory():
    if torch.cuda.get_device_capability() != _recurrent.CAPABILITY:
        pytest.skip("a GPU without clusters")
    body = """
    extern __shared__ int mine[];
    unsigned rank, there, far;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (!threadIdx.x) mine[0] = 100 * (blockIdx.x / 12) + rank;
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
    const unsigned own = static_cast<unsigned>(__cvta_generic_to_shared(mine));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"((rank + 1) % 12));
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(far) : "r"(there) : "memory");
    if (!threadIdx.x) out[blockIdx.x] = far + x[0];
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
    """
    kernel = quern.cuda_kernel("reach", ["x"], ["out"], body, shared_memory=16, cluster=12)
    x = torch.zeros(1, dtype=torch.int32, device="cuda")
    call = dict(
        inputs=[x], grid=(24 * 32, 1, 1), threadgroup=(32, 1, 1), output_shapes=[(24,)], output_dtypes=[x.dtype]
    )
    (out,) = kernel(**call)
    assert out.tolist() == [100 * (k // 12) + (k % 12 + 1) % 12 for k in range(24)]
    with pytest.raises(ValueError, match="is not one of whole clusters of 12 groups"):
        kernel(**call | dict(grid=(13 * 32, 1, 1)))
    with pytest.raises(ValueError, match="with a cluster of blocks a call gives the threadgroup"):
        kernel(**{key: value for key, value in call.items() if key != "threadgroup"})
