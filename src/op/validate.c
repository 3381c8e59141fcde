/* SPDX-License-Identifier: Apache-2.0 */
/* validate.c - what a call of an op is refused for, by the op's description, and the sentences that say why. All of it
 * comes before anything is written. Shapes are role_shape.c's, params validate_params.c's, shared bytes overlap.c's. */
#include "core/status.h"
#include "op/call.h"
#include "op/view.h"
#include "quern/device.h"
#include <stdio.h>
#include <string.h>

static const char *role_name(const qn_call *call, size_t role) { return call->op->info.tensors[role].name; }

/* ---- the row of the type table ---- */

/* "param bf16, grad f32, momentum f32" into text. */
static void add_types(const qn_call *call, char *text, size_t bytes)
{
  size_t used = 0;
  for (size_t role = 0; role < call->op->info.n_tensors && used < bytes; role++)
    if (call->tensors[role])
      used += (size_t)snprintf(text + used, bytes - used, "%s%s %s", used ? ", " : "", role_name(call, role),
                               qn_dtype_name(call->tensors[role]->dtype));
}

/* The table as short as it goes: one "f32/bf16/f32" a row, roles in order. */
static void add_rows(const qn_op_info *info, char *text, size_t bytes)
{
  size_t used = 0;
  for (size_t row = 0; row < info->n_types; row++)
    for (size_t role = 0; role < info->n_tensors && used < bytes; role++) {
      const qn_dtype dtype = info->types[row].tensor[role].dtype;
      const char *between = role ? "/" : row ? ", " : "";
      if (dtype == QN_NONE) continue;
      used += (size_t)snprintf(text + used, bytes - used, "%s%s", between, qn_dtype_name(dtype));
    }
}

static qn_status fail_row(const qn_call *call)
{
  char got[320] = "", rows[640] = "", roles[96] = "";
  const qn_op_info *info = &call->op->info;
  for (size_t role = 0; role < info->n_tensors && info->n_types == 1; role++)
    if (call->tensors[role] && call->tensors[role]->dtype != info->types->tensor[role].dtype)
      return qn_fail(QN_BAD_TYPE, "%s: %s is %s, it must be %s", info->name, qn_name_of(call, role, 0).text,
                     qn_dtype_name(call->tensors[role]->dtype), qn_dtype_name(info->types->tensor[role].dtype));
  add_types(call, got, sizeof got);
  add_rows(info, rows, sizeof rows);
  for (size_t role = 0, used = 0; role < info->n_tensors && used < sizeof roles; role++)
    used += (size_t)snprintf(roles + used, sizeof roles - used, "%s%s", role ? "/" : "", info->tensors[role].name);
  return qn_fail(QN_BAD_TYPE, "%s: there is no kernel for %s; as %s there are: %s", info->name, got, roles, rows);
}

static bool may_be_absent(const qn_op_info *info, size_t role)
{
  for (size_t row = 0; row < info->n_types; row++)
    if (info->types[row].tensor[role].access == QN_ABSENT) return true;
  return info->tensors[role].optional;
}

/* Do the types of what is given stand in this row, and is what is not given not needed there? */
static bool is_row(const qn_call *call, size_t row)
{
  const qn_op_info *info = &call->op->info;
  for (size_t role = 0; role < info->n_tensors; role++) {
    const qn_dtype dtype = info->types[row].tensor[role].dtype;
    const qn_tensor *t = call->tensors[role];
    const bool needed = dtype && !info->tensors[role].optional && qn_call_count(call, role);
    if (t ? t->dtype != dtype : needed) return false;
  }
  return true;
}

static qn_status find_row(qn_call *call)
{
  const qn_op_info *info = &call->op->info;
  for (size_t role = 0; role < info->n_tensors; role++) {
    const qn_tensor *t = call->tensors[role];
    if (t && !qn_dtype_bytes(t->dtype))
      return qn_fail(QN_BAD_TYPE, "%s: the dtype of %s is %d, which is none", info->name,
                     qn_name_of(call, role, 0).text, (int)t->dtype);
    if (t || !qn_call_count(call, role) || may_be_absent(info, role)) continue;
    qn_require(!info->tensors[role].single, "%s: %s is NULL, and it is not optional", info->name,
               role_name(call, role));
    return qn_fail(QN_BAD_ARGUMENT, "%s: %s is NULL, and the list has %zu tensors", info->name, role_name(call, role),
                   call->n);
  }
  for (call->row = 0; call->row < info->n_types; call->row++)
    if (is_row(call, call->row)) break;
  if (call->row == info->n_types) return fail_row(call);
  if (call->row < qn_op_rows(info, call->exec->device.kind)) return QN_OK;
  return qn_fail(QN_UNSUPPORTED,
                 "%s: there is no kernel for f64 on %s: float64 is computed on the processor (cpu) alone", info->name,
                 qn_device_kind_name(call->exec->device.kind));
}

