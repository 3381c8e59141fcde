/* SPDX-License-Identifier: Apache-2.0 */
/* celo2.math.h - CELO2's arithmetic on one element that op/lopt/lopt.math.h and op/velo/velo.math.h do not have: s, the
 * network, and AdamW's step. scalar.math.h has that on single numbers.
 *
 * The network's inputs are VeLO's, but for s = 1/sqrt(v + 1e-8). */
#ifndef QN_OP_CELO2_CELO2_MATH_H
#define QN_OP_CELO2_CELO2_MATH_H
#include "op/celo2/device.h"
#include "op/velo/velo.math.h"

QN_FN qn_f32 qn_celo2_s(qn_f32 v) { return qn_rsqrt(v + 1e-8f); }

/* What the network makes of the first layer's sums; weights by input, as they are kept. */
QN_FN qn_f32 qn_celo2_network(const qn_f32 first[8], const float *weights, float exp_mult)
{
  qn_f32 one[8], two[8];
  qn_f32 direction = qn_splat(weights[QN_CELO2_B3]), magnitude = qn_splat(weights[QN_CELO2_B3 + 1]);
  QN_UNROLL
  for (int k = 0; k < 8; k++) one[k] = qn_lopt_relu(first[k]), two[k] = qn_splat(weights[QN_CELO2_B2 + k]);
  QN_UNROLL
  for (int k = 0; k < 8; k++) {
    QN_UNROLL
    for (int h = 0; h < 8; h++) two[h] = qn_fma(qn_splat(weights[QN_CELO2_W2 + 8 * k + h]), one[k], two[h]);
  }
  QN_UNROLL
  for (int k = 0; k < 8; k++) {
    const qn_f32 value = qn_lopt_relu(two[k]);
    direction = qn_fma(qn_splat(weights[QN_CELO2_W3 + 3 * k]), value, direction);
    magnitude = qn_fma(qn_splat(weights[QN_CELO2_W3 + 3 * k + 1]), value, magnitude);
  }
  return direction * qn_exp(magnitude * qn_splat(exp_mult));
}

/* AdamW's step, of means that the corrections make unbiased. */
QN_FN qn_f32 qn_celo2_adam(qn_f32 p, qn_f32 m, qn_f32 v, float of_m, float of_v, float eps, float lr, float decay)
{
  const qn_f32 root = qn_sqrt(v * qn_splat(of_v)) + qn_splat(eps);
  return qn_lopt_moved_jointly_by(p, m * qn_splat(of_m) / root, lr, decay);
}
#endif
