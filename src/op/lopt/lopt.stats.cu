/* SPDX-License-Identifier: Apache-2.0 */
/* lopt.stats.cu - the phase STATS on a device, of tensors that are taken by tiles: the squares of the 16 inputs that
 * differ from element to element, summed over 64 rows in f32 and all else in double. Nothing else is written. */
#define QN_THREADS 512
#include "op/lopt/network.h"
#include "op/lopt/tile.h"

constexpr qn_u32 RUN = 64, AT_ONCE = 4; /* rows */

QN_FN void add_row(float (&sum)[4][4], const row_data &r, const tile &t, const float (&over_x)[4], const rates &by)
{
  QN_UNROLL
  for (int k = 0; k < 4; k++) {
    float x[4], v, q;
    inputs_of(x, v, q, r, k, over_x[k], by, t.of_gradient, t.third);
    QN_UNROLL
    for (int c = 0; c < 4; c++) sum[c][k] = qn_fma(x[c], x[c], sum[c][k]);
  }
}

/* Rows [first, last), some at once, so that their reads go out together. */
template <bool aligned>
QN_FN void add_run(double (&total)[4], const tile &t, qn_u32 first, qn_u32 last, const float (&over_x)[4],
                   const rates &by)
{
  float sum[4][4] = {};
  qn_u32 row = first;
  for (; row + AT_ONCE <= last; row += AT_ONCE) {
    row_data r[AT_ONCE];
    QN_UNROLL
    for (qn_u32 k = 0; k < AT_ONCE; k++) read_row<aligned>(r[k], t, row + k);
    QN_UNROLL
    for (qn_u32 k = 0; k < AT_ONCE; k++) add_row(sum, r[k], t, over_x, by);
  }
  for (; row < last; row++) {
    row_data r;
    read_row<aligned>(r, t, row);
    add_row(sum, r, t, over_x, by);
  }
  QN_UNROLL
  for (qn_u32 k = 0; k < 4; k++) QN_UNROLL
  for (int c = 0; c < 4; c++)
    if (k < t.count) total[c] += static_cast<double>(sum[c][k]);
}

template <bool aligned>
QN_FN void add_tile(double (&total)[4], const tile &t, const float (&over_x)[4], const rates &by)
{
  for (qn_u32 row = 0; row < t.rows; row += RUN)
    add_run<aligned>(total, t, row, t.rows - row < RUN ? t.rows : row + RUN, over_x, by);
}

QN_GROUP_KERNEL(lopt_stats, qn_lopt_device_args, a)
{
  const qn_u64 task = qn_block() * (qn_block_threads() / 32) + qn_simd();
  if (task >= a.tasks) return;
  const qn_u32 k = item_of(a, static_cast<qn_u32>(task)), local = static_cast<qn_u32>(task) - a.first[k];
  const qn_lopt_device_item &it = a.items[k];
  const tile t = tile_of(it, local, QN_LOPT_STAT_ROWS, 1, 0);
  const rates by = rates_of(a, t.third);
  const qn_u32 d = qn_lane() & 3u;
  double *const to = it.partial + static_cast<qn_u64>(local) * QN_LOPT_ELEMENTS;
  double total[4] = {0, 0, 0, 0};
  float over_x[4];
  QN_UNROLL
  for (qn_u32 e = 0; e < 4; e++) over_x[e] = e < t.count ? it.over_x.root[4 * (t.over_x + e) + d] : 0.0f;
  if (it.flags & QN_LOPT_ALIGNED)
    add_tile<true>(total, t, over_x, by);
  else
    add_tile<false>(total, t, over_x, by);
  QN_UNROLL
  for (int c = 0; c < 4; c++) {
    QN_UNROLL
    for (qn_u32 apart = 16; apart >= 4; apart /= 2) total[c] += qn_shuffle_xor(total[c], apart);
    if (qn_lane() < 4) to[channel_of(static_cast<int>(d), c)] = total[c];
  }
}
