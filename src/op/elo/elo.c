/* SPDX-License-Identifier: Apache-2.0 */
/* elo.c - the description of elo, by which params are checked, and the calls of quern/elo.h, which are names over the
 * engine of learned optimizers (op/lopt/lopt.c). */
#include "quern/elo.h"
#include "op/lopt/lopt.h"
#include <math.h>
#include <stddef.h>

#define AT(member) offsetof(qn_elo_params, member)
#define DECAY(member, of, value)                                                                                       \
  {                                                                                                                    \
#member, "what a mean of " of " keeps", QN_PARAM_DOUBLE, AT(member), value, 0, 1, 1, NULL, 0                       \
  }
static const qn_op_param params_table[] = {
    {"lr", "learning rate", QN_PARAM_DOUBLE, AT(lr), 0.001, 0, HUGE_VAL, 0, NULL, 0},
    {"exp_mult", "what the magnitude is multiplied by in its power of e", QN_PARAM_DOUBLE, AT(exp_mult), 0.001,
     -HUGE_VAL, HUGE_VAL, 0, NULL, 0},
    {"weight_decay", "decoupled weight decay, of the parameter before the step", QN_PARAM_DOUBLE, AT(weight_decay), 0,
     0, HUGE_VAL, 0, NULL, 0},
    DECAY(m_decay0, "the gradient", 0.9),
    DECAY(m_decay1, "the gradient", 0.99),
    DECAY(m_decay2, "the gradient", 0.999),
    DECAY(v_decay, "its square", 0.999),
    DECAY(factor_decay0, "its square's means", 0.9),
    DECAY(factor_decay1, "its square's means", 0.99),
    DECAY(factor_decay2, "its square's means", 0.999),
    {"step", "steps taken before this one", QN_PARAM_U64, AT(step), 0, 0, HUGE_VAL, 0, NULL, 0},
    {"pylo_cuda_compat", "as PyLO's CUDA code", QN_PARAM_BOOL, AT(pylo_cuda_compat), 0, 0, 1, 0, NULL, 0},
};
#undef AT
#undef DECAY

static const qn_op op = {
    .info = {.name = "elo",
             .brief = "the learned optimizer ELO: small_fc_lopt with plain decays and its own update",
             .tensors = qn_lopt_tensors,
             .n_tensors = QN_LOPT_ROLES,
             .types = qn_lopt_types,
             .n_types = 1,
             .params = params_table,
             .n_params = sizeof params_table / sizeof params_table[0],
             .params_bytes = sizeof(qn_elo_params)},
};

qn_status qn_elo_step(const qn_exec *exec, const qn_elo_params *params, size_t n, const qn_tensor *param,
                      const qn_tensor *grad, const qn_tensor *m, const qn_tensor *v, const qn_tensor *row,
                      const qn_tensor *column)
{
  const qn_tensor *const roles[QN_LOPT_ROLES] = {param, grad, m, v, row, column};
  qn_list list = {.op = &op, .exec = exec, .params = params, .n = n};
  qn_try(qn_check_exec_and_params(&list));
  const qn_lopt_step step = {.m = {params->m_decay0, params->m_decay1, params->m_decay2},
                             .v = params->v_decay,
                             .f = {params->factor_decay0, params->factor_decay1, params->factor_decay2},
                             .lr = params->lr,
                             .exp_mult = params->exp_mult,
                             .weight_decay = params->weight_decay,
                             .lr_scale = params->lr_scale,
                             .weights = params->weights,
                             .step = params->step,
                             .elo = true,
                             .compat = params->pylo_cuda_compat};
  return qn_lopt_run(&list, &step, roles);
}

size_t qn_elo_workspace_bytes(size_t n, const qn_tensor *param) { return qn_lopt_workspace_of(&op, n, param); }
