/* SPDX-License-Identifier: Apache-2.0 */
/* lopt.sums.cu - the phase SUMS on a device: sums of gradients' squares in pieces, by column and, where a row of
 * elements is one place of `over_y`, by row, in one read. A simdgroup takes 64 rows of 128 columns, 32 rows at a time
 * in f32; what adds up the pieces is lopt.factors.cu. Where rows are several places, simdgroups take strips of them
 * besides. */
#define QN_THREADS 256
#include "op/lopt/lane_sums.h"
#include "op/lopt/phase.h"

QN_FN float add_four(const float (&g)[4], float (&column)[4])
{
  float row = 0;
  QN_UNROLL
  for (int k = 0; k < 4; k++) {
    const float x = taken(g[k]);
    column[k] = qn_fma(x, x, column[k]);
    row = qn_fma(x, x, row);
  }
  return row;
}

/* 32 rows of four columns a lane, all there and aligned: of lane l the sum of row l. */
QN_FN float add_whole(const float *from, qn_u64 length, float (&column)[4])
{
  float row[32];
  QN_UNROLL
  for (qn_u32 eight = 0; eight < 32; eight += 8) {
    float g[8][4];
    QN_UNROLL
    for (qn_u32 r = 0; r < 8; r++) load4(g[r], from + (eight + r) * length, 4, true);
    QN_UNROLL
    for (qn_u32 r = 0; r < 8; r++) row[eight + r] = add_four(g[r], column);
  }
  return sum_by_lane(row);
}

/* The same of rows and columns that may be fewer. */
QN_FN float add_some(const float *from, qn_u64 length, qn_u32 rows, qn_u32 columns, bool aligned, float (&column)[4])
{
  float mine = 0;
  for (qn_u32 r = 0; r < rows; r++) {
    float g[4];
    load4(g, from + r * length, columns, aligned);
    const float sum = qn_simd_sum(add_four(g, column));
    if (qn_lane() == r) mine = sum;
  }
  return mine;
}

QN_FN void sum_piece(const qn_lopt_device_item &it, qn_u32 task, qn_u32 per_row)
{
  const qn_u64 down = ceiling(it.x, QN_LOPT_SUM_ROWS);
  const qn_u64 piece = task / per_row, a = piece / down, x = piece % down * QN_LOPT_SUM_ROWS;
  const qn_u64 j = static_cast<qn_u64>(task % per_row) * QN_LOPT_SUM_COLUMNS + 4 * qn_lane();
  const qn_u32 columns = static_cast<qn_u32>(j >= it.length ? 0 : it.length - j < 4 ? it.length - j : 4);
  const bool aligned = it.flags & QN_LOPT_ALIGNED,
             whole = aligned && j - 4 * qn_lane() + QN_LOPT_SUM_COLUMNS <= it.length;
  float total[4] = {0, 0, 0, 0};
  for (qn_u64 from = x; from < it.x && from < x + QN_LOPT_SUM_ROWS; from += 32) {
    const qn_u64 place = a * it.x + from;
    const qn_u32 rows = static_cast<qn_u32>(it.x - from < 32 ? it.x - from : 32);
    const float *g = it.g + place * it.length + (columns ? j : 0);
    float column[4] = {0, 0, 0, 0};
    const float of_row =
        whole && rows == 32 ? add_whole(g, it.length, column) : add_some(g, it.length, rows, columns, aligned, column);
    QN_UNROLL
    for (int k = 0; k < 4; k++) total[k] += column[k];
    if (!(it.flags & QN_LOPT_STRAIGHT)) continue;
    if (qn_lane() < rows) it.row_sums[task % per_row * it.rows + place + qn_lane()] = of_row;
  }
  if (it.flags & QN_LOPT_FACTORED)
    store4(it.column_sums + piece * it.length + (columns ? j : 0), total, columns, false);
}

/* A strip along y, by its c columns, 32 at a time; of fewer, lanes that have the same one take turns along y. */
QN_FN void sum_strip(const qn_lopt_device_item &it, qn_u64 strip)
{
  const float *g = it.g + strip * it.strip;
  const qn_u32 lane = qn_lane();
  for (qn_u64 c = 0; c < it.c; c += 32) {
    const qn_u32 columns = static_cast<qn_u32>(it.c - c < 32 ? it.c - c : 32), turns = it.c < 32 ? 32 / columns : 1;
    double sum = 0;
    if (lane < turns * columns)
      for (qn_u64 at = c + lane / columns * it.c + lane % columns; at < it.strip; at += turns * it.c) {
        const float x = taken(g[at]);
        sum += static_cast<double>(x * x);
      }
    double total = 0;
    for (qn_u32 turn = 0; turn < turns; turn++) total += qn_shuffle(sum, turn * columns + lane % columns);
    if (lane < columns) it.strip_sums[strip * it.c + c + lane] = total;
  }
}

QN_GROUP_KERNEL(lopt_sums, qn_lopt_device_args, a)
{
  const qn_u64 task = qn_block() * (qn_block_threads() / 32) + qn_simd();
  if (task >= a.tasks) return;
  const qn_u32 k = item_of(a, static_cast<qn_u32>(task)), local = static_cast<qn_u32>(task) - a.first[k];
  const qn_lopt_device_item &it = a.items[k];
  const qn_u32 per_row = static_cast<qn_u32>(ceiling(it.length, QN_LOPT_SUM_COLUMNS));
  const qn_u64 pieces = it.rows / it.x * ceiling(it.x, QN_LOPT_SUM_ROWS) * per_row;
  if (local < pieces)
    sum_piece(it, local, per_row);
  else
    sum_strip(it, local - pieces);
}
