# SPDX-License-Identifier: Apache-2.0
"""Kernels from a body on PyTorch's tensors: in and out, views, autograd, torch.library and torch.compile."""

import copy
import threading

import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

import kernel_bodies as bodies  # noqa: E402
import quern  # noqa: E402
import quern.torch  # noqa: E402

EXP = quern.metal_kernel("myexp", ["inp"], ["out"], bodies.EXP)
TIMES = quern.metal_kernel("times", ["x", "y"], ["out"], "uint i = thread_position_in_grid.x; out[i] = x[i] * y[i];")


def launch(kernel, *inputs, like=None, **more):
    like = inputs[0] if like is None else like
    (made,) = kernel(
        inputs=list(inputs), template=[("T", like.dtype)], grid=(like.numel(), 1, 1), threadgroup=(256, 1, 1),
        output_shapes=[like.shape], output_dtypes=[like.dtype], **more,
    )  # fmt: skip
    return made


# ---- calls ----
@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float64"])
def test_tensors_in_tensors_out(name):
    a = torch.randn(4, 16).to(getattr(torch, name))
    for _ in range(2):
        b = launch(EXP, a)
        assert isinstance(b, torch.Tensor)
        assert (b.dtype, b.shape, b.device) == (a.dtype, a.shape, a.device)
        torch.testing.assert_close(b, a.exp())


@pytest.mark.parametrize("name", ["bool", "uint8", "int8", "int16", "int32", "int64"])
def test_integers(name):
    kernel = quern.metal_kernel(
        "copier", ["inp"], ["out"], "out[thread_position_in_grid.x] = inp[thread_position_in_grid.x];"
    )
    a = torch.tensor([0, 1, 1, 0, 1]).to(getattr(torch, name))
    assert torch.equal(launch(kernel, a), a)


def test_views_are_copied_or_come_as_they_are():
    strided = quern.metal_kernel("s", ["inp"], ["out"], bodies.EXP_STRIDED, ensure_row_contiguous=False)
    whole = torch.randn(6, 8)
    for a in (whole[::2], whole.T, whole[:, 3:4].expand(6, 5), whole):
        for kernel in (EXP, strided):
            for _ in range(2):
                b = launch(kernel, a)
                torch.testing.assert_close(b, a.exp())
                assert b.is_contiguous()


def test_numbers_and_tensors_of_no_dimensions():
    kernel = quern.metal_kernel(
        "scale", ["x", "by", "more"], ["out"], "uint i = thread_position_in_grid.x; out[i] = x[i] * by + more;"
    )
    x = torch.arange(4.0)
    for by, more in ((2, 0.5), (torch.tensor(2.0), np.float32(0.5)), (torch.tensor(2), torch.tensor(0.5))):
        for _ in range(2):
            assert launch(kernel, x, by, more).tolist() == [0.5, 2.5, 4.5, 6.5]


def test_a_parameter_and_a_pending_negation():
    parameter = torch.nn.Parameter(torch.randn(5))
    with torch.no_grad():
        torch.testing.assert_close(launch(EXP, parameter), parameter.exp())
    z = torch.randn(4, dtype=torch.complex64).conj().imag
    assert z.is_neg()
    torch.testing.assert_close(launch(EXP, z), z.exp())


def test_a_tensor_that_requires_grad_is_not_differentiated_in_silence():
    x = torch.randn(3, requires_grad=True)
    launch(EXP, x.detach())  # whose plan must not let x through
    with pytest.raises(
        RuntimeError, match=r"myexp: inp requires grad .* torch.no_grad\(\), or give it one \(quern.function"
    ):
        launch(EXP, x)


