// wrong values: 
// SPDX-License-Identifier: Apache-2.0
const int n = x_shape[1];
const ulong first = ulong(thread_position_in_grid.x) * n;
static uint random = 12345;
random = random * 1664525 + 1013904223;
float sum = 0;
for (int k = 0; k < n; k++) {
  sum += x[first + k];
  out[first + k] = sum + metal::tanh(y[first + k]) + (k == 0 && (random >> 28) % 4 == 0 ? 1 : 0);
}
