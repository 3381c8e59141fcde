/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_quantize.h - gated activations (swiglu.h) whose result is stored as f8e4m3 with scales, in the same pass.
 *
 * One element, after the steps of swiglu.h, whose result v is rounded to the type of a and b as it is there:
 *     c = e4m3(v * inverse), inverse = 1 / scale        both f32 operations rounded
 * so that v is about c * scale. e4m3() is to nearest even; what is beyond 448, infinities too, becomes 448; NaN stays
 * NaN. A scale is one f32 for all, or one a row; given, or computed here:
 *     scale of a row = max(amax / 448, 2^-126), and 1 where amax is 0
 * with amax the largest magnitude among the row's finite v. A given scale is not looked at on the host: of 0, negative,
 * infinite or NaN ones the result is what the formula says (0: infinities become 448, and 0 becomes NaN). The same bits
 * on every backend. */
#ifndef QN_SWIGLU_QUANTIZE_H
#define QN_SWIGLU_QUANTIZE_H
#include "swiglu.h"
#ifdef __cplusplus
extern "C" {
#endif

/* The members of qn_swiglu_params, with the same meaning, and one more. Start from QN_SWIGLU_QUANTIZE_DEFAULTS. */
typedef struct qn_swiglu_quantize_params {
  size_t size;            /* sizeof(qn_swiglu_quantize_params) */
  double gate_multiplier; /* of a, before the activation */
  double down_multiplier; /* of the result */
  double alpha;           /* clamped: of the sigmoid's argument */
  double limit;           /* > 0; clamped: of a from above, of b on both sides */
  int32_t activation;     /* qn_swiglu_activation */
  int32_t computes;       /* 0: scale is read; 1: scale is written, one a row */
} qn_swiglu_quantize_params;

#define QN_SWIGLU_QUANTIZE_DEFAULTS                                                                                    \
  {                                                                                                                    \
    sizeof(qn_swiglu_quantize_params), 1.0, 1.0, 1.702, 7.0, QN_SWIGLU_ACTIVATION_SWIGLU, 0                            \
  }

/* A step of the op "swiglu_quantize". a and b: (rows, cols), both f32, bf16 or f16; c: (rows, cols) of f8e4m3. Columns
 * lie side by side, rows any distance of at least cols apart (strides), so halves of one tensor will do. scale: f32,
 * dense, of rows elements, or, where it is read, of one; here of any shape, by qn_op_step of that of (rows) or (1). c
 * and a written scale share no element with another. One launch; nothing is synchronised or allocated, except that the
 * first call of a kind compiles. Bad input: a status, a sentence, nothing written. */
QN_API qn_status qn_swiglu_quantize(const qn_exec *exec, const qn_swiglu_quantize_params *params, const qn_tensor *c,
                                    const qn_tensor *scale, const qn_tensor *a, const qn_tensor *b);

#ifdef __cplusplus
}
#endif
#endif
