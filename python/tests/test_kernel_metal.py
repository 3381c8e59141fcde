# SPDX-License-Identifier: Apache-2.0
"""Words of Metal whose numbers need arrays to be seen: matrices of a simdgroup, packed vectors in memory, choices of
half and bfloat, functions told apart by their address spaces. That each word is there is tests/dialect_words.c's."""

import numpy as np
import pytest
import quern
from kernel_bodies import grid_sample

# One simdgroup multiplies 16 x 24 by 24 x 8 in tiles of 8 x 8, A row-major, B given transposed.
MATMUL = """
    uint lane = thread_index_in_simdgroup;
    uint row = threadgroup_position_in_grid.x * 8;
    threadgroup T tile[8 * 8];
    simdgroup_matrix<float, 8, 8> sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (uint k = 0; k < 24; k += 8) {
        simdgroup_matrix<T, 8, 8> left, right;
        simdgroup_load(left, a, 24, ulong2(k, row));
        simdgroup_load(right, b + k, 24, 0, true);
        simdgroup_store(left, tile);
        simdgroup_barrier(mem_flags::mem_threadgroup);
        simdgroup_load(left, tile);
        simdgroup_multiply_accumulate(sum, left, right, sum);
        simdgroup_barrier(mem_flags::mem_threadgroup);
    }
    simdgroup_store(sum, c + row * 8, 8);
    uint quad = lane / 4;
    uint at = (row + (quad & 4) + (lane / 2) % 4) * 8 + (quad & 2) * 2 + (lane % 2) * 2;
    thread auto &two = reinterpret_cast<thread vec<float, 2> &>(sum.thread_elements());
    d[at] = two[0];
    d[at + 1] = two[1];
"""


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_products_of_simdgroup_matrices(dtype, check):
    rng = np.random.default_rng(3)
    a, b = rng.integers(-8, 9, (16, 24)).astype(dtype), rng.integers(-8, 9, (8, 24)).astype(dtype)
    kernel = quern.metal_kernel("matmul", ["a", "b"], ["c", "d"], MATMUL)
    c, d = kernel(
        inputs=[a, b],
        template=[("T", dtype)],
        output_shapes=[(16, 8), (16, 8)],
        output_dtypes=[np.float32, np.float32],
        grid=(64, 1, 1),
        threadgroup=(32, 1, 1),
        check=check,
    )
    wanted = a.astype(np.float64) @ b.T.astype(np.float64)
    np.testing.assert_array_equal(c, wanted)
    np.testing.assert_array_equal(d, wanted)  # the lanes hold what Apple's do


def test_a_diagonal_matrix_of_a_simdgroup():
    source = "simdgroup_float8x8 m(x[0]); simdgroup_store(m, y);"
    kernel = quern.metal_kernel("diagonal", ["x"], ["y"], source)
    (y,) = kernel(
        inputs=[np.full(1, 3, np.float32)],
        output_shapes=[(8, 8)],
        output_dtypes=[np.float32],
        grid=(32, 1, 1),
        threadgroup=(32, 1, 1),
    )
    np.testing.assert_array_equal(y, 3 * np.eye(8))


def test_packed_vectors_lie_close():
    source = """
        uint i = thread_position_in_grid.x;
        packed_float3 v = ((const device packed_float3 *)x)[i];
        float3 w = v * 2 + v.zyx;
        ((device packed_float3 *)y)[i] = w + packed_float3(1, length(v) - length(v), 0);
    """
    x = np.arange(30, dtype=np.float32).reshape(10, 3)
    (y,) = quern.metal_kernel("close", ["x"], ["y"], source)(
        inputs=[x], output_shapes=[x.shape], output_dtypes=[x.dtype], grid=(10, 1, 1), threadgroup=(4, 1, 1)
    )
    np.testing.assert_array_equal(y, 2 * x + x[:, ::-1] + [1, 0, 0])


def test_matrices_against_numpy():
    source = """
        float3x3 m = {float3(x[0], x[1], x[2]), float3(x[3], x[4], x[5]), float3(x[6], x[7], x[8])};
        float3x3 p = m * transpose(m);
        for (int c = 0; c < 3; c++)
            for (int r = 0; r < 3; r++) y[3 * c + r] = p[c][r];
        float4x4 q(1.0);
        for (int c = 0; c < 4; c++) q[c] += float4(x[c], x[c + 1], x[c + 2], x[8 - c]);
        y[9] = determinant(m);
        y[10] = determinant(q);
        float3 v = m * float3(1, 2, 3), w = float3(1, 2, 3) * m;
        y[11] = v.x, y[12] = v.z, y[13] = w.x, y[14] = w.z;
    """
    x = np.array([2, -1, 0, 3, 5, 1, -2, 4, 7], np.float32)
    (y,) = quern.metal_kernel("matrices", ["x"], ["y"], source)(
        inputs=[x], output_shapes=[(15,)], output_dtypes=[np.float32], grid=(1, 1, 1)
    )
    m = x.reshape(3, 3).T.astype(np.float64)  # columns lie one after the other
    q = np.eye(4) + np.array([[x[c], x[c + 1], x[c + 2], x[8 - c]] for c in range(4)]).T
    v, w = m @ [1, 2, 3], [1, 2, 3] @ m
    wanted = [*(m @ m.T).T.ravel(), np.linalg.det(m), np.linalg.det(q), v[0], v[2], w[0], w[2]]
    np.testing.assert_allclose(y, wanted, rtol=1e-5)


