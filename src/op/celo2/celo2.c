/* SPDX-License-Identifier: Apache-2.0 */
/* celo2.c - CELO2 over the engine of learned optimizers (op/lopt): its network, its workspace, what a step refuses, and
 * the description, from which checks, benches and the command are made. */
#include "op/celo2/celo2.h"
#include "core/core.h"
#include "op/celo2/scalar.math.h"

QN_CPU_DECLARE_TIERS(celo2, qn_lopt_cpu_fn);
static qn_lopt_cpu_fn *const tiers[QN_TIER_COUNT] = {QN_CPU_TIERS(celo2)};

/* ---- the network's own tasks and arrays on the processor ---- */

static void lay(qn_lopt_arena *r, qn_lopt_item *item)
{
  const qn_lopt_view *v = &item->view;
  if (!v->factored || qn_celo2_is_small(v)) return;
  item->partial = qn_lopt_take(r, v->matrices * qn_celo2_chunks(v) * QN_CELO2_INPUTS * sizeof *item->partial);
  item->layer = qn_lopt_take(r, v->matrices * QN_CELO2_INPUTS * QN_CELO2_WIDTH * sizeof *item->layer);
  item->moves = qn_lopt_take(r, v->n * sizeof *item->moves);
}

static uint64_t tasks(qn_lopt_phase phase, const qn_lopt_item *item)
{
  const qn_lopt_view *v = &item->view;
  if (!v->factored) return phase == QN_LOPT_UPDATE ? qn_lopt_ceiling(v->n, QN_LOPT_CHUNK) : 0;
  if (qn_celo2_is_small(v)) return phase == QN_LOPT_UPDATE ? qn_lopt_ceiling(v->matrices, qn_celo2_together(v)) : 0;
  return phase == QN_LOPT_FIRST_LAYER ? v->matrices : v->matrices * qn_celo2_chunks(v);
}

static const qn_lopt_matrices matrices = {
    lay, tasks, qn_celo2_behind, qn_celo2_lent_bytes, qn_celo2_device_lay, qn_celo2_device_tasks};
#define NETWORK(ties)                                                                                                  \
  {                                                                                                                    \
    ties, QN_CELO2_WIDTH, QN_CELO2_INPUTS, QN_CELO2_ELEMENTS, 0, tiers, &qn_celo2_device_tiling, &matrices             \
  }
static const qn_lopt_network networks[2] = {NETWORK(QN_LOPT_TIES_LATER), NETWORK(QN_LOPT_TIES_JAX)};
#undef NETWORK

/* ---- a step ---- */

static void own_of(const void *params, uint64_t step, void *own)
{
  const qn_celo2_params *p = params;
  *(qn_celo2_own *)own = (qn_celo2_own){.rms_mult = p->rms_mult,
                                        .orthogonalize = (qn_u32)p->orthogonalize,
                                        .adam_lr_mult = p->adam_lr_mult,
                                        .m_decay = p->adam_m_decay,
                                        .v_decay = p->adam_v_decay,
                                        .adam_decay = (float)p->adam_weight_decay,
                                        .adam_eps = (float)p->adam_eps,
                                        .m = (float)p->adam_m_decay,
                                        .m_rest = (float)(1 - p->adam_m_decay),
                                        .v = (float)p->adam_v_decay,
                                        .v_rest = (float)(1 - p->adam_v_decay),
                                        .of_m = qn_celo2_correction(p->adam_m_decay, step),
                                        .of_v = qn_celo2_correction(p->adam_v_decay, step)};
}

static qn_lopt_step step_of(const void *of)
{
  const qn_celo2_params *params = of;
  return (qn_lopt_step){QN_LOPT_OF_STEP(params), .network = &networks[params->ties], .weights = params->weights,
                        .gradient = QN_LOPT_CLIPPED, .joint_decay = true};
}

static const qn_lopt_op op = {.step_of = step_of,
                              .networks = networks,
                              .ties = offsetof(qn_celo2_params, ties),
                              .first_bytes = qn_celo2_first_bytes,
                              .own_of = own_of,
                              .device_run = qn_celo2_device_run};

/* ---- the description ---- */

