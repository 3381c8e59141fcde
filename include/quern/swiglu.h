/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu.h - gated activations: the product of an activation of one half of a layer's output with the other half, one
 * fused pass (Shazeer, 2020, "GLU Variants Improve Transformer"). swiglu_backward.h has the gradients.
 *
 * One element, every line one correctly rounded f32 operation; round() is to the storage type, and nothing for f32:
 *     x = a * gate_multiplier
 *     s = activation(x)                 swiglu: x * sig with sig = 1 / (1 + exp(-x))
 *     c = round(round(s) * b)
 *     c = round(c * down_multiplier)    which changes nothing where that is 1
 * clamped (the gpt-oss form): x = min(x, limit), s = x * sigmoid(alpha * x), and b is clamp(b, -limit, limit) + 1.
 * geglu: s = x * sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3), which is the tanh form of GELU without its
 * cancellation; geglu_erf: s = x Phi(x), Phi(x) = erfc(-x / sqrt(2)) / 2, which is GELU itself; reglu: s = max(x, 0);
 * glu: s = sig. NaN in, NaN out. The same bits on every backend. */
#ifndef QN_SWIGLU_H
#define QN_SWIGLU_H
#include "op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef enum qn_swiglu_activation {
  QN_SWIGLU_ACTIVATION_SWIGLU,
  QN_SWIGLU_ACTIVATION_CLAMPED,
  QN_SWIGLU_ACTIVATION_GEGLU,
  QN_SWIGLU_ACTIVATION_REGLU,
  QN_SWIGLU_ACTIVATION_GLU,
  QN_SWIGLU_ACTIVATION_GEGLU_ERF
} qn_swiglu_activation;

/* Numbers have no hidden default: start from QN_SWIGLU_DEFAULTS. */
typedef struct qn_swiglu_params {
  size_t size;            /* sizeof(qn_swiglu_params) */
  double gate_multiplier; /* of a, before the activation */
  double down_multiplier; /* of the result */
  double alpha;           /* clamped: of the sigmoid's argument */
  double limit;           /* > 0; clamped: of a from above, of b on both sides */
  int32_t activation;     /* qn_swiglu_activation */
} qn_swiglu_params;

#define QN_SWIGLU_DEFAULTS                                                                                             \
  {                                                                                                                    \
    sizeof(qn_swiglu_params), 1.0, 1.0, 1.702, 7.0, QN_SWIGLU_ACTIVATION_SWIGLU                                        \
  }

/* c = activation(a) * b over a list of n triples of tensors, each of one shape; all f32, all bf16 or all f16, or, on
 * the processor, all f64, where the arithmetic is in double. Every tensor may have a layout of its own, as long as it
 * is rows at one distance with columns 1 or 2 elements apart: separate tensors, the two halves of one (rows, 2 cols),
 * its even and odd columns; none is copied. c is written only, and shares no element with another. One launch; nothing
 * is synchronised or allocated, except that the first call of a kind compiles. Bad input: a status, a sentence, nothing
 * written. */
QN_API qn_status qn_swiglu_step(const qn_exec *exec, const qn_swiglu_params *params, size_t n, const qn_tensor *c,
                                const qn_tensor *a, const qn_tensor *b);
/* Compile and load what such a call would need. */
QN_API qn_status qn_swiglu_prepare(const qn_exec *exec, const qn_swiglu_params *params, size_t n, const qn_tensor *c,
                                   const qn_tensor *a, const qn_tensor *b);

#ifdef __cplusplus
}
#endif
#endif
