/* SPDX-License-Identifier: Apache-2.0 */
/* small_fc_lopt.c - the description of small_fc_lopt, from which checks, benches and the command are made, and the
 * calls of quern/small_fc_lopt.h, which are names over the engine of learned optimizers (op/lopt/lopt.c). */
#include "quern/small_fc_lopt.h"
#include "op/lopt/lopt.h"

#define NUMBER(member, doc, least) QN_LOPT_NUMBER(qn_small_fc_lopt_params, member, doc, least)
static const qn_op_param params_table[] = {
    QN_LOPT_LIVE(qn_small_fc_lopt_params, lr, "learning rate"),
    NUMBER(step_mult, "what every step is multiplied by", -HUGE_VAL),
    NUMBER(exp_mult, "factor of the magnitude in the exponent of e", -HUGE_VAL),
    QN_LOPT_LIVE(qn_small_fc_lopt_params, weight_decay, "decoupled weight decay, behind the step"),
    NUMBER(max_grad_norm, "bound of each tensor's gradient's norm; 0: none", 0),
    QN_LOPT_DECAYS(qn_small_fc_lopt_params),
    QN_LOPT_LAST_ROWS(qn_small_fc_lopt_params),
};
#undef NUMBER

static qn_lopt_step step_of(const void *of)
{
  const qn_small_fc_lopt_params *params = of;
  return (qn_lopt_step){QN_LOPT_OF_STEP(params), QN_LOPT_OF_SMALL_FC(params), .step_mult = params->step_mult,
                        .max_grad_norm = params->max_grad_norm};
}

static const qn_lopt_op op = QN_LOPT_SMALL_FC_OP(qn_small_fc_lopt_params);

const qn_op qn_op_small_fc_lopt = {
    .info =
        {.name = "small_fc_lopt",
         .brief = "the learned optimizer AdafacLO / MuLO: a small network moves every element",
         .doc =
             "AdafacLO / MuLO: p = p - lr step_mult direction e^(exp_mult magnitude), then p = p - weight_decay lr p; "
             "direction and magnitude are what a network of 39 inputs and two layers of 32 makes of the "
             "gradient's means, of its square's and of theirs along the two largest dimensions.",
         QN_LOPT_OF_INFO,
         QN_OP_PARAMS(params_table, qn_small_fc_lopt_params, QN_SMALL_FC_LOPT_DEFAULTS),
         .hyper_bytes = sizeof(qn_lopt_hyper)},
    .engine = &qn_lopt_engine,
    .of_engine = &op,
    .check = qn_lopt_check_small_fc,
    .device_source = "op/lopt/lopt.update.cu", /* of several: small_fc_lopt.check.c has all */
};

qn_status qn_small_fc_lopt_step(const qn_exec *exec, const qn_small_fc_lopt_params *params, size_t n,
                                const qn_tensor *param, const qn_tensor *grad, const qn_tensor *m, const qn_tensor *v,
                                const qn_tensor *row, const qn_tensor *column)
{
  const qn_tensor *const roles[QN_MAX_TENSORS] = {param, grad, m, v, row, column};
  return qn_op_step(&qn_op_small_fc_lopt.info, exec, params, n, roles);
}

size_t qn_small_fc_lopt_workspace_bytes(size_t n, const qn_tensor *param)
{
  return qn_lopt_workspace_of(&qn_op_small_fc_lopt, NULL, n, param);
}

size_t qn_small_fc_lopt_shards_workspace_bytes(const qn_lopt_shards *shards, size_t n, const qn_tensor *param)
{
  return qn_lopt_workspace_of(&qn_op_small_fc_lopt, shards, n, param);
}
