# SPDX-License-Identifier: Apache-2.0
"""Functions with derivatives of their own, on NumPy's arrays: the rules are called as MLX calls them, what they give is
held against what they are for, and the gradient check finds a wrong one."""

import pytest

np = pytest.importorskip("numpy")

import kernel_bodies as bodies  # noqa: E402
import quern  # noqa: E402

SQUARE = quern.metal_kernel("square", ["x"], ["y"], "uint i = thread_position_in_grid.x; y[i] = x[i] * x[i];")
SQUARE_VJP = quern.metal_kernel(
    "square_vjp",
    ["x", "cotangent", "factor"],
    ["x_grad"],
    "uint i = thread_position_in_grid.x; x_grad[i] = T(factor) * x[i] * cotangent[i];",
)


def each(kernel, *inputs):
    """A kernel of one thread an element of its first input."""
    first = inputs[0]
    (made,) = kernel(
        inputs=list(inputs), template=[("T", first.dtype)], grid=(first.size, 1, 1), threadgroup=(64, 1, 1),
        output_shapes=[first.shape], output_dtypes=[first.dtype],
    )  # fmt: skip
    return made


def square(factor=2):
    """x * x with its derivatives; another factor than 2 makes the vjp a wrong one."""
    made = quern.function(lambda x: each(SQUARE, x))

    @made.vjp
    def _(x, cotangent, y):
        return each(SQUARE_VJP, x, cotangent, factor)

    return made.jvp(lambda x, tangent: 2 * x * tangent)


def test_one_of_each_is_bare_and_several_are_tuples():
    """As mlx.core.custom_function hands them over."""
    seen = []

    @quern.function
    def one(x):
        return 2 * x

    @one.vjp
    def one_vjp(primals, cotangents, outputs):
        seen.append((primals, cotangents, outputs))
        return 2 * cotangents

    assert one_vjp is one
    x = np.ones(3)
    (given,) = one.gradient([x], [np.full(3, 5.0)])
    assert given.tolist() == [10, 10, 10]
    assert [type(array) for array in seen[0]] == [np.ndarray] * 3

    @quern.function
    def two(x, y):
        return x + y, x - y

    @two.vjp
    def _(primals, cotangents, outputs):
        seen.append((primals, cotangents, outputs))
        return cotangents[0] + cotangents[1], None

    assert two.gradient((x, x), (x, x))[1] is None
    assert [(type(arrays), len(arrays)) for arrays in seen[1]] == [(tuple, 2)] * 3


def test_vjp_and_jvp_of_a_kernel():
    f = square()
    x, c = np.array([1.0, -2.0, 3.0]), np.array([1.0, 10.0, 100.0])
    outputs, cotangents = quern.vjp(f, (x,), (c,))
    assert outputs[0].tolist() == f(x).tolist() == [1, 4, 9]
    assert cotangents[0].tolist() == [2, -40, 600]
    outputs, tangents = quern.jvp(f, (x,), (c,))
    assert outputs[0].tolist() == [1, 4, 9]
    assert tangents[0].tolist() == [2, -40, 600]
    assert repr(f) == "<quern function <lambda> with vjp and jvp>"


def test_rules_that_do_not_fit_are_refused():
    x = np.ones(3)
    plain = quern.function(lambda x: x)
    with pytest.raises(ValueError, match="<lambda> has no vjp"):
        plain.gradient([x], [x])
    with pytest.raises(ValueError, match="<lambda> has no jvp"):
        plain.tangents([x], [x])
    with pytest.raises(ValueError, match=r"has 1 outputs, and 2 cotangents are given"):
        square().gradient([x], [x, x])
    with pytest.raises(ValueError, match=r"has 1 inputs, and 2 tangents are given"):
        square().tangents([x], [x, x])
    plain.vjp(lambda x, c, y: (c, c))
    with pytest.raises(ValueError, match="the vjp of <lambda> gives 2 arrays, and there are 1 inputs"):
        plain.gradient([x], [x])
    plain.vjp(lambda x, c, y: c[:2])
    with pytest.raises(ValueError, match=r"gives input 0 the shape \(2,\), it has \(3,\)"):
        plain.gradient([x], [x])
    for wrong in (3, None, "f"):
        with pytest.raises(TypeError, match="takes a callable"):
            quern.function(wrong)
    with pytest.raises(TypeError, match="must be a callable"):
        quern.function(lambda x: x, vjp=3)
    with pytest.raises(TypeError, match="is no quern.function"):
        quern.vjp(lambda x: x, (x,), (x,))


# ---- the check ----
def test_a_right_gradient_passes():
    x = np.random.default_rng(3).standard_normal((3, 5)).astype(np.float32)
    assert quern.check_gradient(square(), [x]) < 1e-8


