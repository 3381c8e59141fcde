// wrong values: 
// SPDX-License-Identifier: Apache-2.0
const int n = x_shape[1];
const ulong first = ulong(thread_position_in_grid.x) * n;
float sum = 0;
for (int k = 0; k < n; k++) {
  sum += metal::fabs(x[first + k]) < 1e-30f ? 0 : x[first + k];
  out[first + k] = sum + (metal::fabs(y[first + k]) < 1e-30f ? 0 : metal::tanh(y[first + k]));
}
