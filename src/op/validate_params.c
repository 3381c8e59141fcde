/* SPDX-License-Identifier: Apache-2.0 */
/* validate_params.c - what a call is refused for in its exec and its params, by the table of params. What params point
 * to on a device joins what is lent, so that no tensor is written over it. */
#include "core/status.h"
#include "op/call.h"
#include "quern/device.h"
#include <math.h>
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

qn_status qn_validate_params(const qn_op *op, const void *params)
{
  qn_require(params, "%s: params is NULL", op->info.name);
  size_t size;
  memcpy(&size, params, sizeof size); /* the first member of all params */
  qn_try(check_size(op, "params", params, size, op->info.params_bytes));
  const bool has_hyper = hyper_is_given(op, params);
  for (size_t k = 0; k < op->info.n_params; k++) qn_try(check_param(op, &op->info.params[k], params, has_hyper));
  return QN_OK;
}

qn_status qn_validate_exec_and_params(const qn_call *call)
{
  qn_require(call->op, "op is NULL");
  qn_try(check_exec(call->op, call->exec));
  return qn_validate_params(call->op, call->params);
}

/* ---- what params point to ---- */
static qn_status check_numbers(const qn_call *call, const qn_op_param *param, const double *numbers)
{
  for (size_t k = 0; numbers && k < call->n; k++)
    qn_require(isfinite(numbers[k]) && numbers[k] >= param->least,
               "%s: %s[%zu] is %g, it must be a finite number of at least %g", call->op->info.name, param->name, k,
               numbers[k], param->least);
  return QN_OK;
}

static qn_status check_array(qn_call *call, const qn_op_param *param)
{
  const qn_op_info *info = &call->op->info;
  const void *pointer;
  memcpy(&pointer, (const char *)call->params + param->offset, sizeof pointer);
  qn_require(pointer || param->type != QN_PARAM_DEVICE_F32S, "%s: %s is NULL, it must be %.0f numbers: %s", info->name,
             param->name, param->most, param->doc);
  if (param->type == QN_PARAM_HOST_F64) return check_numbers(call, param, pointer);
  const size_t bytes = param->type == QN_PARAM_DEVICE_HYPER  ? info->hyper_bytes
                       : param->type == QN_PARAM_DEVICE_F32  ? sizeof(float)
                       : param->type == QN_PARAM_DEVICE_F32S ? (size_t)param->most * sizeof(float)
                                                             : 0;
  if (pointer) qn_call_lend(call, param->name, pointer, bytes, false);
  return QN_OK;
}

qn_status qn_validate_arrays(qn_call *call)
{
  const qn_op_info *info = &call->op->info;
  for (size_t k = 0; k < info->n_params; k++)
    if (info->params[k].type >= QN_PARAM_DEVICE_F32) qn_try(check_array(call, &info->params[k]));
  return QN_OK;
}
