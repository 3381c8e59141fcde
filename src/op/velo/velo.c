/* SPDX-License-Identifier: Apache-2.0 */
/* velo.c - VeLO: what a step refuses beyond the engine of learned optimizers (op/lopt/lopt.c), its workspace, its
 * phases over the whole list, which come before the batches', and the description, from which checks, benches and the
 * command are made. */
#include "op/velo/velo.h"
#include "core/core.h"
#include <string.h>

QN_CPU_DECLARE_TIERS(velo, qn_lopt_cpu_fn);
QN_CPU_DECLARE_TIERS(velo_rnn, qn_velo_cpu_fn);
static qn_lopt_cpu_fn *const tiers[QN_TIER_COUNT] = {QN_CPU_TIERS(velo)};
static qn_velo_cpu_fn *const rnn_tiers[QN_TIER_COUNT] = {QN_CPU_TIERS(velo_rnn)};
#define NETWORK(ties)                                                                                                  \
  {                                                                                                                    \
    ties, QN_VELO_WIDTH, QN_VELO_INPUTS, QN_VELO_ELEMENTS, QN_VELO_B_TERM, tiers, &qn_velo_device_tiling, NULL         \
  }
const qn_lopt_network qn_lopt_velo[2] = {NETWORK(QN_LOPT_TIES_VELO), NETWORK(QN_LOPT_TIES_JAX)};
#undef NETWORK

int qn_velo_rank(const qn_tensor *t, int64_t whole)
{
  int rank = 0;
  for (int d = 0; d < t->ndim; d++) rank += (whole >= 0 && !d ? whole : t->shape[d]) > 1;
  return rank;
}

/* ---- the workspace ---- */

static uint64_t chunks_of(const qn_tensor *p) { return qn_lopt_ceiling(qn_tensor_elements(p), QN_VELO_SUMMARY_CHUNK); }
/* Of a piece there is a row of sums even where it has nothing. */
static uint64_t rows_of(const qn_tensor *p) { return qn_lopt_most(1, chunks_of(p)); }

static uint64_t padded_of(size_t n) { return 16 * (qn_lopt_ceiling(n, 16) | 1); }

/* Lays out the whole list's arrays; returns their bytes. */
static size_t lay(qn_velo_call *c, const qn_tensor *param, qn_lopt_arena r)
{
  const uint64_t row = c->padded * sizeof(float), n = c->n;
  uint64_t chunks = 0;
  c->task = qn_lopt_take(&r, (n + 1) * sizeof *c->task);
  c->item = qn_lopt_take(&r, n * sizeof *c->item);
  c->x = qn_lopt_take(&r, QN_VELO_INPUTS * row);
  c->z = qn_lopt_take(&r, 2 * QN_VELO_UNITS * row);
  c->unit = qn_lopt_take(&r, QN_VELO_UNITS * row);
  c->control = qn_lopt_take(&r, (QN_VELO_BANKS + 4) * row);
  c->mixed = qn_lopt_take(&r, n * QN_VELO_MIXED * sizeof(float));
  for (size_t k = 0; k < n; k++) chunks += rows_of(&param[k]);
  c->partial = qn_lopt_take(&r, chunks * QN_VELO_SUMMARIES * sizeof *c->partial);
  c->shared = qn_lopt_take(&r, (c->shards ? n : 0) * QN_VELO_SUMMARIES * sizeof *c->shared);
  return r.used;
}

static size_t first_bytes(const qn_lopt_network *network, const qn_lopt_shards *shards, const qn_call *list)
{
  const qn_tensor *param = list->tensors[QN_LOPT_PARAM];
  qn_velo_call measured = {.n = list->n, .padded = padded_of(list->n), .shards = shards};
  (void)network;
  if (param->device.kind != QN_CPU) return qn_velo_device_bytes(list->n);
  return lay(&measured, param, (qn_lopt_arena){.align = QN_LOPT_ALIGNMENT});
}

size_t qn_velo_shards_workspace_bytes(const qn_lopt_shards *shards, size_t n, const qn_tensor *param)
{
  return qn_lopt_workspace_of(&qn_op_velo, shards, n, param);
}

size_t qn_velo_workspace_bytes(size_t n, const qn_tensor *param)
{
  return qn_lopt_workspace_of(&qn_op_velo, NULL, n, param);
}