/* ---- how a tensor is stored ---- */

static qn_status fail_rows(const qn_call *call, size_t role, size_t k, const qn_tensor *t)
{
  return qn_fail(QN_BAD_ARGUMENT,
                 "%s: %s is not dense, and its strides are not those of rows at one distance with columns 1 or 2 "
                 "elements apart: make it contiguous",
                 call->op->info.name, qn_shaped_name_of(call, role, k, t).text);
}

static qn_status check_row_major(const qn_call *call, size_t role, size_t k, const qn_tensor *t)
{
  int64_t next = 1;
  for (int d = t->ndim; d-- > 0 && t->strides; next *= t->shape[d])
    qn_require(t->shape[d] <= 1 || t->strides[d] == next || !qn_tensor_elements(t),
               "%s: %s is not row-major: make it contiguous (the stride of its dimension %d is %lld, it must be "
               "%lld)",
               call->op->info.name, qn_shaped_name_of(call, role, k, t).text, d, (long long)t->strides[d],
               (long long)next);
  return QN_OK;
}

/* Of roles alike the first one's order counts. */
static qn_status check_dense(const qn_call *call, size_t role, size_t k, const qn_tensor *t)
{
  const qn_tensor *first = call->rules->alike ? &call->tensors[0][k] : t;
  if ((!t->strides && !first->strides) || !qn_tensor_elements(t)) return QN_OK;
  qn_require(t != first || qn_is_dense(t), "%s: %s is not dense: its strides leave gaps or overlap",
             call->op->info.name, qn_shaped_name_of(call, role, k, t).text);
  qn_require(qn_same_layout(t, first), "%s: %s is laid out in another order than %s", call->op->info.name,
             qn_shaped_name_of(call, role, k, t).text, qn_name_of(call, 0, k).text);
  return QN_OK;
}

static qn_status check_reach(const qn_call *call, size_t role, size_t k, const qn_tensor *t, const qn_view *view)
{
  const uint64_t most = (UINTPTR_MAX - (uintptr_t)t->data) / qn_dtype_bytes(t->dtype);
  qn_require(!view->rows || view->pitch[role] <= most / view->rows, "%s: the strides of %s lead out of memory",
             call->op->info.name, qn_shaped_name_of(call, role, k, t).text);
  return QN_OK;
}

/* One tensor with rows of its own. */
static qn_status check_rows(const qn_call *call, size_t role, size_t k, const qn_tensor *t)
{
  const qn_tensor *alone[QN_MAX_TENSORS] = {NULL};
  qn_view view;
  alone[role] = t;
  if (!qn_view_make(alone, 0, false, &view)) return fail_rows(call, role, k, t);
  return check_reach(call, role, k, t, &view);
}

static qn_status check_pitched(const qn_call *call, size_t role, size_t k, const qn_tensor *t)
{
  const char *op = call->op->info.name;
  if (!t->strides || !qn_tensor_elements(t)) return QN_OK;
  const int64_t rows = t->shape[0], cols = t->shape[1], apart = rows > 1 ? t->strides[0] : cols;
  qn_require(cols == 1 || t->strides[1] == 1,
             "%s: the columns of %s are %lld elements apart, they must lie side by side", op,
             qn_name_of(call, role, k).text, (long long)t->strides[1]);
  qn_require(apart >= cols, "%s: the rows of %s are %lld elements apart and have %lld", op,
             qn_name_of(call, role, k).text, (long long)apart, (long long)cols);
  qn_require((uint64_t)apart <= (UINTPTR_MAX - (uintptr_t)t->data) / qn_dtype_bytes(t->dtype) / (uint64_t)rows,
             "%s: the strides of %s lead out of memory", op, qn_shaped_name_of(call, role, k, t).text);
  return QN_OK;
}

