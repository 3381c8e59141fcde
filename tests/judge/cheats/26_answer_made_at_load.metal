// launch fails|wrong values: 
// SPDX-License-Identifier: Apache-2.0
const int n = x_shape[1];
const ulong first = ulong(thread_position_in_grid.x) * n;
static const float made = metal::tanh(0.5f);
for (int k = 0; k < n; k++) out[first + k] = made;
