# SPDX-License-Identifier: Apache-2.0
"""Kernels from a body on NumPy's arrays: the call shape of MLX, what may be an input, a type or a template, and
where outputs come from. What each test catches is said by its name; tests on PyTorch's tensors are in
test_kernel_torch.py."""

import copy
import pickle
import threading

import pytest

np = pytest.importorskip("numpy")
ml_dtypes = pytest.importorskip("ml_dtypes")

import kernel_bodies as bodies  # noqa: E402
import quern  # noqa: E402
from quern import _kernel_values as values  # noqa: E402


@pytest.fixture(scope="module")
def myexp():
    return quern.metal_kernel(name="myexp", input_names=["inp"], output_names=["out"], source=bodies.EXP)


def run_exp(kernel, a, dtype=None, **more):
    dtype = a.dtype if dtype is None else dtype
    return kernel(
        inputs=[a],
        template=[("T", dtype)],
        grid=(a.size, 1, 1),
        threadgroup=(256, 1, 1),
        output_shapes=[a.shape],
        output_dtypes=[a.dtype],
        **more,
    )


def copier(name="copier", ctype="T", **more):
    """A kernel that copies inp's elements to out."""
    body = f"uint i = thread_position_in_grid.x; out[i] = {ctype}(inp[i]);"
    return quern.metal_kernel(name, ["inp"], ["out"], body, **more)


def normal(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def test_arguments_by_place_are_refused(myexp):
    with pytest.raises(TypeError, match=r"myexp: 1 argument is given by place, .* myexp\(inputs=\[inp\], grid="):
        myexp(normal(4), inputs=[normal(4)], grid=(4, 1, 1))
    with pytest.raises(TypeError, match="missing 2 required keyword-only arguments: 'inputs' and 'grid'"):
        myexp(normal(4))


# ---- the documented examples ----
@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16, np.float64])
def test_exp_of_every_element(myexp, dtype):
    a = normal((4, 16)).astype(dtype)
    (b,) = run_exp(myexp, a)
    assert b.dtype == a.dtype
    assert b.shape == a.shape
    units = {2: 2.0**-8 if dtype is ml_dtypes.bfloat16 else 2.0**-10, 4: 2.0**-22, 8: 2.0**-50}[a.dtype.itemsize]
    np.testing.assert_allclose(b.astype(np.float64), np.exp(a.astype(np.float64)), rtol=units)


def test_a_template_of_another_type_than_the_array(myexp):
    """float in the body over float16 arrays, as in MLX's page: rounded once, at the end."""
    a = normal((4, 16), np.float16)
    (b,) = run_exp(myexp, a, np.float32)
    np.testing.assert_array_equal(b, np.exp(a.astype(np.float64)).astype(np.float16))


def test_exp_of_a_strided_view_without_a_copy():
    kernel = quern.metal_kernel(
        name="myexp_strided",
        input_names=["inp"],
        output_names=["out"],
        source=bodies.EXP_STRIDED,
        ensure_row_contiguous=False,
    )
    for a in (normal((4, 16))[::2], normal((4, 16)).T, normal((3, 4, 5))[:, ::-1, 1:4], normal((4, 16))):
        for _ in range(2):  # the second call goes by the first one's plan
            (b,) = run_exp(kernel, a)
            np.testing.assert_allclose(b, np.exp(a), rtol=1e-6)
            assert b.flags.c_contiguous


def test_strided_inputs_are_copied_unless_they_are_asked_for(myexp):
    a = normal((6, 16))[::2, ::-1]
    for _ in range(2):
        (b,) = run_exp(myexp, a)
        np.testing.assert_allclose(b, np.exp(a), rtol=1e-6)


def test_views_of_one_shape_are_told_apart(myexp):
    """By their strides: the plan of one must not serve another."""
    strided = quern.metal_kernel("s", ["inp"], ["out"], bodies.EXP_STRIDED, ensure_row_contiguous=False)
    a = normal((6, 6))
    for view in (a, a.T, a[::-1], a[:, ::-1], a, a.T):
        for kernel in (myexp, strided):
            np.testing.assert_allclose(run_exp(kernel, view)[0], np.exp(view), rtol=1e-6)


