/* SPDX-License-Identifier: Apache-2.0 */
/* small_fc_lopt.c - the description of small_fc_lopt, by which params are checked, and the calls of
 * quern/small_fc_lopt.h, which are names over the engine of learned optimizers (op/lopt/lopt.c). */
#include "quern/small_fc_lopt.h"
#include "op/lopt/lopt.h"
#include <math.h>
#include <stddef.h>

#define AT(member) offsetof(qn_small_fc_lopt_params, member)
#define DECAY(member, of, value)                                                                                       \
  {                                                                                                                    \
#member, "what a mean of " of " keeps", QN_PARAM_DOUBLE, AT(member), value, 0, 1, 1, NULL, 0                       \
  }
static const qn_op_param params_table[] = {
    {"lr", "learning rate", QN_PARAM_DOUBLE, AT(lr), 1.0, 0, HUGE_VAL, 0, NULL, 0},
    {"step_mult", "what every step is multiplied by", QN_PARAM_DOUBLE, AT(step_mult), 0.01, -HUGE_VAL, HUGE_VAL, 0,
     NULL, 0},
    {"exp_mult", "what the magnitude is multiplied by in its power of e", QN_PARAM_DOUBLE, AT(exp_mult), 0.001,
     -HUGE_VAL, HUGE_VAL, 0, NULL, 0},
    {"weight_decay", "decoupled weight decay, behind the step", QN_PARAM_DOUBLE, AT(weight_decay), 0, 0, HUGE_VAL, 0,
     NULL, 0},
    {"max_grad_norm", "bound of each tensor's gradient's norm; 0: none", QN_PARAM_DOUBLE, AT(max_grad_norm), 0, 0,
     HUGE_VAL, 0, NULL, 0},
    DECAY(m_decay0, "the gradient", 0.5420273867229054),
    DECAY(m_decay1, "the gradient", 0.9584413246306187),
    DECAY(m_decay2, "the gradient", 0.9980235618709026),
    DECAY(v_decay, "its square", 0.9988859850071358),
    DECAY(factor_decay0, "its square's means", 0.35621824044756223),
    DECAY(factor_decay1, "its square's means", 0.9966259169686501),
    DECAY(factor_decay2, "its square's means", 0.9994612775091849),
    {"step", "steps taken before this one", QN_PARAM_U64, AT(step), 0, 0, HUGE_VAL, 0, NULL, 0},
    {"pylo_cuda_compat", "as PyLO's CUDA code", QN_PARAM_BOOL, AT(pylo_cuda_compat), 0, 0, 1, 0, NULL, 0},
};
#undef AT
#undef DECAY

static const qn_op op = {
    .info = {.name = "small_fc_lopt",
             .brief = "the learned optimizer AdafacLO / MuLO: a small network moves every element",
             .tensors = qn_lopt_tensors,
             .n_tensors = QN_LOPT_ROLES,
             .types = qn_lopt_types,
             .n_types = 1,
             .params = params_table,
             .n_params = sizeof params_table / sizeof params_table[0],
             .params_bytes = sizeof(qn_small_fc_lopt_params)},
};

qn_status qn_small_fc_lopt_step(const qn_exec *exec, const qn_small_fc_lopt_params *params, size_t n,
                                const qn_tensor *param, const qn_tensor *grad, const qn_tensor *m, const qn_tensor *v,
                                const qn_tensor *row, const qn_tensor *column)
{
  const qn_tensor *const roles[QN_LOPT_ROLES] = {param, grad, m, v, row, column};
  qn_list list = {.op = &op, .exec = exec, .params = params, .n = n};
  qn_try(qn_check_exec_and_params(&list));
  const qn_lopt_step step = {.m = {params->m_decay0, params->m_decay1, params->m_decay2},
                             .v = params->v_decay,
                             .f = {params->factor_decay0, params->factor_decay1, params->factor_decay2},
                             .lr = params->lr,
                             .step_mult = params->step_mult,
                             .exp_mult = params->exp_mult,
                             .weight_decay = params->weight_decay,
                             .max_grad_norm = params->max_grad_norm,
                             .lr_scale = params->lr_scale,
                             .weights = params->weights,
                             .step = params->step,
                             .compat = params->pylo_cuda_compat};
  return qn_lopt_run(&list, &step, roles);
}

size_t qn_small_fc_lopt_workspace_bytes(size_t n, const qn_tensor *param)
{
  return qn_lopt_workspace_of(&op, n, param);
}
