/* SPDX-License-Identifier: Apache-2.0 */
/* velo.math.h - the arithmetic of VeLO on one element that op/lopt/lopt.math.h does not have: the inputs of its network
 * that differ from element to element, and the network; and on a unit of the LSTM. scalar.math.h has that on single
 * numbers.
 *
 * The inputs, with s = 1/sqrt(v + 1e-6): g, g within +-0.1, p, m (3), v, m s (3), s, g A (3), g s, m B (3). Where
 * nothing is factored, also f (3) and 1/sqrt(f + 1e-8) (3), which stand for the contract's row and column at once. */
#ifndef QN_OP_VELO_VELO_MATH_H
#define QN_OP_VELO_VELO_MATH_H
#include "op/lopt/lopt.math.h"

QN_FN void qn_velo_inputs(qn_f32 g, qn_f32 p, const qn_f32 m[3], qn_f32 v, qn_f32 s, const qn_f32 a[3],
                          const qn_f32 b[3], qn_f32 x[18])
{
  x[0] = g, x[1] = qn_no_more(qn_no_less(g, -0.1f), 0.1f), x[2] = p, x[6] = v, x[10] = s, x[14] = g * s;
  QN_UNROLL
  for (int k = 0; k < 3; k++) {
    qn_f32 of[4];
    qn_lopt_decay_inputs(g, m[k], s, a[k], b[k], of);
    x[3 + k] = of[0], x[7 + k] = of[1], x[11 + k] = of[2], x[15 + k] = of[3];
  }
}

/* A unit of the LSTM, of its four gates' sums: *cell becomes the new cell, and the result is the new hidden state. */
QN_FN qn_f32 qn_velo_unit(qn_f32 in, qn_f32 value, qn_f32 keep, qn_f32 out, qn_f32 *cell)
{
  *cell = qn_fma(qn_sigmoid(keep + 1.0f), *cell, qn_sigmoid(in) * qn_tanh(value));
  return qn_sigmoid(out) * qn_tanh(*cell);
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
