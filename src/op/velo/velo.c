/* SPDX-License-Identifier: Apache-2.0 */
/* velo.c - the description of VeLO, by which params are checked, what a step refuses beyond the engine of learned
 * optimizers (op/lopt/lopt.c), its workspace, and its phases over the whole list, which come before the groups'. */
#include "op/velo/velo.h"
#include "core/core.h"
#include <string.h>

QN_CPU_DECLARE_TIERS(velo, qn_lopt_cpu_fn);
QN_CPU_DECLARE_TIERS(velo_rnn, qn_velo_cpu_fn);
static qn_lopt_cpu_fn *const tiers[QN_TIER_COUNT] = {QN_CPU_TIERS(velo)};
static qn_velo_cpu_fn *const rnn_tiers[QN_TIER_COUNT] = {QN_CPU_TIERS(velo_rnn)};
static const qn_lopt_kind kind = {QN_LOPT_TIES_VELO, QN_VELO_WIDTH, QN_VELO_INPUTS,
                                  QN_VELO_ELEMENTS,  tiers,         &qn_velo_device_tiling};

#define NUMBER(member, doc, value, least) QN_LOPT_NUMBER(qn_velo_params, member, doc, value, least)
static const qn_op_param params_table[] = {
    QN_LOPT_LIVE(qn_velo_params, lr, "learning rate", 1.0),
    NUMBER(step_mult, "what every step is multiplied by", 0.001, -HUGE_VAL),
    NUMBER(exp_mult, "what the magnitude is multiplied by in its power of e", 0.001, -HUGE_VAL),
    QN_LOPT_LIVE(qn_velo_params, weight_decay, "decoupled weight decay, behind the step", 0),
    QN_LOPT_DECAYS(qn_velo_params, QN_VELO_DECAYS),
    QN_LOPT_LAST(qn_velo_params, num_steps, "steps of the whole training; it must be set", U64, 0, HUGE_VAL, NULL, 0),
    QN_LOPT_LAST(qn_velo_params, step, "steps taken before this one", U64, 0, HUGE_VAL, NULL,
                 1 + offsetof(qn_lopt_hyper, step)),
    QN_LOPT_LAST(qn_velo_params, pylo_cuda_compat, "as PyLO's CUDA code", BOOL, 0, 1, NULL, 0),
    QN_LOPT_LAST(qn_velo_params, hyper, "takes the place of lr, weight_decay and step", DEVICE_HYPER, 0, 0, NULL, 0),
};
#undef NUMBER

static const qn_op op = {
    .info = {.name = "velo",
             .brief = "the learned optimizer VeLO: an LSTM over all tensors mixes a small network for each",
             QN_LOPT_OF_INFO,
             .params = params_table,
             .n_params = sizeof params_table / sizeof params_table[0],
             .params_bytes = sizeof(qn_velo_params),
             .hyper_bytes = sizeof(qn_lopt_hyper)},
};

/* ---- what is one tensor of the optimizer ---- */

enum { LOSS, HIDDEN, CELL, BUFFER, SINGLES };
static const struct {
  const char *name;
  qn_dtype dtype;
} single[SINGLES] = {{"loss", QN_F32}, {"hidden", QN_F32}, {"cell", QN_F32}, {"loss_buffer", QN_F64}};

/* Of a tensor, or of the one whose first extent is `whole`. */
static int rank_of(const qn_tensor *t, int64_t whole)
{
  int rank = 0;
  for (int d = 0; d < t->ndim; d++) rank += (whole >= 0 && !d ? whole : t->shape[d]) > 1;
  return rank;
}

