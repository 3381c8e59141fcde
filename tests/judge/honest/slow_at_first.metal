// Slow calls at first do not lessen the number of samples.
// SPDX-License-Identifier: Apache-2.0
static uint calls = 0;
if (thread_position_in_grid.x == 0)
  if (calls++ < 4)
    for (volatile int k = 0; k < 10000000;) k = k + 1;
const int n = x_shape[1];
const ulong first = ulong(thread_position_in_grid.x) * n;
float sum = 0;
for (int k = 0; k < n; k++) {
  sum += x[first + k];
  out[first + k] = sum + metal::tanh(y[first + k]);
}
