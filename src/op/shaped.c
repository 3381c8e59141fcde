/* SPDX-License-Identifier: Apache-2.0 */
/* shaped.c - ops whose tensors have shapes of their own: the call is checked here by the description, every refusal a
 * sentence, before anything is written; then the op's own engine runs it. What lists need is in list.c. */
#include "core/core.h"
#include "op/list.h"
#include "quern/device.h"
#include <stdio.h>
#include <string.h>

static const char *role_name(const qn_shaped_call *call, size_t role) { return call->op->info.tensors[role].name; }

/* ---- types ---- */

static qn_status fail_types(const qn_shaped_call *call)
{
  const qn_op_info *info = &call->op->info;
  char got[160] = "", rows[320] = "";
  size_t used = 0;
  for (size_t role = 0; role < info->n_tensors && used < sizeof got; role++)
    if (call->tensor[role])
      used += (size_t)snprintf(got + used, sizeof got - used, "%s%s %s", used ? ", " : "", info->tensors[role].name,
                               qn_dtype_name(call->tensor[role]->dtype));
  used = 0;
  for (size_t row = 0; row < info->n_types; row++)
    for (size_t role = 0; role < info->n_tensors && used < sizeof rows; role++)
      used += (size_t)snprintf(rows + used, sizeof rows - used, "%s%s",
                               role  ? "/"
                               : row ? ", "
                                     : "",
                               qn_dtype_name(info->types[row].tensor[role].dtype));
  return qn_fail(QN_BAD_TYPE, "%s: there is no kernel for %s; in the order of its tensors there are: %s", info->name,
                 got, rows);
}

static qn_status find_row(qn_shaped_call *call)
{
  const qn_op_info *info = &call->op->info;
  for (call->row = 0; call->row < info->n_types; call->row++) {
    size_t role = 0;
    while (role < info->n_tensors &&
           (!call->tensor[role] || call->tensor[role]->dtype == info->types[call->row].tensor[role].dtype))
      role++;
    if (role == info->n_tensors) return QN_OK;
  }
  return fail_types(call);
}

/* ---- one tensor ---- */

/* Its extents are what the letters of "[m, k]" are; a letter that has no number yet gets it here. */
static qn_status check_shape(qn_shaped_call *call, size_t role, uint32_t *bound)
{
  const qn_tensor *t = call->tensor[role];
  const char *op = call->op->info.name, *name = role_name(call, role), *pattern = call->op->info.shapes[role];
  char shape[128];
  int d = 0;
  uint64_t n = 1;
  qn_shape_text(t, shape, sizeof shape);
  for (const char *at = pattern; *at; at++) {
    if (*at < 'a' || *at > 'z') continue;
    qn_require(d < t->ndim, "%s: %s has the shape %s, it must be %s", op, name, shape, pattern);
    int64_t *extent = &call->extent[*at - 'a'];
    qn_require(t->shape[d] >= 0, "%s: extent %d of %s is %lld", op, d, name, (long long)t->shape[d]);
    if (!(*bound >> (*at - 'a') & 1)) *extent = t->shape[d];
    *bound |= UINT32_C(1) << (*at - 'a');
    qn_require(*extent == t->shape[d], "%s: %s has the shape %s, it must be %s, and %c is %lld", op, name, shape,
               pattern, *at, (long long)*extent);
    const uint64_t factor = t->shape[d] ? (uint64_t)t->shape[d] : 1;
    qn_require(factor <= (UINT64_C(1) << 40) / n, "%s: %s (%s) has more than 2^40 elements", op, name, shape);
    n *= factor, d++;
  }
  qn_require(d == t->ndim, "%s: %s has the shape %s, it must be %s", op, name, shape, pattern);
  return QN_OK;
}

static qn_status check_place(const qn_shaped_call *call, size_t role)
{
  const qn_tensor *t = call->tensor[role];
  const char *op = call->op->info.name, *name = role_name(call, role);
  const qn_device device = call->exec->device;
  const uintptr_t address = (uintptr_t)t->data, item = qn_dtype_bytes(t->dtype);
  const uintptr_t bytes = (uintptr_t)qn_tensor_elements(t) * item;
  int64_t next = 1;
  qn_require(t->device.kind == device.kind && t->device.index == device.index,
             "%s: %s is on %s:%d and the call is on %s:%d", op, name, qn_device_kind_name(t->device.kind),
             t->device.index, qn_device_kind_name(device.kind), device.index);
  for (int d = t->ndim; d-- > 0 && t->strides && bytes;) {
    qn_require(t->shape[d] == 1 || t->strides[d] == next,
               "%s: %s is not row-major: the stride of its dimension %d is %lld, it must be %lld", op, name, d,
               (long long)t->strides[d], (long long)next);
    next *= t->shape[d];
  }
  qn_require(t->data || !bytes, "%s: the data of %s is NULL", op, name);
  qn_require(address % item == 0 && address + bytes >= address,
             "%s: %s cannot be at address 0x%zx with %zu bytes of %s", op, name, (size_t)address, (size_t)bytes,
             qn_dtype_name(t->dtype));
  return QN_OK;
}

