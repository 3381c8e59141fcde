# SPDX-License-Identifier: Apache-2.0
"""A simdgroup a row: 32 columns at a time are masked and added up within the simdgroup, and the last sum is carried."""

import quern
import torch
from torch import nn

masked_cumsum = quern.metal_kernel(
    "masked_cumsum",
    ["x", "mask"],
    ["out"],
    """
    int row = thread_position_in_grid.y, lane = thread_index_in_simdgroup, n = x_shape[1];
    long from = long(row) * n;
    float carried = 0;
    for (int first = 0; first < n; first += 32) {
      int i = first + lane;
      float value = i < n ? x[from + i] * float(mask[from + i]) : 0;
      float sum = carried + simd_prefix_inclusive_sum(value);
      if (i < n) out[from + i] = sum;
      carried = simd_broadcast(sum, 31);
    }
    """,
)


class ModelNew(nn.Module):
    def forward(self, x, mask):
        (out,) = masked_cumsum(
            inputs=[x, mask], grid=(32, x.shape[0], 1), threadgroup=(32, 1, 1), output_shapes=[x.shape],
            output_dtypes=[torch.float32],
        )  # fmt: skip
        return out
