/* SPDX-License-Identifier: Apache-2.0 */
/* shaped_stage.c - see shaped_stage.h. */
#include "workbench/shaped_stage.h"
#include "core/core.h"
#include <string.h>

qn_status qn_shaped_workload(const qn_op *op, size_t row, const char *name, qn_workload *work, void *params)
{
  struct {
    qn_workload_item item[QN_MAX_TENSORS];
    int64_t shape[QN_MAX_TENSORS][QN_SHAPED_NDIM];
  } * all;
  qn_shaped_data d;
  const char *text;
  *work = (qn_workload){.name = name ? name : qn_op_check_of(op)->workloads[0].name};
  qn_try(qn_shaped_find(op, work->name, &text));
  qn_try(
      qn_shaped_open(&d, &(qn_shaped_order){.op = op, .row = row, .device = {QN_CPU, 0}, .text = text, .bare = true}));
  qn_try(qn_try_allocate(&all, sizeof *all, "the workload's list"));
  work->storage = all;
  work->item = all->item;
  work->text = text;
  for (size_t r = 0; r < op->info.n_tensors; r++) {
    const qn_shaped_role *role = &d.role[r];
    if (role->access == QN_ABSENT) continue;
    memcpy(all->shape[r], role->shape, sizeof role->shape);
    work->item[work->n++] = (qn_workload_item){op->info.tensors[r].name, role->ndim, all->shape[r], role->elements};
  }
  work->elements = work->item[0].elements;
  work->bytes = qn_shaped_bytes(&d);
  work->operations = qn_shaped_operations(&d);
  memcpy(params, d.params, op->info.params_bytes);
  qn_shaped_close(&d);
  return QN_OK;
}

uint64_t qn_shaped_stage_bytes(const qn_stage_request *request)
{
  qn_shaped_data d;
  const qn_shaped_order order = {
      .op = request->op, .row = request->row, .device = request->device, .text = request->work->text, .bare = true};
  if (qn_shaped_open(&d, &order) != QN_OK) return 0;
  memcpy(d.params, request->params, request->op->info.params_bytes);
  const size_t lent = qn_op_call_workspace_bytes(&request->op->info, &d.exec, d.params, 1, d.list);
  qn_shaped_close(&d);
  return (uint64_t)request->work->bytes + lent;
}

qn_status qn_shaped_stage_create(qn_shaped_data **stage, const qn_stage_request *request, const qn_exec *exec)
{
  qn_shaped_data *d;
  const qn_shaped_order order = {.op = request->op,
                                 .row = request->row,
                                 .device = exec->device,
                                 .pool = exec->pool,
                                 .stream = exec->stream,
                                 .text = request->work->text,
                                 .seed = request->seed};
  *stage = NULL;
  qn_try(qn_try_allocate(&d, sizeof *d, "the stage"));
  qn_status status = qn_shaped_open(d, &order);
  if (status == QN_OK) {
    memcpy(d->params, request->params, request->op->info.params_bytes);
    status = qn_shaped_lend(d);
  }
  *stage = d;
  if (status != QN_OK) qn_shaped_stage_destroy(stage);
  return status;
}

void qn_shaped_stage_destroy(qn_shaped_data **stage)
{
  if (!*stage) return;
  qn_shaped_close(*stage);
  qn_release(*stage);
  *stage = NULL;
}

qn_status qn_shaped_stage_prove(qn_shaped_data *d, qn_stage_check *check)
{
  qn_shaped_want want = {.rows = NULL};
  double worst = 0;
  *check = (qn_stage_check){.right = false};
  qn_try(qn_shaped_reset(d));
  qn_try(qn_shaped_run(d));
  qn_try(qn_shaped_fetch(d));
  d->looseness = qn_shaped_looseness(d);
  const qn_status status = qn_shaped_reference(d, QN_SHAPED_REFERENCE, &want);
  if (status == QN_OK)
    check->right = qn_shaped_right(d, &want, check->wrong, sizeof check->wrong, &check->elements, &worst);
  qn_shaped_want_free(&want);
  return status;
}
