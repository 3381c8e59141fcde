// broken: took more than
// SPDX-License-Identifier: Apache-2.0
const int n = x_shape[1];
const ulong first = ulong(thread_position_in_grid.x) * n;
for (volatile int k = 0;;) k = k + 1;
