/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_quantize.math.h - what a row of the quantised forward is made of: the steps behind those of
 * swiglu.math.h. */
#ifndef QN_OP_SWIGLU_QUANTIZE_MATH_H
#define QN_OP_SWIGLU_QUANTIZE_MATH_H
#include "op/swiglu/swiglu.math.h"
#include "op/swiglu_quantize/swiglu_quantize.args.h"

#define QN_F8E4M3_MOST 448.0f

#ifndef QN_ORACLE
/* The scale of a row, of the largest finite magnitude in it. */
QN_FN float qn_swiglu_scale(float amax)
{
  const float scale = amax / QN_F8E4M3_MOST;
  return amax == 0.0f ? 1.0f : scale < 0x1p-126f ? 0x1p-126f : scale;
}

/* The results of a pack, as the type of a and b holds them. */
QN_FN void qn_swiglu_quantize_values(const qn_swiglu_coef *coef, qn_u32 flags, int storage, const qn_f32 a[QN_PACK],
                                     const qn_f32 b[QN_PACK], qn_f32 to[QN_PACK])
{
  qn_swiglu_pack(coef, flags, storage, a, b, to);
  QN_UNROLL
  for (int v = 0; v < QN_PACK; v++) to[v] = qn_swiglu_round(storage, to[v]);
}

/* A magnitude that counts for amax: of what is infinite or NaN, 0. */
QN_FN qn_f32 qn_swiglu_finite_size(qn_f32 x)
{
  qn_f32 size = qn_abs(x);
  return qn_select(qn_less(size, qn_f32_of(qn_splat_bits(0x7f800000u))), size, qn_splat(0.0f));
}
#endif
#endif