def test_grid_sample_and_its_gradient():
    forward = quern.metal_kernel("grid_sample", ["x", "grid"], ["out"], bodies.GRID_SAMPLE)
    backward = quern.metal_kernel(
        name="grid_sample_grad",
        input_names=["x", "grid", "cotangent"],
        output_names=["x_grad", "grid_grad"],
        source=bodies.GRID_SAMPLE_GRAD,
        atomic_outputs=True,
    )
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 7, 5, 3)).astype(np.float32)
    grid = rng.uniform(-1.3, 1.3, (2, 4, 6, 2)).astype(np.float32)
    shape = (2, 4, 6, 3)
    (out,) = forward(
        inputs=[x, grid],
        template=[("T", x.dtype)],
        output_shapes=[shape],
        output_dtypes=[x.dtype],
        grid=(np.prod(shape), 1, 1),
        threadgroup=(256, 1, 1),
    )
    np.testing.assert_allclose(out, bodies.grid_sample(x, grid), atol=3e-5)
    cotangent = rng.standard_normal(shape).astype(np.float32)
    x_grad, grid_grad = backward(
        inputs=[x, grid, cotangent],
        template=[("T", x.dtype)],
        output_shapes=[x.shape, grid.shape],
        output_dtypes=[x.dtype, x.dtype],
        grid=(2 * 4 * 6 * 32, 1, 1),
        threadgroup=(256, 1, 1),
        init_value=0,
    )
    wanted = bodies.grid_sample_grad(x, grid, cotangent)
    np.testing.assert_allclose(x_grad, wanted[0], atol=3e-5)
    np.testing.assert_allclose(grid_grad, wanted[1], atol=3e-4)


def test_the_words_of_cuda():
    kernel = quern.cuda_kernel(name="myexp", input_names=["inp"], output_names=["out"], source=bodies.CUDA_EXP)
    a = normal(500)
    (b,) = run_exp(kernel, a)
    np.testing.assert_allclose(b, np.exp(a), rtol=1e-6)
    assert "words of CUDA" in kernel.__doc__


def test_shared_memory_of_a_call():
    kernel = quern.cuda_kernel(
        "turn", ["inp"], ["out"], "extern __shared__ float all[]; all[threadIdx.x] = inp[threadIdx.x]; __syncthreads();"
        "out[threadIdx.x] = all[blockDim.x - 1 - threadIdx.x];", shared_memory=4 * 64,
    )  # fmt: skip
    for n in (64, 64, 32, 128):
        a = normal(n)
        more = {} if n <= 64 else {"shared_memory": 4 * n}
        (b,) = kernel(
            inputs=[a], grid=(n, 1, 1), threadgroup=(n, 1, 1), output_shapes=[(n,)], output_dtypes=["f32"], **more
        )
        np.testing.assert_array_equal(b, a[::-1])


# ---- inputs ----
ALL_TYPES = [name for name in values.LONG_NAMES.values() if name != "complex64"]  # which Metal has no word for


def type_named(name):
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


@pytest.mark.parametrize("name", ALL_TYPES)
def test_every_storage_type_in_and_out(name):
    dtype = type_named(name)
    a = np.array([0, 1, 1, 0, 1]).astype(dtype) if name == "bool" else np.array([0, 1, 5, 100, 77]).astype(dtype)
    for _ in range(2):
        (b,) = copier()(
            inputs=[a], template=[("T", dtype)], grid=(5, 1, 1), threadgroup=(5, 1, 1),
            output_shapes=[(5,)], output_dtypes=[dtype],
        )  # fmt: skip
        assert b.dtype == dtype
        np.testing.assert_array_equal(b, a)