# `c ? half : 0` is a half and `c ? half : float` a float, as everywhere in the published kernels of this function.
CHOICES = """
    uint elem = thread_position_in_grid.x;
    int H = x_shape[1], W = x_shape[2], C = x_shape[3], pixel = elem / C;
    float across = ((float(grid[2 * pixel]) + 1) * W - 1) / 2, down = ((float(grid[2 * pixel + 1]) + 1) * H - 1) / 2;
    int left = floor(across), top = floor(down), image = pixel / (grid_shape[1] * grid_shape[2]);
    float sum = 0;
    for (int corner = 0; corner < 4; corner++) {
        int column = left + corner % 2, row = top + corner / 2;
        bool inside = row >= 0 && row < H && column >= 0 && column < W;
        T near = x[inside ? ((image * H + row) * W + column) * C + elem % C : 0];
        T value = inside ? near : 0;
        float weight = inside ? T(1) : -1e30;
        sum += weight * (1 - abs(across - column)) * (1 - abs(down - row)) * (inside ? value : 0.0);
    }
    out[elem] = sum;
"""


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_choices_in_grid_sample(name):
    dtype = np.dtype(pytest.importorskip("ml_dtypes").bfloat16 if name == "bfloat16" else name)
    rng = np.random.default_rng(5)
    x = rng.standard_normal((2, 5, 7, 3)).astype(dtype)
    grid = (rng.random((2, 4, 6, 2)) * 3 - 1.5).astype(dtype)  # corners outside, too
    (out,) = quern.metal_kernel("sample", ["x", "grid"], ["out"], CHOICES)(
        inputs=[x, grid],
        template=[("T", dtype)],
        output_shapes=[(2, 4, 6, 3)],
        output_dtypes=[dtype],
        grid=(2 * 4 * 6 * 3, 1, 1),
        threadgroup=(64, 1, 1),
    )
    unit = {"float32": 2**-23, "float16": 2**-10, "bfloat16": 2**-7}[name]
    # places near 7 are rounded to 2**-21, and two neighbours' values are up to 6 apart
    np.testing.assert_allclose(out.astype(np.float64), grid_sample(x, grid), rtol=unit, atol=6 * 2.0**-21)


@pytest.mark.parametrize("mode, wanted", [("safe", 0), ("fast", 1)])
def test_fast_math_is_told(mode, wanted):
    source = """
        #if defined(__FAST_MATH__) && __FAST_MATH__
        y[0] = 1;
        #else
        y[0] = 0;
        #endif
    """
    kernel = quern.metal_kernel("told", ["x"], ["y"], source, compile_options={"math_mode": mode})
    (y,) = kernel(inputs=[1.0], output_shapes=[(1,)], output_dtypes=[np.float32], grid=(1, 1, 1))
    assert y[0] == wanted


def test_limits_are_those_of_numpy():
    members = ["max()", "lowest()", "min()", "epsilon()", "denorm_min()"]
    for dtype in (np.float32, np.float16):
        limits = np.finfo(dtype)
        source = "".join(f"y[{k}] = metal::numeric_limits<T>::{member};" for k, member in enumerate(members))
        (y,) = quern.metal_kernel("limits", ["x"], ["y"], source)(
            inputs=[1.0], template=[("T", dtype)], output_shapes=[(5,)], output_dtypes=[dtype], grid=(1, 1, 1)
        )
        wanted = [limits.max, limits.min, limits.smallest_normal, limits.eps, limits.smallest_subnormal]
        np.testing.assert_array_equal(y, np.array(wanted, dtype))


def test_a_helper_for_each_address_space():
    header = """
        template <typename T> T total(const device T *p, uint n) { return n == 1 ? p[0] : p[n - 1] + total(p, n - 1); }
        template <typename T> T total(const threadgroup T *t, uint n) { return t[0] + 1000; }
        template <typename T> T total(const thread T *p, uint n) { return p[0] + 2000; }
        template <typename T> T twice(const threadgroup T *q) { return total(q + 1, 1) * 2; }
        template <typename T> T twice(const device T *q) { return total(q + 1, 1) * 2; }
        constant float table[3] = {1, 2, 3};
    """
    source = """
        threadgroup float tile[8];
        uint i = thread_position_in_threadgroup.x;
        tile[i] = x[i];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        float mine[2] = {7, 8};
        auto alias = tile + 1;
        constant float *first = table;
        y[0] = total(x, 3), y[1] = total(alias, 3), y[2] = total(mine, 2), y[3] = total<float>(x + 2, 2);
        y[4] = twice(tile), y[5] = twice(x), y[6] = first[2], y[7] = total(&mine[1], 1);
    """
    (y,) = quern.metal_kernel("spaces", ["x"], ["y"], source, header=header)(
        inputs=[np.arange(8, dtype=np.float32)],
        output_shapes=[(8,)],
        output_dtypes=[np.float32],
        grid=(8, 1, 1),
        threadgroup=(8, 1, 1),
    )
    np.testing.assert_array_equal(y, [3, 1001, 2007, 5, 2002, 2, 3, 2008])