/* ---- checks ---- */

static qn_lopt_step step_of(const void *of)
{
  const qn_velo_params *params = of;
  return (qn_lopt_step){QN_LOPT_OF_STEP(params), QN_LOPT_OF_SHARDS(params), .network = &qn_lopt_velo[params->ties],
                        .gradient = QN_LOPT_CLIPPED, .step_mult = params->step_mult};
}

static qn_status check(const qn_call *list)
{
  const qn_velo_params *params = list->params;
  qn_try(qn_lopt_check_shards(list, params->shards));
  for (size_t k = 0; k < list->n; k++) {
    const qn_tensor *p = &list->tensors[QN_LOPT_PARAM][k];
    const int rank = qn_velo_rank(p, qn_lopt_whole(params->shards, k));
    qn_require(rank < 5, "velo: param[%zu] (%s) has %d dimensions greater than 1, the LSTM knows up to 4", k,
               qn_shape_text(p->ndim, p->shape).text, rank);
  }
  return QN_OK;
}

/* ---- a step ---- */

/* The tensors as the LSTM sees them, and their tasks of SUMS. */
static void bind(qn_velo_call *c, const qn_call *list)
{
  double *partial = c->partial;
  c->task[0] = 0;
  for (size_t k = 0; k < c->n; k++) {
    const qn_tensor *p = &list->tensors[QN_LOPT_PARAM][k];
    const int64_t whole = qn_lopt_whole(c->shards, k);
    const qn_lopt_view view = qn_lopt_view_of(QN_LOPT_TIES_VELO, p->ndim, p->shape, whole); /* counts: with any ties */
    c->item[k] = (qn_velo_item){.p = p->data,
                                .m = list->tensors[QN_LOPT_M][k].data,
                                .v = list->tensors[QN_LOPT_V][k].data,
                                .n = view.n,
                                .whole = view.whole_n,
                                .cut = view.cut,
                                .rank = qn_velo_rank(p, whole),
                                .partial = partial,
                                .chunks = chunks_of(p)};
    c->task[k + 1] = c->task[k] + chunks_of(p);
    partial += rows_of(p) * QN_VELO_SUMMARIES;
  }
}

typedef struct phase_run {
  const qn_velo_call *call;
  qn_velo_cpu_fn *fn;
  qn_velo_phase phase;
} phase_run;

static void run_task(void *user, size_t task)
{
  const phase_run *r = user;
  r->fn(r->call, r->phase, task);
}

/* The summaries of pieces become those of the whole tensors. */
static qn_status share_summaries(qn_velo_call *c, const qn_exec *exec)
{
  const size_t bytes = QN_VELO_SUMMARIES * sizeof(double);
  size_t n = 0;
  for (size_t k = 0; k < c->n; k++) {
    qn_velo_item *item = &c->item[k];
    if (!item->cut || !item->whole) continue;
    double *sum = memset(c->shared + n, 0, bytes);
    for (uint64_t chunk = 0; chunk < item->chunks; chunk++)
      for (uint64_t j = 0; j < QN_VELO_SUMMARIES; j++) sum[j] += item->partial[chunk * QN_VELO_SUMMARIES + j];
    n += QN_VELO_SUMMARIES;
  }
  qn_try(qn_lopt_add(c->shards, exec, c->shared, n));
  n = 0;
  for (size_t k = 0; k < c->n; k++) {
    qn_velo_item *item = &c->item[k];
    if (!item->cut || !item->whole) continue;
    memcpy(item->partial, c->shared + n, bytes);
    item->chunks = 1;
    n += QN_VELO_SUMMARIES;
  }
  return QN_OK;
}

static qn_status run_phases(qn_velo_call *c, qn_velo_cpu_fn *fn, const qn_exec *exec)
{
  const uint64_t tasks[QN_VELO_PHASES] = {[QN_VELO_SUMS] = c->task[c->n],          [QN_VELO_FEATURES] = c->n,
                                          [QN_VELO_MIX] = QN_VELO_UNITS / 16,      [QN_VELO_LSTM] = QN_VELO_UNITS / 4,
                                          [QN_VELO_HEADS] = QN_VELO_BANKS / 4 + 1, [QN_VELO_BANKS_OF] = c->n};
  phase_run r = {.call = c, .fn = fn};
  for (r.phase = 0; r.phase < QN_VELO_PHASES; r.phase++) {
    qn_pool_run(exec->pool, (size_t)tasks[r.phase], run_task, &r);
    if (r.phase == QN_VELO_SUMS && c->shards) qn_try(share_summaries(c, exec));
  }
  return QN_OK;
}