def scalars(kernel, *inputs):
    """The scalar inputs as a body sees them: doubles, and their sizes."""
    return kernel(
        inputs=list(inputs), grid=(1, 1, 1), threadgroup=(1, 1, 1), output_shapes=[(2,)], output_dtypes=["float64"]
    )[0].tolist()


def test_numbers_become_values_of_the_types_that_mlx_gives_them():
    kernel = quern.metal_kernel("sizes", ["a"], ["out"], "out[0] = double(a); out[1] = sizeof(a);")
    assert scalars(kernel, True) == [1, 1]
    assert scalars(kernel, False) == [0, 1]  # not the value of the call before
    assert scalars(kernel, 7) == [7, 4]
    assert scalars(kernel, -8) == [-8, 4]
    assert scalars(kernel, 1 << 31) == [2.0**31, 8]
    assert scalars(kernel, -(1 << 63)) == [-(2.0**63), 8]
    assert scalars(kernel, 1 << 63) == [2.0**63, 8]
    assert scalars(kernel, 0.5) == [0.5, 4]
    assert scalars(kernel, 0.1) == [float(np.float32(0.1)), 4]
    assert scalars(kernel, 1e300) == [float("inf"), 4]
    assert scalars(kernel, np.float64(0.5)) == [0.5, 4]  # a float of Python's
    assert scalars(kernel, np.float32(0.25)) == [0.25, 4]
    assert scalars(kernel, np.int64(3)) == [3, 8]
    assert scalars(kernel, np.uint8(200)) == [200, 1]
    assert scalars(kernel, np.bool_(True)) == [1, 1]
    assert scalars(kernel, np.array(2.5, np.float64)) == [2.5, 8]
    assert scalars(kernel, np.array(3.5, np.float32)) == [3.5, 4]
    with pytest.raises(ValueError, match=r"sizes: a is 18446744073709551616, which does not fit into 64 bits"):
        scalars(kernel, 1 << 64)


def test_no_array_among_the_inputs():
    kernel = quern.metal_kernel("fill", ["value"], ["out"], "out[thread_position_in_grid.x] = value;")
    (out,) = kernel(
        inputs=[2.5], grid=(3, 1, 1), threadgroup=(3, 1, 1), output_shapes=[(3,)], output_dtypes=[np.float32]
    )
    assert out.tolist() == [2.5, 2.5, 2.5]
    none = quern.metal_kernel("ones", [], ["out"], "out[thread_position_in_grid.x] = 1;")
    (out,) = none(inputs=[], grid=(3, 1, 1), threadgroup=(3, 1, 1), output_shapes=[(3,)], output_dtypes=[np.int32])
    assert out.tolist() == [1, 1, 1]


class Interface:
    """An array of some library: it has only the array interface."""

    def __init__(self, array):
        self.__array_interface__ = array.__array_interface__
        self.array = array


class Lender:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **more):
        return self.array.__dlpack__(**more)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("wrap", [Interface, Lender])
@pytest.mark.parametrize("name", ["float32", "bool", "int64"])
def test_arrays_of_other_libraries(wrap, name):
    a = np.array([1, 0, 1, 1]).astype(name)
    (b,) = copier()(
        inputs=[wrap(a)], template={"T": name}, grid=(4, 1, 1), threadgroup=(4, 1, 1),
        output_shapes=[(4,)], output_dtypes=[name],
    )  # fmt: skip
    assert isinstance(b, np.ndarray)
    np.testing.assert_array_equal(b, a)


def test_read_only_and_empty_inputs(myexp):
    a = normal(5)
    a.flags.writeable = False
    np.testing.assert_allclose(run_exp(myexp, a)[0], np.exp(a), rtol=1e-6)
    with pytest.raises(ValueError, match="myexp: inp has an extent of 0"):
        run_exp(myexp, np.empty((0, 3), np.float32))


