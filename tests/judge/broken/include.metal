// compile error|launch fails: 
// SPDX-License-Identifier: Apache-2.0
const int n = x_shape[1];
const ulong first = ulong(thread_position_in_grid.x) * n;
#include "/etc/passwd"
out[first] = 0;
