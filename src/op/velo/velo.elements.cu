/* SPDX-License-Identifier: Apache-2.0 */
/* velo.elements.cu - op/lopt/lopt.elements.cu for VeLO's network, with a STATS of its own: of the state before
 * the step it sums what the LSTM's inputs are made of. */
#include "op/velo/network.h"
#define QN_LOPT_OWN_STATS
#include "op/lopt/lopt.elements.cu"

#if QN_LOPT_PHASE == 0
/* The squares of the channels, and the sums of the old state and its squares. */
QN_FN void add_element(float (&sum)[QN_VELO_TOTALS], const qn_lopt_device_args &a, const qn_lopt_device_item &it,
                       qn_u64 i)
{
  add_squares(sum, a, it, i);
  QN_UNROLL
  for (int d = 0; d < 4; d++) { /* m, and v */
    const float old = d < 3 ? it.m[static_cast<qn_u64>(d) * it.n + i] : it.v[i];
    const int of_square = QN_VELO_OLD + (d < 3 ? 3 + d : 7), of_it = QN_VELO_OLD + (d < 3 ? d : 6);
    sum[of_it] += old;
    sum[of_square] = qn_fma(old, old, sum[of_square]);
  }
}

QN_GROUP_KERNEL(lopt_element_stats, qn_lopt_device_args, a)
{
  QN_SHARED(float, sums, QN_THREADS);
  const qn_u32 k = item_of(a, static_cast<qn_u32>(qn_block())), thread = qn_thread();
  const qn_lopt_device_item &it = a.items[k];
  const qn_u64 task = qn_block() - a.first[k], first = task * A_TASK;
  const qn_u64 last = it.n - first < A_TASK ? it.n : first + A_TASK;
  float sum[QN_VELO_TOTALS] = {};
  for (qn_u64 i = first + thread; i < last; i += QN_THREADS) add_element(sum, a, it, i);
  sums[thread] = sum_by_lane(sum);
  qn_barrier();
  if (thread >= QN_VELO_TOTALS) return;
  double total = 0;
  for (qn_u32 s = 0; s < QN_THREADS / 32; s++) total += static_cast<double>(sums[32 * s + thread]);
  it.partial[task * QN_VELO_TOTALS + thread] = total;
}
#endif
