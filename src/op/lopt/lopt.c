/* SPDX-License-Identifier: Apache-2.0 */
/* lopt.c - a step of a learned optimizer over a list of tensors: every refusal before anything is written, then groups
 * of consecutive tensors, phase by phase, as numbered tasks that depend on the shapes alone. Nothing is allocated: what
 * a group needs lies in the workspace that is lent. No arithmetic on elements is here. */
#include "op/lopt/lopt.h"
#include "core/core.h"
#include "quern/device.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Tensors are taken together up to so many elements, so that small ones share a phase and large ones a workspace. */
enum { GROUP_ELEMENTS = 1 << 20, ALIGNMENT = 64 };

QN_CPU_DECLARE_TIERS(lopt, qn_lopt_cpu_fn);
static qn_lopt_cpu_fn *const tiers[QN_TIER_COUNT] = {QN_CPU_TIERS(lopt)};

const qn_op_tensor qn_lopt_tensors[QN_LOPT_ROLES] = {
    [QN_LOPT_PARAM] = {"param", NULL, "what is trained", QN_FILL_MODERATE, 0.02},
    [QN_LOPT_GRAD] = {"grad", NULL, "the loss's gradient with respect to it", QN_FILL_MODERATE, 1e-3},
    [QN_LOPT_M] = {"m", "exp_avg", "three means of the gradient; zeros before the first step", QN_FILL_MODERATE, 1e-3},
    [QN_LOPT_V] = {"v", "exp_avg_sq", "the mean of its square", QN_FILL_NON_NEGATIVE, 1e-6},
    [QN_LOPT_ROW] = {"row", "exp_avg_sq_r", "three means of its square's mean along the largest dimension",
                     QN_FILL_NON_NEGATIVE, 1e-6},
    [QN_LOPT_COLUMN] = {"column", "exp_avg_sq_c", "the same along the second largest", QN_FILL_NON_NEGATIVE, 1e-6},
};

const qn_op_types qn_lopt_types[1] = {{{{QN_F32, QN_READ_WRITE},
                                        {QN_F32, QN_READ},
                                        {QN_F32, QN_READ_WRITE},
                                        {QN_F32, QN_READ_WRITE},
                                        {QN_F32, QN_READ_WRITE},
                                        {QN_F32, QN_READ_WRITE}}}};

/* ---- checks ---- */

static const char *op_name(const qn_list *list) { return list->op->info.name; }

static const char *shape_text(int ndim, const int64_t *shape, char *text, size_t bytes)
{
  const qn_tensor t = {.ndim = ndim, .shape = shape};
  return qn_shape_text(&t, text, bytes);
}

static qn_status check_param_shape(const qn_list *list, size_t k)
{
  const qn_tensor *t = &list->tensors[QN_LOPT_PARAM][k];
  uint64_t n = 1;
  char text[128];
  qn_require(t->ndim >= 0 && t->ndim <= QN_LOPT_MOST_DIMENSIONS,
             "%s: param[%zu] has %d dimensions, from 0 to %d are possible", op_name(list), k, t->ndim,
             QN_LOPT_MOST_DIMENSIONS);
  qn_require(t->shape || !t->ndim, "%s: param[%zu] has %d dimensions and no shape", op_name(list), k, t->ndim);
  for (int d = 0; d < t->ndim; d++) {
    qn_require(t->shape[d] >= 0, "%s: extent %d of param[%zu] is %lld", op_name(list), d, k, (long long)t->shape[d]);
    const uint64_t factor = t->shape[d] ? (uint64_t)t->shape[d] : 1;
    qn_require(factor <= (UINT64_C(1) << 40) / n, "%s: param[%zu] (%s) has more than 2^40 elements", op_name(list), k,
               qn_shape_text(t, text, sizeof text));
    n *= factor;
  }
  return QN_OK;
}

/* Row-major; strides of extents of 1 mean nothing. */
static bool is_row_major(const qn_tensor *t)
{
  int64_t next = 1;
  for (int d = t->ndim; d-- > 0 && t->strides;) {
    if (t->shape[d] > 1 && t->strides[d] != next) return false;
    next *= t->shape[d];
  }
  return true;
}

