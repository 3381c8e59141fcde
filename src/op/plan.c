/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - a list that was checked once. A step names the roles whose pointers moved; only those are checked again,
 * against what the plan remembers: shapes, layouts, and where written memory lies, in order of address. A plan holds no
 * device memory: pointers travel in the kernel's parameter. */
#include "core/core.h"
#include "op/list.h"
#include "quern/device.h"
#include <stdlib.h>
#include <string.h>

struct qn_plan {
  qn_list list; /* without exec and params, which are each step's own */
  qn_device device;
  qn_tensor *own[QN_MAX_TENSORS]; /* copies; shape and strides point into `extents` */
  qn_span *written;               /* by address; empty tensors are left out */
  size_t n_written;
};

/* ---- creation: one block of memory holds everything ---- */
static size_t count_extents(const qn_list *list)
{
  size_t n = 0;
  for (size_t k = 0; k < list->n; k++) {
    const size_t ndim = (size_t)list->tensors[0][k].ndim; /* all roles have one shape, and each strides of its own */
    n += ndim;
    for (size_t role = 0; role < QN_MAX_TENSORS; role++)
      if (list->tensors[role] && list->tensors[role][k].strides) n += ndim;
  }
  return n;
}

static size_t count_roles(const qn_list *list)
{
  size_t n = 0;
  for (size_t role = 0; role < QN_MAX_TENSORS; role++) n += list->tensors[role] != NULL;
  return n;
}

static void copy_tensors(qn_plan *plan, const qn_list *list, qn_tensor *tensor, int64_t *extents)
{
  for (size_t role = 0; role < QN_MAX_TENSORS; role++) {
    if (!list->tensors[role]) continue;
    memcpy(tensor, list->tensors[role], list->n * sizeof *tensor);
    plan->list.tensors[role] = plan->own[role] = tensor;
    tensor += list->n;
  }
  for (size_t k = 0; k < list->n; k++) {
    const size_t ndim = (size_t)list->tensors[0][k].ndim, bytes = ndim * sizeof *extents;
    int64_t *const shape = extents;
    if (bytes) memcpy(shape, list->tensors[0][k].shape, bytes);
    extents += ndim;
    for (size_t role = 0; role < QN_MAX_TENSORS; role++) {
      qn_tensor *own = plan->own[role] ? &plan->own[role][k] : NULL;
      if (!own) continue;
      own->shape = shape;
      if (own->strides && bytes) own->strides = memcpy(extents, own->strides, bytes);
      extents += own->strides ? ndim : 0;
    }
  }
}

static int by_address(const void *a, const void *b)
{
  const qn_span *one = a, *other = b;
  return (one->begin > other->begin) - (one->begin < other->begin);
}

static void note_written(qn_plan *plan)
{
  plan->n_written = 0;
  for (size_t role = 0; role < QN_MAX_TENSORS; role++) {
    if (!plan->own[role] || !(qn_list_access(&plan->list, role) & QN_WRITE)) continue;
    for (size_t k = 0; k < plan->list.n; k++) {
      const qn_span span = qn_span_of(&plan->list, role, k);
      if (span.begin != span.end) plan->written[plan->n_written++] = span;
    }
  }
  qsort(plan->written, plan->n_written, sizeof *plan->written, by_address);
}

/* The check, with room to do it at once whatever the list's length. */
static qn_status check_with_scratch(qn_list *list, const qn_tensor *const *tensors)
{
  qn_require(list->n <= SIZE_MAX / (256 * QN_MAX_TENSORS), "plan: a list of %zu tensors", list->n);
  list->scratch_bytes = qn_overlap_scratch(QN_MAX_TENSORS * list->n);
  qn_try(qn_try_allocate(&list->scratch, list->scratch_bytes, "the check of a plan"));
  const qn_status status = qn_list_check(list, tensors);
  qn_release(list->scratch);
  list->scratch = NULL;
  return status;
}

