# SPDX-License-Identifier: Apache-2.0
"""Bodies as MLX's documents write them for cuda_kernel run unchanged: on the processor over NumPy's arrays and, with
-m cuda, on a GPU over PyTorch's tensors."""

import numpy as np
import pytest
import quern


class Device:
    """As mx.gpu: it says nothing that a kernel here could use."""


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


@pytest.fixture(params=DEVICES)
def there(request):
    """A function that puts an array on the device of this test."""
    if request.param == "cpu":
        return lambda array: array
    torch = pytest.importorskip("torch")
    return lambda array: torch.from_numpy(array.copy()).cuda() if all(s > 0 for s in array.strides) else None


def run(source, inputs, shape, dtypes=(np.float32,), group=64, header="", grid=None, **more):
    made = ("ensure_row_contiguous", "shared_memory", "math")
    names = "abcde"[: len(inputs)]
    outputs = ["out", "out2"][: len(dtypes)]
    kernel = quern.cuda_kernel(
        name="mlx", input_names=list(names), output_names=outputs, source=source, header=header,
        **{word: more.pop(word) for word in made if word in more},
    )  # fmt: skip
    results = kernel(
        inputs=inputs, grid=grid or (int(np.prod(shape)), 1, 1), threadgroup=(group, 1, 1),
        output_shapes=[shape] * len(outputs), output_dtypes=list(dtypes), stream=Device(), **more,
    )  # fmt: skip
    return [np.asarray(result.cpu() if hasattr(result, "cpu") else result) for result in results]


def some(*shape):
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


ELEMENT = "auto elem = cooperative_groups::this_grid().thread_rank();\n"


def test_the_documented_exponential(there):
    a = some(16, 16)
    source = ELEMENT + "T tmp = a[elem];\nout[elem] = exp(tmp);"
    (b,) = run(source, [there(a.astype(np.float16))], a.shape, [np.float16], template=[("T", np.float32)])
    np.testing.assert_allclose(b, np.exp(a), rtol=2e-3)


def test_an_element_by_its_rank_needs_no_fibers():
    kernel = quern.cuda_kernel("copy", ["a"], ["out"], ELEMENT + "out[elem] = a[elem];")
    a = some(300)
    call = dict(inputs=[a], grid=(300, 1, 1), output_shapes=[(300,)], output_dtypes=[np.float32])
    assert not kernel.info(**call).fibers
    np.testing.assert_array_equal(kernel(**call)[0], a)


def test_inputs_of_no_dimensions_are_pointers_where_they_are_indexed(there):
    a, b, c = some(3, 6), np.array([3, 4, 5], np.int32), some(2, 2)
    source = (
        ELEMENT
        + """
        float first = a[0];
        out[elem] = on ? a[1] + b[2] + static_cast<float>(c[3]) + d[0] + times * *e : first;
        out2[elem] = a[1] + b[2] - d[0];
    """
    )
    numbers = [7.25, there(np.array(0.5, np.float32)) if there(a) is not a else np.float32(0.5)]
    one, two = run(
        source, [there(a), there(b), there(c), *numbers], (3, 2), [np.float32, np.int32], group=2,
        template=[("on", True), ("times", 3)],
    )  # fmt: skip
    np.testing.assert_allclose(one, np.full((3, 2), a[0, 1] + 5 + c[1, 1] + 7.25 + 1.5), rtol=1e-6)
    np.testing.assert_array_equal(two, np.full((3, 2), int(a[0, 1] + 5 - 7.25)))


def test_and_values_where_they_are_not(there):
    source = ELEMENT + "#define TWICE(x) (2 * (x))\nout[elem] = elem < b ? TWICE(a[elem]) * c + d : -c;"
    a = some(8)
    (out,) = run(source, [there(a), 4, 0.5, True], (8,))
    np.testing.assert_allclose(out, np.where(np.arange(8) < 4, a + 1, -0.5), rtol=1e-6)


@pytest.mark.parametrize(
    "source",
    [
        "#define AT(k) b[k]\nout[0] = a[0] + AT(0);",
        "out[0] = a[0] + (*b);",
        "out[0] = a[0] * 1.5f * b[0];",
        "if (a[0] > 5) {} else b[0] > 1 ? out[0] = 3 : out[0] = 4;",
        "struct { float b[2]; } s = {{1, 2}}; out[0] = a[0] + s.b[1] * b - b;",
    ],
)
def test_how_an_input_is_used_is_seen_by_whole_words(source):
    assert run(source, [np.ones(1, np.float32), 2.0], (1,))[0] == 3


STRIDED = (
    ELEMENT
    + """
    auto loc = elem_to_loc(elem, a_shape.data(), a_strides.data(), a_ndim);
    T tmp = a[loc];
    out[elem] = exp(tmp) * WARP_SIZE;
"""
)


