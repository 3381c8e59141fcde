/* SPDX-License-Identifier: Apache-2.0 */
/* grid.h - how a launch of a kernel from a body is cut: the beginning of its argument, in C and in device sources. */
#ifndef QN_DIALECT_GRID_H
#define QN_DIALECT_GRID_H
#include "base/kernel.h"

/* Threads in all and in a group, and groups, along x, y and z. */
typedef struct qn_launch_grid {
  qn_u32 grid[3], group[3], blocks[3], zero;
} qn_launch_grid;
#endif