static qn_status create(qn_plan **plan, qn_list *list, const qn_tensor *const *tensors)
{
  qn_plan *made;
  qn_try(check_with_scratch(list, tensors));
  qn_try(qn_list_run_checked(list)); /* prepares */
  const size_t n_tensors = count_roles(list) * list->n;
  const size_t kept = list->exec->device.kind == QN_CPU ? 0 : (qn_list_kept_bytes() + 15) & ~(size_t)15;
  const size_t own = (sizeof *made + 15) & ~(size_t)15;
  const size_t bytes = own + kept + n_tensors * (sizeof(qn_tensor) + sizeof(qn_span)) +
                       (list->n ? count_extents(list) : 0) * sizeof(int64_t);
  qn_try(qn_try_allocate(&made, bytes, "a plan"));
  qn_span *spans = (qn_span *)((char *)made + own + kept);
  qn_tensor *copies = (qn_tensor *)(spans + n_tensors);
  *made = (qn_plan){.list = *list, .device = list->exec->device, .written = spans};
  made->list.mode = QN_LIST_STEP;
  if (kept) made->list.kept = memset((char *)made + own, 0, kept);
  made->list.exec = NULL;
  made->list.params = NULL;
  if (list->n) copy_tensors(made, list, copies, (int64_t *)(copies + n_tensors));
  if (list->n) note_written(made);
  *plan = made;
  return QN_OK;
}

qn_status qn_op_plan_create(qn_plan **plan, const qn_op_info *op, const qn_exec *exec, const void *params, size_t n,
                            const qn_tensor *const *tensors)
{
  qn_list list = {.op = qn_op_of(op), .mode = QN_LIST_PREPARE, .exec = exec, .params = params, .n = n};
  qn_require(plan, "plan: the place for it is NULL");
  *plan = NULL;
  qn_require(!op || (!op->shapes && !op->rules), "%s: a plan is of a list of tensors alike: call this op's step",
             op->name);
  const qn_fp_word word = qn_fp_enter();
  const qn_status status = create(plan, &list, tensors);
  qn_fp_leave(word);
  return status;
}

void qn_plan_destroy(qn_plan **plan)
{
  if (!plan) return;
  qn_release(*plan);
  *plan = NULL;
}

/* ---- a step ---- */

/* The first written memory that ends behind `begin`, or NULL. */
static const qn_span *written_behind(const qn_plan *plan, uintptr_t begin)
{
  size_t low = 0, n = plan->n_written;
  while (n) { /* written spans do not overlap, so their ends are in order too */
    const size_t half = n / 2;
    if (plan->written[low + half].end <= begin) {
      low += half + 1;
      n -= half + 1;
    } else {
      n = half;
    }
  }
  return low < plan->n_written ? &plan->written[low] : NULL;
}

static bool same_kind(const qn_tensor *t, const qn_tensor *old)
{
  if (t->dtype != old->dtype || t->device.kind != old->device.kind || t->device.index != old->device.index)
    return false;
  if (t->ndim != old->ndim || (t->ndim && !t->shape)) return false;
  for (int d = 0; d < t->ndim; d++)
    if (t->shape[d] != old->shape[d]) return false;
  return qn_same_layout(t, old);
}

/* Tensors of one moved role, each against what it takes the place of. Where something written moves too, `written` is
 * where it was, not where it is: then the whole list is looked at. */