static qn_status check_storage(const qn_list *list, size_t role, size_t k)
{
  const qn_tensor *t = &list->tensors[role][k];
  const char *op = op_name(list), *name = qn_lopt_tensors[role].name;
  const qn_device device = list->exec->device;
  const uint64_t n = qn_tensor_elements(t);
  char text[128];
  qn_shape_text(t, text, sizeof text);
  qn_require(t->device.kind == device.kind && t->device.index == device.index,
             "%s: %s[%zu] is on %s:%d and the call is on %s:%d", op, name, k, qn_device_kind_name(t->device.kind),
             t->device.index, qn_device_kind_name(device.kind), device.index);
  qn_require(!n || is_row_major(t), "%s: %s[%zu] (%s) is not row-major: make it contiguous", op, name, k, text);
  qn_require(t->data || !n, "%s: the data of %s[%zu] (%s) is NULL", op, name, k, text);
  qn_require((uintptr_t)t->data % sizeof(float) == 0, "%s: %s[%zu] is at %p, which is not a multiple of 4", op, name, k,
             t->data);
  return QN_OK;
}

static qn_status check_tensor(const qn_list *list, size_t role, size_t k)
{
  static const qn_lopt_state state[QN_LOPT_ROLES] = {
      [QN_LOPT_M] = QN_LOPT_STATE_M, [QN_LOPT_GRAD] = QN_LOPT_STATE_V,  [QN_LOPT_PARAM] = QN_LOPT_STATE_V,
      [QN_LOPT_V] = QN_LOPT_STATE_V, [QN_LOPT_ROW] = QN_LOPT_STATE_ROW, [QN_LOPT_COLUMN] = QN_LOPT_STATE_COLUMN};
  const qn_tensor *p = &list->tensors[QN_LOPT_PARAM][k], *t = &list->tensors[role][k];
  int64_t want[QN_LOPT_MOST_DIMENSIONS + 1];
  char is[128], must[128], param[128];
  if (t->dtype != QN_F32)
    return qn_fail(QN_BAD_TYPE, "%s: %s[%zu] is %s, it must be f32", op_name(list), qn_lopt_tensors[role].name, k,
                   qn_dtype_name(t->dtype));
  if (role == QN_LOPT_PARAM) qn_try(check_param_shape(list, k));
  const int ndim = qn_lopt_shape(QN_LOPT_TIES_LATER, state[role], p->ndim, p->shape, want);
  qn_require(t->ndim >= 0 && t->ndim <= QN_MAX_NDIM && (t->shape || !t->ndim),
             "%s: %s[%zu] has %d dimensions, from 0 to %d are possible, with a shape", op_name(list),
             qn_lopt_tensors[role].name, k, t->ndim, QN_MAX_NDIM);
  qn_require(t->ndim == ndim && (!ndim || !memcmp(t->shape, want, (size_t)ndim * sizeof *want)),
             "%s: %s[%zu] has the shape %s, for a param of %s it must be %s", op_name(list), qn_lopt_tensors[role].name,
             k, qn_shape_text(t, is, sizeof is), qn_shape_text(p, param, sizeof param),
             shape_text(ndim, want, must, sizeof must));
  return check_storage(list, role, k);
}

static qn_status check_lent(const qn_list *list, const char *what, const void *memory, size_t bytes, bool is_written)
{
  const uintptr_t begin = (uintptr_t)memory, end = begin + bytes;
  for (size_t role = 0; role < QN_LOPT_ROLES; role++)
    for (size_t k = 0; k < list->n; k++) {
      const qn_span span = qn_span_of(list, role, k);
      if (role == QN_LOPT_GRAD && !is_written) continue;
      qn_require(span.begin >= end || begin >= span.end || !bytes, "%s: %s[%zu] and %s share memory", op_name(list),
                 qn_lopt_tensors[role].name, k, what);
    }
  return QN_OK;
}

static qn_status check_step(const qn_list *list, const qn_lopt_step *step)
{
  const char *op = op_name(list);
  qn_require(step->weights, "%s: weights is NULL: qn_lopt_weights_read reads them from a file", op);
  qn_require((uintptr_t)step->weights % sizeof(float) == 0, "%s: weights is at %p, which is not a multiple of 4", op,
             (const void *)step->weights);
  for (size_t k = 0; k < list->n && step->lr_scale; k++)
    qn_require(isfinite(step->lr_scale[k]) && step->lr_scale[k] >= 0,
               "%s: lr_scale[%zu] is %g, it must be a finite number of at least 0", op, k, step->lr_scale[k]);
  for (size_t k = 0; k < list->n && step->compat; k++)
    qn_require(list->tensors[QN_LOPT_PARAM][k].ndim <= 2,
               "%s: param[%zu] has %d dimensions: pylo_cuda_compat is for up to 2", op, k,
               list->tensors[QN_LOPT_PARAM][k].ndim);
  return QN_OK;
}

