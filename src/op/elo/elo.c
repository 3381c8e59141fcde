/* SPDX-License-Identifier: Apache-2.0 */
/* elo.c - the description of elo, from which checks, benches and the command are made, and the calls of quern/elo.h,
 * which are names over the engine of learned optimizers (op/lopt/lopt.c). */
#include "quern/elo.h"
#include "op/lopt/lopt.h"

static const qn_op_param params_table[] = {
    QN_LOPT_LIVE(qn_elo_params, lr, "learning rate"),
    QN_LOPT_NUMBER(qn_elo_params, exp_mult, "factor of the magnitude in the exponent of e", -HUGE_VAL),
    QN_LOPT_LIVE(qn_elo_params, weight_decay, "decoupled weight decay, of the parameter before the step"),
    QN_LOPT_DECAYS(qn_elo_params),
    QN_LOPT_LAST_ROWS(qn_elo_params),
};

static qn_lopt_step step_of(const void *of)
{
  const qn_elo_params *params = of;
  return (qn_lopt_step){QN_LOPT_OF_STEP(params), QN_LOPT_OF_SMALL_FC(params), .gradient = QN_LOPT_NUMBERS,
                        .joint_decay = true};
}

static const qn_lopt_op op = QN_LOPT_SMALL_FC_OP(qn_elo_params);

const qn_op qn_op_elo = {
    .info = {.name = "elo",
             .brief = "the learned optimizer ELO: small_fc_lopt with plain decays and its own update",
             .doc = "p = p - lr (direction e^(exp_mult magnitude) + weight_decay p), of small_fc_lopt's network, whose "
                    "state and inputs it has too; NaN gradients count as 0.",
             QN_LOPT_OF_INFO,
             QN_OP_PARAMS(params_table, qn_elo_params, QN_ELO_DEFAULTS),
             .hyper_bytes = sizeof(qn_lopt_hyper)},
    .engine = &qn_lopt_engine,
    .of_engine = &op,
    .check = qn_lopt_check_small_fc,
    .device_source = "op/lopt/lopt.update.cu", /* of several: elo.check.c has all */
};

qn_status qn_elo_step(const qn_exec *exec, const qn_elo_params *params, size_t n, const qn_tensor *param,
                      const qn_tensor *grad, const qn_tensor *m, const qn_tensor *v, const qn_tensor *row,
                      const qn_tensor *column)
{
  const qn_tensor *const roles[QN_MAX_TENSORS] = {param, grad, m, v, row, column};
  return qn_op_step(&qn_op_elo.info, exec, params, n, roles);
}

size_t qn_elo_workspace_bytes(size_t n, const qn_tensor *param)
{
  return qn_lopt_workspace_of(&qn_op_elo, NULL, n, param);
}

size_t qn_elo_shards_workspace_bytes(const qn_lopt_shards *shards, size_t n, const qn_tensor *param)
{
  return qn_lopt_workspace_of(&qn_op_elo, shards, n, param);
}
