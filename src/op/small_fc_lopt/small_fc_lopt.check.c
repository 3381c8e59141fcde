/* SPDX-License-Identifier: Apache-2.0 */
/* small_fc_lopt.check.c - what small_fc_lopt brings for checks: its reference in double, cases, and units of device
 * sources. */
#include "quern/small_fc_lopt.h"
#include "op/lopt/check.h"
#include "op/lopt/meta.train.h"

static qn_status reference(const qn_reference *r) { return qn_lopt_refer(&qn_op_small_fc_lopt, r); }

static const qn_check_text cases[] = {
    QN_LOPT_CASES(""),
    {"a norm's bound", "40x33 90 8x6x3x3 max_grad_norm=0.001 steps=2"},
    {"norms that are no numbers", "40x33 90 77 8x6x3x3 grad[0]=nan grad[1]=inf grad[2]=1e30 max_grad_norm=0.5"},
    {"multipliers", "40x33 90 step_mult=0.3 exp_mult=0.5 weight_decay=0.2 step=7"},
    {NULL, NULL},
};

#define SETTINGS QN_LOPT_SET(0, 0, 0, 0, 0)
#define QN_LOPT_META "op/lopt/meta.cu", QN_LOPT_DEFINES(SETTINGS, "QN_LOPT_PRECISION=2")
static const qn_device_unit units[] = {QN_LOPT_ALL(SETTINGS, QN_LOPT_FIRST_PHASE),
                                       {QN_LOPT_UPDATE(0, 0, 256, SETTINGS), NULL},
                                       {QN_LOPT_UPDATE(3, 0, 256, SETTINGS), "sm_80"},
                                       {QN_LOPT_UPDATE(1, 0, 256, SETTINGS), "sm_90a"},
                                       {QN_LOPT_UPDATE(2, 1, 384, SETTINGS), "sm_90a"},
                                       {QN_LOPT_UPDATE(3, 1, 384, SETTINGS), "sm_90a"},
                                       {QN_LOPT_UPDATE(4, 0, 384, SETTINGS), "sm_90a"},
                                       {QN_LOPT_UPDATE(3, 0, 256, SETTINGS), "sm_120"},
                                       {QN_LOPT_OF_CLASS("first_layer", 3, SETTINGS, NULL), "sm_80"},
                                       {QN_LOPT_OF_CLASS("first_layer", 3, SETTINGS, NULL), "sm_90a"},
                                       {QN_LOPT_OF_CLASS("first_layer", 4, SETTINGS, NULL), "sm_90a"},
                                       {QN_LOPT_META, "sm_80"},
                                       {QN_LOPT_META, "sm_90a"},
                                       {QN_LOPT_META, "sm_120"},
                                       {NULL, NULL, NULL}};

const qn_op_check qn_check_small_fc_lopt = {
    QN_LOPT_OF_CHECK, .meta_train = qn_lopt_meta_train, .meta = &qn_meta_small_fc,
    .sample = "40x33 90 step_mult=0.3 exp_mult=0.5 weight_decay=0.2 step=7 lr_scale filled"};