#define NUMBER(member, doc, least) QN_LOPT_NUMBER(qn_celo2_params, member, doc, least)
#define DECAY(member, of) QN_LOPT_DECAY(qn_celo2_params, member, of)
static const qn_op_param params_table[] = {
    QN_LOPT_LIVE(qn_celo2_params, lr, "learning rate"),
    NUMBER(exp_mult, "factor of the magnitude in the exponent of e", -HUGE_VAL),
    NUMBER(rms_mult, "the root mean square of a matrix's move before the learning rate", -HUGE_VAL),
    QN_LOPT_LIVE(qn_celo2_params, weight_decay, "decoupled weight decay, of the parameter before the step"),
    QN_LOPT_DECAYS(qn_celo2_params),
    NUMBER(adam_lr_mult, "factor of the learning rate where AdamW moves a tensor", 0),
    NUMBER(adam_weight_decay, "decoupled weight decay there", 0),
    DECAY(adam_m_decay, "the gradient there"),
    DECAY(adam_v_decay, "its square there"),
    NUMBER(adam_eps, "added to the root of the mean of squares there", 0),
    QN_LOPT_LAST(qn_celo2_params, orthogonalize, "the network's outputs are made orthogonal", BOOL, 1, NULL, 0),
    QN_LOPT_LAST(qn_celo2_params, precision, "the class of the products that make them so, on a GPU", ENUM, 5,
                 "fp32|tf32|bf16x3|tf32x3|bf16|f16x3", 0),
    QN_LOPT_TIES_ROW(qn_celo2_params),
    QN_LOPT_STEP_ROW(qn_celo2_params),
    QN_LOPT_WEIGHTS_ROW(qn_celo2_params, QN_LOPT_CELO2_MLP_WEIGHTS),
    QN_LOPT_RATE_ROWS(qn_celo2_params),
};
#undef DECAY
#undef NUMBER

static const qn_op_tensor roles[QN_LOPT_ROLES] = {
    [QN_LOPT_PARAM] = {"param", NULL, "what is trained", QN_FILL_MODERATE, 0.02, QN_LOPT_SHAPE("[...5]")},
    [QN_LOPT_GRAD] = {"grad", NULL, "the loss's gradient with respect to it", QN_FILL_MODERATE, 1e-3,
                      QN_LOPT_SHAPE("[like param]")},
    [QN_LOPT_M] = {"m", "exp_avg", "three means of the gradient, of a vector one; zeros before the first step",
                   QN_FILL_MODERATE, 1e-3, QN_LOPT_SHAPE("[3, like param] or [like param]")},
    [QN_LOPT_V] = {"v", "exp_avg_sq", "the mean of its square", QN_FILL_NON_NEGATIVE, 1e-6,
                   QN_LOPT_SHAPE("[like param]")},
    [QN_LOPT_ROW] = {"row", "exp_avg_sq_r", "three means of its square's mean along the largest dimension",
                     QN_FILL_NON_NEGATIVE, 1e-6, QN_LOPT_SHAPE("[3, like param without d0] or [0]")},
    [QN_LOPT_COLUMN] = {"column", "exp_avg_sq_c", "the same along the second largest", QN_FILL_NON_NEGATIVE, 1e-6,
                        QN_LOPT_SHAPE("[3, like param without d1] or [0]")},
};

/* An element's: the network's 328 multiply-adds, some 60 besides; and of a square matrix of 1024, 15 for each row in
 * five rounds of products would come to more, which are counted by the op's check. */
const qn_op qn_op_celo2 = {
    .info = {.name = "celo2",
             .brief = "the learned optimizer CELO2: a small network, whose moves of a matrix are made orthogonal",
             .doc =
                 "p = p - lr (u + weight_decay p), where u is what a network of 30 inputs and two layers of 8 makes of "
                 "each element, made orthogonal matrix by matrix and scaled to the root mean square rms_mult; AdamW "
                 "moves vectors.",
             .tensors = roles,
             .n_tensors = QN_LOPT_ROLES,
             .types = qn_lopt_types,
             .n_types = 1,
             QN_OP_PARAMS(params_table, qn_celo2_params, QN_CELO2_DEFAULTS),
             .hyper_bytes = sizeof(qn_lopt_hyper),
             .agreement = QN_SCALED,
             .operations = 2 * 328 + 60,
             .element_bytes = 44},
    .engine = &qn_lopt_engine,
    .of_engine = &op,
    .device_source = "op/celo2/celo2.elements.cu", /* of several */
};

qn_status qn_celo2_step(const qn_exec *exec, const qn_celo2_params *params, size_t n, const qn_tensor *param,
                        const qn_tensor *grad, const qn_tensor *m, const qn_tensor *v, const qn_tensor *row,
                        const qn_tensor *column)
{
  const qn_tensor *const tensors[QN_MAX_TENSORS] = {param, grad, m, v, row, column};
  return qn_op_step(&qn_op_celo2.info, exec, params, n, tensors);
}
