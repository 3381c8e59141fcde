/* SPDX-License-Identifier: Apache-2.0 */
/* subject.c - see subject.h: memory, data, and steps. The text is read in subject_text.c, the tensors in double are
 * subject_double.c's, comparing is subject_compare.c's. */
#include "workbench/subject.h"
#include "core/core.h"
#include "quern/device.h"
#include "workbench/fill.h"
#include "workbench/settings.h"
#include <math.h>
#include <string.h>

uint64_t qn_subject_elements(const qn_subject *d)
{
  uint64_t n = 0;
  for (size_t r = 0; r < d->op->info.n_tensors; r++)
    for (size_t k = 0; k < d->role[r].n; k++) n += d->role[r].place[k].elements;
  return n;
}

double qn_subject_number(const qn_subject *d, const unsigned char *image, size_t r, size_t k, size_t i)
{
  return qn_number_load(d->role[r].dtype, image + qn_subject_at(d, r, k, i));
}

/* ---- data ---- */

static void store(const qn_subject *d, unsigned char *image, size_t r, size_t k, size_t i, double value)
{
  qn_number_store(d->role[r].dtype, image + qn_subject_at(d, r, k, i), value);
}

/* Elements that the text sets. */
static void put_set(const qn_subject *d, unsigned char *image, size_t r, size_t k)
{
  const size_t n = d->role[r].place[k].elements;
  for (size_t s = 0; s < d->n_set; s++) {
    const qn_subject_set *set = &d->set[s];
    if (set->role != r || set->tensor != k) continue;
    for (size_t i = 0; i < n; i++)
      if (set->element == i || set->element == SIZE_MAX || (set->element == SIZE_MAX - 1 && i == n / 2))
        store(d, image, r, k, i, set->value);
  }
}

/* The first role that is only read. */
static bool takes_nan(const qn_subject *d, size_t r)
{
  for (size_t k = 0; k < r; k++)
    if (d->role[k].access == QN_READ) return false;
  return d->nan && d->role[r].access == QN_READ;
}

/* Numbers from element `first` of the tensor on. */
static void make_numbers(const qn_subject *d, size_t r, size_t k, const qn_filling *filling, size_t first, size_t n,
                         void *to)
{
  const qn_subject_role *role = &d->role[r];
  qn_fill_numbers(filling, role->dtype, to, n, (k << 32) + first);
  if (role->filled == QN_SUBJECT_SWEEP) qn_fill_sweep(role->dtype, to, n);
  if (d->halves && role->access == QN_READ && role->dtype == QN_F32 && role->place[k].ndim > 1) qn_fill_halves(to, n);
}

/* Of a tensor that lies by its strides alone. */
static void fill_strided(const qn_subject *d, unsigned char *image, size_t r, size_t k, const qn_filling *filling)
{
  const size_t n = d->role[r].place[k].elements, width = d->role[r].width;
  unsigned char *const dense = qn_allocate(n * width + 1);
  if (!dense) return; /* the reference, which is filled from this one, sees the same */
  make_numbers(d, r, k, filling, 0, n, dense);
  for (size_t i = 0; i < n; i++) memcpy(image + qn_subject_at(d, r, k, i), dense + i * width, width);
  qn_release(dense);
}

/* A tensor's numbers into an image of its role; scale below 0: as described. */
static void fill_tensor(const qn_subject *d, unsigned char *image, size_t r, size_t k, uint64_t seed, double scale)
{
  const qn_op_tensor *is = &d->op->info.tensors[r];
  const qn_subject_role *role = &d->role[r];
  const qn_subject_place *p = &role->place[k];
  const qn_filling filling = {
      .kind = is->fill, .scale = scale < 0 ? is->fill_scale : scale, .seed = seed, .role = r, .odd = d->odd};
  if (p->at) fill_strided(d, image, r, k, &filling);
  for (size_t row = 0; row < p->rows && !p->at; row++)
    make_numbers(d, r, k, &filling, row * p->cols, p->cols, image + p->offset + row * p->pitch * role->width);
  for (size_t i = 0; i < p->elements && role->filled == QN_SUBJECT_VALUE; i++) store(d, image, r, k, i, role->all);
  if (takes_nan(d, r) && p->elements) store(d, image, r, k, p->elements / 2, NAN);
  put_set(d, image, r, k);
}