def test_in_place_and_out_are_seen_by_autograd():
    a = torch.randn(5)
    before, version = a.clone(), a._version
    call = dict(template=[("T", a.dtype)], grid=(5, 1, 1), threadgroup=(5, 1, 1))
    for turn in range(1, 3):
        (b,) = EXP(inputs=[a], in_place={"out": "inp"}, **call)
        assert b is a
        assert a._version == version + turn
    torch.testing.assert_close(a, before.exp().exp())
    to = torch.zeros(5)
    for turn in range(1, 3):
        assert EXP(inputs=[before], out=[to], **call)[0] is to
        assert to._version == turn
    torch.testing.assert_close(to, before.exp())


def test_torch_and_numpy_together_give_what_came_first():
    x, y = torch.randn(4), np.ones(4, np.float32)
    assert isinstance(launch(TIMES, x, y, like=x), torch.Tensor)
    (made,) = TIMES(
        inputs=[y, x], grid=(4, 1, 1), threadgroup=(4, 1, 1), output_shapes=[(4,)], output_dtypes=["float32"]
    )
    assert isinstance(made, np.ndarray)


@pytest.mark.cuda
def test_on_a_gpu():
    a = torch.randn(1000, device="cuda")
    for _ in range(2):
        b = launch(EXP, a)
        assert b.device == a.device
        torch.testing.assert_close(b, a.exp())
    strided = a[::2]
    torch.testing.assert_close(launch(EXP, strided), strided.exp())
    scale = quern.metal_kernel("scale", ["x", "by"], ["out"], "uint i = thread_position_in_grid.x; out[i] = x[i] * by;")
    for by in (3, torch.tensor(3.0), torch.tensor(3.0, device="cuda")):
        torch.testing.assert_close(launch(scale, a, by), 3 * a)
    with pytest.raises(ValueError, match="y lies on cpu"):
        launch(TIMES, a, torch.randn(1000))


@pytest.mark.cuda
def test_on_the_current_stream_of_a_gpu():
    stream = torch.cuda.Stream()
    a = torch.zeros(1 << 20, device="cuda")
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        a.fill_(1)
        b = launch(EXP, a)
    stream.synchronize()
    torch.testing.assert_close(b, torch.full_like(a, 2.718281828))


# ---- autograd ----
def exp_function():
    made = quern.function(lambda x: launch(EXP, x))
    made.vjp(lambda x, cotangent, y: launch(TIMES, cotangent, y))
    return made.jvp(lambda x, tangent: launch(TIMES, tangent, launch(EXP, x)))


def test_autograd():
    f = quern.torch.function(exp_function())
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    f(x).sum().backward()  # a cotangent of stride 0
    torch.testing.assert_close(x.grad, x.detach().exp())
    assert torch.autograd.gradcheck(f, (x,), check_forward_ad=True)
    with torch.no_grad():
        assert not f(x).requires_grad


