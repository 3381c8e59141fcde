# SPDX-License-Identifier: Apache-2.0
"""quern.torch.swiglu: autograd, opcheck, torch.compile, a layer that trains beside eager's, and what is refused."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
import quern  # noqa: E402
import quern.torch  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402

F = torch.nn.functional


def eager(a, b, gate=1.0, down=1.0):
    return F.silu(a * gate) * b * down


def draw(*shape, dtype=torch.float32, seed=3):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("gate, down", [(1.0, 1.0), (1.3, 0.7)])
def test_value_and_gradients_are_eagers(gate, down):
    a, b = (draw(6, 33, seed=k).requires_grad_() for k in (1, 2))
    other = [x.detach().double().requires_grad_() for x in (a, b)]
    got, want = quern.torch.swiglu(a, b, gate, down), eager(*other, gate, down)
    torch.testing.assert_close(got.double(), want, rtol=1e-6, atol=1e-6)
    dc = draw(6, 33, seed=4)
    got.backward(dc)
    want.backward(dc.double())
    for mine, its in zip((a, b), other):
        torch.testing.assert_close(mine.grad.double(), its.grad, rtol=1e-5, atol=1e-5)


def test_opcheck():
    numbers = (1.3, 1.0, "swiglu", 1.702, 7.0)
    a, b = draw(4, 8).requires_grad_(), draw(4, 8, seed=5).requires_grad_()
    torch.library.opcheck(torch.ops.quern.swiglu, (a, b, *numbers))


def test_one_node_in_a_compiled_graph():
    def f(a, b):
        return quern.torch.swiglu(a, b) + 1

    a, b = draw(5, 7).requires_grad_(), draw(5, 7, seed=6).requires_grad_()
    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    got = compiled(a, b)
    got.sum().backward()
    grads = a.grad.clone(), b.grad.clone()
    a.grad = b.grad = None
    want = f(a, b)
    want.sum().backward()
    assert torch.equal(got, want) and torch.equal(grads[0], a.grad) and torch.equal(grads[1], b.grad)


def test_halves_of_one_tensor():
    both = draw(4, 32, dtype=torch.bfloat16).requires_grad_()
    a, b = both.chunk(2, -1)
    quern.torch.swiglu(a, b).sum().backward()
    da, db = quern.swiglu_backward(torch.ones(4, 16, dtype=torch.bfloat16), *(x.detach() for x in (a, b)))
    assert torch.equal(both.grad, torch.cat((da, db), -1))


@pytest.mark.parametrize("layout", ["halves", "interleaved"])
def test_one_tensor_that_holds_both(layout):
    x = draw(4, 3, 32, dtype=torch.bfloat16).requires_grad_()
    dc = draw(4, 3, 16, dtype=torch.bfloat16, seed=5)
    got = quern.torch.swiglu(x, layout=layout)
    got.backward(dc)
    parts = x.detach().chunk(2, -1) if layout == "halves" else (x.detach()[..., ::2], x.detach()[..., 1::2])
    a, b = (part.clone().requires_grad_() for part in parts)
    want = quern.torch.swiglu(a, b)
    want.backward(dc)
    mine = x.grad.chunk(2, -1) if layout == "halves" else (x.grad[..., ::2], x.grad[..., 1::2])
    assert torch.equal(got, want) and torch.equal(mine[0], a.grad) and torch.equal(mine[1], b.grad)
    torch.library.opcheck(
        torch.ops.quern.swiglu_of_one, (x.detach().requires_grad_(), layout, 1.0, 1.0, "swiglu", 1.702, 7.0)
    )


def test_a_fused_layer_is_the_layer():
    one, two = quern.torch.SwiGLUMLP(8, 12), quern.torch.SwiGLUMLP(8, 12, fused=True)
    with torch.no_grad():
        two.gate_up_proj.weight.copy_(torch.cat((one.gate_proj.weight, one.up_proj.weight)))
        two.down_proj.weight.copy_(one.down_proj.weight)
    x = draw(5, 8)
    torch.testing.assert_close(two(x), one(x))
    assert "gate_up_proj.weight" in two.state_dict() and "layout='halves'" in repr(two)


def test_a_second_derivative_is_refused():
    a, b = draw(3).requires_grad_(), draw(3, seed=7).requires_grad_()
    (da,) = torch.autograd.grad(quern.torch.swiglu(a, b).sum(), a, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        da.sum().backward()
    wide = [x.detach().double().requires_grad_() for x in (a, b)]
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.gradgradcheck(quern.torch.swiglu, wide)


@pytest.mark.parametrize("activation", ["swiglu", "clamped", "geglu", "geglu_erf", "reglu", "glu"])
def test_gradcheck(activation):
    """In float64, of every form; some gates and some ups lie beyond the limits."""
    words = {"activation": activation, "limit": 1.5, "alpha": 1.25}
    a, b = (2 * draw(4, 6, dtype=torch.float64, seed=seed).requires_grad_() for seed in (1, 2))
    for numbers in ((1.0, 1.0), (1.3, 0.7), (1 + 1e-9, 1 - 1e-9)):
        assert torch.autograd.gradcheck(lambda a, b: quern.torch.swiglu(a, b, *numbers, **words), (a, b))  # noqa: B023
    x = 2 * draw(3, 8, dtype=torch.float64).requires_grad_()
    for layout in ("halves", "interleaved"):
        assert torch.autograd.gradcheck(lambda x: quern.torch.swiglu(x, layout=layout, **words), (x,))  # noqa: B023
    gate = draw(2, 3, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: quern.torch.swiglu(torch.sigmoid(x), torch.tanh(x), **words), (gate,))


def test_float64_is_eagers():
    """To the last few places, multipliers too, which float32 would round; one that differs from 1 by less counts."""
    a, b = 3 * draw(50, dtype=torch.float64), draw(50, dtype=torch.float64, seed=5)
    for activation, its in (
        ("swiglu", F.silu), ("geglu", lambda x: F.gelu(x, approximate="tanh")), ("geglu_erf", F.gelu),
        ("reglu", F.relu), ("glu", torch.sigmoid),
    ):  # fmt: skip
        for gate, down in ((1.0, 1.0), (1.3, 0.7), (1 + 1e-12, 1 - 1e-12)):
            got = quern.torch.swiglu(a, b, gate, down, activation=activation)
            torch.testing.assert_close(got, its(a * gate) * b * down, rtol=1e-14, atol=1e-15)
    assert not torch.equal(quern.torch.swiglu(a, b, 1.0, 1 - 1e-12), quern.torch.swiglu(a, b))


def test_the_ops_are_there_when_the_package_is_imported():
    """An exported graph that is loaded names them, and nobody has touched the function by then."""
    code = "import quern.torch, torch; print(torch.ops.quern.swiglu, torch.ops.quern.swiglu_of_one, "
    code += "torch.ops.quern.gemm_norm)"
    there = dict(os.environ, PYTHONPATH=os.path.dirname(os.path.dirname(quern.__file__)))
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=there)
    assert done.returncode == 0 and done.stdout.split() == ["quern.swiglu", "quern.swiglu_of_one", "quern.gemm_norm"]


def test_checkpointing_and_functions_of_functions():
    """Recomputation gives the same gradients; forward mode, which passes over such ops with zeros, is refused."""
    from torch.utils.checkpoint import checkpoint

    a, b = draw(4, 6).requires_grad_(), draw(4, 6, seed=5).requires_grad_()
    want = torch.autograd.grad(quern.torch.swiglu(torch.sigmoid(a), b).sum(), (a, b))
    again = checkpoint(lambda a, b: quern.torch.swiglu(torch.sigmoid(a), b), a, b, use_reentrant=False)
    for mine, its in zip(torch.autograd.grad(again.sum(), (a, b)), want):
        assert torch.equal(mine, its)
    x, w = draw(4, 32), draw(32, 32, seed=5)
    for function, at in ((quern.torch.swiglu, (x, x + 1)), (quern.torch.gemm_norm, (x, w))):
        with pytest.raises(RuntimeError, match="no jvp"):
            torch.func.jvp(lambda x: function(x, at[1]), at[:1], at[:1])  # noqa: B023
        with forward_ad.dual_level(), pytest.raises(RuntimeError, match="no jvp"):
            function(forward_ad.make_dual(x, x), at[1])
        with forward_ad.dual_level():  # elsewhere tangents may be under way
            assert torch.equal(function(*at), function(*at))


def test_a_layer_trains_as_eagers_does():
    """Losses over 60 steps differ by less than a thousandth of the first: both round, neither drifts."""

    class Eager(quern.torch.SwiGLUMLP):
        def forward(self, x):
            return self.down_proj(eager(self.gate_proj(x), self.up_proj(x)))

    x, y = draw(64, 16, seed=8), draw(64, 16, seed=9)
    losses = []
    for kind in (quern.torch.SwiGLUMLP, Eager):
        torch.manual_seed(0)
        model = kind(16, 48)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        line = []
        for _ in range(60):
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            line.append(loss.item())
        losses.append(line)
    mine, its = losses
    assert mine[-1] < 0.9 * mine[0]
    assert max(abs(a - b) for a, b in zip(mine, its)) < 1e-3 * its[0]


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda a: quern.torch.swiglu(a, a[:2]), "shape"),
        (lambda a: quern.torch.swiglu(a, a.clone(), activation="gelu"), "activation"),
        (lambda a: quern.torch.swiglu(a, a.clone().double()), "there is no kernel"),
    ],
)
def test_refusals(call, words):
    with pytest.raises((ValueError, TypeError, RuntimeError), match=words):
        call(draw(4))
