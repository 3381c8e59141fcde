/* SPDX-License-Identifier: Apache-2.0 */
/* batches.c - a step of a learned optimizer that was checked: batches of consecutive tensors, phase by phase, as
 * numbered tasks that depend on the shapes alone. Nothing is allocated: a batch's arrays lie in the workspace. No
 * arithmetic on elements is here. */
#include "op/lopt/lopt.h"
#include "core/core.h"

/* A batch has up to so many elements, so that small tensors share a phase and large ones a workspace. */
enum { BATCH_ELEMENTS = 1 << 20 };

/* ---- batches and their workspace ---- */

/* Tensors [first, last) of the list, and their arrays in the workspace. */
typedef struct batch {
  const qn_lopt_network *network;
  const qn_tensor *const *tensors; /* by role; only the params where the workspace is measured */
  const qn_lopt_shards *shards;
  size_t first, last;
  qn_lopt_arena arena;
  qn_lopt_item *item;
  uint64_t *task; /* [last - first + 1]: the first task of each in a phase */
  double *shared; /* sums of a phase that are added over shards */
  void *lent;     /* to what a network has behind its phases */
} batch;

static qn_lopt_view view_of(const batch *b, size_t k)
{
  const qn_tensor *p = &b->tensors[QN_LOPT_PARAM][k];
  return qn_lopt_view_of(b->network->ties, p->ndim, p->shape, qn_lopt_whole(b->shards, k));
}

/* The end of the batch that begins with `first`; by the whole tensors, so that all processes have the same batches. */
static size_t batch_end(const batch *b, size_t n)
{
  uint64_t elements = 0;
  size_t k = b->first;
  for (; k < n; k++) {
    elements += view_of(b, k).whole_n;
    if (k > b->first && elements > BATCH_ELEMENTS) break;
  }
  return k;
}

static void lay_factor(batch *b, qn_lopt_factor *factor, uint64_t n, uint64_t whole, bool factored)
{
  factor->n = n, factor->whole = whole;
  factor->sums = qn_lopt_take(&b->arena, n * sizeof *factor->sums);
  if (!factored) return;
  factor->row_sums = qn_lopt_take(&b->arena, 3 * factor->row_places * sizeof *factor->row_sums);
  factor->padded = qn_lopt_ceiling(n, 16) * 16;
  factor->root = qn_lopt_take(&b->arena, 3 * factor->padded * sizeof(float));
  factor->channel = qn_lopt_take(&b->arena, QN_LOPT_FACTOR_CHANNELS * factor->padded * sizeof(float));
  factor->table = qn_lopt_take(&b->arena, b->network->hidden * factor->padded * sizeof(float));
}

static void lay_item(batch *b, size_t k, qn_lopt_item *item)
{
  const uint64_t channels = b->network->elements + QN_LOPT_FACTOR_CHANNELS;
  const qn_lopt_view v = view_of(b, k);
  *item = (qn_lopt_item){.view = v, .of_gradient = 1.0f, .chunks = qn_lopt_ceiling(v.n, QN_LOPT_CHUNK)};
  if (!v.whole_n) return;
  if (v.factored && v.row_over_x) item->over_x.row_places = v.a * v.b * v.c;
  if (v.factored && !v.row_over_x) item->over_y.row_places = v.a * v.b * v.c;
  if (v.factored) lay_factor(b, &item->over_x, v.a * v.b * v.y * v.c, v.whole_a * v.b * v.y * v.c, true);
  lay_factor(b, &item->over_y, v.a * v.x * v.b * v.c, v.whole_a * v.whole_x * v.b * v.c, v.factored);
  if (b->network->matrices) {
    b->network->matrices->lay(&b->arena, item);
    return;
  }
  item->partial = qn_lopt_take(&b->arena, qn_lopt_most(1, item->chunks) * channels * sizeof *item->partial);
  item->layer = qn_lopt_take(&b->arena, channels * b->network->hidden * sizeof(float));
}

/* Lays out a whole batch; an arena without a base counts the bytes. */
static void lay_batch(batch *b)
{
  const size_t n = b->last - b->first;
  const qn_lopt_matrices *matrices = b->network->matrices;
  uint64_t shared = 0, lent = 0;
  qn_lopt_item measured;
  b->arena.used = 0;
  b->item = qn_lopt_take(&b->arena, n * sizeof *b->item);
  b->task = qn_lopt_take(&b->arena, (n + 1) * sizeof *b->task);
  for (size_t k = 0; k < n; k++) {
    qn_lopt_item *item = b->arena.base ? &b->item[k] : &measured;
    lay_item(b, b->first + k, item);
    shared += qn_lopt_shared_room(b->network, item);
    if (matrices) lent = qn_lopt_most(lent, matrices->lent_bytes(&item->view));
  }
  b->shared = qn_lopt_take(&b->arena, shared * sizeof *b->shared);
  b->lent = qn_lopt_take(&b->arena, lent);
}

