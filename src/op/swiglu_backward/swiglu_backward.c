/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_backward.c - the backward's description and the typed calls of quern/swiglu_backward.h. */
#include "quern/swiglu_backward.h"
#include "op/op.h"
#include "op/swiglu/swiglu.h"
#include "op/swiglu_backward/swiglu_backward.math.h"
#include <math.h>
#include <stddef.h>

QN_CPU_DECLARE(swiglu_backward, qn_cpu_fn);

QN_SWIGLU_PARAMS_BEGIN(qn_swiglu_backward_params);
_Static_assert(sizeof(qn_swiglu_backward_params) == sizeof(qn_swiglu_params),
               "the backward's params are the forward's");

static const qn_op_tensor tensors[] = {
    [QN_SWIGLU_BACKWARD_DC] = {"dc", "grad_out", "the loss's gradient with respect to c", QN_FILL_MODERATE, 1,
                               .storage = QN_STORAGE_ROWS},
    [QN_SWIGLU_BACKWARD_A] = {"a", "gate", "the gate's half; its gradient where da is not given", QN_FILL_MODERATE, 2,
                              .storage = QN_STORAGE_ROWS},
    [QN_SWIGLU_BACKWARD_B] = {"b", "up", "the other half; its gradient where db is not given", QN_FILL_MODERATE, 1,
                              .storage = QN_STORAGE_ROWS},
    [QN_SWIGLU_BACKWARD_DA] = {"da", "grad_gate", "optional: the gradient with respect to a", QN_FILL_MODERATE, 1,
                               .storage = QN_STORAGE_ROWS},
    [QN_SWIGLU_BACKWARD_DB] = {"db", "grad_up", "optional: the gradient with respect to b", QN_FILL_MODERATE, 1,
                               .storage = QN_STORAGE_ROWS},
};

static const qn_op_types types[] = {
#define X(t, access, d, d_access)                                                                                      \
  {{{QN_##t, QN_READ}, {QN_##t, QN_##access}, {QN_##t, QN_##access}, {QN_##d, QN_##d_access}, {QN_##d, QN_##d_access}}},
    QN_SWIGLU_BACKWARD_ROWS(X) QN_SWIGLU_BACKWARD_DOUBLE_ROWS(X)
#undef X
};

static const qn_op_param params_table[] = {QN_SWIGLU_PARAMS(qn_swiglu_backward_params)};

static uint32_t flags(const void *params, size_t row)
{
  const qn_swiglu_backward_params *p = params;
  (void)row;
  return (uint32_t)p->activation | ((float)p->gate_multiplier != 1 ? QN_SWIGLU_SCALED : 0);
}

const qn_op qn_op_swiglu_backward = {
    .info = {.name = "swiglu_backward",
             .brief = "gated activations (SwiGLU and its kin), backward",
             .doc =
                 "The gradients of swiglu with respect to a and b, recomputed from both; apart, or written over them. "
                 "float64 in double, on the processor alone.",
             .tensors = tensors,
             .n_tensors = QN_SWIGLU_BACKWARD_ROLES,
             .types = types,
             .n_types = sizeof types / sizeof types[0],
             QN_OP_PARAMS(params_table, qn_swiglu_backward_params, QN_SWIGLU_BACKWARD_DEFAULTS),
             .agreement = QN_BITWISE,
             .oracle_ranged = 1,
             .oracle_units = 32,
             .operations = 37},
    QN_SWIGLU_OF_OP(swiglu_backward),
};

#define ROLES                                                                                                          \
  {                                                                                                                    \
    [QN_SWIGLU_BACKWARD_DC] = dc, [QN_SWIGLU_BACKWARD_A] = a, [QN_SWIGLU_BACKWARD_B] = b,                              \
    [QN_SWIGLU_BACKWARD_DA] = da, [QN_SWIGLU_BACKWARD_DB] = db                                                         \
  }

qn_status qn_swiglu_backward_step(const qn_exec *exec, const qn_swiglu_backward_params *params, size_t n,
                                  const qn_tensor *dc, const qn_tensor *a, const qn_tensor *b, const qn_tensor *da,
                                  const qn_tensor *db)
{
  const qn_tensor *const roles[QN_MAX_TENSORS] = ROLES;
  return qn_op_step(&qn_op_swiglu_backward.info, exec, params, n, roles);
}

qn_status qn_swiglu_backward_prepare(const qn_exec *exec, const qn_swiglu_backward_params *params, size_t n,
                                     const qn_tensor *dc, const qn_tensor *a, const qn_tensor *b, const qn_tensor *da,
                                     const qn_tensor *db)
{
  const qn_tensor *const roles[QN_MAX_TENSORS] = ROLES;
  return qn_op_prepare(&qn_op_swiglu_backward.info, exec, params, n, roles);
}
