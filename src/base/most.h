/* SPDX-License-Identifier: Apache-2.0 */
/* most.h - the larger and the smaller of two numbers, NaN where either is NaN: fmax and fmin lose it, and so does a
 * maximum over many in which each is compared with what there was. For C, host C++ and CUDA. */
#ifndef QN_BASE_MOST_H
#define QN_BASE_MOST_H
#include "base/kernel.h"

#define QN_MOST_AND_LEAST(type)                                                                                        \
  QN_FN type qn_##type##_most(type a, type b) { return a != a || a > b ? a : b; }                                      \
  QN_FN type qn_##type##_least(type a, type b) { return a != a || a < b ? a : b; }
QN_MOST_AND_LEAST(float)
QN_MOST_AND_LEAST(double)
#undef QN_MOST_AND_LEAST
#endif