qn_status qn_subject_send(qn_subject *d, size_t r)
{
  const qn_subject_role *role = &d->role[d->role[r].home];
  qn_fence_lower(&role->fence);
  qn_try(qn_memory_write(d->exec.device, d->exec.stream, role->memory, role->before, role->bytes));
  qn_fence_raise(&role->fence);
  return QN_OK;
}

/* The other's numbers, in a list of the same tensors: those that it was filled with, or, of what is written, those that
 * a step left. */
static void copy_tensor(const qn_subject *d, size_t r, size_t k, bool left)
{
  const qn_subject_role *to = &d->role[r], *from = &d->like->role[r];
  const qn_subject_place *p = &to->place[k], *q = &from->place[k];
  const unsigned char *const image = left ? from->after : from->before;
  if (!q->at && p->cols == p->elements && q->cols == q->elements) {
    if (p->elements) memcpy(to->before + p->offset, image + q->offset, p->elements * to->width);
    return;
  }
  for (size_t i = 0; i < p->elements; i++)
    memcpy(to->before + qn_subject_at(d, r, k, i), image + qn_subject_at(d->like, r, k, i), to->width);
}

static qn_status fill_role(qn_subject *d, size_t r, uint64_t seed, double scale)
{
  for (size_t k = 0; k < d->role[r].n; k++)
    if (d->like)
      copy_tensor(d, r, k, false);
    else
      fill_tensor(d, d->role[r].before, r, k, seed, scale);
  qn_subject_refresh(d, r);
  return qn_subject_send(d, r);
}

qn_status qn_subject_put(qn_subject *d, size_t r, size_t k, const double *values)
{
  for (size_t i = 0; i < d->role[r].place[k].elements; i++) store(d, d->role[r].before, r, k, i, values[i]);
  put_set(d, d->role[r].before, r, k);
  qn_subject_refresh(d, r);
  return qn_subject_send(d, r);
}

/* The first contents of a written tensor of the whole list. */
static qn_status begin_state(qn_subject *d, size_t r)
{
  _Alignas(16) unsigned char params[QN_SUBJECT_PARAMS];
  double *values;
  qn_subject_host_params(d, params);
  qn_try(qn_try_allocate(&values, (d->role[r].place[0].elements + 1) * sizeof *values, "a state"));
  d->check->initial_state(params, r, d->filled, d->role[r].place[0].shape, values);
  const qn_status status = qn_subject_put(d, r, 0, values);
  qn_release(values);
  return status;
}

/* The role's first contents: numbers, the op's own, or zeros. */
static qn_status begin_role(qn_subject *d, size_t r)
{
  const qn_subject_role *role = &d->role[r];
  if (role->single && role->access & QN_WRITE && d->check->initial_state) return begin_state(d, r);
  if (role->access == QN_READ) return fill_role(d, r, d->seed, role->single ? -1 : d->gradients);
  if (role->access & QN_READ && (!r || d->filled)) return fill_role(d, r, d->seed, r ? -1 : d->trained);
  return qn_subject_send(d, r);
}

/* ---- memory ---- */

/* It repeats after 1024 bytes. */
static void fill_pattern(unsigned char *to, size_t bytes)
{
  enum { PERIOD = 1024 };
  for (size_t at = 0; at < bytes && at < PERIOD; at++) to[at] = (unsigned char)(0xa5u ^ (at * 37u >> 2));
  for (size_t at = PERIOD; at < bytes; at += PERIOD) memcpy(to + at, to, bytes - at < PERIOD ? bytes - at : PERIOD);
}

/* Images: guards round zeros, of what is read too, or round NaN. */
static qn_status make_images(qn_subject *d, size_t r)
{
  qn_subject_role *role = &d->role[r];
  const int empty = role->access & QN_READ ? 0 : 0xff;
  if (role->home != r) {
    role->before = d->role[role->home].before;
    role->after = d->role[role->home].after;
  } else {
    qn_try(qn_try_allocate(&role->before, role->bytes, "tensors"));
    qn_try(qn_try_allocate(&role->after, role->bytes, "tensors"));
    fill_pattern(role->before, role->bytes);
  }
  for (size_t k = 0; k < role->n; k++) {
    const qn_subject_place *p = &role->place[k];
    for (size_t i = 0; i < p->elements && p->at; i++)
      memset(role->before + qn_subject_at(d, r, k, i), empty, role->width);
    for (size_t row = 0; row < p->rows && !p->at; row++)
      memset(role->before + p->offset + row * p->pitch * role->width, empty, p->cols * role->width);
  }
  return QN_OK;
}