/* ---- groups and their workspace ---- */

/* Tensors [first, last) of the list, and where the workspace puts what belongs to them. */
typedef struct group {
  const qn_tensor *const *tensors; /* by role; only the params where the workspace is measured */
  size_t first, last, bytes;
  char *base; /* NULL: to measure */
  qn_lopt_item *item;
  uint64_t *task; /* [last - first + 1]: the first task of each in a phase */
} group;

static void *take(group *g, uint64_t bytes)
{
  char *at = g->base ? g->base + g->bytes : NULL;
  g->bytes += (size_t)(qn_lopt_ceiling(bytes, ALIGNMENT) * ALIGNMENT);
  return at;
}

static float *take_floats(group *g, uint64_t n) { return take(g, n * sizeof(float)); }

/* The group that begins with tensor `first` of n. */
static size_t group_end(const qn_tensor *param, size_t first, size_t n)
{
  uint64_t elements = 0;
  size_t k = first;
  for (; k < n; k++) {
    elements += qn_tensor_elements(&param[k]);
    if (k > first && elements > GROUP_ELEMENTS) break;
  }
  return k;
}

static void lay_side(group *g, qn_lopt_side *side, uint64_t n, bool factored)
{
  side->n = n;
  side->sums = take(g, n * sizeof *side->sums);
  if (!factored) return;
  side->padded = qn_lopt_ceiling(n, 16) * 16;
  side->factor = take_floats(g, 3 * side->padded);
  side->channel = take_floats(g, QN_LOPT_SIDES * side->padded);
  side->table = take_floats(g, QN_LOPT_HIDDEN * side->padded);
}

static void lay_item(group *g, size_t k, qn_lopt_item *item)
{
  const qn_tensor *p = &g->tensors[QN_LOPT_PARAM][k];
  const qn_lopt_view v = qn_lopt_view_of(QN_LOPT_TIES_LATER, p->ndim, p->shape);
  *item = (qn_lopt_item){.view = v, .of_gradient = 1.0f};
  if (!v.n) return;
  if (v.factored) lay_side(g, &item->along, v.a * v.b * v.y * v.c, true);
  lay_side(g, &item->across, v.a * v.x * v.b * v.c, v.factored);
  item->partial = take(g, qn_lopt_ceiling(v.n, QN_LOPT_CHUNK) * QN_LOPT_CHANNELS * sizeof *item->partial);
  item->layer = take_floats(g, QN_LOPT_CHANNELS * QN_LOPT_HIDDEN);
}

/* Lays out a whole group; without a base it counts the bytes. */
static void lay_group(group *g)
{
  const size_t n = g->last - g->first;
  qn_lopt_item measured;
  g->bytes = 0;
  g->item = take(g, n * sizeof *g->item);
  g->task = take(g, (n + 1) * sizeof *g->task);
  for (size_t k = 0; k < n; k++) lay_item(g, g->first + k, g->base ? &g->item[k] : &measured);
}

static size_t workspace(size_t n, const qn_tensor *param)
{
  const qn_tensor *const tensors[QN_LOPT_ROLES] = {param};
  size_t most = 0;
  for (group g = {.tensors = tensors}; g.first < n; g.first = g.last) {
    g.last = group_end(param, g.first, n);
    lay_group(&g);
    if (g.bytes > most) most = g.bytes;
  }
  return most ? most + ALIGNMENT : 0;
}

size_t qn_lopt_workspace_of(const qn_op *op, size_t n, const qn_tensor *param)
{
  const qn_list list = {.op = op, .n = n, .tensors = {param}};
  for (size_t k = 0; k < n; k++)
    if (!param || check_param_shape(&list, k) != QN_OK) return 0;
  return workspace(n, param);
}