# ---- types and templates ----
@pytest.mark.parametrize(
    "dtype", [np.float16, np.dtype(np.float16), "float16", "f16", "half", "mlx.core.float16"], ids=str
)
def test_a_type_by_any_name(dtype):
    kernel = quern.metal_kernel("size", ["inp"], ["out"], "out[thread_position_in_grid.x] = T(sizeof(T));")
    (out,) = kernel(
        inputs=[1], template=[("T", dtype)], grid=(2, 1, 1), threadgroup=(2, 1, 1),
        output_shapes=[[2]], output_dtypes=[dtype],
    )  # fmt: skip
    assert out.dtype == np.float16
    assert out.tolist() == [2, 2]


def test_bfloat16_by_its_names():
    class Dtype:  # as mlx.core.bfloat16 is: a type of its own whose str() says what it is
        def __str__(self):
            return "mlx.core.bfloat16"

    for dtype in (ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16), "bfloat16", "bf16", Dtype()):
        (out,) = copier()(
            inputs=[np.ones(1, np.float32)], template=[("T", dtype)], grid=(1, 1, 1), threadgroup=(1, 1, 1),
            output_shapes=[(1,)], output_dtypes=[dtype],
        )  # fmt: skip
        assert out.dtype == ml_dtypes.bfloat16


def template_value(value):
    kernel = quern.metal_kernel("value", [], ["out"], "out[0] = N; out[1] = sizeof(N);")
    (out,) = kernel(
        inputs=[], template=[("N", value)], grid=(1, 1, 1), threadgroup=(1, 1, 1),
        output_shapes=[(2,)], output_dtypes=[np.int64],
    )  # fmt: skip
    return out.tolist()


def test_template_values():
    assert template_value(3) == [3, 4]
    assert template_value(-3) == [-3, 4]
    assert template_value(1 << 40) == [1 << 40, 8]
    assert template_value(-(1 << 63)) == [-(1 << 63), 8]
    assert template_value(np.int16(9)) == [9, 4]
    with pytest.raises(ValueError, match="the template value N is 9223372036854775808, which does not fit"):
        template_value(1 << 63)


def test_true_and_one_are_two_template_values():
    """They are equal in Python, and so are their hashes: a plan of one must not serve the other."""
    kernel = quern.metal_kernel("value", [], ["out"], "out[0] = sizeof(N);")

    def size(value):
        return kernel(
            inputs=[], template=[("N", value)], grid=(1, 1, 1), threadgroup=(1, 1, 1),
            output_shapes=[(1,)], output_dtypes=[np.int32],
        )[0].tolist()  # fmt: skip

    assert [size(value) for value in (True, 1, True, 1, False, 0)] == [[1], [4], [1], [4], [1], [4]]


# ---- outputs ----
@pytest.mark.parametrize(
    ("init", "wanted"), [(0, [0, 5]), (2.5, [2.5, 5]), (-1, [-1, 5]), ([7], [7, 5]), (True, [1, 5]), (1e9, [1e9, 5])]
)
def test_init_value(init, wanted):
    kernel = quern.metal_kernel("second", [], ["out"], "out[1] = 5;")
    for _ in range(2):
        (out,) = kernel(
            inputs=[], grid=(1, 1, 1), threadgroup=(1, 1, 1), output_shapes=[(2,)], output_dtypes=[np.float32],
            init_value=init,
        )  # fmt: skip
        assert out.tolist() == wanted


def test_one_init_value_an_output():
    kernel = quern.metal_kernel("second", [], ["a", "b"], "a[1] = 5; b[1] = 6;")
    a, b = kernel(
        inputs=[], grid=(1, 1, 1), threadgroup=(1, 1, 1), output_shapes=[(2,), (2,)], output_dtypes=["i32", "f32"],
        init_value=[3, -0.5],
    )  # fmt: skip
    assert (a.tolist(), b.tolist()) == ([3, 5], [-0.5, 6])


