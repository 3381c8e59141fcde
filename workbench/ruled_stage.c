/* SPDX-License-Identifier: Apache-2.0 */
/* ruled_stage.c - see ruled_stage.h. */
#include "workbench/ruled_stage.h"
#include "core/core.h"
#include "op/call.h"
#include "quern/device.h"
#include "workbench/data.h"
#include "workbench/fill.h"
#include "workbench/op_check.h"
#include "workbench/ruled.h"
#include <stdio.h>
#include <string.h>

enum { ALIGN = 256, PARAMS = 512, POINTERS = 32 };

typedef struct role {
  char *memory;
  qn_tensor *tensor;
  int64_t (*shape)[QN_RULED_NDIM];
} role;

struct qn_ruled_stage {
  qn_stage_request ask;
  qn_exec exec;
  role role[QN_MAX_TENSORS];
  const qn_tensor *list[QN_MAX_TENSORS];
  void *pointed[POINTERS];
  float *values[POINTERS]; /* what is there; until all is set up */
  _Alignas(16) unsigned char params[PARAMS];
};

qn_ruled_bytes qn_ruled_bytes_of(const qn_op *op, size_t row)
{
  static const int64_t square[] = {1 << 20, 1 << 20}; /* vectors are nothing beside it */
  qn_ruled_bytes bytes = {0, 0, 0};
  for (size_t r = 0; r < op->info.n_tensors; r++) {
    int64_t shape[QN_MAX_NDIM];
    double elements = 1;
    int ndim = 0;
    if (op->info.tensors[r].single) continue;
    if (qn_op_role_shape(&op->info, r, 1, 2, square, &ndim, shape) == QN_OK) {
      for (int d = 0; d < ndim; d++) elements *= (double)shape[d];
      elements /= 0x1p40;
    }
    const double each = (double)qn_dtype_bytes(op->info.types[row].tensor[r].dtype) * elements;
    bytes.set += each;
    if (!(op->info.types[row].tensor[r].access & QN_WRITE)) continue;
    bytes.written += each;
    if (r) bytes.state += each;
  }
  return bytes;
}

double qn_ruled_step_bytes(const qn_op *op, size_t n)
{
  double bytes = 0;
  for (size_t r = 0; r < op->info.n_tensors; r++) {
    const qn_access access = op->info.types[0].tensor[r].access;
    int64_t shape[QN_MAX_NDIM];
    int ndim = 0;
    if (!op->info.tensors[r].single || qn_op_role_shape(&op->info, r, n, 0, NULL, &ndim, shape) != QN_OK) continue;
    const qn_tensor t = {.ndim = ndim, .shape = shape};
    bytes += (double)qn_tensor_elements(&t) * (double)qn_dtype_bytes(op->info.types[0].tensor[r].dtype) *
             (!!(access & QN_READ) + !!(access & QN_WRITE));
  }
  for (size_t p = 0; p < op->info.n_params; p++)
    if (op->info.params[p].type == QN_PARAM_DEVICE_F32S) bytes += op->info.params[p].most * (double)sizeof(float);
  return bytes;
}

/* ---- memory and data ---- */

static size_t bytes_of(const qn_tensor *t)
{
  return (qn_tensor_elements(t) * qn_dtype_bytes(t->dtype) + ALIGN - 1) / ALIGN * ALIGN;
}

/* Params and what is only read get numbers; the rest is zeros. */
static qn_status fill(qn_ruled_stage *s, size_t r, size_t k)
{
  const qn_tensor *t = &s->role[r].tensor[k];
  const qn_op_tensor *is = &s->ask.op->info.tensors[r];
  const size_t bytes = bytes_of(t);
  const bool numbers = !r || s->ask.op->info.types[0].tensor[r].access == QN_READ;
  const qn_data_rule rule = {
      .dtype = t->dtype, .fill = is->fill, .scale = is->fill_scale, .seed = s->ask.seed * QN_MAX_TENSORS + r};
  void *values;
  if (!bytes) return QN_OK;
  if (!numbers) return qn_memory_fill(s->exec.device, s->exec.stream, t->data, 0, bytes);
  qn_try(qn_try_allocate(&values, bytes, "a tensor's data"));
  memset(values, 0, bytes);
  qn_data_fill(&rule, k, 0, (size_t)qn_tensor_elements(t), values);
  const qn_status status = qn_memory_write(s->exec.device, s->exec.stream, t->data, values, bytes);
  qn_release(values);
  return status;
}

