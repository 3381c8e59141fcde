# SPDX-License-Identifier: Apache-2.0
"""quern.torch.gemm_norm: PyTorch's own values, opcheck, one node in a compiled graph, and no gradient in silence."""

import pytest

torch = pytest.importorskip("torch")
import quern.torch  # noqa: E402

F = torch.nn.functional


def draw(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def eager(x, weight, bias, groups, gamma=None, beta=None):
    v = F.mish(F.hardtanh(F.linear(x, weight) + bias))
    return F.group_norm(v, groups, gamma, beta)


def test_values():
    x, weight, bias = draw(6, 40), draw(24, 40, seed=2) / 6, draw(24, seed=3)
    gamma, beta = draw(24, seed=4), draw(24, seed=5)
    got = quern.torch.gemm_norm(x, weight, bias, gamma=gamma, beta=beta, groups=6)
    torch.testing.assert_close(got, eager(x, weight, bias, 6, gamma, beta), rtol=1e-4, atol=2e-5)


def test_opcheck():
    quern.torch.gemm_norm  # noqa: B018 (registers it)
    arguments = draw(3, 16), draw(8, 16, seed=2), draw(8, seed=3), None, None, None
    numbers = 2, -1.0, 1.0, 1e-5, True, "mish", "group", "fp32"
    torch.library.opcheck(torch.ops.quern.gemm_norm.default, (*arguments, *numbers))


def test_one_node_in_a_compiled_graph():
    def f(x, weight, bias):
        return quern.torch.gemm_norm(x, weight, bias, groups=2) + 1

    arguments = draw(3, 16), draw(8, 16, seed=2), draw(8, seed=3)
    with torch.no_grad():
        assert torch.equal(torch.compile(f, fullgraph=True, backend="aot_eager")(*arguments), f(*arguments))


def test_a_gradient_is_refused():
    x, weight = draw(3, 16), draw(8, 16, seed=2).requires_grad_()
    with pytest.raises(RuntimeError, match="has no gradient, and weight requires one"):
        quern.torch.gemm_norm(x, weight)
    with torch.no_grad():
        assert not quern.torch.gemm_norm(x, weight).requires_grad


@pytest.mark.cuda  # without one: tests/cublas_mock.c, which holds that a step asks nothing that a capture refuses
@pytest.mark.parametrize("variant", ["", "cublas"])
@pytest.mark.parametrize("dtype, precision", [("float32", "fp32"), ("float32", "tf32"), ("bfloat16", "bf16")])
def test_a_captured_step_sees_other_numbers(variant, dtype, precision):
    dtype = getattr(torch, dtype)
    x, weight = draw(128, 512).to("cuda", dtype), draw(1024, 512, seed=2).to("cuda", dtype)
    y = torch.empty(128, 1024, device="cuda", dtype=dtype)

    def step():
        quern.gemm_norm(x, weight, groups=32, precision=precision, out=y)

    quern.set_option("gemm", variant)
    try:
        step()  # outside first: it compiles, opens cuBLAS and asks for workspace
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        x.copy_(draw(128, 512, seed=3))
        graph.replay()
        replayed = y.clone()
        y.zero_()
        step()
        assert quern._library.lib.qn_op_last_variant().decode().startswith(variant)
        assert torch.equal(replayed.view(torch.uint8), y.view(torch.uint8)) and y.float().abs().sum() > 0
    finally:
        quern.set_option("gemm", None)
