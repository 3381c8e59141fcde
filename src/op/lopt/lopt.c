/* SPDX-License-Identifier: Apache-2.0 */
/* lopt.c - a step of a learned optimizer over a list of tensors: every refusal, before anything is written, and the
 * whole of a step of small_fc. groups.c runs what was checked. */
#include "op/lopt/lopt.h"
#include "core/core.h"
#include "quern/device.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

QN_CPU_DECLARE_TIERS(lopt, qn_lopt_cpu_fn);
static qn_lopt_cpu_fn *const tiers[QN_TIER_COUNT] = {QN_CPU_TIERS(lopt)};
const qn_lopt_kind qn_lopt_small_fc = {QN_LOPT_TIES_LATER, QN_LOPT_HIDDEN, QN_LOPT_INPUTS,        QN_LOPT_ELEMENTS,
                                       QN_LOPT_B_TERM,     tiers,          &qn_lopt_device_tiling};

const qn_op_tensor qn_lopt_tensors[QN_LOPT_ROLES] = {QN_LOPT_TENSORS};
const qn_op_types qn_lopt_types[1] = {{{QN_LOPT_TYPES}}};
const qn_lopt_state qn_lopt_state_of[QN_LOPT_ROLES] = {
    [QN_LOPT_M] = QN_LOPT_STATE_M, [QN_LOPT_GRAD] = QN_LOPT_STATE_V,  [QN_LOPT_PARAM] = QN_LOPT_STATE_V,
    [QN_LOPT_V] = QN_LOPT_STATE_V, [QN_LOPT_ROW] = QN_LOPT_STATE_ROW, [QN_LOPT_COLUMN] = QN_LOPT_STATE_COLUMN};

/* ---- checks ---- */

static const char *op_name(const qn_call *list) { return list->op->info.name; }

const char *qn_lopt_shape_text(int ndim, const int64_t *shape, char *text, size_t bytes)
{
  const qn_tensor t = {.ndim = ndim, .shape = shape};
  return qn_shape_text(&t, text, bytes);
}

static qn_status check_param_shape(const qn_call *list, size_t k)
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

/* What qn_lopt_check_storage asks for; its sentences take longer than all the rest of a step's checks. */
static bool is_stored(const qn_call *list, const qn_tensor *t)
{
  const qn_device device = list->exec->device;
  return t->device.kind == device.kind && t->device.index == device.index && t->data &&
         (uintptr_t)t->data % qn_dtype_bytes(t->dtype) == 0 && is_row_major(t);
}

qn_status qn_lopt_check_storage(const qn_call *list, const char *name, const qn_tensor *t)
{
  const char *op = op_name(list);
  const qn_device device = list->exec->device;
  const uint64_t n = qn_tensor_elements(t), bytes = qn_dtype_bytes(t->dtype);
  char text[128];
  if (is_stored(list, t)) return QN_OK;
  qn_shape_text(t, text, sizeof text);
  qn_require(t->device.kind == device.kind && t->device.index == device.index,
             "%s: %s is on %s:%d and the call is on %s:%d", op, name, qn_device_kind_name(t->device.kind),
             t->device.index, qn_device_kind_name(device.kind), device.index);
  qn_require(!n || is_row_major(t), "%s: %s (%s) is not row-major: make it contiguous", op, name, text);
  qn_require(t->data || !n, "%s: the data of %s (%s) is NULL", op, name, text);
  qn_require((uintptr_t)t->data % bytes == 0, "%s: %s is at %p, which is not a multiple of %d", op, name, t->data,
             (int)bytes);
  return QN_OK;
}

static qn_status check_tensor(const qn_call *list, qn_lopt_ties ties, int64_t whole, size_t role, size_t k)
{
  const qn_tensor *p = &list->tensors[QN_LOPT_PARAM][k], *t = &list->tensors[role][k];
  int64_t want[QN_LOPT_MOST_DIMENSIONS + 1];
  char is[128], must[128], param[128];
  if (t->dtype != QN_F32)
    return qn_fail(QN_BAD_TYPE, "%s: %s[%zu] is %s, it must be f32", op_name(list), qn_lopt_tensors[role].name, k,
                   qn_dtype_name(t->dtype));
  const int ndim = qn_lopt_shape(ties, qn_lopt_state_of[role], p->ndim, p->shape, whole, want);
  qn_require(t->ndim >= 0 && t->ndim <= QN_MAX_NDIM && (t->shape || !t->ndim),
             "%s: %s[%zu] has %d dimensions, from 0 to %d are possible, with a shape", op_name(list),
             qn_lopt_tensors[role].name, k, t->ndim, QN_MAX_NDIM);
  qn_require(t->ndim == ndim && (!ndim || !memcmp(t->shape, want, (size_t)ndim * sizeof *want)),
             "%s: %s[%zu] has the shape %s, for a param of %s it must be %s", op_name(list), qn_lopt_tensors[role].name,
             k, qn_shape_text(t, is, sizeof is), qn_shape_text(p, param, sizeof param),
             qn_lopt_shape_text(ndim, want, must, sizeof must));
  if (is_stored(list, t)) return QN_OK;
  snprintf(is, sizeof is, "%s[%zu]", qn_lopt_tensors[role].name, k);
  return qn_lopt_check_storage(list, is, t);
}