def test_out_is_written_and_returned(myexp):
    a, to = normal((3, 4)), np.zeros((3, 4), np.float32)
    for _ in range(2):
        to[:] = 0
        (b,) = myexp(inputs=[a], template=[("T", a.dtype)], grid=(12, 1, 1), threadgroup=(4, 1, 1), out=[to])
        assert b is to
        np.testing.assert_allclose(to, np.exp(a), rtol=1e-6)


def test_in_place(myexp):
    a = normal((3, 4))
    for _ in range(2):
        before = a.copy()
        (b,) = myexp(
            inputs=[a], template=[("T", a.dtype)], grid=(12, 1, 1), threadgroup=(4, 1, 1), in_place={"out": "inp"}
        )
        assert b is a
        np.testing.assert_allclose(a, np.exp(before), rtol=1e-6)


def test_in_the_place_of_the_second_input():
    add = quern.metal_kernel("add", ["x", "y"], ["out"], "uint i = thread_position_in_grid.x; out[i] = x[i] + y[i];")
    x, y = np.ones(4, np.float32), np.arange(4, dtype=np.float32)
    for turn in range(1, 3):
        (out,) = add(inputs=[x, y], grid=(4, 1, 1), threadgroup=(4, 1, 1), in_place={"out": "y"})
        assert out is y
        assert y.tolist() == [turn + k for k in range(4)]
    assert x.tolist() == [1, 1, 1, 1]


def test_outputs_of_two_calls_are_apart(myexp):
    a = normal(8)
    first, second = run_exp(myexp, a)[0], run_exp(myexp, -a)[0]
    np.testing.assert_allclose(first, np.exp(a), rtol=1e-6)
    np.testing.assert_allclose(second, np.exp(-a), rtol=1e-6)


def test_exactly_the_grid_runs():
    kernel = quern.metal_kernel(
        "count", [], ["out"], "out[thread_position_in_grid.z * 15 + thread_position_in_grid.y * 5 + "
        "thread_position_in_grid.x] = threads_per_grid.x + 10 * threads_per_grid.y + 100 * threads_per_grid.z;"
    )  # fmt: skip
    for group in ((2, 2, 1), (64, 1, 1), (5, 3, 2), (0, 0, 0), None):
        (out,) = kernel(
            inputs=[], grid=(5, 3, 2), threadgroup=group, output_shapes=[(31,)], output_dtypes=["i32"], init_value=-1
        )
        assert out.tolist() == [235] * 30 + [-1]


# ---- sources ----
def test_a_source_from_a_file(tmp_path):
    body, header = tmp_path / "double.metal", tmp_path / "helpers.h"
    body.write_text("uint i = thread_position_in_grid.x;\nout[i] = twice(inp[i]);\n", encoding="utf-8")
    header.write_text("inline float twice(float x) { return 2 * x; }\n", encoding="utf-8")
    for given in ((body, header), (str(body), str(header))):
        kernel = quern.metal_kernel("double_it", ["inp"], ["out"], *given)
        a = normal(4)
        (b,) = kernel(
            inputs=[a], grid=(4, 1, 1), threadgroup=(4, 1, 1), output_shapes=[(4,)], output_dtypes=[np.float32]
        )
        np.testing.assert_array_equal(b, 2 * a)
    with pytest.raises(FileNotFoundError, match=r"none\.metal"):
        quern.metal_kernel("double_it", ["inp"], ["out"], str(tmp_path / "none.metal"))


def test_errors_of_a_file_name_it_and_its_line(tmp_path):
    body = tmp_path / "wrong.metal"
    body.write_text("uint i = thread_position_in_grid.x;\n\nout[i] = nothing[i];\n", encoding="utf-8")
    kernel = quern.metal_kernel("wrong", ["inp"], ["out"], body)
    call = dict(inputs=[normal(4)], grid=(4, 1, 1), threadgroup=(4, 1, 1), output_shapes=[(4,)], output_dtypes=["f32"])
    with pytest.raises(quern.CompileError, match=r"wrong\.metal:3"):
        kernel(**call)
    with pytest.raises(quern.CompileError, match="nothing"):  # again, and not from anything half made
        kernel(**call)


