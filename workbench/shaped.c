/* SPDX-License-Identifier: Apache-2.0 */
/* shaped.c - see shaped.h. */
#include "workbench/shaped.h"
#include "core/core.h"
#include "op/call.h"
#include "quern/device.h"
#include "workbench/fill.h"
#include "workbench/run.h"
#include "workbench/settings.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the text ---- */

qn_status qn_shaped_find(const qn_op *op, const char *name, const char **text)
{
  *text = name;
  if (strchr(name, '=')) return QN_OK;
  for (const qn_check_text *w = qn_op_check_of(op)->workloads; w->name; w++)
    if (!strcmp(w->name, name)) return *text = w->text, QN_OK;
  return qn_fail(QN_BAD_ARGUMENT, "\"%s\" is no workload of the op's, and no text such as \"m=16 n=64 k=32\"", name);
}

static bool is_extent(const qn_op_info *info, char letter)
{
  for (size_t r = 0; r < info->n_tensors; r++)
    if (strchr(info->tensors[r].shape, letter)) return true;
  return false;
}

/* "ROLE=NUMBER" or "ROLE=sweep". */
static bool fill_as(qn_shaped_data *d, const char *word)
{
  const char *equals = strchr(word, '=');
  for (size_t r = 0; r < d->op->info.n_tensors && equals; r++) {
    const char *name = d->op->info.tensors[r].name;
    if (strlen(name) != (size_t)(equals - word) || strncmp(name, word, strlen(name)) != 0) continue;
    d->role[r].filled = !strcmp(equals + 1, "sweep") ? QN_SHAPED_SWEEP : QN_SHAPED_VALUE;
    d->role[r].value = strtod(equals + 1, NULL);
    return true;
  }
  return false;
}

/* "m=128" sets an extent, "groups=4" a param, "-bias" leaves a role out. */
static qn_status take_word(qn_shaped_data *d, const char *word)
{
  const qn_op_info *info = &d->op->info;
  d->nan |= !strcmp(word, "nan");
  d->halves |= !strcmp(word, "halves");
  if (!strcmp(word, "nan") || !strcmp(word, "halves") || fill_as(d, word)) return QN_OK;
  if (*word == '-') {
    for (size_t r = 0; r < info->n_tensors; r++)
      if (!strcmp(info->tensors[r].name, word + 1)) {
        d->role[r].access = QN_ABSENT;
        return QN_OK;
      }
    return qn_fail(QN_BAD_ARGUMENT, "%s has no tensor %s", info->name, word + 1);
  }
  if (word[0] >= 'a' && word[0] <= 'z' && word[1] == '=') {
    char *end = NULL;
    qn_require(is_extent(info, word[0]), "%s: %s, and none of its tensors has such an extent", info->name, word);
    const long long extent = strtoll(word + 2, &end, 10);
    qn_require(end != word + 2 && !*end && extent >= 0 && extent <= 1 << 24,
               "%s: %s, and an extent is a number up to 2^24", info->name, word);
    d->extent[word[0] - 'a'] = extent;
    return QN_OK;
  }
  return qn_settings_read(info, d->params, word);
}

static qn_status take_text(qn_shaped_data *d, const char *text)
{
  char word[96];
  for (int used; text && sscanf(text, "%95s%n", word, &used) == 1; text += used) qn_try(take_word(d, word));
  return QN_OK;
}

static qn_status shape_role(qn_shaped_data *d, size_t r)
{
  qn_shaped_role *role = &d->role[r];
  role->elements = 1;
  for (const char *at = d->op->info.tensors[r].shape; *at; at++)
    if (*at >= 'a' && *at <= 'z' && role->ndim < QN_SHAPED_NDIM) {
      qn_require(d->extent[*at - 'a'] >= 0, "%s: the text says no %c, as \"%c=64\" does", d->op->info.name, *at, *at);
      role->shape[role->ndim++] = d->extent[*at - 'a'];
      role->elements *= (size_t)d->extent[*at - 'a'];
    }
  role->bytes = role->elements * qn_dtype_bytes(role->dtype);
  role->begin = QN_SHAPED_GUARD + (d->fenced ? 0 : d->shift);
  role->end = role->begin + role->bytes;
  role->all = role->end + (d->fenced ? d->shift : QN_SHAPED_GUARD);
  return QN_OK;
}

/* ---- memory ---- */

static void give_address(qn_shaped_data *d, size_t r, void *address)
{
  qn_shaped_role *role = &d->role[r];
  d->tensor[r] = (qn_tensor){
      .data = address, .dtype = role->dtype, .ndim = role->ndim, .shape = role->shape, .device = d->exec.device};
  d->list[r] = &d->tensor[r];
}