qn_status qn_lopt_lend_weights(qn_call *list, const char *name, const float *weights, size_t n)
{
  qn_require(weights, "%s: %s is NULL: qn_lopt_weights_read reads them from a file", op_name(list), name);
  qn_require((uintptr_t)weights % sizeof(float) == 0, "%s: %s is at %p, which is not a multiple of 4", op_name(list),
             name, (const void *)weights);
  qn_call_lend(list, name, weights, n * sizeof *weights, false);
  return QN_OK;
}

qn_status qn_lopt_check_shapes(const qn_call *list)
{
  for (size_t k = 0; k < list->n; k++) {
    if (!list->tensors[QN_LOPT_PARAM]) return QN_BAD_ARGUMENT;
    qn_try(check_param_shape(list, k));
  }
  return QN_OK;
}

qn_status qn_lopt_check(qn_call *list, const qn_lopt_step *step, const qn_tensor *const *tensors)
{
  qn_require(tensors, "%s: tensors is NULL", op_name(list));
  qn_require(list->n <= SIZE_MAX / 1024, "%s: a list of %zu tensors", op_name(list), list->n);
  for (size_t role = 0; role < QN_LOPT_ROLES; role++) {
    qn_require(tensors[role] || !list->n, "%s: %s is NULL, and the list has %zu tensors", op_name(list),
               qn_lopt_tensors[role].name, list->n);
    list->tensors[role] = tensors[role];
  }
  qn_try(qn_lopt_check_shapes(list));
  qn_try(qn_lopt_check_shards(list, step->shards));
  for (size_t k = 0; k < list->n; k++)
    for (size_t role = 0; role < QN_LOPT_ROLES; role++)
      qn_try(check_tensor(list, step->kind->ties, qn_lopt_whole(step->shards, k), role, k));
  for (size_t k = 0; k < list->n && step->lr_scale; k++)
    qn_require(isfinite(step->lr_scale[k]) && step->lr_scale[k] >= 0,
               "%s: lr_scale[%zu] is %g, it must be a finite number of at least 0", op_name(list), k,
               step->lr_scale[k]);
  qn_call_lend(list, "hyper", step->hyper, step->hyper ? sizeof *step->hyper : 0, false);
  return QN_OK;
}

/* ---- a step of small_fc ---- */

size_t qn_lopt_workspace_of(const qn_op *op, const qn_lopt_shards *shards, size_t n, const qn_tensor *param)
{
  const qn_call list = {.op = op, .n = n, .tensors = {param}};
  if (!n || !param || qn_lopt_check_shapes(&list) != QN_OK || qn_lopt_check_shards(&list, shards) != QN_OK) return 0;
  if (param->device.kind != QN_CPU) return qn_lopt_device_bytes(&qn_lopt_small_fc, shards, n, param);
  return qn_lopt_groups_bytes(&qn_lopt_small_fc, shards, n, param) + QN_LOPT_ALIGNMENT;
}

static qn_lopt_step step_of(const qn_call *list) { return qn_lopt_step_of(list->op, list->params); }

static qn_status validate(qn_call *list, const qn_tensor *const *tensors)
{
  const qn_lopt_step step = step_of(list);
  qn_try(qn_lopt_check(list, &step, tensors));
  qn_try(qn_lopt_lend_weights(list, "weights", step.weights, QN_LOPT_SMALL_FC_WEIGHTS));
  for (size_t k = 0; k < list->n && step.compat; k++)
    qn_require(list->tensors[QN_LOPT_PARAM][k].ndim <= 2,
               "%s: param[%zu] has %d dimensions: pylo_cuda_compat is for up to 2", op_name(list), k,
               list->tensors[QN_LOPT_PARAM][k].ndim);
  return QN_OK;
}

static size_t workspace(const qn_call *list)
{
  return qn_lopt_workspace_of(list->op, step_of(list).shards, list->n, list->tensors[QN_LOPT_PARAM]);
}

void qn_lopt_read_hyper(qn_lopt_step *step)
{
  const qn_lopt_hyper *hyper = step->hyper;
  if (hyper) step->lr = hyper->lr, step->weight_decay = hyper->weight_decay, step->step = hyper->step;
}

static qn_status run(const qn_call *list)
{
  qn_lopt_step step = step_of(list);
  qn_lopt_call call;
  qn_tier tier;
  if (list->exec->device.kind != QN_CPU) return qn_lopt_device_run(list, &step);
  qn_try(qn_tier_in_force(&tier));
  if (!list->n || list->mode == QN_CALL_PREPARE) return QN_OK;
  qn_lopt_read_hyper(&step);
  qn_lopt_prepare(&call, &step);
  return qn_lopt_run_groups(list, &step, &call, tier, qn_lopt_room_of(list->exec->workspace, QN_LOPT_ALIGNMENT).base);
}

const qn_engine qn_lopt_small_fc_engine = {.validate = validate, .workspace = workspace, .run = run};
