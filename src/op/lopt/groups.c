/* SPDX-License-Identifier: Apache-2.0 */
/* groups.c - a step of a learned optimizer that was checked: groups of consecutive tensors, phase by phase, as numbered
 * tasks that depend on the shapes alone. Nothing is allocated: what a group needs lies in the workspace that is lent.
 * No arithmetic on elements is here. */
#include "op/lopt/lopt.h"
#include "core/core.h"

/* Tensors are taken together up to so many elements, so that small ones share a phase and large ones a workspace. */
enum { GROUP_ELEMENTS = 1 << 20 };

/* ---- groups and their workspace ---- */

/* Tensors [first, last) of the list, and where the workspace puts what belongs to them. */
typedef struct group {
  const qn_lopt_kind *kind;
  const qn_tensor *const *tensors; /* by role; only the params where the workspace is measured */
  const qn_lopt_shards *shards;
  size_t first, last;
  qn_lopt_room room;
  qn_lopt_item *item;
  uint64_t *task; /* [last - first + 1]: the first task of each in a phase */
  double *shared; /* what a phase leaves to be added over shards */
} group;

static qn_lopt_view view_of(const group *g, size_t k)
{
  const qn_tensor *p = &g->tensors[QN_LOPT_PARAM][k];
  return qn_lopt_view_of(g->kind->ties, p->ndim, p->shape, qn_lopt_whole(g->shards, k));
}

/* The group of n tensors' that begins with `first`; by the whole tensors, so that all that hold shards have the same.
 */
static size_t group_end(const group *g, size_t n)
{
  uint64_t elements = 0;
  size_t k = g->first;
  for (; k < n; k++) {
    elements += view_of(g, k).whole_n;
    if (k > g->first && elements > GROUP_ELEMENTS) break;
  }
  return k;
}

static void lay_side(group *g, qn_lopt_side *side, uint64_t n, uint64_t whole, bool factored)
{
  side->n = n, side->whole = whole;
  side->sums = qn_lopt_take(&g->room, n * sizeof *side->sums);
  if (!factored) return;
  side->row_sums = qn_lopt_take(&g->room, 3 * side->row_places * sizeof *side->row_sums);
  side->padded = qn_lopt_ceiling(n, 16) * 16;
  side->factor = qn_lopt_take(&g->room, 3 * side->padded * sizeof(float));
  side->channel = qn_lopt_take(&g->room, QN_LOPT_SIDES * side->padded * sizeof(float));
  side->table = qn_lopt_take(&g->room, g->kind->hidden * side->padded * sizeof(float));
}

static void lay_item(group *g, size_t k, qn_lopt_item *item)
{
  const uint64_t channels = g->kind->elements + QN_LOPT_SIDES;
  const qn_lopt_view v = view_of(g, k);
  *item = (qn_lopt_item){.view = v, .of_gradient = 1.0f, .chunks = qn_lopt_ceiling(v.n, QN_LOPT_CHUNK)};
  if (!v.whole_n) return;
  if (v.factored && v.rows_along) item->along.row_places = v.a * v.b * v.c;
  if (v.factored && !v.rows_along) item->across.row_places = v.a * v.b * v.c;
  if (v.factored) lay_side(g, &item->along, v.a * v.b * v.y * v.c, v.whole_a * v.b * v.y * v.c, true);
  lay_side(g, &item->across, v.a * v.x * v.b * v.c, v.whole_a * v.whole_x * v.b * v.c, v.factored);
  item->partial = qn_lopt_take(&g->room, qn_lopt_most(1, item->chunks) * channels * sizeof *item->partial);
  item->layer = qn_lopt_take(&g->room, channels * g->kind->hidden * sizeof(float));
}

/* Lays out a whole group; without a base it counts the bytes. */
static void lay_group(group *g)
{
  const size_t n = g->last - g->first;
  uint64_t shared = 0;
  qn_lopt_item measured;
  g->room.used = 0;
  g->item = qn_lopt_take(&g->room, n * sizeof *g->item);
  g->task = qn_lopt_take(&g->room, (n + 1) * sizeof *g->task);
  for (size_t k = 0; k < n; k++) {
    qn_lopt_item *item = g->room.base ? &g->item[k] : &measured;
    lay_item(g, g->first + k, item);
    shared += qn_lopt_shared_room(g->kind, item);
  }
  g->shared = qn_lopt_take(&g->room, shared * sizeof *g->shared);
}

