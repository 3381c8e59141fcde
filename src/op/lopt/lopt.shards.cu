/* SPDX-License-Identifier: Apache-2.0 */
/* lopt.shards.cu - what a device has but a part of where tensors are held in pieces, gathered for the caller's function
 * to add: behind SUMS the places of `over_x` and the gradient's norm, behind the states the squares of the two factors,
 * behind STATS those of the channels, or the network's own sums. A block a tensor; one that is whole has nothing to
 * give. Where there are a row's means, they lie where they are added from the first. */
#define QN_THREADS 256
#include "op/lopt/factors.h"

QN_GROUP_KERNEL(lopt_share_sums, qn_lopt_device_args, a)
{
  QN_SHARED(double, scratch, 32);
  const qn_lopt_device_item &it = a.items[qn_block()];
  if (!(it.flags & QN_LOPT_CUT)) return;
  const qn_u64 places = it.flags & QN_LOPT_X_CUT ? it.over_x.n : 0;
  for (qn_u64 k = qn_thread(); k < places; k += QN_THREADS) it.shared_sums[k] = it.n ? sum_pieces(it, k) : 0.0;
  double sum = 0;
  for (qn_u64 k = qn_thread(); QN_LOPT_BOUNDED && k < it.over_y.n; k += QN_THREADS)
    sum += it.n ? sum_over_y(it, k) : 0.0;
  sum = qn_group_sum(sum, scratch);
  if (QN_LOPT_BOUNDED && qn_thread() == 0) it.shared_sums[places] = sum;
}

QN_GROUP_KERNEL(lopt_share_states, qn_lopt_device_args, a)
{
  const qn_lopt_device_item &it = a.items[qn_block()];
  const qn_u32 both = QN_LOPT_CUT | QN_LOPT_FACTORED;
  if ((it.flags & both) != both) return;
  add_chunks(it.over_y, it.shared_states);
  if (!(it.flags & QN_LOPT_X_CUT)) add_chunks(it.over_x, it.shared_states + QN_LOPT_SQUARES);
}

QN_GROUP_KERNEL(lopt_share_stats, qn_lopt_device_args, a)
{
  const qn_lopt_device_item &it = a.items[qn_block()];
  if (!(it.flags & QN_LOPT_CUT)) return;
  const qn_u32 row = sums_of(it);
  for (qn_u32 c = qn_simd(); c < row; c += QN_THREADS / 32) {
    double sum = 0;
    for (qn_u64 k = qn_lane(); k < it.partials; k += 32) sum += it.partial[k * row + c];
    sum = qn_simd_sum(sum);
    if (qn_lane() == 0) it.shared_stats[c] = sum;
  }
}
