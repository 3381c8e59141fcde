/* SPDX-License-Identifier: Apache-2.0 */
/* velo.math.h - the arithmetic on one element of VeLO that small_fc_lopt does not have (op/lopt/lopt.math.h): the
 * inputs of its network that differ from element to element, and the network.
 *
 * The inputs, with s = 1/sqrt(v + 1e-6): g, g within +-0.1, p, m (3), v, m s (3), s, g A (3), g s, m B (3). Where
 * nothing is factored, also f (3) and 1/sqrt(f + 1e-8) (3), which stand for the contract's row and column at once. */
#ifndef QN_OP_VELO_VELO_MATH_H
#define QN_OP_VELO_VELO_MATH_H
#include "op/lopt/lopt.math.h"

/* s, which it is told, as kernels have a quicker root than the processor. */
QN_FN void qn_velo_inputs(qn_f32 g, qn_f32 p, const qn_f32 m[3], qn_f32 v, qn_f32 s, const qn_f32 a[3],
                          const qn_f32 b[3], qn_f32 x[18])
{
  x[0] = g, x[1] = qn_no_more(qn_no_less(g, -0.1f), 0.1f), x[2] = p, x[6] = v, x[10] = s, x[14] = g * s;
  QN_UNROLL
  for (int k = 0; k < 3; k++) {
    x[3 + k] = m[k];
    x[7 + k] = m[k] * s;
    x[11 + k] = g * a[k];
    x[15 + k] = m[k] * b[k];
  }
}

/* The second and third layer of what the first one gave, before its max(x, 0); weights by output, as they are kept. */
QN_FN void qn_velo_network(const qn_f32 first[4], const float *second, const float *second_bias, const float *third,
                           const float *third_bias, qn_f32 *direction, qn_f32 *magnitude)
{
  qn_f32 one[4], two[4];
  QN_UNROLL
  for (int k = 0; k < 4; k++) one[k] = qn_lopt_relu(first[k]);
  QN_UNROLL
  for (int h = 0; h < 4; h++) {
    two[h] = qn_splat(second_bias[h]);
    QN_UNROLL
    for (int k = 0; k < 4; k++) two[h] = qn_fma(qn_splat(second[4 * h + k]), one[k], two[h]);
    two[h] = qn_lopt_relu(two[h]);
  }
  *direction = qn_splat(third_bias[0]), *magnitude = qn_splat(third_bias[1]);
  QN_UNROLL
  for (int k = 0; k < 4; k++) {
    *direction = qn_fma(qn_splat(third[k]), two[k], *direction);
    *magnitude = qn_fma(qn_splat(third[4 + k]), two[k], *magnitude);
  }
}
#endif
