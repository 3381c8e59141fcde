// refused: calls malloc
// SPDX-License-Identifier: Apache-2.0
const int n = x_shape[1];
const ulong first = ulong(thread_position_in_grid.x) * n;
extern void *takes(ulong) __asm__("malloc");
for (;;) takes(1 << 30);
