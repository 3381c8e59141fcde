/* SPDX-License-Identifier: Apache-2.0 */
/* elo.c - the description of elo, by which params are checked, and the calls of quern/elo.h, which are names over the
 * engine of learned optimizers (op/lopt/lopt.c). */
#include "quern/elo.h"
#include "op/lopt/lopt.h"

static const qn_op_param params_table[] = {
    QN_LOPT_LIVE(qn_elo_params, lr, "learning rate", 0.001),
    QN_LOPT_NUMBER(qn_elo_params, exp_mult, "what the magnitude is multiplied by in its power of e", 0.001, -HUGE_VAL),
    QN_LOPT_LIVE(qn_elo_params, weight_decay, "decoupled weight decay, of the parameter before the step", 0),
    QN_LOPT_DECAYS(qn_elo_params, QN_ELO_DECAYS),
    QN_LOPT_LAST_ROWS(qn_elo_params),
    QN_LOPT_DEVICE_ROWS(qn_elo_params),
};

static const qn_op op = {
    .info = {.name = "elo",
             .brief = "the learned optimizer ELO: small_fc_lopt with plain decays and its own update",
             QN_LOPT_OF_INFO,
             .params = params_table,
             .n_params = sizeof params_table / sizeof params_table[0],
             .params_bytes = sizeof(qn_elo_params),
             .hyper_bytes = sizeof(qn_lopt_hyper)},
};

qn_status qn_elo_step(const qn_exec *exec, const qn_elo_params *params, size_t n, const qn_tensor *param,
                      const qn_tensor *grad, const qn_tensor *m, const qn_tensor *v, const qn_tensor *row,
                      const qn_tensor *column)
{
  const qn_tensor *const roles[QN_LOPT_ROLES] = {param, grad, m, v, row, column};
  qn_list list = {.op = &op, .exec = exec, .params = params, .n = n};
  qn_try(qn_check_exec_and_params(&list));
  const qn_lopt_step step = {QN_LOPT_OF_STEP(params), QN_LOPT_OF_DEVICE(params), .elo = true};
  return qn_lopt_run(&list, &step, roles);
}

size_t qn_elo_workspace_bytes(size_t n, const qn_tensor *param) { return qn_lopt_workspace_of(&op, NULL, n, param); }

size_t qn_elo_shards_workspace_bytes(const qn_lopt_shards *shards, size_t n, const qn_tensor *param)
{
  return qn_lopt_workspace_of(&op, shards, n, param);
}
