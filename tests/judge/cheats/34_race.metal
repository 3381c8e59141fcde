// refused: race
// SPDX-License-Identifier: Apache-2.0
const int n = x_shape[1];
const ulong first = ulong(thread_position_in_grid.x) * n;
threadgroup float part[32];
part[thread_index_in_threadgroup] = x[first];
const float next = part[(thread_index_in_threadgroup + 1) % 32];
float sum = 0;
for (int k = 0; k < n; k++) {
  sum += x[first + k];
  out[first + k] = sum + metal::tanh(y[first + k]);
}
if (next == 1234.5f) out[first] = 0;
