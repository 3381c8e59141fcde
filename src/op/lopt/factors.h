/* SPDX-License-Identifier: Apache-2.0 */
/* factors.h - sums for a tensor's two factors, read by the kernels that use them and by those that gather them for
 * other processes. The unit defines QN_THREADS. */
#ifndef QN_OP_LOPT_FACTORS_H
#define QN_OP_LOPT_FACTORS_H
#include "op/lopt/phase.h"

constexpr int SQUARES = QN_LOPT_SQUARES, PLACES = QN_LOPT_PLACES;

constexpr qn_u32 AT_ONCE = 16; /* reads that go out together */

/* The sum of the pieces of a place of `over_x`. */
QN_FN double sum_pieces(const qn_lopt_device_item &it, qn_u64 place)
{
  const qn_u64 pieces = ceiling(it.x, QN_LOPT_SUM_ROWS), a = place / it.length;
  const float *from = it.column_sums + a * pieces * it.length + place % it.length;
  double sum = 0;
  qn_u64 k = 0;
  for (; k + AT_ONCE <= pieces; k += AT_ONCE) {
    float piece[AT_ONCE];
    QN_UNROLL
    for (qn_u32 i = 0; i < AT_ONCE; i++) piece[i] = from[(k + i) * it.length];
    QN_UNROLL
    for (qn_u32 i = 0; i < AT_ONCE; i++) sum += static_cast<double>(piece[i]);
  }
  for (; k < pieces; k++) sum += static_cast<double>(from[k * it.length]);
  return sum;
}

QN_FN double sum_over_y(const qn_lopt_device_item &it, qn_u64 place)
{
  if (!(it.flags & QN_LOPT_STRAIGHT)) return it.strip_sums[place];
  const qn_u64 pieces = ceiling(it.length, QN_LOPT_SUM_COLUMNS);
  double sum = 0;
  for (qn_u64 k = 0; k < pieces; k++) sum += static_cast<double>(it.row_sums[k * it.rows + place]);
  return sum;
}

/* The sums of all chunks, each by a simdgroup. */
QN_FN void add_chunks(const qn_lopt_device_factor &factor, double *sums)
{
  const qn_u64 chunks = ceiling(factor.n, PLACES);
  for (qn_u32 s = qn_simd(); s < SQUARES; s += QN_THREADS / 32) {
    double sum = 0;
    for (qn_u64 k = qn_lane(); k < chunks; k += 32) sum += factor.chunks[k * SQUARES + s];
    sum = qn_simd_sum(sum);
    if (qn_lane() == 0) sums[s] = sum;
  }
}
#endif