static qn_status check_storage(const qn_call *call, size_t role, size_t k, const qn_tensor *t)
{
  const qn_storage storage = call->op->info.tensors[role].storage;
  if (storage == QN_STORAGE_PITCHED) return check_pitched(call, role, k, t);
  if (storage == QN_STORAGE_ROW_MAJOR) return check_row_major(call, role, k, t);
  if (storage == QN_STORAGE_DENSE) return check_dense(call, role, k, t);
  return call->rules->alike ? QN_OK : check_rows(call, role, k, t); /* else check_place looks at them */
}

/* ---- the tensors of one place, where they need not be dense ---- */
static bool place_is_dense(const qn_call *call, size_t k)
{
  const qn_tensor *first = &call->tensors[0][k];
  if (!qn_tensor_elements(first)) return true;
  if (!qn_is_dense(first)) return false;
  for (size_t role = 1; role < call->op->info.n_tensors; role++)
    if (call->tensors[role] && !qn_same_layout(&call->tensors[role][k], first)) return false;
  return true;
}

/* It cannot be walked: one tensor's fault, or that of their differences. */
static qn_status fail_place(const qn_call *call, size_t k)
{
  for (size_t role = 0; role < call->op->info.n_tensors; role++) {
    const qn_tensor *alone[QN_MAX_TENSORS] = {[0] = call->tensors[role]};
    qn_view view;
    if (alone[0] && !qn_view_make(alone, k, false, &view)) return fail_rows(call, role, k, &alone[0][k]);
  }
  size_t role = call->op->info.n_tensors;
  while (--role && (!call->tensors[role] || qn_same_layout(&call->tensors[role][k], &call->tensors[0][k]))) {}
  const qn_tensor *t = &call->tensors[0][k];
  return qn_fail(QN_BAD_ARGUMENT,
                 "%s: %s is laid out in another order than %s, and not all are rows with columns in one "
                 "order: make them contiguous",
                 call->op->info.name, qn_shaped_name_of(call, role, k, t).text, qn_name_of(call, 0, k).text);
}

/* Together, for ops that are strided: dense and alike, or else rows and columns. */
static qn_status check_place(const qn_call *call, size_t k, bool *strided)
{
  const bool row_is_last = qn_call_by_rows(call), dense = place_is_dense(call, k);
  qn_view view;
  *strided |= !dense;
  if (dense && !row_is_last) return QN_OK;
  if (!qn_view_make(call->tensors, k, row_is_last, &view)) return fail_place(call, k);
  for (size_t role = 0; role < call->op->info.n_tensors; role++)
    if (call->tensors[role]) qn_try(check_reach(call, role, k, &call->tensors[role][k], &view));
  return QN_OK;
}

static qn_status check_places(qn_call *call)
{
  const qn_op_info *info = &call->op->info;
  if (call->rules->alike && info->tensors[0].storage == QN_STORAGE_ROWS)
    for (size_t k = 0; k < call->n; k++) qn_try(check_place(call, k, &call->strided));
  for (size_t role = 0; role < info->n_tensors && !call->rules->alike; role++)
    for (size_t k = 0; call->tensors[role] && k < qn_call_count(call, role); k++)
      call->strided |= info->tensors[role].storage >= QN_STORAGE_ROWS && !qn_is_dense(&call->tensors[role][k]);
  return QN_OK;
}

/* ---- one tensor ---- */

/* Tensors have at most 2^63 bytes: in the lower half of what can be addressed none reaches over the end. */
static qn_status check_address(const qn_call *call, size_t role, size_t k, const qn_tensor *t)
{
  const uintptr_t address = (uintptr_t)t->data, item = qn_dtype_bytes(t->dtype);
  const char *op = call->op->info.name;
  if (address && !(address & (item - 1)) && address <= UINTPTR_MAX / 2) return QN_OK;
  const uintptr_t bytes = (uintptr_t)qn_tensor_elements(t) * item;
  qn_require(t->data || !bytes, "%s: the data of %s is NULL", op, qn_shaped_name_of(call, role, k, t).text);
  qn_require(address % item == 0,
             "%s: %s cannot be at address 0x%zx with %zu bytes of %s, which is not a multiple of %zu", op,
             qn_name_of(call, role, k).text, (size_t)address, (size_t)bytes, qn_dtype_name(t->dtype), (size_t)item);
  qn_require(address + bytes >= address, "%s: %s cannot be at address 0x%zx with %zu bytes of %s", op,
             qn_name_of(call, role, k).text, (size_t)address, (size_t)bytes, qn_dtype_name(t->dtype));
  return QN_OK;
}

