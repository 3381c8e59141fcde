# SPDX-License-Identifier: Apache-2.0
"""quern.torch's learned optimizers with capturable=True, whose numbers lie in device memory: the same steps as without,
what a capture may not do, prepare(). On the processor the call reads the numbers there, and no graph can be captured:
what decides about it is reached as if the parameters were on a GPU. Catches a number that is not told, a count of steps
that is told twice, a capture that would repeat one moment."""

import copy
import io

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("numpy")

from torch_lopt_models import KINDS, SHAPES, WEIGHTS, SmallFCLopt, trained  # noqa: E402
from torch_models import bits, clones, give_grads, parameters, same  # noqa: E402


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_in_device_memory_are_the_same_numbers(kind):
    params, others = (parameters(SHAPES[:4]) for _ in range(2))
    says = [dict(lr=0.5, weight_decay=0.1), dict(lr=torch.tensor(0.25), width_mult=4.0)]
    both = [
        kind([{"params": some[:2], **says[0]}, {"params": some[2:], **says[1]}], WEIGHTS, capturable=capturable)
        for some, capturable in ((params, True), (others, False))
    ]
    for seed in range(4):
        for some, optimizer in zip((params, others), both):
            give_grads(some, seed)
            if seed == 2:
                optimizer.param_groups[0].update(lr=0.125, weight_decay=0.0)
                optimizer.param_groups[1]["lr"].fill_(0.75)
            optimizer.step()
        assert all(torch.allclose(p, q, rtol=1e-6, atol=1e-8) for p, q in zip(params, others))
    assert [int(group["step"]) for group in both[0].param_groups] == [4, 4]
    assert all(isinstance(group["step"], torch.Tensor) for group in both[0].param_groups)


def test_a_round_trip_of_numbers_in_device_memory():
    params, optimizer = trained(capturable=True, weight_decay=0.1)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    others = clones(params)
    other = SmallFCLopt(others, WEIGHTS)
    other.load_state_dict(torch.load(file, weights_only=True))
    kept = optimizer.param_groups[0]["step"]
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert optimizer.param_groups[0]["step"] == 3
    for seed in range(3):
        give_grads(params, seed)
        give_grads(others, seed)
        optimizer.step()
        other.step()
        assert same(params, others)
    assert int(kept) == 6 and other.param_groups[0]["step"].data_ptr() != kept.data_ptr()
    other.param_groups[0]["capturable"] = False
    give_grads(others, 9)
    other.step()
    assert other.param_groups[0]["step"] == 7 and not isinstance(other.param_groups[0]["step"], torch.Tensor)


@pytest.mark.parametrize(
    ("options", "before", "sentence"),
    [
        (dict(), "step", "make the optimizer with capturable=True"),
        (dict(capturable=True), "nothing", "a parameter has no state yet, and a graph"),
        (dict(capturable=True), "step", "a parameter of group 0 is on no GPU"),
        (dict(capturable=True), "elsewhere", "device memory has not been told, and a graph is being captured"),
        (dict(capturable=True), "load", "has no numbers in device memory yet, and a graph"),
    ],
)
def test_what_a_capture_may_not_do(options, before, sentence, monkeypatch):
    from quern.torch import _lopt

    params = parameters(SHAPES[:2])
    optimizer = SmallFCLopt(params, WEIGHTS, **options)
    give_grads(params, 0)
    if before != "nothing":
        optimizer.step()
    if before in ("elsewhere", "load"):  # as if the parameters were on a GPU
        plan = optimizer._lists[0]
        monkeypatch.setattr(plan.place, "device", type("Device", (), {"type": "cuda"})())
        optimizer._live = dict(zip([(0, plan.place.device)], optimizer._live.values()))
        monkeypatch.setattr(plan, "gather", lambda: True)
        optimizer.param_groups[0]["lr"] = 0.5
        if before == "load":
            optimizer.param_groups[0]["step"] = 1
    kept = bits(params)
    monkeypatch.setattr(_lopt, "is_capturing", lambda: True)
    with pytest.raises(RuntimeError, match=sentence):
        optimizer.step()
    assert same(params, kept)


def test_a_capture_may_be_when_nothing_has_changed(monkeypatch):
    from quern.torch import _lopt

    params = parameters(SHAPES[:2])
    optimizer = SmallFCLopt(params, WEIGHTS, lr=0.5, weight_decay=0.1, capturable=True)
    give_grads(params, 0)
    optimizer.step()
    plan = optimizer._lists[0]
    monkeypatch.setattr(plan.place, "device", type("Device", (), {"type": "cuda"})())  # as if it were on a GPU
    optimizer._live = dict(zip([(0, plan.place.device)], optimizer._live.values()))
    monkeypatch.setattr(plan, "gather", lambda: True)
    monkeypatch.setattr(_lopt, "is_capturing", lambda: True)
    assert optimizer._ready() == [plan]


def test_prepare_makes_state_and_takes_no_step():
    params, others = (parameters(SHAPES[:3]) for _ in range(2))
    optimizer, other = SmallFCLopt(params, WEIGHTS, capturable=True), SmallFCLopt(others, WEIGHTS)
    kept = bits(params)
    give_grads(params, 0)
    optimizer.prepare()
    assert same(params, kept) and set(optimizer.state) == set(params) and int(optimizer.param_groups[0]["step"]) == 0
    optimizer.param_groups[0]["lr"] = other.param_groups[0]["lr"] = 0.5
    optimizer.prepare()
    give_grads(others, 0)
    optimizer.step()
    other.step()
    assert same(params, others)


def test_capturable_is_true_or_false():
    with pytest.raises(TypeError, match="capturable is 1, it must be True or False"):
        SmallFCLopt(parameters([(2,)]), WEIGHTS, capturable=1)


@pytest.mark.cuda
def test_a_captured_step_is_replayed_with_its_numbers():
    params, others = (parameters(SHAPES, device="cuda") for _ in range(2))
    captured = SmallFCLopt(params, WEIGHTS, lr=torch.tensor(0.5, device="cuda"), capturable=True)
    plain = SmallFCLopt(others, WEIGHTS, lr=0.5)
    for some in (params, others):
        give_grads(some, 0)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        captured.step()
    torch.cuda.current_stream().wait_stream(stream)
    plain.step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured.step()
    for lr in (0.25, 0.125):
        captured.param_groups[0]["lr"].fill_(lr)
        plain.param_groups[0]["lr"] = lr
        graph.replay()
        plain.step()
    assert all(torch.allclose(p, q, rtol=1e-6, atol=1e-7) for p, q in zip(params, others))
    assert int(captured.param_groups[0]["step"]) == 3
