/* SPDX-License-Identifier: Apache-2.0 */
/* subject_stage.c - see subject_stage.h. */
#include "workbench/subject_stage.h"
#include "core/core.h"
#include <stdio.h>
#include <string.h>

/* ---- what moves ---- */

qn_element_bytes qn_element_bytes_of(const qn_op *op, size_t row)
{
  static const int64_t square[] = {1 << 20, 1 << 20}; /* vectors are nothing beside it */
  qn_element_bytes bytes = {0, 0, 0};
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

double qn_step_bytes_besides(const qn_op *op, size_t n)
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

/* ---- the workload of a text ---- */

/* A workload's item is a role's tensor, or one of the list. */
static qn_status take_items(const qn_subject *d, qn_workload *work)
{
  const size_t most = d->list ? d->n : QN_MAX_TENSORS;
  struct item {
    qn_workload_item item;
    int64_t shape[QN_SUBJECT_NDIM];
    char name[24];
  } * all;
  qn_workload_item *item;
  qn_try(qn_try_allocate(&work->storage, (most + 1) * (sizeof *all + sizeof *item), "the workload's list"));
  all = work->storage;
  work->item = item = (qn_workload_item *)(all + most + 1);
  for (size_t k = 0; k < most; k++) {
    const qn_subject_role *role = &d->role[d->list ? 0 : k];
    const qn_subject_place *p = role->place + (d->list ? k : 0);
    if (!d->list && (k >= d->op->info.n_tensors || role->access == QN_ABSENT)) continue;
    memcpy(all[k].shape, p->shape, sizeof p->shape);
    snprintf(all[k].name, sizeof all[k].name, "t%zu", k);
    const char *name = d->list ? all[k].name : d->op->info.tensors[k].name;
    item[work->n++] = (qn_workload_item){name, p->ndim, all[k].shape, p->elements};
    if (d->list || !k) work->elements += p->elements;
  }
  return QN_OK;
}

/* Of a list's text only shapes, their layout and params reach the timed calls. */
static qn_status refuse_other_words(const qn_op *op, const char *text)
{
  char word[96];
  for (int used; sscanf(text, "%95s%n", word, &used) == 1; text += used) {
    const size_t n = strcspn(word, "=");
    bool known = (*word >= '0' && *word <= '9') || !strcmp(word, "-") || !strncmp(word, "shift=", 6) ||
                 !strncmp(word, "apart=", 6);
    for (size_t k = 0; word[n] && k < op->info.n_params; k++)
      known = known || (op->info.params[k].type < QN_PARAM_DEVICE_F32 && strlen(op->info.params[k].name) == n &&
                        !strncmp(op->info.params[k].name, word, n));
    qn_require(known, "%s: \"%s\" is no word of a list's shapes, as \"24*768x3072 40 shift=1\" has", op->info.name,
               word);
  }
  return QN_OK;
}

qn_status qn_subject_shapes(const qn_op *op, size_t row, const char *text, qn_workload *work, void *params)
{
  qn_subject d;
  *work = (qn_workload){.name = text};
  qn_status status =
      qn_subject_open(&d, &(qn_subject_order){.op = op, .row = row, .device = {QN_CPU, 0}, .text = text, .bare = true});
  if (status == QN_OK && d.list) status = refuse_other_words(op, text);
  if (status == QN_OK && !d.n)
    status = qn_fail(QN_BAD_ARGUMENT, "%s: \"%s\" has no shape, as \"24*768x3072 40\" has two", op->info.name, text);
  if (status == QN_OK) status = take_items(&d, work);
  if (status == QN_OK && d.list)
    work->shift = d.behind, work->apart = d.apart;
  else if (status == QN_OK)
    work->text = text, work->bytes = qn_subject_bytes(&d), work->operations = qn_subject_operations(&d);
  if (status == QN_OK) memcpy(params, d.params, op->info.params_bytes);
  qn_subject_close(&d);
  return status;
}

qn_status qn_subject_workload(const qn_op *op, size_t row, const char *name, qn_workload *work, void *params)
{
  const char *text;
  if (!name) name = qn_op_check_of(op)->workloads[0].name;
  *work = (qn_workload){.name = name};
  qn_try(qn_subject_find(op, name, &text));
  qn_try(qn_subject_shapes(op, row, text, work, params));
  work->name = name;
  return QN_OK;
}

/* ---- the stage ---- */

static qn_subject_order order_of(const qn_stage_request *request, const qn_exec *exec)
{
  const qn_workload *work = request->work;
  return (qn_subject_order){.op = request->op,
                            .row = request->row,
                            .device = exec->device,
                            .pool = exec->pool,
                            .stream = exec->stream,
                            .text = work->text,
                            .list = work->text ? NULL : work,
                            .params = request->params,
                            .seed = request->seed,
                            .lean = !work->text,
                            .unfilled = !qn_op_check_of(request->op)->reference};
}

uint64_t qn_subject_stage_bytes(const qn_stage_request *request)
{
  qn_subject d;
  qn_subject_order order = order_of(request, &(qn_exec){.device = request->device});
  uint64_t bytes = 0;
  order.bare = true;
  if (qn_subject_open(&d, &order) == QN_OK)
    bytes = qn_op_call_workspace_bytes(&request->op->info, &d.exec, d.params, d.n, d.tensors);
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) bytes += d.role[r].bytes;
  for (size_t p = 0; p < request->op->info.n_params; p++)
    if (request->op->info.params[p].type == QN_PARAM_DEVICE_F32S)
      bytes += (uint64_t)request->op->info.params[p].most * sizeof(float);
  qn_subject_close(&d);
  return bytes;
}

