/* SPDX-License-Identifier: Apache-2.0 */
/* velo.check.c - what VeLO brings for checks beside its reference in double (reference.c): cases, and units of device
 * sources. */
#include "op/lopt/check.h"
#include "op/velo/reference.h"

/* All that small_fc_lopt's cases are for, and: losses that are no numbers, or are above twice their means; parameters
 * of zero, all of them or one tensor's; gradients that are clipped; NaN in the first tensor, in the middle and in the
 * last, which reaches all; one step that is the whole training; more tensors than a lane has columns. Where lr is large
 * it is because the default moves parameters by less than tolerances tell. */
static const qn_check_text cases[] = {
    {"every rank",
     "- 1 0 1500 1x1 0x7 1x768 24x24 3x20x65 12x8x3x3 8x8x5x5 6x3x8x8 2x3x4x1x5 1x1x9x1x1 11 13 17 lr=10 steps=2"},
    {"long runs, more than a chunk",
     "130x67 67x130 2x2100 2100x2 16500 12x9x7x7 10x40x3x3 5x60x4 weight_decay=0.01 lr=10"},
    {"factors of the learning rate", "12x7 9 33x40 lr_scale lr=10"},
    {"gradients of zero", "40x33 90 8x6x3x3 gradients=0 lr=10 steps=2"},
    {"tiny gradients", "40x33 90 8x6x3x3 gradients=1e-30 lr=10 steps=2"},
    {"small gradients", "40x33 90 8x6x3x3 gradients=1e-12 lr=10 steps=2"},
    {"NaN in the first", "12x7 90 8x6x3x3 param[0]=nan filled"},
    {"clipped gradients", "40x33 90 8x6x3x3 gradients=1e4 lr=10"},
    {"huge gradients", "40x33 90 8x6x3x3 gradients=1e30 lr=10"},
    {"NaN in the middle", "12x7 90 8x6x3x3 m[1]=nan filled"},
    {"NaN in the last", "12x7 90 8x6x3x3 v[2]=nan filled"},
    {"parameters of zero", "33x20 40 params=0 lr=10000"},
    {"a tensor of zeros", "33x20 40 7 params=0.001 param[1,*]=0 lr=10000"},
    {"the middle of a run", "40x50 77 6x5x3x3 10x40x3x3 5x60x4 filled num_steps=2000 step=1990 lr=10 steps=2"},
    {"its end, and past it", "33x20 40 num_steps=1 lr=10 steps=2"},
    {"no numbers", "40x33 90 8x6x3x3 11 grad[0]=nan grad[1]=inf grad[2]=-inf lr=10"},
    {"a loss above twice its means", "33x20 40 filled loss=30 lr=10"},
    {"a loss below zero", "33x20 40 loss=-7 lr=10 steps=2"},
    {"a loss that is NaN", "33x20 40 filled loss=nan"},
    {"an infinite loss", "33x20 40 filled loss=-inf"},
    {"means that are NaN", "33x20 40 filled loss_buffer[0,3]=nan"},
    {"infinite parameters", "12x7 90 7 param[1]=inf"},
    {"no elements", "0x3 0 filled"},
    {"other decays", "33x20 40 m_decay0=0 m_decay1=0.5 m_decay2=0.7 v_decay=0.3 factor_decay0=0 factor_decay1=0.5 "
                     "factor_decay2=0.8 lr=10 steps=2"},
    {"params in device memory", "33x20 40 lr=10 weight_decay=0.01 step=9 hyper"},
    {"equal dimensions, as JAX has them", "24x24 5x3x5 8x8x5x5 3x3x3x3 6x3x8x8 9x1x9x1x9 7 ties=jax lr=10 steps=2"},
    {"as PyLO's CUDA code", "33x20 40 7x5 20x64 6x5x3x3 - pylo_cuda_compat=1 weight_decay=0.1 lr=10"},
    {"gradients that the summaries show", "40x33 90 8x6x3x3 gradients=10 lr=10 steps=2"},
    {"multipliers", "40x33 90 8x6x3x3 step_mult=0.1 exp_mult=0.05 weight_decay=0.2 step=7"},
    {NULL, NULL},
};

/* A tensor's: the LSTM, its heads, and the mixing of 256 banks. */
#define TENSOR_OPERATIONS                                                                                              \
  (2.0 * (4 * 512 * 1024 + 2 * 512 * 30 + QN_VELO_BANKS * 512 + 512 + QN_VELO_BANKS * QN_VELO_BANK))

#define UNIT(name, compat, ...)                                                                                        \
  "op/velo/velo." name ".cu", QN_LOPT_DEFINES(QN_LOPT_SET(2, 0, compat, 0, 0), __VA_ARGS__), NULL
static const qn_device_unit units[] = {{UNIT("list", 0, QN_LOPT_FIRST_PHASE)},
                                       {UNIT("tiles", 0, QN_LOPT_FIRST_PHASE)},
                                       {UNIT("tiles", 1, QN_LOPT_OTHER_PHASE)},
                                       {UNIT("elements", 0, QN_LOPT_FIRST_PHASE)},
                                       {UNIT("elements", 1, QN_LOPT_OTHER_PHASE)},
                                       {UNIT("factors", 0, QN_LOPT_FIRST_PHASE)},
                                       {UNIT("sums", 0, QN_LOPT_FIRST_PHASE)},
                                       {UNIT("shards", 0, QN_LOPT_FIRST_PHASE)},
                                       {NULL, NULL, NULL}};

static void far(qn_trial *trial) { qn_lopt_check_far(trial, &qn_lopt_velo[0]); }

static qn_status reference(const qn_reference *r)
{
  qn_try(qn_velo_reference(r->call->params, r->call->n, r->call->tensors, r->value));
  qn_lopt_allow(r, qn_velo_allowed);
  return QN_OK;
}

static double operations(const qn_call *call) { return (double)call->n * TENSOR_OPERATIONS; }

const qn_op_check qn_check_velo = {
    .random_weights = qn_velo_make,
    .required_params = "num_steps=200",
    .initial_state = qn_velo_begin,
    .reference = reference,
    .operations = operations,
    .cases = cases,
    .sample = "40x33 90 8x6x3x3 step_mult=0.1 exp_mult=0.05 weight_decay=0.2 step=7 lr_scale filled",
    .units = units,
    .domain = QN_LOPT_DOMAIN,
    .far = far};
