/* SPDX-License-Identifier: Apache-2.0 */
/* role.c - the rules by which the shapes of learned optimizers' roles follow from a parameter's. */
#include "op/lopt/lopt.h"

const char *const qn_lopt_rules[QN_LOPT_ROLES] = {
    [QN_LOPT_PARAM] = "s",
    [QN_LOPT_GRAD] = "s",
    [QN_LOPT_M] = "(3, s)",
    [QN_LOPT_V] = "s",
    [QN_LOPT_ROW] = "(3, s without its largest dimension), (3, s) of fewer than two",
    [QN_LOPT_COLUMN] = "(3, s without its second largest dimension), (0) of fewer than two",
};

int qn_lopt_role_shape(size_t role, size_t n, int ndim, const int64_t *shape, int64_t *role_shape)
{
  static const qn_lopt_state state[QN_LOPT_ROLES] = {QN_LOPT_STATE_V, QN_LOPT_STATE_V,   QN_LOPT_STATE_M,
                                                     QN_LOPT_STATE_V, QN_LOPT_STATE_ROW, QN_LOPT_STATE_COLUMN};
  (void)n;
  return qn_lopt_shape(QN_LOPT_TIES_LATER, state[role], ndim, shape, -1, role_shape);
}
