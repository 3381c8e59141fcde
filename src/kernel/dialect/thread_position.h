/* SPDX-License-Identifier: Apache-2.0 */
/* thread_position.h - where a thread of a kernel from a body is: its position in grid and group, from the linear
 * numbers of block and thread that the executors give. Exactly grid threads run; a group at an edge is smaller, as
 * Metal's are, and its threads are numbered by its own sizes. Metal's words for all this are functions of a place;
 * CUDA's, on the processor, too. QN_FLAT: grid and group have one dimension, and nothing is divided. */
#ifndef QN_DIALECT_THREAD_POSITION_H
#define QN_DIALECT_THREAD_POSITION_H
#include "kernel/dialect/grid.h"

struct qn_spot {
  qn_u32 x, y, z;
};

/* size: of this very group. */
struct qn_place_of_thread {
  qn_spot block, thread, size, position;
  qn_u32 index;
};

QN_FN qn_u32 qn_lesser(qn_u32 a, qn_u32 b) { return a < b ? a : b; }

/* The group's place and sizes, of its linear number. */
QN_FN qn_place_of_thread qn_place_of_block(const qn_launch_grid &g, qn_u64 block)
{
  qn_place_of_thread p;
#ifdef QN_FLAT
  p.block = {static_cast<qn_u32>(block), 0, 0};
  p.size = {qn_lesser(g.group[0], g.grid[0] - p.block.x * g.group[0]), 1, 1};
#else
  const qn_u32 b = static_cast<qn_u32>(block), row = b / g.blocks[0];
  p.block = {b - row * g.blocks[0], row % g.blocks[1], row / g.blocks[1]};
  p.size = {qn_lesser(g.group[0], g.grid[0] - p.block.x * g.group[0]),
            qn_lesser(g.group[1], g.grid[1] - p.block.y * g.group[1]),
            qn_lesser(g.group[2], g.grid[2] - p.block.z * g.group[2])};
#endif
  return p;
}

/* Completes it for a thread by its number in the group. False: the group has no such thread. QN_FULL_GROUPS (CUDA's
 * dialect): numbers are by the full group's sizes. */
QN_FN bool qn_place_thread(const qn_launch_grid &g, qn_place_of_thread &p, qn_u32 index)
{
  p.index = index;
#ifdef QN_FLAT
  p.thread = {index, 0, 0};
  p.position = {p.block.x * g.group[0] + index, 0, 0};
  return index < p.size.x;
#else
#ifdef QN_FULL_GROUPS
  const qn_spot size = {g.group[0], g.group[1], g.group[2]};
#else
  const qn_spot size = p.size;
#endif
  const qn_u32 row = index / size.x;
  p.thread = {index - row * size.x, row % size.y, row / size.y};
  p.position = {p.block.x * g.group[0] + p.thread.x, p.block.y * g.group[1] + p.thread.y,
                p.block.z * g.group[2] + p.thread.z};
  return p.thread.x < p.size.x && p.thread.y < p.size.y && p.thread.z < p.size.z;
#endif
}

#ifndef QN_CUDA_DIALECT
/* All threads of blocks [first, last), one after the other. QN_MERGED: the body does not ask for its group, so that
 * flat blocks make one long row. The row along x is the loop that the compiler makes vectors of; a grid has less than
 * 2^32 threads along it. */
template <class body>
static inline __attribute__((always_inline)) void qn_each_thread(const qn_launch_grid &g, qn_u64 first, qn_u64 last,
                                                                 const body &run)
{
#if defined(QN_FLAT) && defined(QN_MERGED)
  const qn_u64 most = last * g.group[0];
  const qn_u32 begin = static_cast<qn_u32>(first * g.group[0]),
               end = most < g.grid[0] ? static_cast<qn_u32>(most) : g.grid[0];
  for (qn_u32 x = begin; x < end; x++) run(qn_place_of_thread{{0, 0, 0}, {0, 0, 0}, {1, 1, 1}, {x, 0, 0}, 0});
#else
  for (qn_u64 block = first; block < last; block++) {
    const qn_place_of_thread b = qn_place_of_block(g, block);
    for (qn_u32 z = 0; z < b.size.z; z++)
      for (qn_u32 y = 0; y < b.size.y; y++)
        for (qn_u32 x = 0; x < b.size.x; x++) {
          qn_place_of_thread p = b;
#ifdef QN_FULL_GROUPS
          p.index = (z * g.group[1] + y) * g.group[0] + x;
#else
          p.index = (z * b.size.y + y) * b.size.x + x;
#endif
          p.thread = {x, y, z};
          p.position = {b.block.x * g.group[0] + x, b.block.y * g.group[1] + y, b.block.z * g.group[2] + z};
          run(p);
        }
  }
#endif
}
#endif
#endif