static qn_status check(qn_list *list, const qn_lopt_step *step, const qn_tensor *const *tensors)
{
  const qn_exec *exec = list->exec;
  if (exec->device.kind != QN_CPU)
    return qn_fail(QN_UNSUPPORTED, "%s: the call is on %s:%d, and its kernels are the processor's", op_name(list),
                   qn_device_kind_name(exec->device.kind), exec->device.index);
  qn_require(list->n <= SIZE_MAX / 1024, "%s: a list of %zu tensors", op_name(list), list->n);
  for (size_t role = 0; role < QN_LOPT_ROLES; role++) {
    qn_require(tensors[role] || !list->n, "%s: %s is NULL, and the list has %zu tensors", op_name(list),
               qn_lopt_tensors[role].name, list->n);
    list->tensors[role] = tensors[role];
  }
  for (size_t k = 0; k < list->n; k++)
    for (size_t role = 0; role < QN_LOPT_ROLES; role++) qn_try(check_tensor(list, role, k));
  qn_try(check_step(list, step));
  const size_t needed = workspace(list->n, list->tensors[QN_LOPT_PARAM]);
  qn_require(!needed || (exec->workspace && exec->workspace_bytes >= needed),
             "%s: the workspace is %zu bytes at %p, %zu are needed (qn_%s_workspace_bytes says so)", op_name(list),
             exec->workspace_bytes, exec->workspace, needed, op_name(list));
  qn_require((uintptr_t)exec->workspace % 16 == 0 || !needed,
             "%s: the workspace is at %p, which is not a multiple of 16", op_name(list), exec->workspace);
  qn_try(qn_check_overlap(list));
  qn_try(check_lent(list, "the workspace", exec->workspace, needed, true));
  return check_lent(list, "the weights", step->weights, QN_LOPT_SMALL_FC_WEIGHTS * sizeof(float), false);
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
  item->lr = (float)lr;
  item->step = (float)(lr * step->step_mult);
  item->decay = (float)(step->elo ? step->weight_decay : step->weight_decay * lr);
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
  if (!v->n) return 0;
  switch (r->phase) {
  case QN_LOPT_SUMS:
    if (!v->factored && r->call->max_grad_norm <= 0) return 0;
    return qn_lopt_ceiling(qn_lopt_tiles(v), qn_lopt_tiles_a_task(v)) +
           qn_lopt_ceiling(qn_lopt_strips(v), qn_lopt_strips_a_task(v));
  case QN_LOPT_FACTORS:
  case QN_LOPT_FOLD: return 1;
  default: return qn_lopt_ceiling(v->n, QN_LOPT_CHUNK);
  }
}

static void run_task(void *user, size_t task)
{
  const run *r = user;
  const uint64_t *first = r->group->task;
  size_t low = 0, high = r->group->last - r->group->first;
  while (high - low > 1) {
    const size_t middle = (low + high) / 2;
    if (first[middle] <= task)
      low = middle;
    else
      high = middle;
  }
  r->fn(r->call, r->phase, &r->group->item[low], task - first[low]);
}

static void run_group(run *r, const qn_lopt_step *step, const qn_exec *exec)
{
  const group *g = r->group;
  const size_t n = g->last - g->first;
  for (size_t k = 0; k < n; k++) bind(g, step, g->first + k, &g->item[k]);
  for (r->phase = QN_LOPT_SUMS; r->phase < QN_LOPT_PHASES; r->phase++) {
    g->task[0] = 0;
    for (size_t k = 0; k < n; k++) g->task[k + 1] = g->task[k] + tasks_of(r, &g->item[k]);
    qn_pool_run(exec->pool, (size_t)g->task[n], run_task, r);
  }
}

qn_status qn_lopt_run(qn_list *list, const qn_lopt_step *step, const qn_tensor *const *tensors)
{
  qn_lopt_call call;
  run r = {.call = &call};
  qn_tier tier;
  qn_try(check(list, step, tensors));
  qn_try(qn_tier_in_force(&tier));
  r.fn = tiers[tier];
  if (!list->n) return QN_OK;
  const uintptr_t lent = (uintptr_t)list->exec->workspace;
  group g = {.tensors = list->tensors,
             .base = (char *)list->exec->workspace + (ALIGNMENT - lent % ALIGNMENT) % ALIGNMENT};
  const qn_fp_word word = qn_fp_enter();
  qn_lopt_prepare(&call, step);
  r.group = &g;
  for (; g.first < list->n; g.first = g.last) {
    g.last = group_end(list->tensors[QN_LOPT_PARAM], g.first, list->n);
    lay_group(&g);
    run_group(&r, step, list->exec);
  }
  qn_fp_leave(word);
  return QN_OK;
}
