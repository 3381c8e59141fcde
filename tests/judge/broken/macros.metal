// compile error|broken: 
// SPDX-License-Identifier: Apache-2.0
const int n = x_shape[1];
const ulong first = ulong(thread_position_in_grid.x) * n;
#define A(x) x x x x x x x x
#define B(x) A(A(A(A(x))))
float big = 0;
B(B(B(big += x[0];)))
out[first] = big;
