/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - what the list engine refuses, and the sentences that say why. Everything is checked before anything is
 * written. It knows ops by their descriptions only; overlap is in overlap.c. */
#include "core/status.h"
#include "op/call.h"
#include "op/view.h"
#include "quern/device.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- structs that may grow: `size` is the caller's; what is beyond ours must say nothing ---- */
static qn_status check_size(const qn_op *op, const char *what, const void *bytes, size_t size, size_t ours)
{
  qn_require(size >= ours && size <= ours + 4096,
             "%s: %s->size is %zu, and this library's struct has %zu bytes: set it to sizeof, as the defaults do",
             op->info.name, what, size, ours);
  for (size_t k = ours; k < size; k++)
    qn_require(!((const unsigned char *)bytes)[k],
               "%s: %s has a member at byte %zu that this library (%s) does not know: use a newer one", op->info.name,
               what, k, qn_version());
  return QN_OK;
}

static qn_status check_exec(const qn_op *op, const qn_exec *exec)
{
  qn_require(exec, "%s: exec is NULL", op->info.name);
  qn_try(check_size(op, "exec", exec, exec->size, sizeof *exec));
  qn_require((unsigned)exec->device.kind < QN_DEVICE_KIND_COUNT, "%s: exec's device kind is %d, there are 0 to %d",
             op->info.name, (int)exec->device.kind, QN_DEVICE_KIND_COUNT - 1);
  qn_require(exec->device.index >= 0 && (exec->device.kind == QN_CUDA || exec->device.index == 0),
             "%s: exec's device is %s:%d, there is no such number", op->info.name,
             qn_device_kind_name(exec->device.kind), exec->device.index);
  return QN_OK;
}

/* ---- params, by the table of the description ---- */
static size_t count_of_values(const char *values)
{
  size_t n = 1;
  for (; *values; values++) n += *values == '|';
  return n;
}

static qn_status check_double(const qn_op *op, const qn_op_param *param, double x)
{
  bool fits = isfinite(x) && x >= param->least && (param->below_most ? x < param->most : x <= param->most);
  if (fits) return QN_OK;
  if (isinf(param->most))
    return qn_fail(QN_BAD_ARGUMENT, "%s: %s is %g, it must be a finite number%s%.0g", op->info.name, param->name, x,
                   isinf(param->least) ? "" : " of at least ", isinf(param->least) ? 0.0 : param->least);
  return qn_fail(QN_BAD_ARGUMENT, "%s: %s is %g, it must lie in [%g, %g%s", op->info.name, param->name, x, param->least,
                 param->most, param->below_most ? ")" : "]");
}

static qn_status check_pointer(const qn_op *op, const qn_op_param *param, const void *pointer, size_t alignment)
{
  qn_require((uintptr_t)pointer % alignment == 0, "%s: %s is at %p, which is not a multiple of %zu", op->info.name,
             param->name, pointer, alignment);
  return QN_OK;
}

static qn_status check_param(const qn_op *op, const qn_op_param *param, const void *params, bool has_hyper)
{
  const char *at = (const char *)params + param->offset;
  int32_t word;
  uint64_t whole;
  double real;
  void *pointer;
  switch (param->type) {
  case QN_PARAM_U64:
    memcpy(&whole, at, sizeof whole);
    qn_require(whole >= (uint64_t)param->least, "%s: %s is %llu, it must be at least %.0f: %s", op->info.name,
               param->name, (unsigned long long)whole, param->least, param->doc);
    return QN_OK;
  case QN_PARAM_DOUBLE:
    if (has_hyper && param->hyper_offset) return QN_OK; /* not read */
    memcpy(&real, at, sizeof real);
    return check_double(op, param, real);
  case QN_PARAM_BOOL:
    memcpy(&word, at, sizeof word);
    qn_require(word == 0 || word == 1, "%s: %s is %d, it must be 0 or 1", op->info.name, param->name, word);
    return QN_OK;
  case QN_PARAM_ENUM:
    memcpy(&word, at, sizeof word);
    qn_require(word >= 0 && (size_t)word < count_of_values(param->values), "%s: %s is %d, it must be 0 to %zu (%s)",
               op->info.name, param->name, word, count_of_values(param->values) - 1, param->values);
    return QN_OK;
  default:
    memcpy(&pointer, at, sizeof pointer);
    return check_pointer(op, param, pointer,
                         param->type == QN_PARAM_DEVICE_F32 || param->type == QN_PARAM_DEVICE_F32S ? 4 : 8);
  }
}