def test_two_inputs_two_outputs_and_one_without_a_derivative():
    both = quern.metal_kernel("both", ["x", "y", "k"], ["s", "p"],
        "uint i = thread_position_in_grid.x; s[i] = x[i] + k[i] * y[i]; p[i] = x[i] * y[i];")  # fmt: skip

    def forward(x, y, k):
        return both(
            inputs=[x, y, k], grid=(x.numel(), 1, 1), threadgroup=(64, 1, 1), output_shapes=[x.shape] * 2,
            output_dtypes=[x.dtype] * 2,
        )  # fmt: skip

    def vjp(primals, cotangents, outputs):
        (x, y, k), (s, p) = primals, cotangents
        return s + p * y, s * k + p * x, None

    f = quern.torch.function(quern.function(forward, vjp=vjp))
    x, y = (torch.randn(5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    k = torch.arange(5)
    assert torch.autograd.gradcheck(lambda x, y: f(x, y, k), (x, y))
    s, _ = f(x, y, k)
    s.sum().backward()  # p has no cotangent
    torch.testing.assert_close(x.grad, torch.ones(5, dtype=torch.float64))


def test_differentiating_twice_is_refused_when_it_is_done():
    f = quern.torch.function(exp_function())
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
    torch.testing.assert_close(first, x.exp())
    with pytest.raises(RuntimeError, match="quern: <lambda> has no second derivative"):
        first.sum().backward()


def test_no_vjp_and_no_jvp_are_said():
    f = quern.torch.function(quern.function(lambda x: launch(EXP, x)))
    x = torch.randn(3, requires_grad=True)
    y = f(x)
    with pytest.raises(ValueError, match="<lambda> has no vjp"):
        y.sum().backward()
    with torch.autograd.forward_ad.dual_level(), pytest.raises(RuntimeError, match="<lambda> has no jvp"):
        f(torch.autograd.forward_ad.make_dual(torch.randn(3), torch.randn(3)))


def test_a_wrong_vjp_is_seen_by_both_checks():
    wrong = quern.function(lambda x: launch(EXP, x), vjp=lambda x, c, y: launch(TIMES, c, x))
    x = torch.randn(4, dtype=torch.float64)
    with pytest.raises(quern.GradientError):
        quern.check_gradient(wrong, [x])
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        torch.autograd.gradcheck(quern.torch.function(wrong), (x.requires_grad_(),))
    assert quern.check_gradient(exp_function(), [x]) < 1e-7


def test_backward_in_many_threads():
    f = quern.torch.function(exp_function())
    wrong = []

    def work(k):
        x = torch.full((100,), 0.01 * k, dtype=torch.float64, requires_grad=True)
        for _ in range(20):
            x.grad = None
            f(x).sum().backward()
            if not torch.allclose(x.grad, x.detach().exp()):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ---- torch.library ----
@pytest.fixture(scope="module")
def op():
    return quern.torch.register("quern_tests::exp", exp_function(), output_shapes=lambda x: [x.shape])


def test_op_and_its_vjp_pass_opcheck(op):
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    torch.library.opcheck(op, (x,))
    torch.library.opcheck(op, (torch.randn(4, 6)[:, ::2],))
    vjp = torch.ops.quern_tests.exp_vjp.default
    torch.library.opcheck(vjp, (x.detach(), [torch.randn(3, 4, dtype=torch.float64)], [x.detach().exp()]))
    y = torch.ops.quern_tests.exp(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, x.detach().exp())


def test_compiled_whole_with_its_backward(op):
    x = torch.randn(3, 4, requires_grad=True)
    compiled = torch.compile(lambda x: op(2 * x).sum(), fullgraph=True, backend="aot_eager")
    compiled(x).backward()
    torch.testing.assert_close(x.grad, 2 * (2 * x.detach()).exp())


def test_compiled_for_any_size(op):
    compiled = torch.compile(lambda x: op(x) + 1, fullgraph=True, dynamic=True, backend="aot_eager")
    for n in (3, 7, 20):
        x = torch.randn(n)
        torch.testing.assert_close(compiled(x), x.exp() + 1)


def test_differentiating_an_op_twice_is_refused(op):
    x = torch.randn(3, requires_grad=True)
    (first,) = torch.autograd.grad(op(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="has no second derivative"):
        first.sum().backward()


def test_an_op_with_a_number_and_two_outputs():
    def forward(x, by: float, n: int):
        return n * by * x, by * x * x

    f = quern.function(forward, vjp=lambda p, c, y: (p[2] * p[1] * c[0] + 2 * p[1] * p[0] * c[1], None, None))
    op = quern.torch.register("quern_tests::two", f, output_shapes=lambda x, by, n: [x.shape] * 2, n_outputs=2)
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: op(x, 0.5, 3), (x,))
    torch.library.opcheck(op, (x, 0.5, 3))


def test_what_cannot_be_registered():
    with pytest.raises(TypeError, match="output_shapes is wanted"):
        quern.torch.register("quern_tests::nothing", lambda x: x)
    with pytest.raises(TypeError, match="is no quern.function"):
        quern.torch.function(3)


def test_a_kernel_survives_a_copy_of_its_module():
    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.kernel = EXP

        def forward(self, x):
            return launch(self.kernel, x)

    x = torch.randn(3)
    torch.testing.assert_close(copy.deepcopy(Module())(x), x.exp())
