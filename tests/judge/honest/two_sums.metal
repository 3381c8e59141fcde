// Four rows' elements at a time, by another order of the same operations.
// SPDX-License-Identifier: Apache-2.0
const int n = x_shape[1];
const ulong first = ulong(thread_position_in_grid.x) * n;
float sum = 0;
int k = 0;
for (; k + 4 <= n; k += 4) {
  const float a = x[first + k], b = a + x[first + k + 1], c = x[first + k + 2], d = c + x[first + k + 3];
  out[first + k] = sum + a + metal::tanh(y[first + k]);
  out[first + k + 1] = sum + b + metal::tanh(y[first + k + 1]);
  out[first + k + 2] = sum + b + c + metal::tanh(y[first + k + 2]);
  sum += b + d;
  out[first + k + 3] = sum + metal::tanh(y[first + k + 3]);
}
for (; k < n; k++) {
  sum += x[first + k];
  out[first + k] = sum + metal::tanh(y[first + k]);
}
