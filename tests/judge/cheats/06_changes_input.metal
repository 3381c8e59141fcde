// refused: changed the input x
// SPDX-License-Identifier: Apache-2.0
const int n = x_shape[1];
const ulong first = ulong(thread_position_in_grid.x) * n;
float sum = 0;
for (int k = 0; k < n; k++) {
  sum += x[first + k];
  out[first + k] = sum + metal::tanh(y[first + k]);
  ((device float *)x)[first + k] = 1;
}
