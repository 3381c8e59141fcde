# SPDX-License-Identifier: Apache-2.0
"""quern.torch.VeLO with capturable=True, whose numbers lie in device memory: the same steps as without, what a capture
may not do, prepare(). On the processor no graph can be captured: what decides about it is reached as if the parameters
were on a GPU. Catches groups' decays that are not told or told twice, a step that prepare() takes."""

import copy
import io

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("numpy")

import quern  # noqa: E402
from torch_lopt_models import MLP, RNN  # noqa: E402
from torch_models import bits, clones, give_grads, parameters, same  # noqa: E402

SHAPES = [(7, 5), (64,), (3, 4, 4)]
LOSSES = (2.0, 1.75, float("nan"), 1.5, 1.625)


def velo(params, **options):
    return quern.torch.VeLO(params, MLP, RNN, 50, **options)


def grouped(params, decays, **options):
    says = [dict(weight_decay=decay, width_mult=width) for decay, width in zip(decays, (1.0, 2.0, 1.0))]
    return velo([{"params": [p], **group} for p, group in zip(params, says)], **options)


@pytest.mark.parametrize("decays", [(0.1, 0.1, 0.1), (0.1, 0.0, 0.05)])
def test_numbers_in_device_memory_are_the_same_numbers(decays):
    params, others = (parameters(SHAPES) for _ in range(2))
    optimizer, other = grouped(params, decays, lr=0.5, capturable=True), grouped(others, decays, lr=0.5)
    for seed, loss in enumerate(LOSSES):
        for some, one in ((params, optimizer), (others, other)):
            give_grads(some, seed)
            if seed == 3:
                for group, decay in zip(one.param_groups, decays):
                    group.update(lr=0.125, weight_decay=2 * decay)
            one.step(torch.tensor(loss))
        assert all(torch.allclose(p, q, rtol=1e-6, atol=1e-8) for p, q in zip(params, others)), seed
    assert optimizer.skipped_steps == other.skipped_steps == 1
    steps = [group["step"] for group in optimizer.param_groups]
    assert all(isinstance(step, torch.Tensor) and int(step) == 5 for step in steps)


def test_a_round_trip_of_numbers_in_device_memory():
    params, others = (parameters(SHAPES) for _ in range(2))
    optimizer = grouped(params, (0.1, 0.0, 0.0), capturable=True)
    for seed in range(2):
        give_grads(params, seed)
        optimizer.step(2.0)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    others = clones(params)
    other = grouped(others, (0.0, 0.0, 0.0))
    other.load_state_dict(torch.load(file, weights_only=True))
    kept = optimizer.param_groups[0]["step"]
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for seed in range(2, 4):
        for some, one in ((params, optimizer), (others, other)):
            give_grads(some, seed)
            one.step(1.5)
        assert same(params, others)
    assert int(kept) == 4 and other.param_groups[1]["step"].data_ptr() != kept.data_ptr()
    for group in other.param_groups:
        group["capturable"] = False
    give_grads(others, 9)
    other.step(1.5)
    assert [group["step"] for group in other.param_groups] == [5, 5, 5]


def test_prepare_takes_no_step_and_counts_none():
    params, others = (parameters(SHAPES) for _ in range(2))
    optimizer, other = velo(params, capturable=True, weight_decay=0.1), velo(others, weight_decay=0.1)
    kept = bits(params)
    give_grads(params, 0)
    give_grads(others, 0)
    optimizer.prepare()
    assert same(params, kept) and int(optimizer.param_groups[0]["step"]) == 0 and optimizer.skipped_steps == 0
    assert not any(value.count_nonzero() for p in params for name, value in optimizer.state[p].items() if "exp" in name)
    for loss in (2.0, float("nan"), 1.5):
        optimizer.step(loss)
        other.step(loss)
        kept = copy.deepcopy(optimizer.state_dict()["state"])
        optimizer.prepare()
        now = optimizer.state_dict()["state"]
        assert all(torch.equal(now[k][name], kept[k][name]) for k in kept for name in kept[k])
    assert same(params, others) and optimizer.skipped_steps == 1


