/* SPDX-License-Identifier: Apache-2.0 */
/* celo2.math.h - CELO2's arithmetic on one element that op/lopt/lopt.math.h and op/velo/velo.math.h do not have: s, the
 * network, and AdamW's step. scalar.math.h has that on single numbers.
 *
 * The network's inputs are VeLO's, but for s = 1/sqrt(v + 1e-8). */
#ifndef QN_OP_CELO2_CELO2_MATH_H
#define QN_OP_CELO2_CELO2_MATH_H
#include "op/celo2/device.h"
#include "op/velo/velo.math.h"

QN_FN qn_f32 qn_celo2_s_square(qn_f32 v) { return v + 1e-8f; }

QN_FN qn_f32 qn_celo2_output(const qn_f32 last[8], const float *weights, int which)
{
  qn_f32 sum = qn_splat(weights[QN_CELO2_B3 + which]);
  QN_UNROLL
  for (int k = 0; k < 8; k++) sum = qn_fma(qn_splat(weights[QN_CELO2_W3 + 3 * k + which]), last[k], sum);
  return sum;
}

/* What the network makes of the first layer's sums of n elements, which share each weight that is read; weights by
 * input, as they are kept. */
QN_FN void qn_celo2_network(int n, qn_f32 (*first)[8], const float *weights, float exp_mult, qn_f32 *out)
{
  qn_f32 two[QN_CELO2_SIDE_BY_SIDE][8];
  QN_UNROLL
  for (int e = 0; e < n; e++) {
    QN_UNROLL
    for (int h = 0; h < 8; h++) two[e][h] = qn_splat(weights[QN_CELO2_B2 + h]);
  }
  QN_UNROLL
  for (int k = 0; k < 8; k++) {
    QN_UNROLL
    for (int e = 0; e < n; e++) first[e][k] = qn_lopt_relu(first[e][k]);
    QN_UNROLL
    for (int h = 0; h < 8; h++) {
      const qn_f32 weight = qn_splat(weights[QN_CELO2_W2 + 8 * k + h]);
      QN_UNROLL
      for (int e = 0; e < n; e++) two[e][h] = qn_fma(weight, first[e][k], two[e][h]);
    }
  }
  QN_UNROLL
  for (int e = 0; e < n; e++) {
    QN_UNROLL
    for (int k = 0; k < 8; k++) two[e][k] = qn_lopt_relu(two[e][k]);
    out[e] = qn_celo2_output(two[e], weights, 0);
  }
  if (exp_mult == 0) return;
  QN_UNROLL
  for (int e = 0; e < n; e++) out[e] = out[e] * qn_exp(qn_celo2_output(two[e], weights, 1) * qn_splat(exp_mult));
}

/* AdamW's step, of means that the corrections make unbiased. */
QN_FN qn_f32 qn_celo2_adam(qn_f32 p, qn_f32 m, qn_f32 v, float of_m, float of_v, float eps, float lr, float decay)
{
  const qn_f32 root = qn_sqrt(v * qn_splat(of_v)) + qn_splat(eps);
  return qn_lopt_moved_jointly_by(p, m * qn_splat(of_m) / root, lr, decay);
}
#endif