@pytest.mark.parametrize("whole", [True, False])
def test_strided_inputs(there, whole):
    a = np.tile(some(3, 6)[::2], (4, 1))[::2]
    source = STRIDED if not whole else ELEMENT + "T tmp = a[elem];\nout[elem] = exp(tmp) * WARP_SIZE;"
    (b,) = run(source, [there(a)], a.shape, template=[("T", np.float32)], ensure_row_contiguous=whole)
    np.testing.assert_allclose(b, np.exp(a) * 32, rtol=1e-5)


def test_the_layout_of_one_call():
    a = some(4, 5)[:, ::-1]
    kernel = quern.cuda_kernel("mlx", ["a"], ["out"], STRIDED)
    call = dict(inputs=[a], grid=(20, 1, 1), output_shapes=[a.shape], output_dtypes=["f32"], template={"T": "f32"})
    for ensure in (None, False, True, False):
        np.testing.assert_allclose(kernel(ensure_row_contiguous=ensure, **call)[0], np.exp(a) * 32, rtol=1e-5)
    assert "long m" in kernel.text(ensure_row_contiguous=False, **call)


@pytest.mark.parametrize("index", ["unsigned", "int", "unsigned long long"])
def test_places_have_a_sign(index):
    a = some(4, 5)[::-1, ::-2]
    source = (
        ELEMENT
        + f"""
        auto at = elem_to_loc(({index})elem, a_shape.data(), a_strides.data(), a_ndim);
        static_assert(sizeof at == 8 && decltype(at)(-1) < 0);
        auto by = elem_to_loc_nd<2>(({index})elem, a_shape, a_strides);
        auto [one, two] = elem_to_loc<{index}>(elem, a_shape.data(), a_strides.data(), a_strides.data(), a_ndim);
        out[elem] = a[at] + (at == by && at == one && at == two ? 0 : 100);
    """
    )
    np.testing.assert_array_equal(run(source, [a], a.shape, ensure_row_contiguous=False)[0], a)
    kernel = quern.metal_kernel("places", ["a"], ["out"], f"""
        uint elem = thread_position_in_grid.x;
        auto at = elem_to_loc(({index.replace("long long", "long")})elem, a_shape, a_strides, a_ndim);
        auto by = elem_to_loc<uint>(uint3(elem % 3, elem / 3, 0), a_shape, a_strides, a_ndim);
        static_assert(sizeof(at) == 8 && decltype(at)(-1) < 0 && sizeof(by) == 8);
        out[elem] = a[at] + (at == by ? 0 : 100);
    """, ensure_row_contiguous=False)  # fmt: skip
    call = dict(inputs=[a], grid=(a.size, 1, 1), output_shapes=[a.shape], output_dtypes=["f32"])
    np.testing.assert_array_equal(kernel(**call)[0], a)


def test_shapes_are_arrays_in_helpers(there):
    header = """
        __device__ int elements(const Shape &shape, int n) {
            int t = 1;
            for (int k = 0; k < n; k++) t *= shape[k];
            return t;
        }
        __device__ long all(Strides strides) { long t = 0; for (auto s : strides) t += s; return t; }
        __device__ int last(const int *shape, int n) { return shape[n - 1]; }
    """
    source = (
        "out[0] = elements(a_shape, a_ndim) + all(a_strides) + last(a_shape, a_ndim) + a_shape.size() + a_shape[1];"
    )
    assert run(source, [there(np.zeros((3, 5), np.float32))], (1,), header=header)[0] == 15 + 6 + 5 + 2 + 5


GROUPS = """
    namespace cg = cooperative_groups;
    auto block = cg::this_thread_block();
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
    auto warp = cg::tiled_partition<32>(block);
    auto lanes = cg::tiled_partition<4>(warp);
    cg::thread_group any = block, half = cg::tiled_partition(block, 16);
    any.sync(); half.sync(); cg::sync(tile);
    auto i = cg::this_grid().thread_rank();
    float sum = cg::reduce(tile, a[i], cg::plus<float>());
    bool ok = sum == cg::reduce(tile, a[i], [](float x, float y) { return x + y; }) && half.size() == 16;
    ok = ok && cg::reduce(tile, a[i], cg::greater<float>{}) - cg::reduce(tile, a[i], cg::less<float>{}) == 7;
    ok = ok && cg::inclusive_scan(tile, a[i], cg::plus<float>()) == cg::exclusive_scan(tile, a[i]) + a[i];
    ok = ok && tile.meta_group_rank() == block.thread_rank() / 8 && tile.meta_group_size() == block.size() / 8;
    ok = ok && lanes.meta_group_rank() == warp.thread_rank() / 4 && warp.num_threads() == 32;
    ok = ok && tile.shfl(a[i], 3) == a[i / 8 * 8 + 3] && tile.shfl_xor(a[i], 1) == a[i ^ 1] && tile.any(i % 8 == 2);
    ok = ok && warp.ballot(i % 32 < 4) == 15 && tile.shfl_down(i, 1) == (i % 8 == 7 ? i : i + 1) && !tile.all(i % 2);
    if (block.thread_rank() % 3 == 0) {
        auto some = cg::coalesced_threads();
        unsigned mine = block.thread_rank() % 32, of = (31 - (3 - block.thread_rank() / 32 * 32 % 3) % 3) / 3 + 1;
        ok = ok && some.size() == of && cg::reduce(some, 1, cg::plus<int>()) == of && some.ballot(1) == (1u << of) - 1;
        ok = ok && cg::inclusive_scan(some, 1, cg::plus<int>()) == some.thread_rank() + 1;
        ok = ok && some.shfl(mine, 0) == (3 - block.thread_rank() / 32 * 32 % 3) % 3;
    }
    out[i] = ok ? sum : -1;
"""