REFUSED = {
    "not capturable": (dict(capturable=False), "steps", "make the optimizer with capturable=True"),
    "nothing": ({}, "nothing", "a parameter has no state yet, and a graph"),
    "processor": ({}, "steps", "a parameter of group 0 is on no GPU"),
    "lr": ({}, "lr", "VeLO: lr is 0.25, which device memory has not been told, and a graph"),
    "decay": ({}, "decay", "VeLO: weight_decay of group 1 is 0.25, which device memory has not been told"),
    "number": ({}, "number", "the loss is not on cuda:0, so that each replay would repeat this one"),
    "buffer": ({}, "buffer", "the loss_buffer is not on cpu yet"),
    "rows": ({}, "rows", "the hidden rows of all parameters do not lie together yet"),
}


class OnGPU:
    """As if it were a device."""

    type, index = "cuda", 0

    def __str__(self):
        return "cuda:0"


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_capture_may_not_do(what, monkeypatch):
    from quern.torch import _lopt, velo

    options, before, sentence = REFUSED[what]
    params = parameters(SHAPES[:2])
    optimizer = grouped(params, (0.1, 0.0), **{"capturable": True, **options})
    give_grads(params, 0)
    if before != "nothing":
        optimizer.step(2.0)
    loss, device = torch.tensor(2.0), OnGPU()
    if before in ("lr", "decay", "number"):
        plan = optimizer._lists[0]
        monkeypatch.setattr(plan.place, "device", device)
        optimizer._live = dict(zip([(0, device)], optimizer._live.values()))
        optimizer._decays = {(k, device): live for (k, _), live in optimizer._decays.items()}
        monkeypatch.setattr(plan, "gather", lambda: True)
    if before == "lr":
        for group in optimizer.param_groups:
            group["lr"] = 0.25
    if before == "decay":
        optimizer.param_groups[1]["weight_decay"] = 0.25
    if before in ("buffer", "rows"):  # tensors on no GPU are not checked
        monkeypatch.setattr(optimizer, "_bring_up", lambda *_: None)
    if before == "buffer":
        del optimizer.param_groups[0]["loss_buffer"]
    if before == "rows":
        optimizer.state[params[1]]["hidden"] = optimizer.state[params[1]]["hidden"].clone()
    kept = bits(params)
    for module in (_lopt, velo):
        monkeypatch.setattr(module, "is_capturing", lambda: True)
    with pytest.raises(RuntimeError, match=sentence):
        optimizer.step(loss)
    assert same(params, kept)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (dict(lr=0.5), "lr is 1.0 in group 0 and 0.5 in group 1: with capturable groups have one"),
        (dict(weight_decay=0.5), "groups differ in weight_decay, and when the first step was taken they did not"),
        (dict(capturable=False), "capturable is True in group 0 and False in group 1"),
    ],
)
def test_groups_that_a_captured_graph_would_not_see(change, sentence):
    params = parameters(SHAPES[:2])
    optimizer = grouped(params, (0.1, 0.1), capturable=True)
    give_grads(params, 0)
    optimizer.step(2.0)
    optimizer.param_groups[1].update(change)
    kept = bits(params)
    with pytest.raises(ValueError, match=sentence):
        optimizer.step(2.0)
    assert same(params, kept)


@pytest.mark.cuda
@pytest.mark.parametrize("decays", [(0.1, 0.1, 0.1), (0.1, 0.0, 0.05)])
def test_a_captured_step_is_replayed_with_its_numbers(decays):
    params, others = (parameters(SHAPES, device="cuda") for _ in range(2))
    lr = torch.tensor(0.5, device="cuda")
    captured, plain = grouped(params, decays, lr=lr, capturable=True), grouped(others, decays, lr=0.5)
    for some in (params, others):
        give_grads(some, 0)
    loss = torch.tensor(2.0, device="cuda")
    captured.prepare()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured.step(loss)
    for seed, value in enumerate(LOSSES):
        loss.fill_(value)
        lr.fill_(0.5 / (1 + seed))
        for group in plain.param_groups:
            group["lr"] = 0.5 / (1 + seed)
        for some in (params, others):
            grads = [p.grad for p in some]
            give_grads(some, seed)
            for p, grad in zip(some, grads):
                p.grad = grad.copy_(p.grad)
        captured.prepare()
        graph.replay()
        plain.step(value)
        assert all(torch.allclose(p, q, rtol=1e-6, atol=1e-7) for p, q in zip(params, others)), seed
    assert int(captured.param_groups[0]["step"]) == 5 and captured.skipped_steps == plain.skipped_steps == 1
