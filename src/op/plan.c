/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - a list that was checked once. A step names the roles whose pointers moved; only those are checked again,
 * against what the plan remembers: shapes, layouts, and where written memory lies, in order of address. A plan holds no
 * device memory: pointers travel in the kernel's parameter. */
#include "core/core.h"
#include "op/call.h"
#include "op/view.h"
#include "quern/device.h"
#include <stdlib.h>
#include <string.h>

struct qn_plan {
  qn_call call; /* without exec and params, which are each step's own */
  qn_device device;
  qn_tensor *own[QN_MAX_TENSORS]; /* copies; shape and strides point into `extents` */
  qn_span *written;               /* by address; empty tensors are left out */
  size_t n_written;
};

/* ---- creation: one block of memory holds everything ---- */
static size_t count_of(const qn_call *call, size_t role) { return call->tensors[role] ? qn_call_count(call, role) : 0; }

static size_t count_extents(const qn_call *call)
{
  size_t n = 0;
  for (size_t role = 0; role < QN_MAX_TENSORS; role++)
    for (size_t k = 0; k < count_of(call, role); k++)
      n += (size_t)call->tensors[role][k].ndim * (call->tensors[role][k].strides ? 2 : 1);
  return n;
}

static size_t count_tensors(const qn_call *call)
{
  size_t n = 0;
  for (size_t role = 0; role < QN_MAX_TENSORS; role++) n += count_of(call, role);
  return n;
}

static const int64_t *copy_extents(const int64_t *from, size_t n, int64_t **to)
{
  int64_t *const made = *to;
  if (n) memcpy(made, from, n * sizeof *from);
  *to += n;
  return made;
}