static qn_status check_single_shape(const qn_list *list, int k, const qn_tensor *t)
{
  const int64_t rows[] = {(int64_t)list->n, QN_VELO_HIDDEN}, buffer[] = {QN_VELO_LOSS_BUFFER}, *want = NULL;
  const int ndim = k == LOSS ? 0 : k == BUFFER ? 1 : 2;
  char is[128], must[128];
  want = k == BUFFER ? buffer : rows;
  qn_require(t->ndim >= 0 && t->ndim <= QN_MAX_NDIM && (t->shape || !t->ndim),
             "velo: %s has %d dimensions, from 0 to %d are possible, with a shape", single[k].name, t->ndim,
             QN_MAX_NDIM);
  if (k == LOSS) {
    qn_require(qn_tensor_elements(t) == 1, "velo: loss has the shape %s, it must be one number",
               qn_shape_text(t, is, sizeof is));
    return QN_OK;
  }
  qn_require(t->ndim == ndim && !memcmp(t->shape, want, (size_t)ndim * sizeof *want),
             "velo: %s has the shape %s, for %zu tensors it must be %s", single[k].name,
             qn_shape_text(t, is, sizeof is), list->n, qn_lopt_shape_text(ndim, want, must, sizeof must));
  return QN_OK;
}

static qn_status check_single(const qn_list *list, int k, const qn_tensor *t)
{
  qn_require(t, "velo: %s is NULL", single[k].name);
  if (t->dtype != single[k].dtype)
    return qn_fail(QN_BAD_TYPE, "velo: %s is %s, it must be %s", single[k].name, qn_dtype_name(t->dtype),
                   qn_dtype_name(single[k].dtype));
  qn_try(check_single_shape(list, k, t));
  return qn_lopt_check_storage(list, single[k].name, t);
}

/* ---- the workspace ---- */

static void *take(char **at, uint64_t bytes)
{
  char *here = *at;
  *at += qn_lopt_ceiling(bytes, QN_LOPT_ALIGNMENT) * QN_LOPT_ALIGNMENT;
  return here;
}

static uint64_t chunks_of(const qn_tensor *p) { return qn_lopt_ceiling(qn_tensor_elements(p), QN_VELO_SUMMARY_CHUNK); }
/* Of a piece there is a row of sums even where it has nothing. */
static uint64_t rows_of(const qn_tensor *p) { return qn_lopt_most(1, chunks_of(p)); }

static uint64_t padded_of(size_t n) { return 16 * (qn_lopt_ceiling(n, 16) | 1); }

/* Lays out what the whole list has from `at` on; gives the first place behind it. */
static char *lay(qn_velo_call *c, const qn_tensor *param, char *at)
{
  const uint64_t row = c->padded * sizeof(float), n = c->n;
  uint64_t chunks = 0;
  c->task = take(&at, (n + 1) * sizeof *c->task);
  c->item = take(&at, n * sizeof *c->item);
  c->x = take(&at, QN_VELO_INPUTS * row);
  c->z = take(&at, 2 * QN_VELO_UNITS * row);
  c->unit = take(&at, QN_VELO_UNITS * row);
  c->control = take(&at, (QN_VELO_BANKS + 4) * row);
  c->mixed = take(&at, n * QN_VELO_MIXED * sizeof(float));
  for (size_t k = 0; k < n; k++) chunks += rows_of(&param[k]);
  c->partial = take(&at, chunks * QN_VELO_SUMMARIES * sizeof *c->partial);
  c->shared = take(&at, (c->shards ? n : 0) * QN_VELO_SUMMARIES * sizeof *c->shared);
  return at;
}

static size_t own_bytes(const qn_lopt_shards *shards, size_t n, const qn_tensor *param)
{
  qn_velo_call measured = {.n = n, .padded = padded_of(n), .shards = shards};
  char *from = (char *)(uintptr_t)QN_LOPT_ALIGNMENT;
  return n ? (size_t)(lay(&measured, param, from) - from) : 0;
}

static size_t needed_of(const qn_lopt_shards *shards, size_t n, const qn_tensor *param)
{
  if (!n) return 0;
  if (param->device.kind != QN_CPU) return qn_velo_device_bytes(&kind, shards, n, param);
  return own_bytes(shards, n, param) + qn_lopt_groups_bytes(&kind, shards, n, param) + QN_LOPT_ALIGNMENT;
}