/* A tensor's numbers: a piece of them from the host, and copies of it, as making gigabytes takes long. */
static qn_status fill_lean(qn_subject *d, size_t r, size_t k, const qn_filling *filling)
{
  enum { PIECE = 1 << 22 };
  const qn_subject_place *p = &d->role[r].place[k];
  const size_t all = p->rows ? (p->rows - 1) * p->pitch + p->cols : 0, n = all < PIECE ? all : PIECE;
  const size_t bytes = all * d->role[r].width;
  char *to = d->role[r].tensor[k].data;
  void *values;
  qn_try(qn_try_allocate(&values, n * d->role[r].width + 1, "a tensor's data"));
  qn_fill_numbers(filling, d->role[r].dtype, values, n, k << 32);
  size_t done = n * d->role[r].width;
  qn_status status = bytes ? qn_memory_write(d->exec.device, d->exec.stream, to, values, done) : QN_OK;
  qn_release(values);
  for (size_t more; status == QN_OK && done < bytes; done += more) {
    more = bytes - done < done ? bytes - done : done;
    status = qn_memory_copy(d->exec.device, d->exec.stream, to + done, to, more);
  }
  return status;
}

/* Without images: numbers in the parameters and in what is only read, zeros in the rest. */
static qn_status begin_lean(qn_subject *d, size_t r)
{
  qn_subject_role *role = &d->role[r];
  const qn_op_tensor *is = &d->op->info.tensors[r];
  const bool own = role->single && role->access & QN_WRITE && d->check->initial_state;
  if (own) {
    qn_try(make_images(d, r));
    return begin_state(d, r);
  }
  if (r && role->access != QN_READ) return qn_memory_fill(d->exec.device, d->exec.stream, role->memory, 0, role->bytes);
  const qn_filling filling = {.kind = is->fill, .scale = is->fill_scale, .seed = d->seed, .role = r};
  for (size_t k = 0; k < role->n; k++) qn_try(fill_lean(d, r, k, &filling));
  return QN_OK;
}

/* A role that moves begins an element off at times. */
qn_status qn_subject_allocate(qn_subject *d, size_t r, qn_fence *fence)
{
  fence->walled = d->role[r].walls;
  return qn_fence_create(d->exec.device, d->fenced, d->role[r].bytes + (d->way == QN_WAY_MOVED ? 64 : 0), fence);
}

static qn_status make_role(qn_subject *d, size_t r)
{
  qn_subject_role *role = &d->role[r];
  if (d->bare) {
    for (size_t k = 0; k < role->n; k++) /* far apart, aligned, never touched */
      role->tensor[k].data = (void *)(((uintptr_t)(r + 1) << 40) + role->place[k].offset / 64 * 64);
    return QN_OK;
  }
  if (role->home == r) qn_try(qn_subject_allocate(d, r, &role->fence));
  role->memory = d->role[role->home].fence.memory;
  for (size_t k = 0; k < role->n; k++) role->tensor[k].data = role->memory + role->place[k].offset;
  return d->lean ? QN_OK : make_images(d, r);
}

qn_status qn_subject_lend(qn_subject *d)
{
  const size_t bytes = qn_op_call_workspace_bytes(&d->op->info, &d->exec, d->params, d->n_calls, d->pieces);
  if (bytes <= d->exec.workspace_bytes) return QN_OK;
  const size_t all = QN_SUBJECT_GUARD + (d->fenced ? (bytes + 15) / 16 * 16 : bytes + QN_SUBJECT_GUARD);
  qn_fence_destroy(&d->lent);
  d->exec.workspace = NULL;
  d->exec.workspace_bytes = 0;
  qn_try(qn_fence_create(d->exec.device, d->fenced, all, &d->lent));
  d->exec.workspace = (char *)d->lent.memory + QN_SUBJECT_GUARD;
  d->exec.workspace_bytes = bytes;
  qn_try(qn_memory_fill(d->exec.device, d->exec.stream, d->lent.memory, 0xa5, all));
  return qn_memory_fill(d->exec.device, d->exec.stream, d->exec.workspace, 0xff, bytes); /* NaN */
}