static bool hyper_is_given(const qn_op *op, const void *params)
{
  for (size_t k = 0; k < op->info.n_params; k++) {
    void *pointer;
    if (op->info.params[k].type != QN_PARAM_DEVICE_HYPER) continue;
    memcpy(&pointer, (const char *)params + op->info.params[k].offset, sizeof pointer);
    if (pointer) return true;
  }
  return false;
}

qn_status qn_check_params(const qn_op *op, const void *params)
{
  qn_require(params, "%s: params is NULL", op->info.name);
  size_t size;
  memcpy(&size, params, sizeof size); /* the first member of all params */
  qn_try(check_size(op, "params", params, size, op->info.params_bytes));
  const bool has_hyper = hyper_is_given(op, params);
  for (size_t k = 0; k < op->info.n_params; k++) qn_try(check_param(op, &op->info.params[k], params, has_hyper));
  return QN_OK;
}

/* ---- the row of the type table ---- */
static const char *role_name(const qn_call *call, size_t role) { return call->op->info.tensors[role].name; }

/* "param bf16, grad f32, momentum f32" into text. */
static void add_types(const qn_call *call, const qn_dtype *dtype, char *text, size_t bytes)
{
  size_t used = strlen(text);
  const char *comma = "";
  for (size_t role = 0; role < call->op->info.n_tensors && used < bytes; role++) {
    if (dtype[role] == QN_NONE) continue;
    int more = snprintf(text + used, bytes - used, "%s%s %s", comma, role_name(call, role), qn_dtype_name(dtype[role]));
    used += more > 0 ? (size_t)more : 0;
    comma = ", ";
  }
}

/* The table as short as it goes: one "f32/bf16/f32" a row, roles in order. */
static void add_rows(const qn_op_info *info, char *text, size_t bytes)
{
  size_t used = 0;
  for (size_t row = 0; row < info->n_types; row++)
    for (size_t role = 0; role < info->n_tensors && used < bytes; role++) {
      const qn_dtype dtype = info->types[row].tensor[role].dtype;
      if (dtype == QN_NONE) continue;
      const char *between = role ? "/" : row ? ", " : "";
      int more = snprintf(text + used, bytes - used, "%s%s", between, qn_dtype_name(dtype));
      used += more > 0 ? (size_t)more : 0;
    }
}

static qn_status fail_row(const qn_call *call, const qn_dtype *dtype)
{
  char got[160] = "", rows[640] = "", roles[96] = "";
  const qn_op_info *info = &call->op->info;
  add_types(call, dtype, got, sizeof got);
  add_rows(info, rows, sizeof rows);
  for (size_t role = 0, used = 0; role < info->n_tensors && used < sizeof roles; role++)
    used += (size_t)snprintf(roles + used, sizeof roles - used, "%s%s", role ? "/" : "", info->tensors[role].name);
  return qn_fail(QN_BAD_TYPE, "%s: there is no kernel for %s; as %s there are: %s", info->name, got, roles, rows);
}

