/* SPDX-License-Identifier: Apache-2.0 */
/* elo.check.c - what elo brings for checks: its reference in double, cases, and units of device sources. */
#include "quern/elo.h"
#include "op/lopt/check.h"

static qn_status reference(const void *params, size_t n, const qn_tensor *const *tensors,
                           double *const *const data[QN_MAX_TENSORS])
{
  const qn_lopt_step step = qn_lopt_step_of(&qn_op_elo, params);
  return qn_lopt_reference(&step, n, tensors[QN_LOPT_PARAM], data);
}

static const qn_shaped_size cases[] = {
    QN_LOPT_CASES(" lr=0.03"), /* the default moves parameters by less than tolerances tell */
    {"multipliers", "40x33 90 lr=0.3 exp_mult=0.5 weight_decay=0.2 step=7"},
    {NULL, NULL},
};

#define SETTINGS QN_LOPT_SET(1, 1, 1, 1, 1)
static const qn_shaped_unit units[] = {QN_LOPT_ALL(SETTINGS, QN_LOPT_OTHER_PHASE),
                                       {QN_LOPT_UPDATE(0, 0, 256, SETTINGS), NULL},
                                       {QN_LOPT_UPDATE(3, 1, 384, SETTINGS), "sm_90a"},
                                       {NULL, NULL, NULL}};

static const qn_ruled_check ruled = {QN_LOPT_OF_CHECK};

const qn_op_check qn_check_elo = {.ruled = &ruled};