static void fill_role(qn_shaped_data *d, size_t r, bool nan)
{
  qn_shaped_role *role = &d->role[r];
  const qn_op_tensor *is = &d->op->info.tensors[r];
  const qn_filling filling = {.kind = is->fill, .scale = is->fill_scale, .seed = d->seed, .role = r};
  unsigned char *at = role->before + role->begin;
  const size_t width = qn_dtype_bytes(role->dtype);
  if (role->filled == QN_SHAPED_NUMBERS) qn_fill_numbers(&filling, role->dtype, at, role->elements, 0);
  if (role->filled == QN_SHAPED_SWEEP) qn_fill_sweep(role->dtype, at, role->elements);
  for (size_t k = 0; k < role->elements && role->filled == QN_SHAPED_VALUE; k++)
    qn_number_store(role->dtype, at + k * width, role->value);
  if (d->halves && role->dtype == QN_F32 && role->ndim > 1) qn_fill_halves(at, role->elements);
  if (nan && role->elements) qn_number_store(role->dtype, at + role->elements / 2 * width, NAN);
}

static qn_status make_role(qn_shaped_data *d, size_t r, bool nan)
{
  qn_shaped_role *role = &d->role[r];
  qn_try(qn_try_allocate(&role->before, role->all, "a tensor"));
  qn_try(qn_try_allocate(&role->after, role->all, "a tensor"));
  memset(role->before, 0xa5, role->all);
  if (role->access & QN_READ) fill_role(d, r, nan);
  qn_try(qn_fence_create(d->exec.device, d->fenced, role->all, &role->fence));
  role->memory = role->fence.memory;
  give_address(d, r, (char *)role->memory + role->begin);
  return qn_memory_write(d->exec.device, d->exec.stream, role->memory, role->before, role->all);
}

qn_status qn_shaped_open(qn_shaped_data *d, const qn_shaped_order *order)
{
  const qn_op_info *info = &order->op->info;
  bool placed = false;
  *d = (qn_shaped_data){
      .op = order->op, .row = order->row, .shift = order->shift, .seed = order->seed, .planned = order->planned};
  d->fenced = order->fenced && order->device.kind != QN_CUDA;
  d->own_stream = !order->bare && !order->stream;
  d->exec = (qn_exec){.size = sizeof d->exec, .device = order->device, .pool = order->pool, .stream = order->stream};
  for (size_t k = 0; k < sizeof d->extent / sizeof d->extent[0]; k++) d->extent[k] = -1; /* not said */
  qn_require(info->params_bytes <= sizeof d->params, "%s: its params are too large for a check", info->name);
  qn_try(qn_op_defaults(info, d->params, info->params_bytes));
  for (size_t r = 0; r < info->n_tensors; r++) {
    d->role[r].dtype = info->types[order->row].tensor[r].dtype;
    d->role[r].access = info->types[order->row].tensor[r].access;
  }
  qn_try(take_text(d, order->text));
  qn_try(take_text(d, order->more));
  for (size_t k = 0; k < order->n_settings; k++) qn_try(take_text(d, order->settings[k]));
  if (d->own_stream) qn_try(qn_stream_create(order->device, &d->exec.stream));
  for (size_t r = 0; r < info->n_tensors; r++) {
    if (d->role[r].access == QN_ABSENT) continue;
    qn_try(shape_role(d, r));
    if (order->bare) {
      give_address(d, r, (void *)((uintptr_t)(r + 1) << 40)); /* far apart, aligned, never touched */
      continue;
    }
    const bool here = d->nan && !placed && d->role[r].access == QN_READ;
    placed |= here;
    qn_try(make_role(d, r, here));
  }
  return QN_OK;
}

void qn_shaped_close(qn_shaped_data *d)
{
  if (d->exec.stream) qn_stream_synchronize(d->exec.device, d->exec.stream);
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) {
    qn_release(d->role[r].before);
    qn_release(d->role[r].after);
    qn_fence_destroy(&d->role[r].fence);
  }
  qn_fence_destroy(&d->lent);
  if (d->own_stream && d->exec.stream) qn_stream_destroy(d->exec.device, &d->exec.stream);
  *d = (qn_shaped_data){0};
}

qn_status qn_shaped_reset(qn_shaped_data *d)
{
  for (size_t r = 0; r < QN_MAX_TENSORS; r++)
    if (d->role[r].access & QN_WRITE)
      qn_try(qn_memory_write(d->exec.device, d->exec.stream, d->role[r].memory, d->role[r].before, d->role[r].all));
  return QN_OK;
}