static qn_status find_row(qn_call *call)
{
  const qn_op_info *info = &call->op->info;
  qn_dtype dtype[QN_MAX_TENSORS] = {QN_NONE};
  for (size_t role = 0; role < info->n_tensors; role++) {
    bool optional = false;
    for (size_t row = 0; row < info->n_types; row++) optional |= info->types[row].tensor[role].access == QN_ABSENT;
    qn_require(call->tensors[role] || optional, "%s: %s is NULL, and the list has %zu tensors", info->name,
               role_name(call, role), call->n);
    if (!call->tensors[role]) continue;
    dtype[role] = call->tensors[role][0].dtype;
    if (!qn_dtype_bytes(dtype[role]))
      return qn_fail(QN_BAD_TYPE, "%s: the dtype of %s[0] is %d, which is none", info->name, role_name(call, role),
                     (int)dtype[role]);
  }
  for (call->row = 0; call->row < info->n_types; call->row++) {
    size_t role = 0;
    while (role < info->n_tensors && info->types[call->row].tensor[role].dtype == dtype[role]) role++;
    if (role == info->n_tensors) return QN_OK;
  }
  return fail_row(call, dtype);
}

/* ---- one tensor ---- */
static qn_status check_extents(const qn_call *call, size_t role, size_t k, const qn_tensor *t)
{
  const char *op = call->op->info.name, *name = role_name(call, role);
  const uint64_t most = (uint64_t)PTRDIFF_MAX / 8; /* elements that any memory could hold */
  uint64_t n = 1;
  bool empty = false;
  qn_require(t->ndim >= 0 && t->ndim <= QN_MAX_NDIM, "%s: %s[%zu] has %d dimensions, from 0 to %d are possible", op,
             name, k, t->ndim, QN_MAX_NDIM);
  qn_require(t->shape || !t->ndim, "%s: %s[%zu] has %d dimensions and no shape", op, name, k, t->ndim);
  for (int d = 0; d < t->ndim; d++) {
    qn_require(t->shape[d] >= 0, "%s: extent %d of %s[%zu] is %lld", op, d, name, k, (long long)t->shape[d]);
    empty |= t->shape[d] == 0;
  }
  for (int d = 0; d < t->ndim && !empty; d++) {
    qn_require((uint64_t)t->shape[d] <= most / n, "%s: %s[%zu] has more than 2^60 elements", op, name, k);
    n *= (uint64_t)t->shape[d];
  }
  return QN_OK;
}

const char *qn_shape_text(const qn_tensor *t, char *text, size_t bytes)
{
  size_t used = 0;
  snprintf(text, bytes, "no dimensions");
  for (int d = 0; d < t->ndim && used < bytes; d++)
    used += (size_t)snprintf(text + used, bytes - used, "%s%lld", d ? "x" : "", (long long)t->shape[d]);
  return text;
}

/* Do they put equal indices at equal places? Strides of extents of 1 are never used. Shapes are equal. */
bool qn_same_layout(const qn_tensor *a, const qn_tensor *b)
{
  int64_t row_major = 1;
  if (!a->strides && !b->strides) return true;
  for (int d = a->ndim; d-- > 0;) {
    const int64_t one = a->strides ? a->strides[d] : row_major, other = b->strides ? b->strides[d] : row_major;
    if (a->shape[d] > 1 && one != other) return false;
    row_major *= a->shape[d];
  }
  return true;
}

/* Dense: some order of the dimensions is row-major, so the elements are one run from the first on. */
static bool is_dense(const qn_tensor *t)
{
  uint32_t used = 0;
  int64_t next = 1; /* the stride that the next dimension in that order must have */
  if (!t->strides) return true;
  for (;;) {
    int left = 0, found = -1;
    for (int d = t->ndim; d-- > 0;) {
      if (t->shape[d] == 1 || used >> d & 1) continue;
      left++;
      if (t->strides[d] == next) found = d;
    }
    if (!left) return true;
    if (found < 0) return false;
    used |= 1u << found;
    next *= t->shape[found];
  }
}

