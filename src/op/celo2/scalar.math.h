/* SPDX-License-Identifier: Apache-2.0 */
/* scalar.math.h - CELO2's arithmetic on single numbers, in double and rounded once, for the processor and for kernels.
 */
#ifndef QN_OP_CELO2_SCALAR_MATH_H
#define QN_OP_CELO2_SCALAR_MATH_H
#include "op/celo2/device.h"
#include "op/lopt/scalar.math.h"

/* The network's input that channel k is: of channels the 18 that are an element's own come first, then six of the row,
 * then six of the column. */
QN_FN int qn_celo2_input(int k)
{
  if (k < QN_CELO2_ELEMENTS) return k < QN_CELO2_ELEMENTS - 3 ? k : k + 2 * QN_LOPT_FACTOR_CHANNELS;
  k -= QN_CELO2_ELEMENTS;
  const int is_row = k < QN_LOPT_FACTOR_CHANNELS;
  return qn_lopt_factor_input(QN_CELO2_ELEMENTS, is_row, is_row ? k : k - QN_LOPT_FACTOR_CHANNELS);
}

/* Small matrices of a block's task, of n elements each. */
QN_FN qn_u64 qn_celo2_device_together(qn_u64 n)
{
  const qn_u64 fill = QN_CELO2_A_TASK / n;
  return fill > QN_CELO2_SIMDS ? fill : QN_CELO2_SIMDS;
}

/* The scale of a channel, or of a move, whose squares' sum over n elements it is. */
QN_FN double qn_celo2_scale(double squares, qn_u64 n) { return 1 / qn_lopt_sqrt(1e-9 + squares / (double)n); }

/* What a move is multiplied by before it is made orthogonal. */
QN_FN float qn_celo2_into_ball(double squares) { return (float)(1 / (qn_lopt_sqrt(squares) + 1e-8)); }

/* What corrects a mean that began as zero, of the step-th step, counted from 0: 1 / (1 - decay^(step + 1)). */
QN_FN float qn_celo2_correction(double decay, qn_u64 step)
{
  double power = decay, base = decay; /* base: decay^(2^k) of the bit k at hand */
  for (; step; step >>= 1, base *= base)
    if (step & 1) power *= base;
  return (float)(1 / (1 - power));
}
#endif
