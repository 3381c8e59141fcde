// SPDX-License-Identifier: Apache-2.0
// The same in CUDA's words.
const int n = x_shape[1];
const unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
if (row < unsigned(x_shape[0])) {
  float sum = 0;
  for (int k = 0; k < n; k++) {
    sum += x[row * n + k];
    out[row * n + k] = sum + tanhf(y[row * n + k]);
  }
}