static qn_status check_moved(const qn_plan *plan, const qn_list *now, size_t role, const qn_tensor *moved,
                             bool written_moved)
{
  for (size_t k = 0; k < plan->list.n; k++) {
    const qn_tensor *t = &moved[k], *old = &plan->own[role][k];
    const bool known = same_kind(t, old);
    if (known && t->data == old->data) continue;
    if (!known || !t->data || (uintptr_t)t->data % 4) qn_try(qn_check_tensor(now, role, k, t));
    qn_require(known || !now->op->info.strided || !qn_tensor_elements(t) || qn_same_layout(t, old),
               "%s: %s[%zu] moved and is laid out otherwise than when the plan was made: make another plan",
               now->op->info.name, now->op->info.tensors[role].name, k);
    if (written_moved || now->strided) continue;
    const uintptr_t begin = (uintptr_t)t->data, end = begin + qn_tensor_elements(t) * qn_dtype_bytes(t->dtype);
    const qn_span span = {begin, end, role, k}, *behind = written_behind(plan, begin);
    if (span.begin != span.end && behind && behind->begin < span.end)
      return qn_fail_overlap(plan->list.op, &span, behind);
  }
  return QN_OK;
}

/* What the step writes beside the tensors must not be any of them. */
static qn_status check_beside(const qn_list *list)
{
  const qn_span beside = qn_span_beside(list);
  if (beside.begin == beside.end) return QN_OK;
  for (size_t role = 0; role < QN_MAX_TENSORS; role++)
    for (size_t k = 0; list->tensors[role] && k < list->n; k++) {
      const qn_span span = qn_span_of(list, role, k);
      if (span.begin < beside.end && beside.begin < span.end) return qn_fail_overlap(list->op, &span, &beside);
    }
  return QN_OK;
}

static qn_status check_step(const qn_plan *plan, qn_list *now, const qn_tensor *const *moved, bool *written_moved)
{
  const char *op = now->op->info.name;
  qn_try(qn_check_exec_and_params(now));
  qn_require(now->exec->device.kind == plan->device.kind && now->exec->device.index == plan->device.index,
             "%s: the plan was made for %s:%d and the step is on %s:%d", op, qn_device_kind_name(plan->device.kind),
             plan->device.index, qn_device_kind_name(now->exec->device.kind), now->exec->device.index);
  if (!now->n) return QN_OK;
  for (size_t role = 0; moved && role < now->op->info.n_tensors; role++) {
    if (!moved[role]) continue;
    qn_require(plan->own[role], "%s: %s moved, and the plan has none", op, now->op->info.tensors[role].name);
    *written_moved |= (qn_list_access(now, role) & QN_WRITE) != 0;
  }
  for (size_t role = 0; moved && role < now->op->info.n_tensors; role++) {
    if (!moved[role]) continue;
    qn_try(check_moved(plan, now, role, moved[role], *written_moved));
    now->tensors[role] = moved[role];
  }
  qn_try(qn_check_rest(now));
  return *written_moved || (moved && now->strided) ? qn_check_overlap(now) : check_beside(now);
}

/* From here on the tensors are where they moved to. */
static void take_moved(qn_plan *plan, const qn_tensor *const *moved, bool written_moved)
{
  for (size_t role = 0; moved && role < QN_MAX_TENSORS; role++)
    for (size_t k = 0; plan->own[role] && moved[role] && k < plan->list.n; k++)
      plan->own[role][k].data = moved[role][k].data;
  if (written_moved) note_written(plan);
}

static qn_status step(qn_plan *plan, const qn_exec *exec, const void *params, const qn_tensor *const *moved)
{
  bool written_moved = false;
  qn_list now = plan->list;
  now.exec = exec;
  now.params = params;
  qn_try(check_step(plan, &now, moved, &written_moved));
  if (now.n) take_moved(plan, moved, written_moved);
  plan->list.moved |= moved != NULL; /* until a step has gone through with it */
  now = plan->list;
  now.exec = exec;
  now.params = params;
  qn_try(qn_list_run_checked(&now));
  plan->list.moved = false;
  return QN_OK;
}

qn_status qn_op_plan_step(qn_plan *plan, const qn_exec *exec, const void *params, const qn_tensor *const *moved)
{
  qn_require(plan, "plan: it is NULL");
  const qn_fp_word word = qn_fp_enter();
  const qn_status status = step(plan, exec, params, moved);
  qn_fp_leave(word);
  return status;
}
