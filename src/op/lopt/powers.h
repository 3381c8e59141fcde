/* SPDX-License-Identifier: Apache-2.0 */
/* powers.h - e^x and tanh in double for kernels, where one thread needs a few of them. */
#ifndef QN_OP_LOPT_POWERS_H
#define QN_OP_LOPT_POWERS_H
#include "base/kernel.h"

/* e^x for x <= 0, to a few units of double. */
QN_FN double power_of_e(double x)
{
  if (x < -700) return 0;
  const double n = static_cast<double>(static_cast<qn_i64>(x * 1.4426950408889634 - 0.5));
  const double r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
  double sum = 1, two = 1;
  for (int k = 16; k > 0; k--) sum = 1 + r * sum / k;
  for (int k = 0; k < static_cast<int>(-n); k++) two *= 0.5;
  return sum * two;
}

/* tanh, to some 1e-16. */
QN_FN double tanh_of(double x)
{
  const double e = power_of_e(-2 * (x < 0 ? -x : x)), y = (1 - e) / (1 + e);
  return x < 0 ? -y : y;
}
#endif
