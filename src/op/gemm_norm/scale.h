/* SPDX-License-Identifier: Apache-2.0 */
/* scale.h - by what rows of x and w are scaled before f16x3 takes them apart: a power of two, so that the greatest
 * magnitude of a row is from 2^13 to 2^15. An element keeps 22 bits down to 2^-15 of its row's greatest, and below that
 * it is off by up to 2^-38 of that. A row has a factor f: it is multiplied by 1 / f^2, and a sum of products twice by
 * the factors of its rows of x and w, which neither overflows nor rounds where the result does not. */
#ifndef QN_OP_GEMM_NORM_SCALE_H
#define QN_OP_GEMM_NORM_SCALE_H
#include "base/kernel.h"

/* The factor of a row whose greatest magnitude has these bits. Rows of subnormal numbers are scaled by 2^126 and no
 * more, a row that is not finite as if its greatest were 2^128. */
QN_FN float qn_gemm_row_factor(qn_u32 most)
{
  const int exponent = (int)(most >> 23) - 127, half = (exponent - 14 + (exponent & 1)) / 2;
  return qn_bits_float((qn_u32)(127 + (half < -63 ? -63 : half)) << 23);
}

/* 1 / f^2. */
QN_FN float qn_gemm_row_scale(float factor) { return qn_bits_float((254u << 23) - qn_float_bits(factor * factor)); }
#endif
