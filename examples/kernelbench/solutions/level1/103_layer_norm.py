# SPDX-License-Identifier: Apache-2.0
"""A simdgroup a row: mean, variance about the mean, and the result, of a row that stays in the nearest cache."""

import quern
import torch
from torch import nn

layer_norm = quern.metal_kernel(
    "layer_norm_rows",
    ["x", "gamma", "beta", "eps"],
    ["out"],
    """
    int row = thread_position_in_grid.y, lane = thread_index_in_simdgroup, n = gamma_shape[0];
    const device float *from = x + long(row) * n;
    float sum = 0, squares = 0;
    for (int i = lane; i < n; i += 32) sum += from[i];
    float mean = simd_sum(sum) / n;
    for (int i = lane; i < n; i += 32) squares += (from[i] - mean) * (from[i] - mean);
    float scale = metal::rsqrt(simd_sum(squares) / n + eps);
    for (int i = lane; i < n; i += 32) out[long(row) * n + i] = (from[i] - mean) * scale * gamma[i] + beta[i];
    """,
)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)
        nn.init.normal_(self.norm.weight)
        nn.init.normal_(self.norm.bias)

    def forward(self, x):
        norm = self.norm
        (out,) = layer_norm(
            inputs=[x, norm.weight.detach(), norm.bias.detach(), norm.eps],
            grid=(32, x.numel() // x.shape[-1], 1), threadgroup=(32, 1, 1), output_shapes=[x.shape],
            output_dtypes=[torch.float32],
        )  # fmt: skip
        return out
