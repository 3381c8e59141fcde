# SPDX-License-Identifier: Apache-2.0
"""quern.torch.gemm_norm: PyTorch's own values and gradients, opcheck, and one node in a compiled graph."""

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


# ---- gradients, against autograd's of the eager form in double ----
ACTIVATIONS = {
    "none": lambda u: u,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda u: F.gelu(u, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


def in_double(tensors, activation="mish", norm="group", groups=1, clamp=True, eps=1e-5):
    """(result, the tensors, which require gradients)."""
    given = [None if one is None else one.detach().double().requires_grad_() for one in tensors]
    x, weight, bias, bias2, gamma, beta = given
    z = F.linear(x, weight)
    for one in (bias, bias2):
        z = z if one is None else z + one
    v = ACTIVATIONS[activation](z.clamp(-1, 1) if clamp else z)
    if norm != "none":
        parts = v.unflatten(-1, (groups if norm == "group" else 1, -1))
        if norm != "rms":
            parts = parts - parts.mean(-1, keepdim=True)
        v = (parts / (parts.square().mean(-1, keepdim=True) + eps).sqrt()).flatten(-2)
    v = v if gamma is None else v * gamma
    return v if beta is None else v + beta, given


def some(shape=(5, 40), n=24, vectors=(True, True, True, True), dtype=torch.float32):
    made = [draw(*shape).to(dtype), (draw(n, shape[-1], seed=2) / shape[-1] ** 0.5).to(dtype)]
    made += [draw(n, seed=3 + k) if given else None for k, given in enumerate(vectors)]
    return [None if one is None else one.requires_grad_() for one in made]


def check_gradients(tensors, tolerance, precision="fp32", **words):
    y = quern.torch.gemm_norm(*tensors, precision=precision, **words)
    wanted, doubles = in_double(tensors, **words)
    dy = draw(*y.shape, seed=9).to(y.dtype)
    given = [one for one in tensors if one is not None and one.requires_grad]
    others = [its for its, one in zip(doubles, tensors) if one is not None and one.requires_grad]
    made = torch.autograd.grad(y, given, dy)
    for one, mine, its in zip(given, made, torch.autograd.grad(wanted, others, dy.double())):
        assert mine.dtype is one.dtype and mine.shape == one.shape
        scale = float(its.abs().max()) if its.numel() else 0
        torch.testing.assert_close(mine.double(), its, rtol=0, atol=tolerance * max(scale, 1e-30))


@pytest.mark.parametrize("norm", ["none", "group", "layer", "rms"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients(activation, norm):
    vectors = (True, True, norm != "none", norm != "none")
    for clamp in (True, False):
        words = {"activation": activation, "norm": norm, "groups": 6 if norm == "group" else 1, "clamp": clamp}
        check_gradients(some(vectors=vectors), 1e-5, **words)


@pytest.mark.parametrize("shape", [(40,), (1, 40), (2, 3, 40), (0, 40)])
@pytest.mark.parametrize("vectors", [(False,) * 4, (True, False, False, True), (False, True, True, False)])
def test_gradients_of_any_shape(shape, vectors):
    check_gradients(some(shape, vectors=vectors), 1e-5, groups=3)


# A class's error of one product, over 40 products in a sum and the three of a gradient, of the largest gradient.
@pytest.mark.parametrize(
    "precision, tolerance",
    [("tf32", 2**-7), ("bf16x3", 2**-13), ("tf32x3", 2**-16), ("f16x3", 2**-16), ("bf16", 2**-5)],
)
def test_gradients_of_a_class(precision, tolerance):
    check_gradients(some(), tolerance, precision, activation="silu", norm="rms", clamp=False)


def test_gradients_in_half_precision():
    check_gradients(some((64, 40), dtype=torch.bfloat16), 2**-5, "bf16", activation="gelu", norm="layer", clamp=False)


def test_only_what_is_needed():
    for place in range(6):
        tensors = some()
        for k, one in enumerate(tensors):
            one.requires_grad_(k == place)
        check_gradients(tensors, 1e-5, groups=2)


@pytest.mark.parametrize("make", ["eager", "aot_eager"])
def test_training_steps(make):
    """The same gradients from a compiled graph, where the backward is one node too."""

    def f(x, weight, bias, gamma):
        return quern.torch.gemm_norm(x, weight, bias, gamma=gamma, groups=2).square().sum()

    def gradients(call):
        x, weight, bias, _, gamma, _ = some()
        call(x, weight, bias, gamma).backward()
        return [one.grad for one in (x, weight, bias, gamma)]

    for mine, its in zip(gradients(torch.compile(f, fullgraph=True, backend=make)), gradients(f)):
        assert torch.equal(mine, its)


def test_opcheck_of_the_gradient():
    numbers = 2, -1.0, 1.0, 1e-5, True, "mish", "group", "fp32"
    torch.library.opcheck(torch.ops.quern.gemm_norm.default, (*some((3, 16), 8), *numbers))
    given = [one.detach() for one in some((3, 16), 8)]
    arguments = (draw(3, 8), *given, *numbers, [True] * 6)
    torch.library.opcheck(torch.ops.quern.gemm_norm_backward.default, arguments)


@pytest.mark.parametrize("call", ["gemm_norm", "op"])
def test_second_derivatives_and_tangents_are_refused(call):
    x, weight, *_ = some()

    def f(x):
        if call == "gemm_norm":
            return quern.torch.gemm_norm(x, weight)
        return torch.ops.quern.gemm_norm(
            x, weight, None, None, None, None, 1, -1.0, 1.0, 1e-5, True, "mish", "group", "fp32"
        )

    (dx,) = torch.autograd.grad(f(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="gemm_norm has no second derivative"):
        torch.autograd.grad(dx.sum(), x)
    if call == "gemm_norm":
        with pytest.raises(RuntimeError, match="no jvp"):
            torch.func.jvp(f, (x.detach(),), (x.detach(),))
    with torch.no_grad():
        assert not f(x).requires_grad


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
