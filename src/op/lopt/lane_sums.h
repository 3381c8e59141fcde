/* SPDX-License-Identifier: Apache-2.0 */
/* lane_sums.h - 32 sums over a simdgroup's lanes at once, one to each lane, as kernels of learned optimizers take them.
 */
#ifndef QN_OP_LOPT_LANE_SUMS_H
#define QN_OP_LOPT_LANE_SUMS_H
#include "base/collective.h"

/* Of lane l the sum over all lanes of value[l]: at each distance lanes hand over half of what they have. The tree is
 * qn_simd_sum's. */
template <qn_u32 apart> QN_FN void reduce_lanes(float (&value)[32])
{
  const bool upper = qn_lane() & apart;
  QN_UNROLL
  for (qn_u32 k = 0; k < apart; k++) {
    const float first = value[k], second = value[k + apart]; /* read before the choice, which is then not of a place */
    value[k] = (upper ? second : first) + qn_shuffle_xor(upper ? first : second, apart);
  }
}

QN_FN float sum_by_lane(float (&value)[32])
{
  reduce_lanes<16>(value);
  reduce_lanes<8>(value);
  reduce_lanes<4>(value);
  reduce_lanes<2>(value);
  reduce_lanes<1>(value);
  return value[0];
}
#endif
