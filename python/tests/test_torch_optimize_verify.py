# SPDX-License-Identifier: Apache-2.0
"""Verification of results that are large beside the memory."""

import functools

import pytest

torch = pytest.importorskip("torch")
if not hasattr(torch.export, "default_decompositions"):
    pytest.skip("before torch 2.6 models cannot be captured", allow_module_level=True)

from quern.optimize import _verify  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402
from torch_optimize_models import of, randn  # noqa: E402


def peak(run):
    """Most bytes that are alive at a time of those that a run allocates."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        run()
    now = most = 0
    events = [e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most


PRODUCT = of(lambda a, b: torch.einsum("bijl,lk->bijk", a, b))


@pytest.mark.parametrize(
    "model, args, rounds, most",
    [
        (PRODUCT, (randn(4, 64, 64, 64), randn(64, 192)), False, 4),
        (torch.nn.Conv2d(4, 4, 1), (randn(4, 4, 300, 300),), True, 5),
    ],
    ids=["a product", "a convolution in TF32"],
)
def test_verification_takes_a_small_multiple_of_a_call_s_memory(monkeypatch, model, args, rounds, most):
    """Beside the results that are compared; where they are wrong by the tolerance, so that all that can be looked at
    is. most: times the bytes of a call's tensors."""
    monkeypatch.setattr(_verify.Reference, "_may_round", lambda self: rounds)
    with torch.no_grad():
        result = model(*args).nbytes
    call = sum(t.nbytes for t in args) + result
    made, said = [], []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # each has memory of its own
    try:
        first = peak(lambda: made.append(_verify.Reference(model, model, args, {})))
        wrong = [
            functools.partial(made[0]._wrong_of, k, lambda *args: model(*args) * 1.01) for k in range(_verify.SETS)
        ]
        later = [peak(lambda run=run: said.append(run())) for run in wrong]
    finally:
        torch.set_num_threads(threads)
    assert all("are wrong" in sentence for sentence in said)
    exact = 2 * result  # kept, as the first result is; those of two calls are there later
    assert first <= result + most * call and exact + max(later) <= 2 * result + most * call


@pytest.mark.parametrize("n", [1, 2, 3, 1000, 70001, 131072])
def test_another_order_has_every_element_once(n):
    x = torch.arange(n)
    made = _verify._shuffled(x)
    assert torch.equal(made.sort().values, x) and (n == 1 or not torch.equal(made, x))


@pytest.mark.parametrize("shape", [(), (0, 3), (70000,), (3, 100000), (2, 3, 70, 90, 80), (1, 1, 200000)])
def test_parts_are_all_of_a_tensor(shape):
    x, y = (
        torch.arange(float(torch.Size(shape).numel())).reshape(shape),
        torch.zeros(shape[::-1]).permute(tuple(range(len(shape)))[::-1]),
    )
    for a, b in _verify._parts(x, y):
        assert a.numel() <= 2 * 65536
        b.copy_(a)
    assert torch.equal(x, y)