/* Of a list that is checked and not empty, and a loss that is a number. */
static qn_status take_step(const qn_call *list, qn_lopt_step *step, qn_velo_call *c, qn_tier tier)
{
  qn_lopt_call call;
  const qn_lopt_arena arena = qn_lopt_arena_of(list->exec->workspace, QN_LOPT_ALIGNMENT);
  char *behind = arena.base + lay(c, list->tensors[QN_LOPT_PARAM], arena);
  bind(c, list);
  qn_try(run_phases(c, rnn_tiers[tier], list->exec));
  step->weights = c->mixed, step->weights_apart = QN_VELO_MIXED;
  qn_lopt_begin(&call, step);
  return qn_lopt_run_batches(list, step, &call, tier, behind);
}

static bool has_elements(const qn_call *list, const qn_lopt_shards *shards)
{
  for (size_t k = 0; k < list->n; k++) {
    const qn_tensor *p = &list->tensors[QN_LOPT_PARAM][k];
    if (qn_lopt_view_of(QN_LOPT_TIES_VELO, p->ndim, p->shape, qn_lopt_whole(shards, k)).whole_n) return true;
  }
  return false;
}

static qn_status run(const qn_call *list)
{
  const qn_velo_params *params = list->params;
  const qn_tensor *const *tensors = list->tensors;
  qn_lopt_step step = step_of(params);
  qn_tier tier;
  if (!has_elements(list, step.shards)) return QN_OK;
  qn_velo_call call = {.n = list->n,
                       .padded = padded_of(list->n),
                       .mlp = params->mlp,
                       .rnn = params->rnn,
                       .loss = tensors[QN_VELO_ROLE_LOSS]->data,
                       .loss_buffer = tensors[QN_VELO_ROLE_BUFFER]->data,
                       .hidden = tensors[QN_VELO_ROLE_HIDDEN]->data,
                       .cell = tensors[QN_VELO_ROLE_CELL]->data,
                       .shards = params->shards,
                       .num_steps = params->num_steps,
                       .step = step.step};
  if (list->exec->device.kind != QN_CPU) return qn_velo_device_run(list, &step, &call);
  qn_try(qn_tier_in_force(&tier));
  if (list->mode == QN_CALL_PREPARE) return QN_OK;
  qn_lopt_read_hyper(&step);
  call.step = step.step;
  return qn_velo_take_loss(&call) ? take_step(list, &step, &call, tier) : QN_OK;
}

static const qn_lopt_op op = {.step_of = step_of,
                              .networks = qn_lopt_velo,
                              .ties = offsetof(qn_velo_params, ties),
                              .shards = offsetof(qn_velo_params, shards),
                              .first_bytes = first_bytes};
static const qn_engine engine = {.dimensions = qn_lopt_dimensions, .workspace = qn_lopt_workspace, .run = run};

/* ---- the description ---- */

#define NUMBER(member, doc, least) QN_LOPT_NUMBER(qn_velo_params, member, doc, least)
#define LAST(member, doc, kind, most, live) QN_LOPT_LAST(qn_velo_params, member, doc, kind, most, NULL, live)
static const qn_op_param params_table[] = {
    QN_LOPT_LIVE(qn_velo_params, lr, "learning rate"),
    NUMBER(step_mult, "what every step is multiplied by", -HUGE_VAL),
    NUMBER(exp_mult, "factor of the magnitude in the exponent of e", -HUGE_VAL),
    QN_LOPT_LIVE(qn_velo_params, weight_decay, "decoupled weight decay, behind the step"),
    QN_LOPT_DECAYS(qn_velo_params),
    {"num_steps", "the steps of the whole training", QN_PARAM_U64, offsetof(qn_velo_params, num_steps), 1, HUGE_VAL, 0,
     NULL, 0},
    QN_LOPT_STEP_ROW(qn_velo_params),
    LAST(pylo_cuda_compat, "as PyLO's CUDA code", BOOL, 1, 0),
    QN_LOPT_TIES_ROW(qn_velo_params),
    LAST(mlp, "the banks of tensors' networks, as qn_lopt_weights_read reads them", DEVICE_F32S,
         QN_LOPT_VELO_MLP_WEIGHTS, 0),
    LAST(rnn, "the LSTM's, likewise", DEVICE_F32S, QN_LOPT_VELO_RNN_WEIGHTS, 0),
    QN_LOPT_RATE_ROWS(qn_velo_params),
    QN_LOPT_SHARDS_ROW(qn_velo_params),
};
#undef LAST
#undef NUMBER