/* ---- opening ---- */

static qn_status take_elements(qn_subject *d, const qn_layout *list)
{
  qn_try(qn_try_allocate(&d->role[0].place, (list->n + 1) * sizeof *d->role[0].place, "tensors"));
  d->n = list->n;
  for (size_t k = 0; k < list->n; k++)
    d->role[0].place[k] = (qn_subject_place){.ndim = 1, .shape = {(int64_t)list->elements[k]}};
  return QN_OK;
}

static qn_status take_list(qn_subject *d, const qn_workload *list)
{
  qn_try(qn_try_allocate(&d->role[0].place, (list->n + 1) * sizeof *d->role[0].place, "tensors"));
  d->n = list->n;
  d->apart = list->apart;
  for (size_t k = 0; k < list->n; k++) {
    qn_subject_place *p = &d->role[0].place[k];
    *p = (qn_subject_place){.ndim = list->item[k].ndim};
    qn_require(p->ndim <= QN_SUBJECT_NDIM, "%s: %s has %d dimensions", d->op->info.name, list->item[k].name, p->ndim);
    memcpy(p->shape, list->item[k].shape, (size_t)p->ndim * sizeof *p->shape);
  }
  return QN_OK;
}

/* Of roles that params decide. */
static void decide_access(qn_subject *d)
{
  const qn_call call = qn_subject_call(d, QN_CALL_STEP);
  for (size_t r = 0; r < d->op->info.n_tensors; r++)
    if (d->op->info.tensors[r].written_where && d->role[r].access) d->role[r].access = qn_call_access(&call, r);
}

static qn_status read_order(qn_subject *d, const qn_subject_order *order)
{
  const qn_op_info *info = &order->op->info;
  qn_require(info->params_bytes <= sizeof d->params, "%s: its params are too large for a check", info->name);
  for (size_t k = 0; k < sizeof d->extent / sizeof d->extent[0]; k++) d->extent[k] = -1;
  for (size_t r = 0; r < info->n_tensors; r++) {
    d->role[r].dtype = info->types[order->row].tensor[r].dtype;
    d->role[r].width = qn_dtype_bytes(d->role[r].dtype);
    d->role[r].access = info->types[order->row].tensor[r].access;
    d->role[r].single = !d->list || info->tensors[r].single;
  }
  qn_try(qn_settings_begin(order->op, d->params));
  qn_try(qn_subject_read(d, order->text));
  qn_try(qn_subject_read(d, order->more));
  for (size_t k = 0; k < order->n_settings; k++) qn_try(qn_subject_read(d, order->settings[k]));
  if (order->params) memcpy(d->params, order->params, info->params_bytes);
  if (order->setting) qn_subject_take_setting(d, order->setting);
  decide_access(d);
  if (order->elements) return take_elements(d, order->elements);
  return order->list ? take_list(d, order->list) : QN_OK;
}

const qn_subject_order *qn_subject_reference_order(qn_subject_order *order, const qn_subject *got)
{
  order->device = (qn_device){QN_CPU, 0};
  order->pool = order->stream = NULL;
  order->alignment = QN_ALIGN_64;
  order->way = QN_WAY_REFERENCE;
  order->arranged = false;
  order->fenced = false;
  order->like = got;
  return order;
}

qn_status qn_subject_open(qn_subject *d, const qn_subject_order *order)
{
  const bool list = !qn_op_is_alone(&order->op->info);
  *d = (qn_subject){.op = order->op,
                    .check = qn_op_check_of(order->op),
                    .row = order->row,
                    .n = !list,
                    .list = list,
                    .alignment = order->alignment,
                    .way = order->way,
                    .behind = order->list ? order->list->shift : 0,
                    .seed = order->seed,
                    .like = order->like,
                    .arranged = order->arranged,
                    .given = {.seed = order->seed},
                    .bare = order->bare,
                    .lean = order->lean,
                    .steps = 1,
                    .gradients = -1,
                    .trained = 0.3};
  qn_try(qn_op_rules_of(d->op, &d->own_rules, &d->rules));
  d->fenced = order->fenced && order->device.kind != QN_CUDA;
  d->exec = (qn_exec){.size = sizeof d->exec, .device = order->device, .pool = order->pool, .stream = order->stream};
  qn_try(read_order(d, order));
  d->own_stream = !order->bare && !order->stream;
  if (d->own_stream) qn_try(qn_stream_create(order->device, &d->exec.stream));
  for (size_t r = 0; r < d->op->info.n_tensors; r++)
    if (d->role[r].access != QN_ABSENT) qn_try(qn_subject_place_role(d, r));
  if (order->arranged) qn_try(qn_subject_arrange(d, order->arrangement));
  for (size_t r = 0; r < d->op->info.n_tensors; r++)
    if (d->role[r].access != QN_ABSENT) qn_try(make_role(d, r));
  qn_try(qn_subject_cut_up(d));
  if (d->bare) return QN_OK;
  qn_try(qn_subject_point(d));
  for (size_t r = 0; r < d->op->info.n_tensors && !order->unfilled; r++)
    if (d->role[r].access != QN_ABSENT) qn_try(d->lean ? begin_lean(d, r) : begin_role(d, r));
  return d->list ? qn_subject_lend(d) : QN_OK;
}

