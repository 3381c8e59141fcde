# SPDX-License-Identifier: Apache-2.0
"""The ops in graphs that Inductor compiles: the bits of eager calls, into Inductor's own memory, past the dispatcher;
and what the dispatcher's kernels leave to the longer way."""

import functools

import pytest

torch = pytest.importorskip("torch")
import quern  # noqa: E402
import quern.torch  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402

swiglu, gemm_norm = quern.torch.swiglu, quern.torch.gemm_norm
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
CALLS = {
    "two": lambda a, b: swiglu(a + 1, b, activation="geglu") + b,
    "turned": lambda a, b: swiglu((a + 1).t().contiguous().t(), b),
    "rows": lambda a, b: swiglu(torch.cat((a, b), -1)[:, 3:10], torch.cat((b, a), -1)[:, 1:8]),
    "halves": lambda a, b: swiglu(torch.cat((a, b), -1) + 1, layout="halves"),
    "interleaved": lambda a, b: swiglu(torch.cat((a, b), -1) + 1, layout="interleaved"),
    "absent": lambda a, b: gemm_norm(a + 1, b * 2, None, gamma=b[:, 0].contiguous(), norm="layer"),
    "unlike": lambda a, b: gemm_norm(a, b[:3].clone(), b[:3, 1].contiguous(), norm="none"),
}


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def draw(device, rows=6, seed=1):
    made = torch.randn(2, rows, 8, generator=torch.Generator().manual_seed(seed)).to(device)
    return made[0].clone(), made[1].clone()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("mode", ["no_grad", "inference_mode", "grad"])
def test_the_bits_of_eager_calls(name, mode, device):
    call, compiled = CALLS[name], torch.compile(CALLS[name], fullgraph=True)
    if mode != "grad":
        with getattr(torch, mode)():
            pair = draw(device)
            assert torch.equal(compiled(*pair), call(*pair))
        return
    results = []
    for function in (compiled, call):
        a, b = (x.requires_grad_() for x in draw(device))
        c = function(a, b)
        c.backward(torch.ones_like(c))
        results.append((c.detach(), a.grad, b.grad))
    assert torch.equal(results[0][0], results[1][0])
    for one, other in zip(results[0][1:], results[1][1:]):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_any_size():
    compiled = torch.compile(CALLS["two"], fullgraph=True, dynamic=True)
    with torch.no_grad():
        for rows in (3, 6, 0, 40):
            assert torch.equal(compiled(*draw("cpu", rows)), CALLS["two"](*draw("cpu", rows)))


def test_the_code_calls_past_the_dispatcher():
    from torch._inductor.utils import run_and_get_code

    for name in ("two", "absent"):
        with torch.no_grad():
            _, (code,) = run_and_get_code(torch.compile(CALLS[name]), *draw("cpu"))
        assert code.count(".default.quern_into(") == 1 and ".default(" not in code


def test_what_the_fast_call_leaves_alone_is_written_too(monkeypatch):
    """Such as columns that no kernel reads: the op itself, and a copy of what it gives."""
    op = torch.ops.quern.swiglu.default
    a, b = draw("cpu")
    out = torch.empty(8, 6)
    numbers = (1.0, 1.0, "swiglu", 1.702, 7.0)
    op.quern_into(a.t(), b.t(), *numbers, out=out)
    assert torch.equal(out, swiglu(a, b).t())
    with pytest.raises(ValueError, match="shape"):
        op.quern_into(a, b[:3], *numbers, out=torch.empty(6, 8))


def test_without_this_inductor_the_op_is_called(monkeypatch):
    """Another version's, in which a name is missing."""
    from quern.torch import _inductor
    from torch._inductor import lowering

    op = torch.ops.quern.swiglu_of_one.default
    monkeypatch.delitem(lowering.lowerings, op, raising=False)
    monkeypatch.delattr(lowering, "fallback_handler")
    assert _inductor.lower(op) and op not in lowering.lowerings


# ---- the dispatcher's kernels ----
def test_an_op_is_entered_once(monkeypatch):
    """Neither PyTorch's wrapper for autograd nor the kernel below is reached where the fast call does it."""
    a, b = draw("cpu")
    numbers = (1.0, 1.0, "swiglu", 1.702, 7.0)
    monkeypatch.setattr("quern._swiglu.swiglu", functools.partial(pytest.fail, "the longer way"))
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode():
            torch.ops.quern.swiglu(a, b, *numbers)
    vjp = torch.ops.quern.swiglu_vjp(a, b, *numbers, [b], [a])
    monkeypatch.undo()
    assert all(map(torch.equal, vjp, quern.swiglu_backward(b, a, b)))


def test_forward_mode_is_refused_of_the_op_too():
    a, b = draw("cpu")
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="swiglu has no jvp"):
        torch.ops.quern.swiglu(forward_ad.make_dual(a, b), b, 1.0, 1.0, "swiglu", 1.702, 7.0)


def test_an_op_gives_memory_of_its_own():
    f = quern.function(lambda x: x.view(-1))
    op = quern.torch.register("quern_tests::flat", f, output_shapes=lambda x: [(x.numel(),)])
    x = torch.ones(2, 3)
    made = op(x)
    made += 1
    assert torch.equal(x, torch.ones(2, 3)) and made.shape == (6,)
    with pytest.raises(RuntimeError, match="has no vjp"):
        op(x.requires_grad_()).sum().backward()