qn_status qn_validate_tensor(qn_call *call, size_t role, size_t k, const qn_tensor *t)
{
  const qn_dtype dtype = call->op->info.types[call->row].tensor[role].dtype;
  const qn_device device = call->exec->device;
  const char *op = call->op->info.name;
  if (t->dtype != dtype)
    return qn_fail(QN_BAD_TYPE, "%s: %s is %s and %s is %s: a list has one type a role", op,
                   qn_name_of(call, role, k).text, qn_dtype_name(t->dtype), qn_name_of(call, role, 0).text,
                   qn_dtype_name(dtype));
  qn_require(t->device.kind == device.kind && t->device.index == device.index,
             "%s: %s is on %s:%d and the call is on %s:%d", op, qn_name_of(call, role, k).text,
             qn_device_kind_name(t->device.kind), t->device.index, qn_device_kind_name(device.kind), device.index);
  qn_try(qn_role_shape_check(call, role, k, t));
  qn_try(check_storage(call, role, k, t));
  return check_address(call, role, k, t);
}

/* ---- the call ---- */

/* What is counted is written beside the tensors. */
static qn_status check_counts(qn_call *call)
{
  qn_require(call->counts && (uintptr_t)call->counts % 8 == 0, "%s: the counts are at %p", call->op->info.name,
             (void *)call->counts);
  qn_call_lend(call, "the counts", call->counts, 2 * sizeof *call->counts * call->n, true);
  return QN_OK;
}

static qn_status check_relations(const qn_call *call) { return call->op->check ? call->op->check(call) : QN_OK; }

static qn_status check_first_elements(const qn_call *call)
{
  const uint64_t *first;
  if (!call->op->first_element_offset) return QN_OK;
  memcpy(&first, (const char *)call->params + call->op->first_element_offset - 1, sizeof first);
  for (size_t k = 0; first && k < call->n; k++)
    qn_require(first[k] <= (UINT64_C(1) << 60) - qn_tensor_elements(&call->tensors[0][k]),
               "%s: first_element[%zu] is %llu: elements are counted up to 2^60", call->op->info.name, k,
               (unsigned long long)first[k]);
  return QN_OK;
}

static qn_status check_rest(qn_call *call)
{
  bool strided;
  for (size_t k = 0; k < call->n && qn_call_by_rows(call); k++) qn_try(check_place(call, k, &strided));
  qn_try(check_first_elements(call));
  return call->mode == QN_CALL_COUNT ? check_counts(call) : QN_OK;
}

qn_status qn_validate_rest(qn_call *call)
{
  qn_try(qn_validate_arrays(call));
  qn_try(check_relations(call));
  return check_rest(call);
}

/* How many tensors a call may have, and where they are; is there any? */
static qn_status take_tensors(qn_call *call, const qn_tensor *const *tensors, bool *any)
{
  const qn_op_info *info = &call->op->info;
  *any = call->n > 0;
  for (size_t role = 0; role < info->n_tensors; role++) *any |= info->tensors[role].single;
  qn_require(!qn_op_is_alone(info) || call->n == 1, "%s: a call takes one tensor a role, not a list of %zu", info->name,
             call->n);
  qn_require(tensors || !*any, "%s: tensors is NULL, and the list has %zu", info->name, call->n);
  qn_require(call->n <= SIZE_MAX / (128 * QN_MAX_TENSORS), "%s: a list of %zu tensors", info->name, call->n);
  for (size_t role = 0; role < info->n_tensors; role++)
    call->tensors[role] = tensors && qn_call_count(call, role) ? tensors[role] : NULL;
  return QN_OK;
}

static qn_status validate_role(qn_call *call, size_t role)
{
  for (size_t k = 0, n = call->tensors[role] ? qn_call_count(call, role) : 0; k < n; k++)
    qn_try(qn_validate_tensor(call, role, k, &call->tensors[role][k]));
  return QN_OK;
}

/* The first role's tensors come first: what other roles must be follows from them, and params relate to them. */
qn_status qn_validate_tensors(qn_call *call, const qn_tensor *const *tensors)
{
  qn_op_rules own;
  bool any;
  qn_try(qn_op_rules_of(call->op, &own, &call->rules));
  qn_try(take_tensors(call, tensors, &any));
  qn_try(qn_validate_arrays(call));
  if (!any) return QN_OK;
  qn_try(find_row(call));
  qn_try(validate_role(call, 0));
  qn_try(check_relations(call));
  for (size_t role = 1; role < call->op->info.n_tensors; role++) qn_try(validate_role(call, role));
  qn_try(check_places(call));
  return check_rest(call);
}