/* What the list has one of and is written, as it is before the first step. */
static qn_status begin(qn_ruled_stage *s, size_t r)
{
  const qn_tensor *t = s->role[r].tensor;
  const size_t n = (size_t)qn_tensor_elements(t), width = qn_dtype_bytes(t->dtype);
  _Alignas(16) unsigned char params[PARAMS];
  double *values;
  char *stored;
  memcpy(params, s->params, sizeof params);
  for (size_t p = 0; p < s->ask.op->info.n_params && p < POINTERS; p++)
    if (s->values[p]) memcpy(params + s->ask.op->info.params[p].offset, &s->values[p], sizeof s->values[p]);
  qn_try(qn_try_allocate(&values, n * (sizeof *values + width), "a tensor's data"));
  stored = (char *)(values + n);
  qn_op_check_of(s->ask.op)->initial_state(params, r, false, t->shape, values);
  for (size_t k = 0; k < n; k++) qn_number_store(t->dtype, stored + k * width, values[k]);
  const qn_status status = qn_memory_write(s->exec.device, s->exec.stream, t->data, stored, n * width);
  qn_release(values);
  return status;
}

static qn_status make_role(qn_ruled_stage *s, size_t r)
{
  const qn_workload *work = s->ask.work;
  const size_t n = s->ask.op->info.tensors[r].single ? 1 : work->n;
  role *to = &s->role[r];
  size_t bytes = 0;
  void *memory;
  qn_try(qn_try_allocate(&to->tensor, (n + 1) * sizeof *to->tensor, "tensors"));
  qn_try(qn_try_allocate(&to->shape, (n + 1) * sizeof *to->shape, "shapes"));
  for (size_t k = 0; k < n; k++) {
    qn_tensor *t = &to->tensor[k];
    *t =
        (qn_tensor){.dtype = s->ask.op->info.types[0].tensor[r].dtype, .shape = to->shape[k], .device = s->exec.device};
    qn_try(qn_op_role_shape(&s->ask.op->info, r, work->n, work->item[k].ndim, work->item[k].shape, &t->ndim,
                            to->shape[k]));
    bytes += bytes_of(t);
  }
  qn_try(qn_memory_allocate(s->exec.device, bytes + 1, &memory));
  to->memory = memory;
  bytes = 0;
  for (size_t k = 0; k < n; k++) {
    to->tensor[k].data = to->memory + bytes;
    bytes += bytes_of(&to->tensor[k]);
    qn_try(fill(s, r, k));
  }
  s->list[r] = to->tensor;
  const bool written = s->ask.op->info.types[0].tensor[r].access & QN_WRITE;
  return s->ask.op->info.tensors[r].single && written && qn_op_check_of(s->ask.op)->initial_state ? begin(s, r) : QN_OK;
}

static qn_status make_values(qn_ruled_stage *s, size_t p)
{
  const qn_op_param *param = &s->ask.op->info.params[p];
  const size_t bytes = (size_t)param->most * sizeof(float);
  qn_require(p < POINTERS, "%s: its params are too many for a bench", s->ask.op->info.name);
  qn_try(qn_try_allocate(&s->values[p], bytes, "a param's values"));
  qn_op_check_of(s->ask.op)->random_weights(param, s->values[p]);
  qn_try(qn_memory_allocate(s->exec.device, bytes, &s->pointed[p]));
  memcpy(s->params + param->offset, &s->pointed[p], sizeof s->pointed[p]);
  return qn_memory_write(s->exec.device, s->exec.stream, s->pointed[p], s->values[p], bytes);
}

static void release_values(qn_ruled_stage *s)
{
  for (size_t p = 0; p < POINTERS; p++) {
    qn_release(s->values[p]);
    s->values[p] = NULL;
  }
}

static qn_status set_up(qn_ruled_stage *s)
{
  const qn_op_info *info = &s->ask.op->info;
  qn_require(info->params_bytes <= sizeof s->params, "%s: its params are too large for a bench", info->name);
  memcpy(s->params, s->ask.params, info->params_bytes);
  for (size_t p = 0; p < info->n_params; p++)
    if (info->params[p].type == QN_PARAM_DEVICE_F32S) qn_try(make_values(s, p));
  for (size_t r = 0; r < info->n_tensors; r++) qn_try(make_role(s, r));
  s->exec.workspace_bytes = qn_op_call_workspace_bytes(info, &s->exec, s->params, s->ask.work->n, s->list);
  if (!s->exec.workspace_bytes) return QN_OK;
  return qn_memory_allocate(s->exec.device, s->exec.workspace_bytes, &s->exec.workspace);
}

