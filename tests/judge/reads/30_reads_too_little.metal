// refused: impossible
// SPDX-License-Identifier: Apache-2.0
out[thread_position_in_grid.x] = x[ulong(thread_position_in_grid.x) * x_shape[1]];
