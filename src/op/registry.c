/* SPDX-License-Identifier: Apache-2.0 */
/* registry.c - all ops, in the order of the list in src/meson.build, by number and by name, and their params'
 * defaults. */
#include "core/core.h"
#include "op/call.h"
#include <string.h>

const qn_op *const qn_ops[] = {
#define QN_OP(name) &qn_op_##name,
#include "ops.h"
#undef QN_OP
    NULL,
};

enum { N_OPS = sizeof qn_ops / sizeof qn_ops[0] - 1 };

size_t qn_op_count(void) { return N_OPS; }

const qn_op_info *qn_op_at(size_t k) { return k < N_OPS ? &qn_ops[k]->info : NULL; }

qn_status qn_op_find(const char *name, const qn_op_info **op)
{
  const char *names[N_OPS + 1] = {NULL};
  qn_require(op, "op: the place for it is NULL");
  *op = NULL;
  qn_require(name, "op: the name is NULL");
  for (size_t k = 0; k < N_OPS; k++) {
    names[k] = qn_ops[k]->info.name;
    if (!strcmp(name, names[k])) *op = &qn_ops[k]->info;
  }
  if (*op) return QN_OK;
  const char *near = qn_nearest(name, names);
  return qn_fail(QN_BAD_ARGUMENT, "op: there is none called \"%s\"%s%s%s", name, near ? ", did you mean \"" : "",
                 near ? near : "", near ? "\"?" : "");
}

qn_status qn_op_defaults(const qn_op_info *op, void *params, size_t bytes)
{
  qn_require(op, "op is NULL");
  qn_require(params, "%s: params is NULL", op->name);
  qn_require(bytes >= op->params_bytes, "%s: params has %zu bytes, this library's has %zu", op->name, bytes,
             op->params_bytes);
  memset(params, 0, bytes);
  memcpy(params, op->defaults, op->params_bytes);
  memcpy(params, &bytes, sizeof bytes); /* `size`, the first member of all params */
  return QN_OK;
}

double qn_param_get(const qn_op_param *param, const void *params)
{
  const char *at = (const char *)params + param->offset;
  double value = 0;
  uint64_t whole;
  int32_t word;
  switch (param->type) {
  case QN_PARAM_DOUBLE: memcpy(&value, at, sizeof value); return value;
  case QN_PARAM_U64: memcpy(&whole, at, sizeof whole); return (double)whole;
  case QN_PARAM_BOOL:
  case QN_PARAM_ENUM: memcpy(&word, at, sizeof word); return word;
  default: return 0;
  }
}

double qn_op_param_default(const qn_op_info *op, const qn_op_param *param) { return qn_param_get(param, op->defaults); }

bool qn_op_row_is_double(const qn_op_info *op, size_t row) { return op->types[row].tensor[0].dtype == QN_F64; }

size_t qn_op_rows(const qn_op_info *op, qn_device_kind kind)
{
  size_t n = op->n_types;
  while (kind != QN_CPU && n && qn_op_row_is_double(op, n - 1)) n--;
  return n;
}