qn_status qn_ruled_stage_create(qn_ruled_stage **stage, const qn_stage_request *request, const qn_exec *exec)
{
  qn_ruled_stage *s;
  *stage = NULL;
  qn_try(qn_try_allocate(&s, sizeof *s, "the stage"));
  *s = (qn_ruled_stage){.ask = *request, .exec = *exec};
  s->exec.workspace = NULL;
  qn_status status = set_up(s);
  if (status == QN_OK) status = qn_stream_synchronize(s->exec.device, s->exec.stream); /* what is copied goes */
  release_values(s);
  *stage = s;
  if (status != QN_OK) qn_ruled_stage_destroy(stage);
  return status;
}

void qn_ruled_stage_destroy(qn_ruled_stage **stage)
{
  if (!*stage) return;
  qn_ruled_stage *s = *stage;
  (void)qn_stream_synchronize(s->exec.device, s->exec.stream); /* a failure here was told by the call that caused it */
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) {
    (void)qn_memory_release(s->exec.device, s->role[r].memory);
    qn_release(s->role[r].tensor);
    qn_release(s->role[r].shape);
  }
  for (size_t p = 0; p < POINTERS; p++) (void)qn_memory_release(s->exec.device, s->pointed[p]);
  (void)qn_memory_release(s->exec.device, s->exec.workspace);
  qn_release(s);
  *stage = NULL;
}

/* ---- the proof, and the step ---- */

/* Other extents than have been: cut so that matrices are of some thousand elements. False: they have been. */
static bool add_shape(qn_text *text, const qn_workload_item *item)
{
  static const int64_t most[] = {1, 6000, 97, 21, 13, 7};
  char word[96] = "-";
  size_t used = 0;
  for (int d = 0; d < item->ndim && used < sizeof word; d++) {
    const int64_t limit = most[item->ndim] - d; /* no two alike that are not */
    used += (size_t)snprintf(word + used, sizeof word - used, "%s%lld", d ? "x" : "",
                             (long long)(item->shape[d] < limit ? item->shape[d] : limit));
  }
  const size_t n = strlen(word);
  for (const char *at = text->at; at && (at = strstr(at, word)); at += n)
    if ((at == text->at || at[-1] == ' ') && at[n] == ' ') return false;
  qn_text_add(text, "%s ", word);
  return true;
}

qn_status qn_ruled_stage_prove(qn_ruled_stage *s, qn_stage_check *check)
{
  enum { SHAPES = 12 };
  qn_text text = {0};
  qn_ruled_data d;
  double worst = 0;
  size_t shapes = 0;
  for (size_t k = 0; k < s->ask.work->n && shapes < SHAPES; k++) shapes += add_shape(&text, &s->ask.work->item[k]);
  qn_status status = text.failed ? qn_fail(QN_NO_MEMORY, "no memory for the list of shapes") : QN_OK;
  const qn_ruled_order order = {
      .op = s->ask.op, .device = s->exec.device, .pool = s->exec.pool, .text = text.at, .seed = s->ask.seed};
  *check = (qn_stage_check){.right = true};
  d = (qn_ruled_data){.op = NULL};
  if (status == QN_OK) status = qn_ruled_open(&d, &order);
  for (size_t p = 0; p < s->ask.op->info.n_params && status == QN_OK; p++) {
    const qn_op_param *param = &s->ask.op->info.params[p];
    const size_t bytes = param->type == QN_PARAM_DOUBLE || param->type == QN_PARAM_U64 ? 8 : 4;
    if (param->type <= QN_PARAM_ENUM) memcpy(d.params + param->offset, s->params + param->offset, bytes);
  }
  for (uint64_t t = 0; t < 2 && status == QN_OK && check->right; t++) {
    status = qn_ruled_turn(&d, t);
    if (status == QN_OK) status = qn_ruled_run(&d);
    if (status == QN_OK) status = qn_ruled_fetch(&d);
    if (status == QN_OK) status = qn_ruled_refer(&d);
    if (status == QN_OK) check->right = qn_ruled_right(&d, check->wrong, sizeof check->wrong, &check->elements, &worst);
  }
  qn_ruled_close(&d);
  qn_text_free(&text);
  return status;
}

qn_status qn_ruled_stage_step(qn_ruled_stage *s)
{
  return qn_op_step(&s->ask.op->info, &s->exec, s->params, s->ask.work->n, s->list);
}

uint64_t qn_ruled_stage_workspace(const qn_ruled_stage *s) { return s->exec.workspace_bytes; }
