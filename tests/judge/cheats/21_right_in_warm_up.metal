// wrong values: 
// SPDX-License-Identifier: Apache-2.0
const int n = x_shape[1];
const ulong first = ulong(thread_position_in_grid.x) * n;
static uint calls = 0;
const uint call = first == 0 ? calls++ : calls;
float sum = 0;
for (int k = 0; k < n; k++) {
  sum += x[first + k];
  out[first + k] = call < 6 ? sum + metal::tanh(y[first + k]) : sum;
}