qn_status qn_shaped_lend(qn_shaped_data *d)
{
  const size_t bytes = qn_op_call_workspace_bytes(&d->op->info, &d->exec, d->params, 1, d->list);
  if (bytes <= d->exec.workspace_bytes) return QN_OK;
  qn_fence_destroy(&d->lent);
  d->exec.workspace = NULL;
  d->exec.workspace_bytes = 0;
  qn_try(qn_fence_create(d->exec.device, d->fenced, (bytes + 15) / 16 * 16, &d->lent)); /* which is its alignment */
  d->exec.workspace = d->lent.memory;
  d->exec.workspace_bytes = bytes;
  return qn_memory_fill(d->exec.device, d->exec.stream, d->exec.workspace, 0xff, bytes);
}

qn_status qn_shaped_run(qn_shaped_data *d) { return qn_run_once(d->op, &d->exec, d->params, 1, d->list, d->planned); }

qn_status qn_shaped_fetch(qn_shaped_data *d)
{
  for (size_t r = 0; r < QN_MAX_TENSORS; r++)
    if (d->role[r].memory)
      qn_try(qn_memory_read(d->exec.device, d->exec.stream, d->role[r].after, d->role[r].memory, d->role[r].all));
  return QN_OK;
}

/* ---- the reference ---- */

int qn_shaped_looseness(const qn_shaped_data *d)
{
  char name[64];
  if (d->exec.device.kind != QN_CUDA || !qn_op_check_of(d->op)->looseness) return 0;
  return sscanf(qn_op_last_variant(), "%63s", name) == 1 ? qn_op_check_of(d->op)->looseness(name) : 0;
}

/* Does the role's first dimension bear the letter that the op's rows are independent along? */
static bool has_rows(const qn_shaped_data *d, size_t r)
{
  const char *shape = r < d->op->info.n_tensors ? d->op->info.tensors[r].shape : "";
  return qn_op_check_of(d->op)->independent && shape[0] == '[' && shape[1] == qn_op_check_of(d->op)->independent;
}

/* All of it, or as many rows as `most` allows, 2 at least, from the first to the last. */
static qn_status choose_rows(const qn_shaped_data *d, double most, qn_shaped_want *w)
{
  const char letter = qn_op_check_of(d->op)->independent;
  const int64_t all = letter ? d->extent[letter - 'a'] : 0;
  const double each = all ? qn_shaped_operations(d) / (double)all : 0;
  if (!letter || all < 3 || each * (double)all <= most) return QN_OK;
  w->n_rows = (int64_t)fmax(2, fmin((double)all, most / each));
  qn_try(qn_try_allocate(&w->rows, (size_t)w->n_rows * sizeof *w->rows, "rows"));
  for (int64_t k = 0; k < w->n_rows; k++) w->rows[k] = k * (all - 1) / (w->n_rows - 1);
  return QN_OK;
}

static double number_at(const qn_shaped_data *d, size_t r, const unsigned char *bytes, size_t k)
{
  return qn_number_load(d->role[r].dtype, bytes + d->role[r].begin + k * qn_dtype_bytes(d->role[r].dtype));
}

/* Where element k of what the reference ran over stands in the whole tensor. */
static size_t place_of(const qn_shaped_data *d, const qn_shaped_want *w, size_t r, size_t k)
{
  if (!w->rows || !has_rows(d, r)) return k;
  const size_t width = d->role[r].elements / (size_t)d->role[r].shape[0];
  return (size_t)w->rows[k / width] * width + k % width;
}

static size_t count_of(const qn_shaped_data *d, const qn_shaped_want *w, size_t r)
{
  if (!w->rows || !has_rows(d, r)) return d->role[r].elements;
  return d->role[r].elements / (size_t)d->role[r].shape[0] * (size_t)w->n_rows;
}

static qn_status make_want(const qn_shaped_data *d, qn_shaped_want *w, double *input[QN_MAX_TENSORS])
{
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) {
    const size_t n = count_of(d, w, r), bytes = (n + 1) * sizeof(double);
    if (d->role[r].access & QN_READ) {
      qn_try(qn_try_allocate(&input[r], bytes, "the reference's input"));
      for (size_t k = 0; k < n; k++) input[r][k] = number_at(d, r, d->role[r].before, place_of(d, w, r, k));
    }
    if (!(d->role[r].access & QN_WRITE)) continue;
    qn_try(qn_try_allocate(&w->value[r], bytes, "the reference"));
    qn_try(qn_try_allocate(&w->allowed[r], bytes, "the reference"));
  }
  return QN_OK;
}

