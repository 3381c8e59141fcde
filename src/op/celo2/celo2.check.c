/* SPDX-License-Identifier: Apache-2.0 */
/* celo2.check.c - what CELO2 brings for checks beside its reference in double (reference.c): cases, and how far a
 * parameter may be from it. */
#include "core/core.h"
#include "op/celo2/reference.h"
#include "op/lopt/check.h"
#include "op/lopt/meta.train.h"

/* A matrix's move has the error of the network's outputs, some 1e-6 of their root mean square as in the other learned
 * optimizers, times what making it orthogonal does to what is small in it: at most 3.4445 a round, which of a matrix
 * with one large singular value stays beside it. The products of a looser class add the rounding of their operands in
 * each round, which is seen as that of bf16 2^-9, of tf32 2^-12 and of bf16x3 2^-17, over 2.5. */
#define GROWTH (3.4445 * 3.4445 * 3.4445 * 3.4445 * 3.4445)
static const double of_output[] = {
    [QN_PRECISION_FP32] = 1e-6,   [QN_PRECISION_TF32] = 1e-4, [QN_PRECISION_BF16X3] = 4e-6,
    [QN_PRECISION_TF32X3] = 1e-6, [QN_PRECISION_BF16] = 8e-4, [QN_PRECISION_F16X3] = 1e-6};

/* The processor has one class of products. */
static const char *variation(qn_device_kind kind, size_t row, size_t k)
{
  static const char *const all[] = {
      "", "precision=fp32", "precision=tf32", "precision=bf16x3", "precision=tf32x3", "precision=bf16", NULL};
  (void)row;
  return kind == QN_CPU && k ? NULL : all[k];
}

static qn_status reference(const qn_reference *r)
{
  const qn_celo2_params *params = r->call->params;
  double *moved;
  qn_try(qn_try_allocate(&moved, (r->call->n + 1) * sizeof *moved, "the reference"));
  const qn_status status = qn_celo2_reference(params, r->call->n, r->call->tensors[QN_LOPT_PARAM], r->value, moved);
  if (status == QN_OK) qn_lopt_allow(r, qn_lopt_allowed);
  for (size_t k = 0; k < r->call->n && status == QN_OK && params->orthogonalize; k++) {
    const size_t n = (size_t)qn_tensor_elements(&r->call->tensors[QN_LOPT_PARAM][k]);
    for (size_t i = 0; i < n; i++) r->allowed[QN_LOPT_PARAM][k][i] += of_output[params->precision] * GROWTH * moved[k];
  }
  qn_release(moved);
  return status;
}

/* Ranks from 0 to 5; matrices that are small, at the limit of that, and of several chunks; wide, tall and square ones;
 * d0 and d1 among the last two dimensions, before them, and one of each; gradients of zero, tiny, clamped, and that are
 * no numbers; the middle of a run. lr is large because the default moves parameters by less than tolerances tell. */
static const qn_check_text cases[] = {
    {"every rank",
     "- 1 0 1500 1x1 0x7 1x768 24x24 3x20x65 12x8x3x3 8x8x5x5 6x3x8x8 2x3x4x3x5 1x1x9x1x1 lr=0.1 steps=2"},
    {"small and large matrices", "16x32 22x23 23x23 19x27 27x19 2x3x26x20 3x2x20x26 lr=0.1"},
    {"batches of matrices", "2x64x96 3x96x64 64x48 48x64 40x96 96x40 5x23x24 64x96 16x40x24 24x40 lr=0.1"},
    {"matrices in bf16", "2x64x96 96x64 40x96 24x40 23x24 precision=bf16 lr=0.1"},
    {"several chunks", "130x67 67x130 2x70x65 4097x2 2x4097 9000 lr=0.1 weight_decay=0.1"},
    {"factors of the learning rate", "12x7 9 33x40 lr_scale lr=0.3 steps=2"},
    {"gradients of zero", "40x33 90 8x6x3x3 gradients=0 lr=0.1 steps=2"},
    {"tiny gradients", "40x33 90 8x6x3x3 gradients=1e-30 lr=0.1 steps=2"},
    {"small gradients", "40x33 90 8x6x3x3 gradients=1e-12 lr=0.1 steps=2"},
    {"large gradients", "40x33 90 8x6x3x3 gradients=1 lr=0.1 steps=2"},
    {"clamped gradients", "40x33 90 8x6x3x3 gradients=1e9 lr=0.1 steps=2"},
    {"no numbers", "40x33 90 8x6x3x3 91 grad[0]=nan grad[1]=nan grad[2,5]=nan grad[3]=-inf lr=0.1"},
    {"infinite gradients", "40x33 90 8x6x3x3 grad[0]=inf grad[1]=inf grad[2,5]=-inf lr=0.1"},
    {"parameters that are no numbers", "12x7 90 40x33 param[0]=nan param[1]=nan param[2]=inf filled"},
    {"the middle of a run", "40x50 77 6x5x3x3 10x40x3x3 5x60x4 filled step=2000 lr=0.1 steps=2"},
    {"the outputs as they are", "40x50 77 6x5x3x3 orthogonalize=0 exp_mult=0.1 lr=0.1 steps=2"},
    {"other decays",
     "33x20 40 40x33 m_decay0=0 m_decay1=0.5 m_decay2=0.7 v_decay=0.3 factor_decay0=0 factor_decay1=0.5 "
     "factor_decay2=0.8 adam_m_decay=0 adam_v_decay=0.5 lr=0.1 steps=3"},
    {"params in device memory", "33x20 40 lr=0.3 weight_decay=0.1 step=9 hyper steps=2"},
    {"equal dimensions, as JAX has them",
     "24x24 5x3x5 8x8x5x5 3x3x3x3 6x3x8x8 9x1x9x2x9 40x3x40 26x26x26 40x33 7 ties=jax lr=0.1 steps=2"},
    {"of AdamW alone", "90 7 adam_lr_mult=20 adam_weight_decay=0.1 adam_eps=1e-3 lr=0.03 steps=3"},
    {NULL, NULL},
};

#define UNIT(name)                                                                                                     \
  {                                                                                                                    \
    "op/celo2/celo2." name ".cu", QN_LOPT_DEFINES(QN_LOPT_SET(2, 0, 0, 1, 0), QN_LOPT_FIRST_PHASE), NULL               \
  }
static const qn_device_unit units[] = {UNIT("sums"),   UNIT("factors"), UNIT("elements"),
                                       UNIT("matrix"), UNIT("meta"),    {NULL, NULL, NULL}};

static const qn_meta_network network = {.source = "op/celo2/celo2.meta.cu",
                                        .kind = QN_LOPT_CELO2_MLP,
                                        .weights = QN_LOPT_CELO2_MLP_WEIGHTS,
                                        .orthogonal = true,
                                        .own_bytes = sizeof(qn_celo2_own)};

const qn_op_check qn_check_celo2 = {
    .meta_train = qn_lopt_meta_train,
    .meta = &network,
    .random_weights = qn_celo2_make,
    .reference = reference,
    .variation = variation,
    .cases = cases,
    .units = units,
    .sample = "40x33 90 8x6x3x3 lr=0.3 exp_mult=0.5 rms_mult=0.7 weight_decay=0.2 adam_lr_mult=2 adam_weight_decay=0.3 "
              "adam_eps=0.001 step=7 lr_scale filled",
    .domain = {.shapes = "1..4096 1..128x1..128 1..32x1..32x3x3 1..4x1..64x1..64", .most_shapes = 3, .most_copies = 3},
};
