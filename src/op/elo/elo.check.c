/* SPDX-License-Identifier: Apache-2.0 */
/* elo.check.c - what elo brings for checks: its reference in double, cases, and units of device sources. */
#include "quern/elo.h"
#include "op/lopt/check.h"
#include "op/lopt/meta.train.h"

static qn_status reference(const qn_reference *r) { return qn_lopt_refer(&qn_op_elo, r); }

static const qn_check_text cases[] = {
    QN_LOPT_CASES(" lr=0.03"), /* the default moves parameters by less than tolerances tell */
    {"multipliers", "40x33 90 lr=0.3 exp_mult=0.5 weight_decay=0.2 step=7"},
    {NULL, NULL},
};

#define SETTINGS QN_LOPT_SET(1, 1, 1, 1, 1)
static const qn_device_unit units[] = {QN_LOPT_ALL(SETTINGS, QN_LOPT_OTHER_PHASE),
                                       {QN_LOPT_UPDATE(0, 0, 256, SETTINGS), NULL},
                                       {QN_LOPT_UPDATE(3, 1, 384, SETTINGS), "sm_90a"},
                                       {"op/lopt/meta.cu", QN_LOPT_DEFINES(SETTINGS, "QN_LOPT_PRECISION=2"), "sm_90a"},
                                       {NULL, NULL, NULL}};

const qn_op_check qn_check_elo = {QN_LOPT_OF_CHECK, .meta_train = qn_lopt_meta_train, .meta = &qn_meta_small_fc,
                                  .sample = "40x33 90 lr=0.3 exp_mult=0.5 weight_decay=0.2 step=7 lr_scale filled"};
