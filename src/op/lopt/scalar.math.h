/* SPDX-License-Identifier: Apache-2.0 */
/* scalar.math.h - the arithmetic of a learned optimizer's step on single numbers, in double and rounded once, for the
 * processor and for kernels: means of squares, the bound of a norm, the channels' scales, times, and the order of the
 * first layer's inputs. lopt.math.h has the arithmetic on one element. */
#ifndef QN_OP_LOPT_SCALAR_MATH_H
#define QN_OP_LOPT_SCALAR_MATH_H
#include "base/kernel.h"

/* Correctly rounded. */
QN_FN double qn_lopt_sqrt(double x)
{
#ifdef QN_PTX
  return __dsqrt_rn(x);
#else
  return __builtin_sqrt(x);
#endif
}

QN_FN double qn_lopt_magnitude(double x) { return x < 0 ? -x : x; }

/* The mean of `count` squares, of their sum, as a state of the row or column takes it. */
QN_FN float qn_lopt_mean_square(double sum, double count) { return (float)(sum / count + 1e-30); }

/* The divisor of a row's states as in PyLO's CUDA code: their mean over the three decays. */
QN_FN float qn_lopt_mean_of_decays(float a, float b, float c)
{
  return (float)(((double)a + (double)b + (double)c) / 3);
}

/* The factor that bounds a gradient's norm by `most`; NaN where the sum of its squares is. */
QN_FN float qn_lopt_bound(double most, double squares)
{
  const double scale = most / (qn_lopt_sqrt(squares) + 1e-6);
  return scale >= 1 ? 1.0f : (float)scale;
}

/* The scale of a channel whose squares' sum over n elements it is. */
QN_FN double qn_lopt_scale(double squares, qn_u64 n) { return 1 / qn_lopt_sqrt(1e-5 + squares / (double)n); }

/* Of the k-th time, 1, 3, 10, 30 ... 100000, the input is tanh of this. */
QN_FN double qn_lopt_time(qn_u64 step, int k)
{
  double time = k % 2 ? 3 : 1;
  for (int i = 0; i < k / 2; i++) time *= 10;
  return (double)step / time - 1;
}

/* ---- the order of a first layer's inputs ----
 * Those of an element but its last three, row, column, their inverses, the last three of an element. */

/* The k-th of the six channels of the row, or of the column. */
QN_FN int qn_lopt_factor_input(int elements, int is_row, int k)
{
  return elements - 3 + k + (k < 3 ? 0 : 3) + (is_row ? 0 : 3);
}

/* The weight of channel k in hidden value h; where nothing is factored a state is both row and column. */
QN_FN double qn_lopt_channel_weight(const float *weights, int inputs, int elements, int h, int k)
{
  const float *of = weights + h * inputs;
  if (k < elements - 3) return (double)of[k];
  if (k < elements) return (double)of[12 + k];
  const int row = qn_lopt_factor_input(elements, 1, k - elements);
  return (double)of[row] + (double)of[row + 3];
}
#endif