qn_status qn_shaped_reference(const qn_shaped_data *d, double most, qn_shaped_want *w)
{
  double *input[QN_MAX_TENSORS] = {NULL};
  *w = (qn_shaped_want){.rows = NULL};
  qn_status status = choose_rows(d, most, w);
  if (status == QN_OK) status = make_want(d, w, input);
  if (status == QN_OK) {
    qn_call call = {.op = d->op, .exec = &d->exec, .params = d->params, .n = 1, .row = d->row};
    qn_reference reference = {.call = &call, .looseness = d->looseness};
    memcpy(call.extent, d->extent, sizeof call.extent);
    if (w->rows) call.extent[qn_op_check_of(d->op)->independent - 'a'] = w->n_rows;
    for (size_t r = 0; r < QN_MAX_TENSORS; r++) {
      call.tensors[r] = d->list[r];
      if (input[r]) reference.value[r] = &input[r];
      if (w->value[r]) reference.value[r] = &w->value[r], reference.allowed[r] = &w->allowed[r];
    }
    status = qn_op_check_of(d->op)->reference(&reference);
  }
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) qn_release(input[r]);
  return status;
}

void qn_shaped_want_free(qn_shaped_want *w)
{
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) {
    qn_release(w->value[r]);
    qn_release(w->allowed[r]);
  }
  qn_release(w->rows);
  *w = (qn_shaped_want){.rows = NULL};
}

/* ---- the comparison ---- */

static bool same_bytes(const qn_shaped_data *d, size_t r, size_t from, size_t to, const char *what, char *wrong,
                       size_t bytes)
{
  const qn_shaped_role *role = &d->role[r];
  for (size_t k = from; k < to; k++) {
    if (role->before[k] == role->after[k]) continue;
    snprintf(wrong, bytes, "%s: %s was changed, byte %lld from the tensor's first", d->op->info.tensors[r].name, what,
             (long long)k - (long long)role->begin);
    return false;
  }
  return true;
}

static bool role_right(const qn_shaped_data *d, const qn_shaped_want *w, size_t r, char *wrong, size_t bytes,
                       double *worst)
{
  const qn_shaped_role *role = &d->role[r];
  const size_t n = count_of(d, w, r);
  for (size_t k = 0; k < n; k++) {
    const size_t at = place_of(d, w, r, k);
    const double got = number_at(d, r, role->after, at), want = w->value[r][k], off = fabs(got - want);
    if (got == want || (isnan(want) && isnan(got))) continue;
    const double share = off / w->allowed[r][k];
    if (share > *worst) *worst = share;
    if (share <= 1) continue;
    const size_t width = role->ndim > 1 ? (size_t)role->shape[role->ndim - 1] : role->elements;
    snprintf(wrong, bytes, "%s[%zu, %zu] is %.9g, the reference says %.9g and allows it to be off by %.3g",
             d->op->info.tensors[r].name, at / width, at % width, got, want, w->allowed[r][k]);
    return false;
  }
  return true;
}

bool qn_shaped_right(const qn_shaped_data *d, const qn_shaped_want *want, char *wrong, size_t bytes, uint64_t *elements,
                     double *worst)
{
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) {
    const qn_shaped_role *role = &d->role[r];
    if (!role->memory) continue;
    if (!same_bytes(d, r, 0, role->begin, "what stands before it", wrong, bytes)) return false;
    if (!same_bytes(d, r, role->end, role->all, "what stands behind it", wrong, bytes)) return false;
    if (!(role->access & QN_WRITE)) {
      if (!same_bytes(d, r, role->begin, role->end, "it is only read, and", wrong, bytes)) return false;
      continue;
    }
    *elements += count_of(d, want, r);
    if (!role_right(d, want, r, wrong, bytes, worst)) return false;
  }
  return true;
}

double qn_shaped_operations(const qn_shaped_data *d)
{
  qn_call call = {.op = d->op, .exec = &d->exec, .params = d->params, .row = d->row};
  memcpy(call.extent, d->extent, sizeof call.extent);
  return qn_op_check_of(d->op)->operations(&call);
}

double qn_shaped_bytes(const qn_shaped_data *d)
{
  double bytes = 0;
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) {
    if (d->role[r].access & QN_READ) bytes += (double)d->role[r].bytes;
    if (d->role[r].access & QN_WRITE) bytes += (double)d->role[r].bytes;
  }
  return bytes;
}