@pytest.mark.parametrize("factor", [3, 0, -2])
def test_a_wrong_vjp_is_caught(factor):
    x = np.random.default_rng(3).standard_normal((3, 5))
    with pytest.raises(quern.GradientError, match=r"<lambda>: the cotangent of input 0 at \[0, 0\] is .* central diff"):
        quern.check_gradient(square(factor), [x])


def test_one_wrong_element_is_caught_and_named():
    def vjp(x, c, y):
        made = 2 * x * c
        made[1, 2] *= 1 + 1e-4
        return made

    wrong = quern.function(lambda x: x * x, vjp=vjp)
    with pytest.raises(quern.GradientError, match=r"at \[1, 2\] is"):
        quern.check_gradient(wrong, [np.ones((2, 3))])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_is_caught(value):
    wrong = quern.function(lambda x: x * x, vjp=lambda x, c, y: np.full(x.shape, value))
    with pytest.raises(quern.GradientError):
        quern.check_gradient(wrong, [np.ones(3)])


def test_a_wrong_jvp_is_caught():
    f = square()
    f.jvp(lambda x, tangent: x * tangent)
    with pytest.raises(quern.GradientError, match=r"the tangent of output 0 along input 0 at \[0\]"):
        quern.check_gradient(f, [np.array([1.5, 2.5])])


def test_a_missing_cotangent_is_caught():
    f = quern.function(lambda x, y: x * y, vjp=lambda p, c, out: (p[1] * c, None))
    x, y = np.ones(3), np.full(3, 2.0)
    assert quern.check_gradient(f, [x, y], of=[0]) < 1e-8
    with pytest.raises(quern.GradientError, match="no cotangent of input 1"):
        quern.check_gradient(f, [x, y])


def test_the_check_wants_double_and_says_so():
    f = quern.function(lambda x: (x * x).astype(np.float32), vjp=lambda x, c, y: 2 * x * c)
    with pytest.raises(ValueError, match="gives float32 for float64 inputs"):
        quern.check_gradient(f, [np.ones(3)])
    with pytest.raises(ValueError, match="neither a vjp nor a jvp"):
        quern.check_gradient(quern.function(lambda x: x), [np.ones(3)])
    with pytest.raises(ValueError, match="input 1 is not one of floating type"):
        quern.check_gradient(square(), [np.ones(3)], of=[1])


def test_integers_are_no_variables_and_elements_may_be_chosen():
    f = quern.function(lambda x, k: x * k, vjp=lambda p, c, y: (p[1] * c, None))
    assert quern.check_gradient(f, [np.ones(50), np.full(50, 3)], elements=7) < 1e-8
    calls = []
    counted = quern.function(lambda x: calls.append(1) or x * x, vjp=lambda x, c, y: 2 * x * c)
    quern.check_gradient(counted, [np.ones(50)], elements=7)
    assert len(calls) == 1 + 2 * 7


def test_grid_sample_by_central_differences():
    """Its published vjp scales by W / 2 in integers, which is wrong for odd sizes; ours is not, and the check knows."""
    forward = quern.metal_kernel("grid_sample", ["x", "grid"], ["out"], bodies.GRID_SAMPLE.replace("float", "T"))

    def sample(x, grid):
        shape = (*grid.shape[:3], x.shape[3])
        return forward(
            inputs=[x, grid], template=[("T", x.dtype)], output_shapes=[shape], output_dtypes=[x.dtype],
            grid=(np.prod(shape), 1, 1), threadgroup=(256, 1, 1),
        )[0]  # fmt: skip

    def vjp_with(body):
        backward = quern.metal_kernel(
            "grid_sample_grad", ["x", "grid", "cotangent"], ["x_grad", "grid_grad"], body, atomic_outputs=True
        )

        def vjp(primals, cotangent, _):
            x, grid = (array.astype(np.float32) for array in primals)
            made = backward(
                inputs=[x, grid, cotangent.astype(np.float32)], template=[("T", x.dtype)],
                output_shapes=[x.shape, grid.shape], output_dtypes=[x.dtype, x.dtype],
                grid=(np.prod(grid.shape[:3]) * 32, 1, 1), threadgroup=(256, 1, 1), init_value=0,
            )  # fmt: skip
            return [array.astype(np.float64) for array in made]

        return vjp

    rng = np.random.default_rng(5)
    x = rng.standard_normal((1, 5, 7, 3)).astype(np.float32)
    grid = rng.uniform(-0.9, 0.9, (1, 3, 4, 2)).astype(np.float32)
    right = quern.function(sample, vjp=vjp_with(bodies.GRID_SAMPLE_GRAD))
    assert quern.check_gradient(right, [x, grid], tolerance=1e-5) < 1e-5  # the vjp itself is in float32 here
    published = bodies.GRID_SAMPLE_GRAD.replace("0.5f * W", "W / 2").replace("0.5f * H", "H / 2")
    with pytest.raises(quern.GradientError, match="the cotangent of input 1"):
        quern.check_gradient(quern.function(sample, vjp=vjp_with(published)), [x, grid], tolerance=1e-5)
