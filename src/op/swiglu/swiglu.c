/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu.c - the forward's description, from which tests, benches, bindings and documents are made, its coefficients,
 * and the typed calls of quern/swiglu.h. */
#include "quern/swiglu.h"
#include "op/swiglu/swiglu.h"
#include "op/call.h"
#include <math.h>
#include <stddef.h>
#include <string.h>

QN_CPU_DECLARE(swiglu, qn_cpu_fn);

_Static_assert((int)QN_SWIGLU_SILU == (int)QN_SWIGLU_ACTIVATION_SWIGLU, "the activations have one order");
_Static_assert((int)QN_SWIGLU_CLAMPED == (int)QN_SWIGLU_ACTIVATION_CLAMPED, "the activations have one order");
_Static_assert((int)QN_SWIGLU_GEGLU == (int)QN_SWIGLU_ACTIVATION_GEGLU, "the activations have one order");
_Static_assert((int)QN_SWIGLU_REGLU == (int)QN_SWIGLU_ACTIVATION_REGLU, "the activations have one order");
_Static_assert((int)QN_SWIGLU_GLU == (int)QN_SWIGLU_ACTIVATION_GLU, "the activations have one order");
_Static_assert((int)QN_SWIGLU_GEGLU_ERF == (int)QN_SWIGLU_ACTIVATION_GEGLU_ERF, "the activations have one order");

static const qn_op_tensor tensors[] = {
    [QN_SWIGLU_C] = {"c", "out", "the product", QN_FILL_MODERATE, 1, .storage = QN_STORAGE_ROWS},
    [QN_SWIGLU_A] = {"a", "gate", "the gate's half, before its activation", QN_FILL_MODERATE, 2,
                     .storage = QN_STORAGE_ROWS},
    [QN_SWIGLU_B] = {"b", "up", "the other half", QN_FILL_MODERATE, 1, .storage = QN_STORAGE_ROWS},
};

static const qn_op_types types[] = {
#define X(t) {{{QN_##t, QN_WRITE}, {QN_##t, QN_READ}, {QN_##t, QN_READ}}},
    QN_SWIGLU_ROWS(X) QN_SWIGLU_DOUBLE_ROWS(X)
#undef X
};

static const qn_op_param params_table[] = {QN_SWIGLU_PARAMS(qn_swiglu_params)};

void qn_swiglu_coefficients(const void *params, void *coef)
{
  const qn_swiglu_params *p = params;
  *(qn_swiglu_coef *)coef =
      (qn_swiglu_coef){(float)p->gate_multiplier, (float)p->down_multiplier, (float)p->alpha, (float)p->limit};
}

void qn_swiglu_cpu_coefficients(const void *params, void *coef)
{
  const qn_swiglu_params *p = params;
  qn_swiglu_cpu_coef all = {.gate_multiplier = p->gate_multiplier,
                            .down_multiplier = p->down_multiplier,
                            .alpha = p->alpha,
                            .limit = p->limit};
  qn_swiglu_coefficients(params, &all.f32);
  memcpy(coef, &all, sizeof all);
}
_Static_assert(sizeof(qn_swiglu_cpu_coef) <= QN_COEF_BYTES, "they are handed on in so many bytes");

static uint32_t flags(const void *params, size_t row)
{
  const qn_swiglu_params *p = params;
  const bool wide = types[row].tensor[QN_SWIGLU_A].dtype == QN_F64;
  const double gate = wide ? p->gate_multiplier : (float)p->gate_multiplier;
  const double down = wide ? p->down_multiplier : (float)p->down_multiplier;
  return (uint32_t)p->activation | (down != 1 ? QN_SWIGLU_DOWN : 0) | (gate != 1 ? QN_SWIGLU_SCALED : 0);
}

qn_status qn_swiglu_check(const qn_call *call)
{
  const qn_swiglu_params *p = call->params;
  qn_require(p->activation != QN_SWIGLU_ACTIVATION_CLAMPED || (float)p->limit > 0,
             "%s: limit is %g, it must be above 0", call->op->info.name, p->limit);
  return QN_OK;
}

const qn_op qn_op_swiglu = {
    .info = {.name = "swiglu",
             .brief = "gated activations (SwiGLU and its kin), forward",
             .doc = "c = activation(a * gate_multiplier) * b * down_multiplier, in f32, rounded to the storage type "
                    "after the activation and after each product; float64 in double, on the processor alone.",
             .tensors = tensors,
             .n_tensors = QN_SWIGLU_ROLES,
             .types = types,
             .n_types = sizeof types / sizeof types[0],
             QN_OP_PARAMS(params_table, qn_swiglu_params, QN_SWIGLU_DEFAULTS),
             .agreement = QN_BITWISE,
             .oracle_ranged = 1,
             .oracle_units = 16,
             .oracle_roundings = 5, /* three, and an earlier one may be of a step twice as large for its value */
             .operations = 32},
    QN_SWIGLU_OF_OP(swiglu),
};

#define ROLES                                                                                                          \
  {                                                                                                                    \
    [QN_SWIGLU_C] = c, [QN_SWIGLU_A] = a, [QN_SWIGLU_B] = b                                                            \
  }

qn_status qn_swiglu_step(const qn_exec *exec, const qn_swiglu_params *params, size_t n, const qn_tensor *c,
                         const qn_tensor *a, const qn_tensor *b)
{
  const qn_tensor *const roles[QN_MAX_TENSORS] = ROLES;
  return qn_op_step(&qn_op_swiglu.info, exec, params, n, roles);
}

qn_status qn_swiglu_prepare(const qn_exec *exec, const qn_swiglu_params *params, size_t n, const qn_tensor *c,
                            const qn_tensor *a, const qn_tensor *b)
{
  const qn_tensor *const roles[QN_MAX_TENSORS] = ROLES;
  return qn_op_prepare(&qn_op_swiglu.info, exec, params, n, roles);
}