size_t qn_velo_shards_workspace_bytes(const qn_lopt_shards *shards, size_t n, const qn_tensor *param)
{
  const qn_list list = {.op = &op, .n = n, .tensors = {param}};
  const bool fits = qn_lopt_check_shapes(&list) == QN_OK && qn_lopt_check_shards(&list, shards) == QN_OK;
  return fits ? needed_of(shards, n, param) : 0;
}

size_t qn_velo_workspace_bytes(size_t n, const qn_tensor *param)
{
  return qn_velo_shards_workspace_bytes(NULL, n, param);
}

/* ---- checks ---- */

static qn_status check_ranks(const qn_list *list, const qn_lopt_shards *shards)
{
  char text[128];
  for (size_t k = 0; k < list->n; k++) {
    const qn_tensor *p = &list->tensors[QN_LOPT_PARAM][k];
    const int rank = rank_of(p, qn_lopt_whole(shards, k));
    qn_require(rank < 5, "velo: param[%zu] (%s) has %d dimensions greater than 1, the LSTM knows up to 4", k,
               qn_shape_text(p, text, sizeof text), rank);
  }
  return QN_OK;
}

static qn_status check(qn_list *list, const qn_lopt_step *step, const qn_tensor *const *roles,
                       const qn_tensor *const singles[SINGLES])
{
  const qn_velo_params *p = list->params;
  qn_require(p->num_steps, "velo: num_steps is 0: set it to the number of steps of the whole training");
  qn_try(qn_lopt_check(list, step, roles));
  qn_try(check_ranks(list, step->shards));
  for (int k = 0; k < SINGLES; k++) qn_try(check_single(list, k, singles[k]));
  qn_try(qn_lopt_check_weights(list, "mlp", p->mlp));
  qn_try(qn_lopt_check_weights(list, "rnn", p->rnn));
  const size_t rows = list->n * QN_VELO_HIDDEN * sizeof(float);
  qn_lopt_lent lent[] = {{0},
                         {"mlp", p->mlp, QN_LOPT_VELO_MLP_WEIGHTS * sizeof(float), false},
                         {"rnn", p->rnn, QN_LOPT_VELO_RNN_WEIGHTS * sizeof(float), false},
                         {"loss", singles[LOSS]->data, sizeof(float), false},
                         {"hidden", singles[HIDDEN]->data, rows, true},
                         {"cell", singles[CELL]->data, rows, true},
                         {"loss_buffer", singles[BUFFER]->data, QN_VELO_LOSS_BUFFER * sizeof(double), true},
                         {"hyper", p->hyper, p->hyper ? sizeof *p->hyper : 0, false}};
  const size_t needed = needed_of(step->shards, list->n, list->tensors[QN_LOPT_PARAM]);
  return qn_lopt_check_lent(list, needed, sizeof lent / sizeof *lent, lent);
}

/* ---- a step ---- */

/* The tensors as the LSTM sees them, and their tasks of SUMS. */
static void bind(qn_velo_call *c, const qn_list *list)
{
  double *partial = c->partial;
  c->task[0] = 0;
  for (size_t k = 0; k < c->n; k++) {
    const qn_tensor *p = &list->tensors[QN_LOPT_PARAM][k];
    const int64_t whole = qn_lopt_whole(c->shards, k);
    const qn_lopt_view view = qn_lopt_view_of(kind.ties, p->ndim, p->shape, whole);
    c->item[k] = (qn_velo_item){.p = p->data,
                                .m = list->tensors[QN_LOPT_M][k].data,
                                .v = list->tensors[QN_LOPT_V][k].data,
                                .n = view.n,
                                .whole = view.whole_n,
                                .cut = view.cut,
                                .rank = rank_of(p, whole),
                                .partial = partial,
                                .chunks = chunks_of(p)};
    c->task[k + 1] = c->task[k] + chunks_of(p);
    partial += rows_of(p) * QN_VELO_SUMMARIES;
  }
}

