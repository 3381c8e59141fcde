// wrong values: 
// SPDX-License-Identifier: Apache-2.0
const int n = x_shape[1];
const ulong first = ulong(thread_position_in_grid.x) * n;
half sum = 0;
for (int k = 0; k < n; k++) {
  sum += half(x[first + k]);
  out[first + k] = float(sum) + metal::tanh(y[first + k]);
}