@pytest.mark.parametrize("check", [False, True])
def test_groups(there, check):
    a = np.arange(192, dtype=np.float32)
    if check and there(a) is not a:
        pytest.skip("checks run on the processor")
    (b,) = run(GROUPS, [there(a)], a.shape, header="#include <cooperative_groups/reduce.h>", check=check)
    np.testing.assert_array_equal(b, a.reshape(-1, 8).sum(1).repeat(8))


def test_three_dimensions(there):
    source = """
        auto grid = cg::this_grid();
        auto block = cg::this_thread_block();
        bool ok = grid.thread_rank() == grid.block_rank() * block.size() + block.thread_rank() && grid.size() == 24;
        ok = ok && grid.num_blocks() == 4 && grid.dim_blocks().x == 2 && grid.block_index().z == blockIdx.z;
        ok = ok && block.group_index().x == blockIdx.x && block.thread_index().y == threadIdx.y;
        ok = ok && block.group_dim().x == 2 && block.dim_threads().y == 3 && !grid.is_valid();
        out[grid.thread_rank()] = ok ? a[0] : -1;
    """
    kernel = quern.cuda_kernel("mlx", ["a"], ["out"], source)
    (b,) = kernel(
        inputs=[there(np.ones(1, np.float32))], grid=(4, 3, 2), threadgroup=(2, 3, 1), output_shapes=[(24,)],
        output_dtypes=[np.float32],
    )  # fmt: skip
    assert (np.asarray(b.cpu() if hasattr(b, "cpu") else b) == 1).all()


def test_limits_and_vectors(there):
    source = (
        ELEMENT
        + """
        bool ok = Limits<float>::max() > 3e38f && Limits<float>::finite_min() < 0 && Limits<int>::max() == 2147483647;
        ok = ok && Limits<__half>::finite_max() == __half(65504.0f) && Limits<unsigned char>::max() == 255;
        auto v = load_vector<4>(a, elem), w = load_vector<4>(a + 1, elem, 15, 0.0f);
        v[0] += ok && w[0] == a[4 * elem + 1] ? ceildiv(7, 2) : 100;
        store_vector<4>(out, elem, v);
    """
    )
    a = some(16)
    (b,) = run(source, [there(a)], (16,), grid=(4, 1, 1), group=4)
    wanted = a.copy()
    wanted[::4] += 4
    np.testing.assert_array_equal(b, wanted)


def test_two_kernels_of_one_name(there):
    a = np.arange(32, dtype=np.float32)
    for text, wanted in (("a[e] * 2.0f", a * 2), ("a[e] + 100.0f", a + 100)):
        (b,) = run(f"auto e = cooperative_groups::this_grid().thread_rank(); out[e] = {text};", [there(a)], a.shape)
        np.testing.assert_array_equal(b, wanted)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("auto grid = cg::this_grid();\n\ngrid.sync();\nout[0] = 1;", "a grid cannot sync"),
        ("\n\nauto tile = cg::tiled_partition<64>(cg::this_thread_block());\nout[0] = tile.size();", "32 lanes"),
    ],
)
def test_what_a_group_cannot_do(source, why):
    with pytest.raises(quern.CompileError, match=why) as caught:
        run(source, [1.0], (1,))
    assert f"3 | {source.splitlines()[2]}" in str(caught.value)


# ---- streams of MLX's kind ----
@pytest.mark.parametrize("stream", [Device(), "gpu", object()])
def test_a_stream_of_mlx_is_ignored_and_said_to_be(stream, capsys):
    kernel = quern.metal_kernel("copy", ["a"], ["out"], "out[thread_position_in_grid.x] = a;")
    call = dict(inputs=[2.0], grid=(1, 1, 1), output_shapes=[(1,)], output_dtypes=["f32"], stream=stream)
    for _ in range(2):
        assert kernel(**call)[0] == 2
    assert not capsys.readouterr().out
    kernel(verbose=True, **call)
    assert "is no CUDA stream" in capsys.readouterr().out
    assert kernel.text(**call)


@pytest.mark.parametrize(("stream", "error"), [(7, ValueError), (True, TypeError), (1.5, TypeError)])
def test_a_stream_of_cuda_is_not(stream, error):
    kernel = quern.metal_kernel("copy", ["a"], ["out"], "out[thread_position_in_grid.x] = a;")
    with pytest.raises(error, match="stream"):
        kernel(inputs=[2.0], grid=(1, 1, 1), output_shapes=[(1,)], output_dtypes=["f32"], stream=stream)