/* Against the first role's tensor of the same place, which was itself found dense. */
static qn_status check_against(const qn_call *call, size_t role, size_t k, const qn_tensor *t)
{
  const qn_tensor *first = &call->tensors[0][k];
  const char *op = call->op->info.name, *name = role_name(call, role);
  char one[128], other[128];
  qn_require(t->ndim == first->ndim &&
                 (!t->ndim || !memcmp(t->shape, first->shape, (size_t)t->ndim * sizeof *t->shape)),
             "%s: %s[%zu] has the shape %s and %s[%zu] has %s", op, name, k, qn_shape_text(t, one, sizeof one),
             role_name(call, 0), k, qn_shape_text(first, other, sizeof other));
  if (!qn_tensor_elements(t) || call->op->info.strided) return QN_OK; /* then qn_check_place looks at layouts */
  qn_require(t != first || is_dense(t), "%s: %s[%zu] (%s) is not dense: its strides leave gaps or overlap", op, name, k,
             qn_shape_text(t, one, sizeof one));
  qn_require(qn_same_layout(t, first), "%s: %s[%zu] (%s) is laid out in another order than %s[%zu]", op, name, k,
             qn_shape_text(t, one, sizeof one), role_name(call, 0), k);
  return QN_OK;
}

/* ---- the tensors of one place, where they need not be dense ---- */
static bool place_is_dense(const qn_call *call, size_t k)
{
  const qn_tensor *first = &call->tensors[0][k];
  if (!qn_tensor_elements(first)) return true;
  if (!is_dense(first)) return false;
  for (size_t role = 1; role < call->op->info.n_tensors; role++)
    if (call->tensors[role] && !qn_same_layout(&call->tensors[role][k], first)) return false;
  return true;
}

/* It cannot be walked: one tensor's fault, or that of their differences. */
static qn_status fail_place(const qn_call *call, size_t k)
{
  const char *op = call->op->info.name;
  char shape[128];
  for (size_t role = 0; role < call->op->info.n_tensors; role++) {
    const qn_tensor *alone[QN_MAX_TENSORS] = {[0] = call->tensors[role]};
    qn_view view;
    if (alone[0] && !qn_view_make(alone, k, false, &view))
      return qn_fail(QN_BAD_ARGUMENT,
                     "%s: %s[%zu] (%s) is not dense, and its strides are not those of rows at one distance with "
                     "columns 1 or 2 elements apart: make it contiguous",
                     op, role_name(call, role), k, qn_shape_text(&alone[0][k], shape, sizeof shape));
  }
  const char *first = role_name(call, 0);
  size_t role = call->op->info.n_tensors;
  while (--role && (!call->tensors[role] || qn_same_layout(&call->tensors[role][k], &call->tensors[0][k]))) {}
  return qn_fail(QN_BAD_ARGUMENT,
                 "%s: %s[%zu] (%s) is laid out in another order than %s[%zu], and not all are rows with columns in one "
                 "order: make them contiguous",
                 op, role_name(call, role), k, qn_shape_text(&call->tensors[0][k], shape, sizeof shape), first, k);
}

/* Together, for ops that are strided: dense and alike, or else rows and columns. */
static qn_status check_place(const qn_call *call, size_t k, bool *strided)
{
  const qn_op_info *info = &call->op->info;
  const bool row_is_last = qn_call_by_rows(call), dense = place_is_dense(call, k);
  qn_view view;
  *strided |= !dense;
  if (dense && !row_is_last) return QN_OK;
  if (!qn_view_make(call->tensors, k, row_is_last, &view)) return fail_place(call, k);
  for (size_t role = 0; role < info->n_tensors; role++) {
    if (!call->tensors[role] || !view.rows) continue;
    const qn_tensor *t = &call->tensors[role][k];
    const uint64_t bytes = qn_dtype_bytes(t->dtype), most = (UINTPTR_MAX - (uintptr_t)t->data) / bytes;
    char shape[128];
    qn_require(view.pitch[role] <= most / view.rows, "%s: the strides of %s[%zu] (%s) lead out of memory", info->name,
               role_name(call, role), k, qn_shape_text(t, shape, sizeof shape));
  }
  return QN_OK;
}