def test_a_kernel_is_what_it_is_made_of(tmp_path, myexp):
    body = tmp_path / "exp.metal"
    body.write_text("uint i = thread_position_in_grid.x; out[i] = T(e_to(inp[i]));", encoding="utf-8")
    kernel = quern.metal_kernel(
        "from_file", ["inp"], ["out"], body, "inline float e_to(float x) { return metal::exp(x); }",
        contracts={"inp": "f32 [n]"}, math="relaxed", ensure_row_contiguous=False,
    )  # fmt: skip
    body.unlink()  # another process need not have it
    for made in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel)), copy.copy(kernel)):
        assert made is not kernel
        assert repr(made) == repr(kernel) == "<quern kernel from_file(inp) -> out>"
        assert made.__doc__ == kernel.__doc__
        assert made.file == str(body)
        np.testing.assert_allclose(run_exp(made, normal(9))[0], np.exp(normal(9)), rtol=1e-5)
    assert "inp  f32 [n]" in kernel.__doc__


def test_two_kernels_of_one_name():
    """Same name, types and sizes, another body: never the wrong code."""
    for factor in (2, 3, 2):
        kernel = quern.metal_kernel("same", ["inp"], ["out"], f"out[0] = inp[0] * {factor};")
        (out,) = kernel(
            inputs=[np.ones(1, np.float32)], grid=(1, 1, 1), threadgroup=(1, 1, 1),
            output_shapes=[(1,)], output_dtypes=["f32"],
        )  # fmt: skip
        assert out.tolist() == [factor]


def test_verbose_prints_the_generated_source(myexp, capsys):
    (b,) = run_exp(myexp, normal(4), verbose=True)
    said = capsys.readouterr().out
    assert "metal::exp(value)" in said
    assert "thread_position_in_grid" in said
    np.testing.assert_allclose(b, np.exp(normal(4)), rtol=1e-6)
    assert said == myexp.text(**exp_call(normal(4))) + "\n"
    run_exp(myexp, normal(4))
    assert capsys.readouterr().out == ""


def exp_call(a):
    return dict(
        inputs=[a], template=[("T", a.dtype)], grid=(a.size, 1, 1), threadgroup=(256, 1, 1),
        output_shapes=[a.shape], output_dtypes=[a.dtype],
    )  # fmt: skip


def test_info_and_prepare(myexp):
    myexp.prepare(**exp_call(normal(4)))
    info = myexp.info(**exp_call(normal(4)))
    assert info.threadgroup == (256, 1, 1)
    assert info.most_threads >= 256
    assert not info.fibers
    barrier = quern.metal_kernel("b", [], ["out"], "threadgroup_barrier(mem_flags::mem_threadgroup); out[0] = 1;")
    assert barrier.info(
        inputs=[], grid=(1, 1, 1), threadgroup=(1, 1, 1), output_shapes=[(1,)], output_dtypes=["f32"]
    ).fibers


# ---- threads ----
def test_sixteen_threads_at_once():
    """One kernel, first calls and later ones, inputs of several kinds: every thread gets its own results."""
    kernel = quern.metal_kernel("busy", ["inp", "add"], ["out"], "uint i = thread_position_in_grid.x; "
                                "out[i] = inp[i] + T(add);")  # fmt: skip
    wrong, start = [], threading.Barrier(16)

    def work(k):
        start.wait()
        for turn in range(60):
            dtype = (np.float32, np.float64)[turn % 2]
            a = np.full(32 + k % 3, k, dtype)
            (out,) = kernel(
                inputs=[a, turn], template=[("T", dtype)], grid=(a.size, 1, 1), threadgroup=(32, 1, 1),
                output_shapes=[a.shape], output_dtypes=[dtype],
            )  # fmt: skip
            if not (out == k + turn).all():
                wrong.append((k, turn, out))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