void qn_subject_close(qn_subject *d)
{
  if (d->exec.stream) qn_stream_synchronize(d->exec.device, d->exec.stream);
  qn_subject_forget(d);
  qn_plan_destroy(&d->plan);
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) {
    if (d->role[r].home == r) qn_release(d->role[r].before);
    if (d->role[r].home == r) qn_release(d->role[r].after);
    for (size_t k = 0; k < d->role[r].n && d->arranged; k++) qn_release(d->role[r].place[k].at);
    qn_release(d->role[r].place);
    qn_release(d->role[r].tensor);
    qn_release(d->piece[r]);
    qn_fence_destroy(&d->role[r].fence);
    qn_fence_destroy(&d->role[r].spare);
  }
  qn_release(d->cut);
  for (size_t k = 0; k < QN_PARAMS_MOST; k++) {
    qn_release(d->numbers[k]);
    qn_release(d->values[k]);
    if (d->pointed[k]) qn_memory_release(d->exec.device, d->pointed[k]);
  }
  qn_fence_destroy(&d->lent);
  if (d->own_stream && d->exec.stream) qn_stream_destroy(d->exec.device, &d->exec.stream);
  *d = (qn_subject){0};
}

/* ---- steps ---- */

qn_status qn_subject_count_step(qn_subject *d)
{
  const qn_op_info *info = &d->op->info;
  for (size_t k = 0; k < info->n_params; k++)
    if (!strcmp(info->params[k].name, "step") && info->params[k].type == QN_PARAM_U64)
      ++*(uint64_t *)(void *)(d->params + info->params[k].offset);
  return qn_subject_point(d);
}

qn_status qn_subject_turn(qn_subject *d, uint64_t t)
{
  if (!t) return QN_OK;
  for (size_t r = 0; r < d->op->info.n_tensors; r++)
    if (d->role[r].access == QN_READ)
      qn_try(fill_role(d, r, d->seed + 1000 + t, d->role[r].single ? -1 : d->gradients));
  for (size_t r = 0; r < d->op->info.n_tensors && d->like; r++) { /* it goes on from where the other is */
    if (!(d->role[r].access & QN_WRITE)) continue;
    for (size_t k = 0; k < d->role[r].n; k++) copy_tensor(d, r, k, true);
    qn_try(qn_subject_send(d, r));
  }
  d->referred = 0;
  return qn_subject_count_step(d);
}

qn_status qn_subject_rewind(qn_subject *d)
{
  for (size_t r = 0; r < QN_MAX_TENSORS; r++)
    if (d->role[r].access & QN_WRITE) qn_try(qn_subject_send(d, r));
  return QN_OK;
}

qn_status qn_subject_fetch(qn_subject *d)
{
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) {
    const qn_subject_role *role = &d->role[r];
    if (!role->memory || role->home != r) continue;
    qn_fence_lower(&role->fence);
    qn_try(qn_memory_read(d->exec.device, d->exec.stream, role->after, role->memory, role->bytes));
    qn_fence_raise(&role->fence);
  }
  return QN_OK;
}

/* They are read back even where the call is refused: it must have left them. */
qn_status qn_subject_step(qn_subject *d)
{
  qn_try(qn_subject_lend(d));
  if (d->way == QN_WAY_MOVED) qn_try(qn_subject_move(d));
  const qn_status status = qn_subject_run(d);
  qn_try(qn_subject_fetch(d));
  return status;
}
