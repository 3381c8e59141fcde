/* SPDX-License-Identifier: Apache-2.0 */
/* split.h - an f32 value as the sum of two shorter words, for classes that multiply words: how values are taken apart,
 * and what the kernel that does it beforehand (gemm.split.cu) is launched with. x = high + low up to 2^-17 of x in
 * bf16, 2^-23 in tf32; an infinite x leaves a NaN in low. */
#ifndef QN_OP_GEMM_SPLIT_H
#define QN_OP_GEMM_SPLIT_H
#include "base/kernel.h"

typedef struct qn_gemm_split_args {
  const float *x; /* (rows, columns), dense; columns a multiple of 4 */
  qn_u32 *to;     /* rows of `parts` parts: in bf16x3 of 16 words each, in tf32x3 of 32, in bf16 of 8 */
  qn_i64 rows, columns;
  qn_i64 parts; /* of 16 columns; even */
} qn_gemm_split_args;

#ifdef __cplusplus
/* Two values, the first low, to bf16: their high words, and what is left of them. */
QN_FN void qn_split_bf16(float x, float y, qn_u32 &high, qn_u32 &low)
{
#if defined(QN_PTX) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(high) : "f"(y), "f"(x));
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
      : "=r"(low)
      : "f"(y - qn_bits_float(high & 0xffff0000u)), "f"(x - qn_bits_float(high << 16)));
#else
  high = qn_join_halves(qn_float_bf16(x), qn_float_bf16(y));
  low = qn_join_halves(qn_float_bf16(x - qn_bits_float(high << 16)),
                       qn_float_bf16(y - qn_bits_float(high & 0xffff0000u)));
#endif
}

#ifdef QN_BASE_MATRIX_H
QN_FN void qn_split_tf32(float x, qn_u32 &high, qn_u32 &low)
{
  high = qn_float_tf32(x);
  low = qn_float_tf32(x - qn_bits_float(high));
}
#endif
#endif
#endif