static void copy_tensors(qn_plan *plan, const qn_call *call, qn_tensor *tensor, int64_t *extents)
{
  for (size_t role = 0; role < QN_MAX_TENSORS; role++) {
    const size_t n = count_of(call, role);
    if (!call->tensors[role]) continue;
    plan->call.tensors[role] = plan->own[role] = tensor;
    for (size_t k = 0; k < n; k++, tensor++) {
      *tensor = call->tensors[role][k];
      tensor->shape = copy_extents(tensor->shape, (size_t)tensor->ndim, &extents);
      if (tensor->strides) tensor->strides = copy_extents(tensor->strides, (size_t)tensor->ndim, &extents);
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
    if (!plan->own[role] || !(qn_call_access(&plan->call, role) & QN_WRITE)) continue;
    for (size_t k = 0; k < count_of(&plan->call, role); k++) {
      const qn_span span = qn_span_of(&plan->call, role, k);
      if (span.begin != span.end) plan->written[plan->n_written++] = span;
    }
  }
  qsort(plan->written, plan->n_written, sizeof *plan->written, by_address);
}

/* With room to look for shared bytes at once whatever the list's length. */
static qn_status validate(qn_call *call, const qn_tensor *const *tensors)
{
  qn_require(call->n <= SIZE_MAX / (256 * QN_MAX_TENSORS), "plan: a list of %zu tensors", call->n);
  call->scratch_bytes = qn_overlap_scratch(QN_MAX_TENSORS * call->n + QN_MAX_LENT);
  qn_try(qn_try_allocate(&call->scratch, call->scratch_bytes, "the check of a plan"));
  const qn_status status = qn_call_validate(call, tensors);
  qn_release(call->scratch);
  call->scratch = NULL;
  return status;
}

static qn_status create(qn_plan **plan, qn_call *call, const qn_tensor *const *tensors)
{
  qn_plan *made;
  qn_try(validate(call, tensors));
  qn_try(call->op->engine->run(call)); /* prepares */
  const size_t n_tensors = count_tensors(call);
  const size_t kept = call->exec->device.kind == QN_CPU ? 0 : (qn_list_kept_bytes() + 15) & ~(size_t)15;
  const size_t own = (sizeof *made + 15) & ~(size_t)15;
  const size_t bytes =
      own + kept + n_tensors * (sizeof(qn_tensor) + sizeof(qn_span)) + count_extents(call) * sizeof(int64_t);
  qn_try(qn_try_allocate(&made, bytes, "a plan"));
  qn_span *spans = (qn_span *)((char *)made + own + kept);
  qn_tensor *copies = (qn_tensor *)(spans + n_tensors);
  *made = (qn_plan){.call = *call, .device = call->exec->device, .written = spans};
  made->call.mode = QN_CALL_STEP;
  if (kept) made->call.kept = memset((char *)made + own, 0, kept);
  made->call.exec = NULL;
  made->call.params = NULL;
  copy_tensors(made, call, copies, (int64_t *)(copies + n_tensors));
  note_written(made);
  *plan = made;
  return QN_OK;
}

qn_status qn_op_plan_create(qn_plan **plan, const qn_op_info *op, const qn_exec *exec, const void *params, size_t n,
                            const qn_tensor *const *tensors)
{
  qn_call call = {.op = qn_op_of(op), .mode = QN_CALL_PREPARE, .exec = exec, .params = params, .n = n};
  qn_require(plan, "plan: the place for it is NULL");
  *plan = NULL;
  const qn_fp_word word = qn_fp_enter();
  const qn_status status = create(plan, &call, tensors);
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

static inline bool same_shape(const qn_tensor *t, const qn_tensor *old)
{
  if (t->ndim != old->ndim || (t->ndim && !t->shape)) return false;
  for (int d = 0; d < t->ndim; d++)
    if (t->shape[d] != old->shape[d]) return false;
  return true;
}

static bool same_kind(const qn_tensor *t, const qn_tensor *old)
{
  return t->dtype == old->dtype && t->device.kind == old->device.kind && t->device.index == old->device.index &&
         same_shape(t, old) && qn_same_layout(t, old);
}

/* Tensors of one moved role, each against what it takes the place of. Where something written moves too, `written` is
 * where it was, not where it is: then the whole list is looked at. */
static qn_status check_moved(const qn_plan *plan, qn_call *now, size_t role, const qn_tensor *moved, bool written_moved)
{
  for (size_t k = 0; k < count_of(&plan->call, role); k++) {
    const qn_tensor *t = &moved[k], *old = &plan->own[role][k];
    const bool known = same_kind(t, old);
    if (known && t->data == old->data) continue;
    if (!known || !t->data || (uintptr_t)t->data % 8) qn_try(qn_validate_tensor(now, role, k, t));
    qn_require(known || same_shape(t, old),
               "%s: %s moved and is of another shape than when the plan was made: make another plan",
               now->op->info.name, qn_name_of(now, role, k).text);
    qn_require(known || !qn_tensor_elements(t) || qn_same_layout(t, old),
               "%s: %s moved and is laid out otherwise than when the plan was made: make another plan",
               now->op->info.name, qn_name_of(now, role, k).text);
    if (written_moved || now->strided) continue;
    const uintptr_t begin = (uintptr_t)t->data, end = begin + qn_tensor_elements(t) * qn_dtype_bytes(t->dtype);
    const qn_span span = {begin, end, role, k}, *behind = written_behind(plan, begin);
    if (span.begin != span.end && behind && behind->begin < span.end) return qn_fail_overlap(now, &span, behind);
  }
  return QN_OK;
}

static bool crosses(const qn_span *a, const qn_span *b) { return a->begin < b->end && b->begin < a->end; }

/* Written memory that is lent must not be any of the tensors, nor anything else that is lent. */
static qn_status check_lent_to(const qn_call *call, size_t j)
{
  const qn_span lent = qn_span_of(call, QN_MAX_TENSORS, j);
  for (size_t role = 0; role < QN_MAX_TENSORS; role++)
    for (size_t k = 0; k < count_of(call, role); k++) {
      const qn_span span = qn_span_of(call, role, k);
      if (crosses(&span, &lent)) return qn_fail_overlap(call, &span, &lent);
    }
  for (size_t k = 0; k < call->n_lent; k++) {
    const qn_span other = qn_span_of(call, QN_MAX_TENSORS, k);
    if (k != j && crosses(&other, &lent)) return qn_fail_overlap(call, &other, &lent);
  }
  return QN_OK;
}

/* What is lent to be read must be nothing that is written. */
static qn_status check_lent(const qn_plan *plan, const qn_call *call)
{
  for (size_t j = 0; j < call->n_lent; j++) {
    const qn_span lent = qn_span_of(call, QN_MAX_TENSORS, j), *behind = written_behind(plan, lent.begin);
    if (call->lent[j].is_written)
      qn_try(check_lent_to(call, j));
    else if (behind && behind->begin < lent.end)
      return qn_fail_overlap(call, behind, &lent);
  }
  return QN_OK;
}

/* Only what moved. */
static qn_status check_parts(const qn_plan *plan, qn_call *now, const qn_tensor *const *moved, bool written_moved)
{
  for (size_t role = 0; moved && role < now->op->info.n_tensors; role++) {
    if (!moved[role]) continue;
    qn_try(check_moved(plan, now, role, moved[role], written_moved));
    now->tensors[role] = moved[role];
  }
  qn_try(qn_validate_rest(now));
  qn_try(qn_call_lend_workspace(now));
  return written_moved || (moved && now->strided) ? qn_check_overlap(now) : check_lent(plan, now);
}

static qn_status check_step(const qn_plan *plan, qn_call *now, const qn_tensor *const *moved, bool *written_moved)
{
  const char *op = now->op->info.name;
  qn_op_rules own;
  qn_try(qn_validate_exec_and_params(now));
  qn_try(qn_op_rules_of(now->op, &own, &now->rules));
  qn_require(now->exec->device.kind == plan->device.kind && now->exec->device.index == plan->device.index,
             "%s: the plan was made for %s:%d and the step is on %s:%d", op, qn_device_kind_name(plan->device.kind),
             plan->device.index, qn_device_kind_name(now->exec->device.kind), now->exec->device.index);
  if (!now->n) return QN_OK;
  for (size_t role = 0; moved && role < now->op->info.n_tensors; role++) {
    if (!moved[role]) continue;
    qn_require(plan->own[role], "%s: %s moved, and the plan has none", op, now->op->info.tensors[role].name);
    *written_moved |= (qn_call_access(now, role) & QN_WRITE) != 0;
  }
  return check_parts(plan, now, moved, *written_moved);
}

/* From here on the tensors are where they moved to. */
static void take_moved(qn_plan *plan, const qn_tensor *const *moved, bool written_moved)
{
  for (size_t role = 0; moved && role < QN_MAX_TENSORS; role++)
    for (size_t k = 0; plan->own[role] && moved[role] && k < count_of(&plan->call, role); k++)
      plan->own[role][k].data = moved[role][k].data;
  if (written_moved) note_written(plan);
}

static qn_status step(qn_plan *plan, const qn_exec *exec, const void *params, const qn_tensor *const *moved)
{
  bool written_moved = false;
  qn_call now = plan->call;
  now.exec = exec;
  now.params = params;
  now.n_lent = 0;
  qn_try(check_step(plan, &now, moved, &written_moved));
  if (now.n) take_moved(plan, moved, written_moved);
  plan->call.moved |= moved != NULL; /* until a step has gone through with it */
  for (size_t role = 0; role < QN_MAX_TENSORS; role++) now.tensors[role] = plan->call.tensors[role];
  now.moved = plan->call.moved;
  qn_try(now.op->engine->run(&now));
  plan->call.moved = false;
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
