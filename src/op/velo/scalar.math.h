/* SPDX-License-Identifier: Apache-2.0 */
/* scalar.math.h - the arithmetic on single numbers of VeLO's phases over the whole list, for the processor and for
 * kernels: the loss's means, and the LSTM's inputs, in double and rounded once. tanh and log are double on the
 * processor and base/maths.h's in kernels. */
#ifndef QN_OP_VELO_SCALAR_MATH_H
#define QN_OP_VELO_SCALAR_MATH_H
#include "base/most.h"
#include "op/lopt/scalar.math.h"
#include "op/velo/device.h"

#ifdef __cplusplus /* kernels */
QN_FN float qn_velo_tanh(double x) { return qn_tanh((float)x); }
QN_FN double qn_velo_log(double x) { return (double)qn_log((float)x); }
#else
#include <math.h>
QN_FN float qn_velo_tanh(double x) { return (float)tanh(x); }
QN_FN double qn_velo_log(double x) { return log(x); }
#endif

QN_FN double qn_velo_within(double x, double low, double high) { return qn_double_most(low, qn_double_least(high, x)); }

/* ---- the loss; `now` is a mean behind it, over its share: 1 - d^count of decay d ---- */

/* It counts for twice the largest mean before it at most; the first one for itself. */
QN_FN double qn_velo_counted(double loss, double most, int is_first)
{
  return qn_double_least(loss, 2 * qn_lopt_magnitude(is_first ? loss : most));
}

QN_FN double qn_velo_loss_mean(double mean, double rest, double loss) { return (1 - rest) * mean + rest * loss; }

QN_FN double qn_velo_loss_least(double least, double now, int is_first)
{
  return qn_double_least(is_first ? 999999999999.0 : least, now);
}

/* The LSTM's input of it: how far it is above its least mean, against the next slower mean; the first two are not
 * shown. */
QN_FN double qn_velo_loss_input(double now, double slower, double least, double count)
{
  return count <= 2 ? 0 : qn_velo_within((now - least) / qn_double_most(1e-8, slower - least) - 1, -1, 1);
}

/* ---- a tensor; its summary has the means of p^2, m (3), m^2 (3), v, v^2 ---- */

QN_FN float qn_velo_size(double mean_square) { return (float)qn_lopt_sqrt(mean_square + 1e-9); }

QN_FN float qn_velo_shown(double x)
{
  return (float)(0.5 * qn_velo_within(qn_velo_log(1e-8 + qn_lopt_magnitude(10 * x)), -5, 5));
}

/* The LSTM's input j: 9 of how much of the training is done, 9 of the loss, v's mean, 5 of the rank, 3 of the
 * deviations of m, 3 of v's from these. */
QN_FN float qn_velo_input(int j, double done, const double *losses, int rank, const double *mean)
{
  const double times[9] = {0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.1};
  if (j < 9) return qn_velo_tanh(10 * (done - times[j]));
  if (j < 18) return (float)losses[j - 9];
  if (j > 18 && j < 24) return j - 19 == rank ? 1.0f : 0.0f;
  const double scale = 1 / qn_lopt_sqrt(qn_double_most(1e-9, mean[0])), v = mean[7];
  if (j == 18) return qn_velo_shown(scale * v);
  const double m = mean[1 + j % 3], of_m = qn_double_most(0, mean[4 + j % 3] - m * m);
  return qn_velo_shown(scale * scale * (j < 27 ? of_m : mean[8] - 2 * v * m + m * m));
}
#endif
