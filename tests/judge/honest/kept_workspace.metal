// A room of its own in threadgroup memory.
// SPDX-License-Identifier: Apache-2.0
threadgroup float room[32];
const int n = x_shape[1];
const ulong first = ulong(thread_position_in_grid.x) * n;
room[thread_position_in_threadgroup.x] = 0;
for (int k = 0; k < n; k++) {
  room[thread_position_in_threadgroup.x] += x[first + k];
  out[first + k] = room[thread_position_in_threadgroup.x] + metal::tanh(y[first + k]);
}
