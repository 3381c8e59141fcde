# SPDX-License-Identifier: Apache-2.0
"""Bodies that several test files share, and the same functions in NumPy's float64. Those of exp and grid_sample use
every word that MLX's documented examples of custom kernels use."""

import math

import numpy as np

EXP = """
    uint elem = thread_position_in_grid.x;
    T value = inp[elem];
    out[elem] = metal::exp(value);
"""

EXP_STRIDED = """
    uint elem = thread_position_in_grid.x;
    int place = elem_to_loc(elem, inp_shape, inp_strides, inp_ndim);  // below 0 where a stride is
    T value = inp[place];
    out[elem] = metal::exp(value);  // outputs are row-major
"""

CUDA_EXP = """
    auto elem = blockIdx.x * blockDim.x + threadIdx.x;
    T value = inp[elem];
    out[elem] = exp(value);
"""

# Bilinear, zeros outside, align_corners false, x as (batch, height, width, channels).
GRID_SAMPLE = """
    uint elem = thread_position_in_grid.x;
    int H = x_shape[1], W = x_shape[2], C = x_shape[3];
    int pixel = elem / C, channel = elem % C;
    int image = pixel / (grid_shape[1] * grid_shape[2]);
    float across = ((float(grid[2 * pixel]) + 1) * W - 1) / 2;
    float down = ((float(grid[2 * pixel + 1]) + 1) * H - 1) / 2;
    int left = floor(across), top = floor(down);
    T sum = 0;
    for (int corner = 0; corner < 4; corner++) {
        int column = left + corner % 2, row = top + corner / 2;
        if (row < 0 || row >= H || column < 0 || column >= W) continue;
        T weight = (1 - metal::abs(across - column)) * (1 - metal::abs(down - row));
        sum += weight * x[((image * H + row) * W + column) * C + channel];
    }
    out[elem] = sum;
"""

# A simdgroup's lanes are channels of one pixel: channels are padded to whole simdgroups.
GRID_SAMPLE_GRAD = """
    uint elem = thread_position_in_grid.x;
    int H = x_shape[1], W = x_shape[2], C = x_shape[3];
    int padded = ceildiv(C, threads_per_simdgroup) * threads_per_simdgroup;
    int pixel = elem / padded, channel = elem % padded;
    int image = pixel / (grid_shape[1] * grid_shape[2]);
    float across = ((float(grid[2 * pixel]) + 1) * W - 1) / 2;
    float down = ((float(grid[2 * pixel + 1]) + 1) * H - 1) / 2;
    int left = floor(across), top = floor(down);
    T slope_across = T(0), slope_down = T(0);
    for (int corner = 0; corner < 4 && channel < C; corner++) {
        int column = left + corner % 2, row = top + corner / 2;
        if (row < 0 || row >= H || column < 0 || column >= W) continue;
        T cot = cotangent[pixel * C + channel];
        int place = ((image * H + row) * W + column) * C + channel;
        T weight_across = 1 - metal::abs(across - column), weight_down = 1 - metal::abs(down - row);
        atomic_fetch_add_explicit(&x_grad[place], weight_across * weight_down * cot, memory_order_relaxed);
        slope_across += (corner % 2 ? 1 : -1) * weight_down * x[place] * cot;
        slope_down += (corner / 2 ? 1 : -1) * weight_across * x[place] * cot;
    }
    slope_across = simd_sum(slope_across);
    slope_down = simd_sum(slope_down);
    if (thread_index_in_simdgroup == 0) {
        atomic_fetch_add_explicit(&grid_grad[2 * pixel], slope_across * (0.5f * W), memory_order_relaxed);
        atomic_fetch_add_explicit(&grid_grad[2 * pixel + 1], slope_down * (0.5f * H), memory_order_relaxed);
    }
"""


def grid_sample(x, grid):
    """The oracle, pixel by pixel in float64."""
    x, grid = np.asarray(x, np.float64), np.asarray(grid, np.float64)
    n_images, height, width, channels = x.shape
    out = np.zeros((*grid.shape[:3], channels))
    for place in np.ndindex(*grid.shape[:3]):
        across, down = ((g + 1) * n / 2 - 0.5 for g, n in zip(grid[place], (width, height)))
        for row in (math.floor(down), math.floor(down) + 1):
            for column in (math.floor(across), math.floor(across) + 1):
                if 0 <= row < height and 0 <= column < width:
                    out[place] += (1 - abs(across - column)) * (1 - abs(down - row)) * x[place[0], row, column]
    return out


def grid_sample_grad(x, grid, cotangent):
    """(x's gradient, grid's gradient), in float64."""
    x, grid, cotangent = (np.asarray(array, np.float64) for array in (x, grid, cotangent))
    _, height, width, _ = x.shape
    x_grad, grid_grad = np.zeros_like(x), np.zeros_like(grid)
    for place in np.ndindex(*grid.shape[:3]):
        across, down = ((g + 1) * n / 2 - 0.5 for g, n in zip(grid[place], (width, height)))
        for lower, row in enumerate((math.floor(down), math.floor(down) + 1)):
            for right, column in enumerate((math.floor(across), math.floor(across) + 1)):
                if 0 <= row < height and 0 <= column < width:
                    part, corner = cotangent[place], (place[0], row, column)
                    along, below = 1 - abs(across - column), 1 - abs(down - row)
                    x_grad[corner] += along * below * part
                    product = float(part @ x[corner])
                    grid_grad[place][0] += (2 * right - 1) * below * product * width / 2
                    grid_grad[place][1] += (2 * lower - 1) * along * product * height / 2
    return x_grad, grid_grad