size_t qn_lopt_groups_bytes(const qn_lopt_kind *kind, const qn_lopt_shards *shards, size_t n, const qn_tensor *param)
{
  const qn_tensor *const tensors[QN_LOPT_ROLES] = {param};
  size_t most = 0;
  for (group g = {.kind = kind, .tensors = tensors, .shards = shards, .room = {.align = QN_LOPT_ALIGNMENT}};
       g.first < n; g.first = g.last) {
    g.last = group_end(&g, n);
    lay_group(&g);
    most = qn_lopt_most(most, g.room.used);
  }
  return most;
}

/* ---- a group's phases ---- */

static void *data_of(const group *g, size_t role, size_t k) { return g->tensors[role][k].data; }

static void bind(const group *g, const qn_lopt_step *step, size_t k, qn_lopt_item *item)
{
  const double scale = step->lr_scale ? step->lr_scale[k] : 1, lr = step->lr * scale;
  item->p = data_of(g, QN_LOPT_PARAM, k);
  item->g = data_of(g, QN_LOPT_GRAD, k);
  item->m = data_of(g, QN_LOPT_M, k);
  item->v = data_of(g, QN_LOPT_V, k);
  item->weights = step->weights + k * step->weights_apart;
  item->lr = (float)lr;
  item->step = (float)(lr * step->step_mult);
  item->decay = (float)(step->joint_decay ? step->weight_decay : step->weight_decay * lr);
  if (!item->view.factored) item->f = data_of(g, QN_LOPT_ROW, k);
  qn_lopt_side *row = item->view.rows_along ? &item->along : &item->across;
  qn_lopt_side *column = item->view.rows_along ? &item->across : &item->along;
  if (item->view.factored) row->state = data_of(g, QN_LOPT_ROW, k), column->state = data_of(g, QN_LOPT_COLUMN, k);
}

typedef struct run {
  const qn_lopt_call *call;
  qn_lopt_cpu_fn *fn;
  qn_lopt_phase phase;
  const group *group;
} run;

static uint64_t tasks_of(const run *r, const qn_lopt_item *item)
{
  const qn_lopt_view *v = &item->view;
  if (!v->whole_n) return 0;
  switch (r->phase) {
  case QN_LOPT_SUMS:
    if (!v->factored && r->call->max_grad_norm <= 0) return 0;
    return qn_lopt_ceiling(qn_lopt_tiles(v), qn_lopt_tiles_a_task(v)) +
           qn_lopt_ceiling(qn_lopt_strips(v), qn_lopt_strips_a_task(v));
  case QN_LOPT_STATES:
  case QN_LOPT_FACTORS:
  case QN_LOPT_FOLD: return 1;
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
  const uint64_t *first = r->group->task;
  const size_t k = qn_lopt_item_of(first, r->group->last - r->group->first, task);
  r->fn(r->call, r->phase, &r->group->item[k], task - first[k]);
}

static qn_status run_group(run *r, const qn_lopt_step *step, const qn_exec *exec)
{
  const group *g = r->group;
  const size_t n = g->last - g->first;
  for (size_t k = 0; k < n; k++) bind(g, step, g->first + k, &g->item[k]);
  for (r->phase = QN_LOPT_SUMS; r->phase < QN_LOPT_PHASES; r->phase++) {
    g->task[0] = 0;
    for (size_t k = 0; k < n; k++) g->task[k + 1] = g->task[k] + tasks_of(r, &g->item[k]);
    qn_pool_run(exec->pool, (size_t)g->task[n], run_task, r);
    qn_try(qn_lopt_share(r->call, step->shards, exec, r->phase, n, g->item, g->shared));
  }
  return QN_OK;
}

qn_status qn_lopt_run_groups(const qn_call *list, const qn_lopt_step *step, const qn_lopt_call *call, qn_tier tier,
                             void *workspace)
{
  group g = {.kind = step->kind,
             .tensors = list->tensors,
             .shards = step->shards,
             .room = {.base = workspace, .align = QN_LOPT_ALIGNMENT}};
  run r = {.call = call, .fn = step->kind->tiers[tier], .group = &g};
  for (; g.first < list->n; g.first = g.last) {
    g.last = group_end(&g, list->n);
    lay_group(&g);
    qn_try(run_group(&r, step, list->exec));
  }
  return QN_OK;
}