typedef struct run {
  const qn_velo_call *call;
  qn_velo_cpu_fn *fn;
  qn_velo_phase phase;
} run;

static void run_task(void *user, size_t task)
{
  const run *r = user;
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
  run r = {.call = c, .fn = fn};
  for (r.phase = 0; r.phase < QN_VELO_PHASES; r.phase++) {
    qn_pool_run(exec->pool, (size_t)tasks[r.phase], run_task, &r);
    if (r.phase == QN_VELO_SUMS && c->shards) qn_try(share_summaries(c, exec));
  }
  return QN_OK;
}

static qn_lopt_step step_of(const qn_velo_params *params)
{
  return (qn_lopt_step){QN_LOPT_OF_STEP(params), .kind = &kind, .step_mult = params->step_mult};
}

/* Of a list that is checked and not empty, and a loss that is a number. */
static qn_status take_step(const qn_list *list, qn_lopt_step *step, qn_velo_call *c, qn_tier tier)
{
  qn_lopt_call call;
  char *behind = lay(c, list->tensors[QN_LOPT_PARAM], qn_lopt_align(list->exec));
  bind(c, list);
  qn_try(run_phases(c, rnn_tiers[tier], list->exec));
  step->weights = c->mixed, step->weights_apart = QN_VELO_MIXED;
  qn_lopt_begin(&call, step);
  call.gradient = QN_LOPT_CLIPPED;
  call.b_term = 0;
  return qn_lopt_run_groups(list, step, &call, tier, behind);
}

static bool has_elements(const qn_list *list, const qn_lopt_shards *shards)
{
  for (size_t k = 0; k < list->n; k++) {
    const qn_tensor *p = &list->tensors[QN_LOPT_PARAM][k];
    if (qn_lopt_view_of(kind.ties, p->ndim, p->shape, qn_lopt_whole(shards, k)).whole_n) return true;
  }
  return false;
}

qn_status qn_velo_step(const qn_exec *exec, const qn_velo_params *params, size_t n, const qn_tensor *param,
                       const qn_tensor *grad, const qn_tensor *m, const qn_tensor *v, const qn_tensor *row,
                       const qn_tensor *column, const qn_tensor *loss, const qn_tensor *hidden, const qn_tensor *cell,
                       const qn_tensor *loss_buffer)
{
  const qn_tensor *const roles[QN_LOPT_ROLES] = {param, grad, m, v, row, column};
  const qn_tensor *const singles[SINGLES] = {loss, hidden, cell, loss_buffer};
  qn_list list = {.op = &op, .exec = exec, .params = params, .n = n};
  qn_tier tier;
  qn_try(qn_check_exec_and_params(&list));
  qn_lopt_step step = step_of(params);
  qn_try(check(&list, &step, roles, singles));
  if (!has_elements(&list, step.shards)) return QN_OK;
  qn_velo_call call = {.n = n,
                       .padded = padded_of(n),
                       .mlp = params->mlp,
                       .rnn = params->rnn,
                       .loss = loss->data,
                       .loss_buffer = loss_buffer->data,
                       .hidden = hidden->data,
                       .cell = cell->data,
                       .shards = params->shards,
                       .num_steps = params->num_steps,
                       .step = step.step};
  if (exec->device.kind != QN_CPU) return qn_velo_device_run(&list, &step, &call);
  qn_try(qn_tier_in_force(&tier));
  qn_lopt_read_hyper(&step);
  call.step = step.step;
  const qn_fp_word word = qn_fp_enter();
  const qn_status status = qn_velo_take_loss(&call) ? take_step(&list, &step, &call, tier) : QN_OK;
  qn_fp_leave(word);
  return status;
}
