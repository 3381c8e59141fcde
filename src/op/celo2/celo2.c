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

static void dimensions(const qn_op *op, const qn_call *call, size_t k, int ndim, const int64_t *shape, int d[2])
{
  const qn_celo2_params *params = call ? call->params : NULL;
  (void)op, (void)k;
  qn_lopt_largest(networks[params && params->ties].ties, ndim, shape, -1, d);
}

static size_t workspace(const qn_call *list)
{
  const qn_tensor *param = list->tensors[QN_LOPT_PARAM];
  const qn_lopt_network *network = &networks[((const qn_celo2_params *)list->params)->ties];
  if (!qn_lopt_are_shapes(list->op, NULL, list->n, param)) return 0;
  if (param->device.kind != QN_CPU) return qn_celo2_device_bytes(network, list);
  return qn_lopt_batches_bytes(network, NULL, list->n, param) + QN_LOPT_ALIGNMENT;
}

static qn_celo2_own own_of(const qn_celo2_params *p, uint64_t step)
{
  return (qn_celo2_own){.rms_mult = p->rms_mult,
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

static qn_status run(const qn_call *list)
{
  const qn_celo2_params *p = list->params;
  qn_lopt_step step = {.network = &networks[p->ties],
                       .m = {p->m_decay0, p->m_decay1, p->m_decay2},
                       .v = p->v_decay,
                       .f = {p->factor_decay0, p->factor_decay1, p->factor_decay2},
                       .lr = p->lr,
                       .exp_mult = p->exp_mult,
                       .weight_decay = p->weight_decay,
                       .lr_scale = p->lr_scale,
                       .weights = p->weights,
                       .hyper = p->hyper,
                       .step = p->step,
                       .gradient = QN_LOPT_CLIPPED,
                       .joint_decay = true};
  qn_lopt_call call;
  qn_tier tier;
  qn_celo2_own own;
  step.own = &own;
  if (!list->n) return QN_OK;
  if (list->exec->device.kind != QN_CPU) {
    own = own_of(p, 0);
    return qn_celo2_device_run(list, &step);
  }
  qn_try(qn_tier_in_force(&tier));
  if (list->mode == QN_CALL_PREPARE) return QN_OK;
  qn_lopt_read_hyper(&step);
  own = own_of(p, step.step);
  qn_lopt_begin(&call, &step);
  return qn_lopt_run_batches(list, &step, &call, tier, qn_lopt_arena_of(list->exec->workspace, QN_LOPT_ALIGNMENT).base);
}

static const qn_engine engine = {.dimensions = dimensions, .workspace = workspace, .run = run};

/* ---- the description ---- */

#define NUMBER(member, doc, least) QN_LOPT_NUMBER(qn_celo2_params, member, doc, least)
#define DECAY(member, of) QN_LOPT_DECAY(qn_celo2_params, member, of)
#define LAST(member, doc, kind, most, live) QN_LOPT_LAST(qn_celo2_params, member, doc, kind, most, NULL, live)
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
    LAST(orthogonalize, "the network's outputs are made orthogonal", BOOL, 1, 0),
    QN_LOPT_TIES_ROW(qn_celo2_params),
    LAST(step, "steps taken before this one", U64, HUGE_VAL, 1 + offsetof(qn_lopt_hyper, step)),
    LAST(weights, "the network's, as qn_lopt_weights_read reads them", DEVICE_F32S, QN_LOPT_CELO2_MLP_WEIGHTS, 0),
    LAST(lr_scale, "factors of the learning rate", HOST_F64, HUGE_VAL, 0),
    LAST(hyper, "takes the place of lr, weight_decay and step", DEVICE_HYPER, 0, 0),
};
#undef LAST
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
    .engine = &engine,
    .device_source = "op/celo2/celo2.elements.cu", /* of several */
};

qn_status qn_celo2_step(const qn_exec *exec, const qn_celo2_params *params, size_t n, const qn_tensor *param,
                        const qn_tensor *grad, const qn_tensor *m, const qn_tensor *v, const qn_tensor *row,
                        const qn_tensor *column)
{
  const qn_tensor *const tensors[QN_MAX_TENSORS] = {param, grad, m, v, row, column};
  return qn_op_step(&qn_op_celo2.info, exec, params, n, tensors);
}
