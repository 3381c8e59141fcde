/* SPDX-License-Identifier: Apache-2.0 */
/* shaped.c - tensors whose extents have names, one a role and row-major, validated by the description. */
#include "core/core.h"
#include "op/call.h"
#include "quern/device.h"
#include <stdio.h>
#include <string.h>

static const char *role_name(const qn_call *call, size_t role) { return call->op->info.tensors[role].name; }

/* ---- types ---- */

static qn_status fail_types(const qn_call *call)
{
  const qn_op_info *info = &call->op->info;
  char got[160] = "", rows[320] = "";
  size_t used = 0;
  for (size_t role = 0; role < info->n_tensors && used < sizeof got; role++)
    if (call->tensors[role])
      used += (size_t)snprintf(got + used, sizeof got - used, "%s%s %s", used ? ", " : "", info->tensors[role].name,
                               qn_dtype_name(call->tensors[role]->dtype));
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

static qn_status find_row(qn_call *call)
{
  const qn_op_info *info = &call->op->info;
  for (call->row = 0; call->row < info->n_types; call->row++) {
    size_t role = 0;
    while (role < info->n_tensors &&
           (!call->tensors[role] || call->tensors[role]->dtype == info->types[call->row].tensor[role].dtype))
      role++;
    if (role == info->n_tensors) return QN_OK;
  }
  return fail_types(call);
}

/* ---- one tensor ---- */

/* Its extents are what the letters of "[m, k]" are; a letter that has no number yet gets it here. */
static qn_status check_shape(qn_call *call, size_t role, uint32_t *bound)
{
  const qn_tensor *t = call->tensors[role];
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

static qn_status check_place(const qn_call *call, size_t role)
{
  const qn_tensor *t = call->tensors[role];
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

qn_status qn_check_extents(qn_call *call, const qn_tensor *const *tensors)
{
  const qn_op_info *info = &call->op->info;
  uint32_t bound = 0;
  qn_require(call->n == 1, "%s: a call takes one tensor a role, not a list of %zu", info->name, call->n);
  qn_require(tensors, "%s: tensors is NULL", info->name);
  for (size_t role = 0; role < info->n_tensors; role++) {
    const qn_tensor *t = call->tensors[role] = tensors[role];
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
    if (!call->tensors[role]) continue;
    qn_try(check_shape(call, role, &bound));
    qn_try(check_place(call, role));
  }
  return QN_OK;
}