qn_status qn_check_tensor(const qn_call *call, size_t role, size_t k, const qn_tensor *t)
{
  const char *op = call->op->info.name, *name = role_name(call, role);
  const qn_dtype dtype = call->op->info.types[call->row].tensor[role].dtype;
  const qn_device device = call->exec->device;
  if (t->dtype != dtype)
    return qn_fail(QN_BAD_TYPE, "%s: %s[%zu] is %s and %s[0] is %s: a list has one type a role", op, name, k,
                   qn_dtype_name(t->dtype), name, qn_dtype_name(dtype));
  qn_require(t->device.kind == device.kind && t->device.index == device.index,
             "%s: %s[%zu] is on %s:%d and the call is on %s:%d", op, name, k, qn_device_kind_name(t->device.kind),
             t->device.index, qn_device_kind_name(device.kind), device.index);
  qn_try(check_extents(call, role, k, t));
  qn_try(check_against(call, role, k, t));
  const uintptr_t address = (uintptr_t)t->data, bytes = (uintptr_t)qn_tensor_elements(t) * qn_dtype_bytes(dtype);
  char shape[128];
  qn_require(t->data || !bytes, "%s: the data of %s[%zu] (%s) is NULL", op, name, k,
             qn_shape_text(t, shape, sizeof shape));
  qn_require(address % qn_dtype_bytes(dtype) == 0 && address + bytes >= address,
             "%s: %s[%zu] cannot be at address 0x%zx with %zu bytes of %s", op, name, k, (size_t)address, (size_t)bytes,
             qn_dtype_name(dtype));
  return QN_OK;
}

/* ---- the call ---- */
qn_status qn_check_exec_and_params(const qn_call *call)
{
  qn_require(call->op, "op is NULL");
  qn_try(check_exec(call->op, call->exec));
  return qn_check_params(call->op, call->params);
}

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

/* What is counted is written beside the tensors. */
static qn_status check_counts(qn_call *call)
{
  qn_require(call->counts && (uintptr_t)call->counts % 8 == 0, "%s: the counts are at %p", call->op->info.name,
             (void *)call->counts);
  qn_call_lend(call, "the counts", call->counts, 2 * sizeof *call->counts * call->n, true);
  return QN_OK;
}

qn_status qn_check_rest(qn_call *call)
{
  bool strided;
  if (call->op->check) qn_try(call->op->check(call->params, call->row));
  for (size_t k = 0; k < call->n && qn_call_by_rows(call); k++) qn_try(check_place(call, k, &strided));
  qn_try(check_first_elements(call));
  return call->mode == QN_CALL_COUNT ? check_counts(call) : QN_OK;
}

qn_status qn_check_list(qn_call *call, const qn_tensor *const *tensors)
{
  if (!call->n) return QN_OK;
  const qn_op_info *info = &call->op->info;
  qn_require(tensors, "%s: tensors is NULL, and the list has %zu", info->name, call->n);
  qn_require(call->n <= SIZE_MAX / (16 * QN_MAX_TENSORS), "%s: a list of %zu tensors", info->name, call->n);
  for (size_t role = 0; role < info->n_tensors; role++) call->tensors[role] = tensors[role];
  qn_try(find_row(call));
  if (call->row >= qn_op_rows(info, call->exec->device.kind))
    return qn_fail(QN_UNSUPPORTED,
                   "%s: there is no kernel for f64 on %s: float64 is computed on the processor (cpu) alone", info->name,
                   qn_device_kind_name(call->exec->device.kind));
  for (size_t role = 0; role < info->n_tensors; role++)
    for (size_t k = 0; call->tensors[role] && k < call->n; k++)
      qn_try(qn_check_tensor(call, role, k, &call->tensors[role][k]));
  for (size_t k = 0; info->strided && k < call->n; k++) qn_try(check_place(call, k, &call->strided));
  return qn_check_rest(call);
}
