/* SPDX-License-Identifier: Apache-2.0 */
/* function.h - a function with gradients, inside: which kernel's tensor stands for what. */
#ifndef QN_KERNEL_FUNCTION_H
#define QN_KERNEL_FUNCTION_H
#include "kernel/kernel.h"

struct qn_function {
  char *name;
  qn_kernel *forward, *vjp, *jvp; /* the caller's */
  bool vjp_sees_outputs;          /* its last inputs are the forward's outputs */
  /* The forward's input whose cotangent output k of the vjp is; whose tangent the k-th tangent of the jvp is. */
  uint8_t cotangent_of[QN_KERNEL_MAX_TENSORS], tangent_of[QN_KERNEL_MAX_TENSORS];
};

static inline size_t qn_function_inputs(const qn_function *f) { return f->forward->source.n_inputs; }
static inline size_t qn_function_outputs(const qn_function *f) { return f->forward->source.n_outputs; }
static inline size_t qn_function_tangents(const qn_function *f)
{
  return f->jvp->source.n_inputs - qn_function_inputs(f);
}
#endif