qn_status qn_subject_stage_open(qn_subject *d, const qn_stage_request *request, const qn_exec *exec)
{
  const qn_subject_order order = order_of(request, exec);
  qn_try(qn_subject_open(d, &order));
  qn_try(qn_subject_lend(d));
  return qn_stream_synchronize(d->exec.device, d->exec.stream); /* copies */
}

/* ---- the proof ---- */

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

/* Two steps of a list of a dozen shapes. */
static qn_status prove_small(const qn_stage_request *request, const qn_exec *exec, qn_stage_check *check)
{
  enum { SHAPES = 12, STEPS = 2 };
  qn_text text = {0};
  qn_subject d = {.op = NULL};
  double worst = 0;
  size_t shapes = 0;
  for (size_t k = 0; k < request->work->n && shapes < SHAPES; k++) shapes += add_shape(&text, &request->work->item[k]);
  qn_status status = text.failed ? qn_fail(QN_NO_MEMORY, "no memory for the list of shapes") : QN_OK;
  qn_subject_order order = order_of(request, exec);
  order.text = text.at, order.list = NULL, order.lean = false;
  if (status == QN_OK) status = qn_subject_open(&d, &order);
  for (uint64_t t = 0; t < STEPS && status == QN_OK && check->right; t++) {
    status = qn_subject_turn(&d, t);
    if (status == QN_OK) status = qn_subject_step(&d);
    if (status == QN_OK) status = qn_subject_refer(&d, qn_subject_looseness(&d), 0);
    if (status == QN_OK)
      check->right = qn_subject_right(&d, check->wrong, sizeof check->wrong, &check->elements, &worst);
  }
  qn_subject_close(&d);
  qn_text_free(&text);
  return status;
}

qn_status qn_subject_stage_prove(qn_subject *d, const qn_stage_request *request, qn_stage_check *check)
{
  double worst = 0;
  *check = (qn_stage_check){.right = true};
  if (d->lean) return prove_small(request, &d->exec, check);
  qn_try(qn_subject_rewind(d));
  qn_try(qn_subject_step(d));
  qn_try(qn_subject_refer(d, qn_subject_looseness(d), QN_SUBJECT_REFERENCE));
  check->right = qn_subject_right(d, check->wrong, sizeof check->wrong, &check->elements, &worst);
  qn_subject_forget(d);
  return QN_OK;
}
