// broken: signal 11
// SPDX-License-Identifier: Apache-2.0
const int n = x_shape[1];
const ulong first = ulong(thread_position_in_grid.x) * n;
((device float *)nullptr)[first] = 1;
