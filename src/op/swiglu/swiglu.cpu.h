/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu.cpu.h - shared by the processor's kernels of gated activations: the numbers that the formula reads, which in
 * f64 rows are doubles as they were given, and floats elsewhere. */
#ifndef QN_OP_SWIGLU_CPU_H
#define QN_OP_SWIGLU_CPU_H
#include "base/for_packs.h"
#include "op/swiglu/swiglu.h"
#include "op/swiglu/swiglu.math.h"

/* Only the oracle's instantiation is called for rows of f64. */
#ifdef QN_ORACLE
#define QN_SWIGLU_TIER_ROWS(ROWS, DOUBLE_ROWS, X) ROWS(X) DOUBLE_ROWS(X)
#else
#define QN_SWIGLU_TIER_ROWS(ROWS, DOUBLE_ROWS, X) ROWS(X)
#endif

QN_FN qn_swiglu_numbers qn_swiglu_numbers_of(const void *coef, qn_dtype type)
{
  const qn_swiglu_cpu_coef *c = coef;
#ifdef QN_ORACLE
  if (type == QN_F64) return (qn_swiglu_numbers){c->gate_multiplier, c->down_multiplier, c->alpha, c->limit};
  return (qn_swiglu_numbers){c->f32.gate_multiplier, c->f32.down_multiplier, c->f32.alpha, c->f32.limit};
#else
  (void)type;
  return c->f32;
#endif
}
#endif