static qn_status check_tensors(qn_shaped_call *call, const qn_tensor *const *tensors)
{
  const qn_op_info *info = &call->op->info;
  uint32_t bound = 0;
  qn_require(tensors, "%s: tensors is NULL", info->name);
  for (size_t role = 0; role < info->n_tensors; role++) {
    const qn_tensor *t = call->tensor[role] = tensors[role];
    qn_require(t || info->optional >> role & 1, "%s: %s is NULL, and it is not optional", info->name,
               role_name(call, role));
    if (!t) continue;
    if (!qn_dtype_bytes(t->dtype))
      return qn_fail(QN_BAD_TYPE, "%s: the dtype of %s is %d, which is none", info->name, role_name(call, role),
                     (int)t->dtype);
    qn_require(t->ndim >= 0 && t->ndim <= QN_MAX_NDIM && (t->shape || !t->ndim),
               "%s: %s has %d dimensions, from 0 to %d are possible, with a shape", info->name, role_name(call, role),
               t->ndim, QN_MAX_NDIM);
  }
  qn_try(find_row(call));
  for (size_t role = 0; role < info->n_tensors; role++) {
    if (!call->tensor[role]) continue;
    qn_try(check_shape(call, role, &bound));
    qn_try(check_place(call, role));
  }
  return QN_OK;
}

/* ---- what is written shares no byte ---- */

/* All are row-major here. */
static qn_span span_of(size_t role, const qn_tensor *t)
{
  const uintptr_t begin = (uintptr_t)t->data;
  return (qn_span){begin, begin + qn_tensor_elements(t) * qn_dtype_bytes(t->dtype), role, 0};
}

static bool share(const qn_span *a, const qn_span *b) { return a->begin < b->end && b->begin < a->end; }

static qn_status check_overlap(const qn_shaped_call *call, size_t workspace_bytes)
{
  const qn_op_info *info = &call->op->info;
  qn_span span[QN_MAX_TENSORS + 1];
  size_t n = 0;
  for (size_t role = 0; role < info->n_tensors; role++)
    if (call->tensor[role]) span[n++] = span_of(role, call->tensor[role]);
  const uintptr_t lent = (uintptr_t)call->exec->workspace;
  if (workspace_bytes) span[n++] = (qn_span){lent, lent + workspace_bytes, QN_MAX_TENSORS, 0};
  for (size_t a = 0; a < n; a++)
    for (size_t b = a + 1; b < n; b++) {
      const bool beside = span[b].role == QN_MAX_TENSORS;
      const bool written =
          beside ||
          ((info->types[call->row].tensor[span[a].role].access | info->types[call->row].tensor[span[b].role].access) &
           QN_WRITE);
      if (!written || !share(&span[a], &span[b])) continue;
      return qn_fail(QN_BAD_ARGUMENT, "%s: %s and %s share memory, and one of them is written", info->name,
                     role_name(call, span[a].role), beside ? "the workspace" : role_name(call, span[b].role));
    }
  return QN_OK;
}

static qn_status check_workspace(const qn_shaped_call *call, size_t needed)
{
  const qn_exec *exec = call->exec;
  if (!needed || call->prepare) return QN_OK;
  qn_require(exec->workspace && exec->workspace_bytes >= needed,
             "%s: the workspace is %zu bytes at %p, %zu are needed (qn_op_call_workspace_bytes says so)",
             call->op->info.name, exec->workspace_bytes, exec->workspace, needed);
  qn_require((uintptr_t)exec->workspace % 16 == 0, "%s: the workspace is at %p, which is not a multiple of 16",
             call->op->info.name, exec->workspace);
  return QN_OK;
}

/* ---- the call ---- */

static qn_status check(qn_shaped_call *call, size_t n, const qn_tensor *const *tensors)
{
  const qn_shaped *shaped = call->op->shaped;
  qn_try(qn_check_exec_and_params(&(qn_list){.op = call->op, .exec = call->exec, .params = call->params}));
  qn_require(n == 1, "%s: a call takes one tensor a role, not a list of %zu", call->op->info.name, n);
  qn_try(check_tensors(call, tensors));
  return shaped->check ? shaped->check(call) : QN_OK;
}

qn_status qn_shaped_step(const qn_op *op, const qn_exec *exec, const void *params, size_t n,
                         const qn_tensor *const *tensors, bool prepare)
{
  qn_shaped_call call = {.op = op, .exec = exec, .params = params, .prepare = prepare};
  const qn_fp_word word = qn_fp_enter();
  qn_status status = check(&call, n, tensors);
  if (status == QN_OK) {
    const size_t needed = op->shaped->workspace_bytes ? op->shaped->workspace_bytes(&call) : 0;
    status = check_workspace(&call, needed);
    if (status == QN_OK) status = check_overlap(&call, prepare ? 0 : needed);
    if (status == QN_OK) status = op->shaped->run(&call);
  }
  qn_fp_leave(word);
  return status;
}

size_t qn_shaped_workspace(const qn_op *op, const qn_exec *exec, const void *params, size_t n,
                           const qn_tensor *const *tensors)
{
  qn_shaped_call call = {.op = op, .exec = exec, .params = params};
  if (!op->shaped->workspace_bytes || check(&call, n, tensors) != QN_OK) return 0;
  return op->shaped->workspace_bytes(&call);
}