static const qn_op_tensor roles[QN_VELO_ROLES] = {
    QN_LOPT_TENSORS,
    [QN_VELO_ROLE_LOSS] = {"loss", NULL, "what grad is of; NaN or infinite: the step is skipped", QN_FILL_NORMAL, 2,
                           QN_LOPT_SHAPE("[1...]"), .single = 1},
    [QN_VELO_ROLE_HIDDEN] = {"hidden", NULL, "the LSTM's state, a row a tensor", QN_FILL_NORMAL, 0.3,
                             QN_LOPT_SHAPE("[tensors, 512]"), .single = 1},
    [QN_VELO_ROLE_CELL] = {"cell", NULL, "its cells, likewise", QN_FILL_NORMAL, 0.3, QN_LOPT_SHAPE("[tensors, 512]"),
                           .single = 1},
    [QN_VELO_ROLE_BUFFER] = {"loss_buffer", NULL,
                             "means of the loss, their least, counts of losses and of skipped steps",
                             QN_FILL_NON_NEGATIVE, 1, QN_LOPT_SHAPE("[22]"), .single = 1},
};

static const qn_op_types types[1] = {
    {{QN_LOPT_TYPES, [QN_VELO_ROLE_LOSS] = {QN_F32, QN_READ}, [QN_VELO_ROLE_HIDDEN] = {QN_F32, QN_READ_WRITE},
      [QN_VELO_ROLE_CELL] = {QN_F32, QN_READ_WRITE}, [QN_VELO_ROLE_BUFFER] = {QN_F64, QN_READ_WRITE}}}};

/* An element's: the network's 96 multiply-adds of which the tables leave it, some 60 besides as in small_fc_lopt, and
 * the summaries' sums. */
#define ELEMENT_OPERATIONS (2 * 96 + 60 + 18)

const qn_op qn_op_velo = {
    .info =
        {.name = "velo",
         .brief = "the learned optimizer VeLO: an LSTM over all tensors mixes a small network for each",
         .doc =
             "An LSTM sees each tensor's progress, the loss and how much of the training is done, and mixes for each "
             "tensor the weights of a network of 30 inputs and two layers of 4, which moves its elements: p = p - lr "
             "lr_mult |p| direction e^(exp_mult magnitude) step_mult, then p = p - weight_decay lr p.",
         .tensors = roles,
         .n_tensors = QN_VELO_ROLES,
         .types = types,
         .n_types = 1,
         QN_OP_PARAMS(params_table, qn_velo_params, QN_VELO_DEFAULTS),
         .hyper_bytes = sizeof(qn_lopt_hyper),
         .agreement = QN_SCALED,
         .operations = ELEMENT_OPERATIONS,
         .element_bytes = 44},
    .engine = &engine,
    .of_engine = &op,
    .check = check,
    .device_source = "op/velo/velo.list.cu", /* of several */
};

qn_status qn_velo_step(const qn_exec *exec, const qn_velo_params *params, size_t n, const qn_tensor *param,
                       const qn_tensor *grad, const qn_tensor *m, const qn_tensor *v, const qn_tensor *row,
                       const qn_tensor *column, const qn_tensor *loss, const qn_tensor *hidden, const qn_tensor *cell,
                       const qn_tensor *loss_buffer)
{
  const qn_tensor *const tensors[QN_MAX_TENSORS] = {param, grad, m, v, row, column, loss, hidden, cell, loss_buffer};
  return qn_op_step(&qn_op_velo.info, exec, params, n, tensors);
}