size_t qn_lopt_batches_bytes(const qn_lopt_network *network, const qn_lopt_shards *shards, size_t n,
                             const qn_tensor *param)
{
  const qn_tensor *const tensors[QN_LOPT_ROLES] = {param};
  size_t most = 0;
  for (batch b = {.network = network, .tensors = tensors, .shards = shards, .arena = {.align = QN_LOPT_ALIGNMENT}};
       b.first < n; b.first = b.last) {
    b.last = batch_end(&b, n);
    lay_batch(&b);
    most = qn_lopt_most(most, b.arena.used);
  }
  return most;
}

/* ---- a batch's phases ---- */

static void *data_of(const batch *b, size_t role, size_t k) { return b->tensors[role][k].data; }

static void bind(const batch *b, const qn_lopt_step *step, size_t k, qn_lopt_item *item)
{
  const double scale = step->lr_scale ? step->lr_scale[k] : 1, lr = step->lr * scale;
  item->p = data_of(b, QN_LOPT_PARAM, k);
  item->g = data_of(b, QN_LOPT_GRAD, k);
  item->m = data_of(b, QN_LOPT_M, k);
  item->v = data_of(b, QN_LOPT_V, k);
  item->weights = step->weights + k * step->weights_apart;
  item->lr = (float)lr;
  item->step = (float)(lr * step->step_mult);
  item->decay = (float)(step->joint_decay ? step->weight_decay : step->weight_decay * lr);
  if (!item->view.factored) item->f = data_of(b, QN_LOPT_ROW, k);
  qn_lopt_factor *row = item->view.row_over_x ? &item->over_x : &item->over_y;
  qn_lopt_factor *column = item->view.row_over_x ? &item->over_y : &item->over_x;
  if (item->view.factored) row->state = data_of(b, QN_LOPT_ROW, k), column->state = data_of(b, QN_LOPT_COLUMN, k);
}

typedef struct run {
  const qn_lopt_call *call;
  qn_lopt_cpu_fn *fn;
  qn_lopt_phase phase;
  const batch *batch;
} run;

static uint64_t tasks_of(const run *r, const qn_lopt_item *item)
{
  const qn_lopt_view *v = &item->view;
  if (!v->whole_n) return 0;
  if (r->call->network->matrices && r->phase > QN_LOPT_TABLES) return r->call->network->matrices->tasks(r->phase, item);
  switch (r->phase) {
  case QN_LOPT_SUMS:
    if (!v->factored && r->call->max_grad_norm <= 0) return 0;
    return qn_lopt_ceiling(qn_lopt_tiles(v), qn_lopt_tiles_a_task(v)) +
           qn_lopt_ceiling(qn_lopt_strips(v), qn_lopt_strips_a_task(v));
  case QN_LOPT_STATES:
  case QN_LOPT_TABLES:
  case QN_LOPT_FIRST_LAYER: return 1;
  default: return qn_lopt_ceiling(v->n, QN_LOPT_CHUNK);
  }
}

size_t qn_lopt_item_of(const uint64_t *first, size_t items, uint64_t task)
{
  size_t low = 0, high = items;
  while (high - low > 1) {
    const size_t middle = (low + high) / 2;
    if (first[middle] <= task)
      low = middle;
    else
      high = middle;
  }
  return low;
}

static void run_task(void *user, size_t task)
{
  const run *r = user;
  const uint64_t *first = r->batch->task;
  const size_t k = qn_lopt_item_of(first, r->batch->last - r->batch->first, task);
  r->fn(r->call, r->phase, &r->batch->item[k], task - first[k]);
}

static qn_status run_batch(run *r, const qn_lopt_step *step, const qn_exec *exec)
{
  const batch *b = r->batch;
  const size_t n = b->last - b->first;
  for (size_t k = 0; k < n; k++) bind(b, step, b->first + k, &b->item[k]);
  for (r->phase = QN_LOPT_SUMS; r->phase < QN_LOPT_PHASES; r->phase++) {
    b->task[0] = 0;
    for (size_t k = 0; k < n; k++) b->task[k + 1] = b->task[k] + tasks_of(r, &b->item[k]);
    qn_pool_run(exec->pool, (size_t)b->task[n], run_task, r);
    qn_try(qn_lopt_share(r->call, step->shards, exec, r->phase, n, b->item, b->shared));
  }
  for (size_t k = 0; k < n && r->call->network->matrices; k++)
    if (b->item[k].view.whole_n) qn_try(r->call->network->matrices->behind(r->call, exec, &b->item[k], b->lent));
  return QN_OK;
}

qn_status qn_lopt_run_batches(const qn_call *list, const qn_lopt_step *step, const qn_lopt_call *call, qn_tier tier,
                              void *workspace)
{
  batch b = {.network = step->network,
             .tensors = list->tensors,
             .shards = step->shards,
             .arena = {.base = workspace, .align = QN_LOPT_ALIGNMENT}};
  run r = {.call = call, .fn = step->network->tiers[tier], .batch = &b};
  for (; b.first < list->n; b.first = b.last) {
    b.last = batch_end(&b, list->n);
    lay_batch(&b);
    qn_try(run_batch(&r, step, list->exec));
  }
  return QN_OK;
}
