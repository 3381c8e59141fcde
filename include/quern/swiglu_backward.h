/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_backward.h - the gradients of swiglu.h's gated activations, recomputed from a and b in one fused pass.
 *
 * One element, every operation in f32 and rounded, for the upstream gradient dc of the final c:
 *     d  = dc * down_multiplier
 *     db = round(d * s)
 *     da = round(((d * slope) * b) * gate_multiplier)    swiglu: slope = fma(s, 1 - sig, sig)
 * with x, sig and s as in the forward. Where clamped's limit holds a or b back, its gradient is zero. */
#ifndef QN_SWIGLU_BACKWARD_H
#define QN_SWIGLU_BACKWARD_H
#include "swiglu.h"
#ifdef __cplusplus
extern "C" {
#endif

/* The members of qn_swiglu_params, with the same meaning and the values of the forward. */
typedef struct qn_swiglu_backward_params {
  size_t size;            /* sizeof(qn_swiglu_backward_params) */
  double gate_multiplier; /* of a, before the activation */
  double down_multiplier; /* of the result */
  double alpha;           /* clamped: of the sigmoid's argument */
  double limit;           /* > 0; clamped: of a from above, of b on both sides */
  int32_t activation;     /* qn_swiglu_activation */
} qn_swiglu_backward_params;

#define QN_SWIGLU_BACKWARD_DEFAULTS                                                                                    \
  {                                                                                                                    \
    sizeof(qn_swiglu_backward_params), 1.0, 1.0, 1.702, 7.0, QN_SWIGLU_ACTIVATION_SWIGLU                               \
  }

/* da and db from dc, a and b over a list of n; or, where da and db are both NULL, written over a and b (10 bytes an
 * element in bf16, and what most training code does: a and b are then gone, and a second backward would be wrong).
 * Shapes, types, launches and refusals as for qn_swiglu_step. */
QN_API qn_status qn_swiglu_backward_step(const qn_exec *exec, const qn_swiglu_backward_params *params, size_t n,
                                         const qn_tensor *dc, const qn_tensor *a, const qn_tensor *b,
                                         const qn_tensor *da, const qn_tensor *db);
QN_API qn_status qn_swiglu_backward_prepare(const qn_exec *exec, const qn_swiglu_backward_params *params, size_t n,
                                            const qn_tensor *dc, const qn_tensor *a, const qn_tensor *b,
                                            const qn_tensor *da, const qn_tensor *db);

#ifdef __cplusplus
}
#endif
#endif
