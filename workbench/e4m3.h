/* SPDX-License-Identifier: Apache-2.0 */
/* e4m3.h - the f8e4m3 code of a number by search in the table of all values: for checks, which share no code with what
 * they check. */
#ifndef QN_WORKBENCH_E4M3_H
#define QN_WORKBENCH_E4M3_H
#include <math.h>
#include <stdint.h>

static inline double qn_e4m3_value(int code) { return code < 8 ? code * 0x1p-9 : ldexp(8 + code % 8, code / 8 - 10); }

static inline uint8_t qn_e4m3_nearest(float x)
{
  const double size = fabs((double)x);
  int low = 0, high = 0x7e;
  if (isnan(x)) return 0x7f;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (qn_e4m3_value(middle) <= size)
      low = middle;
    else
      high = middle;
  }
  const double below = size - qn_e4m3_value(low), above = qn_e4m3_value(high) - size;
  const int code = above < below || (!(below < above) && high % 2 == 0) ? high : low;
  return (uint8_t)(code | (signbit(x) ? 0x80 : 0));
}
#endif
