/* SPDX-License-Identifier: Apache-2.0 */
/* subject_params.c - the values that a call's params point to: values on the host and, of those that a device reads, a
 * copy in its memory, with guard bytes behind them. */
#include "core/core.h"
#include "quern/device.h"
#include "workbench/subject.h"
#include <string.h>

enum { GUARD = 64, GUARD_BYTE = 0x5c };

static const qn_op_param *param_of(const qn_subject *d, size_t k) { return &d->op->info.params[k]; }
static bool is_device(qn_param_type type)
{
  return type == QN_PARAM_DEVICE_F32 || type == QN_PARAM_DEVICE_I64 || type == QN_PARAM_DEVICE_HYPER ||
         type == QN_PARAM_DEVICE_F32S;
}

static bool is_given(const qn_subject *d, qn_param_type type)
{
  for (size_t k = 0; k < d->op->info.n_params; k++)
    if (param_of(d, k)->type == type && d->given.given >> k & 1) return true;
  return false;
}

static size_t bytes_of(const qn_subject *d, const qn_op_param *param)
{
  switch (param->type) {
  case QN_PARAM_DEVICE_F32: return sizeof(float);
  case QN_PARAM_DEVICE_I64: return (d->n_calls + 1) * 2 * sizeof(int64_t);
  case QN_PARAM_DEVICE_HYPER: return d->op->info.hyper_bytes;
  case QN_PARAM_DEVICE_F32S: return (size_t)param->most * sizeof(float);
  case QN_PARAM_HOST_U64: return (d->n_calls + 1) * sizeof(uint64_t);
  case QN_PARAM_HOST_F64: return (d->n_calls + 1) * sizeof(double);
  default: return 0;
  }
}

/* ---- values ---- */

/* Small, odd, around 2^32 and far beyond it. */
static uint64_t number_of(uint64_t seed, size_t tensor)
{
  const uint64_t bits = qn_seed_mix(seed, tensor);
  switch (bits & 3) {
  case 0: return bits >> 60;
  case 1: return bits >> 50;
  case 2: return 0xfffffff0u + (bits >> 59);
  default: return bits >> 14;
  }
}

/* One a piece: where shards begin and which tensors single ones are is said in any case. */
static void make_numbers(const qn_subject *d, size_t k, uint64_t *to)
{
  const size_t offset = param_of(d, k)->offset + 1;
  const bool is_first = d->op->first_element_offset == offset, is_id = d->op->tensor_id_offset == offset;
  const uint64_t *array = d->given.array[k];
  for (size_t i = 0; i < d->n_calls; i++) {
    const size_t tensor = d->cut[i].tensor;
    const uint64_t value = array                     ? array[tensor]
                           : d->given.given >> k & 1 ? number_of(d->given.seed + k, tensor)
                           : is_id                   ? tensor
                                                     : 0;
    to[i] = value + (is_first ? d->cut[i].first : 0);
  }
}

/* {count, n} of each tensor over all its pieces, as tallies are. */
static void make_pairs(const qn_subject *d, size_t k, uint64_t *to)
{
  const uint64_t *array = d->given.array[k];
  for (size_t i = 0; i < d->n_calls; i++) {
    const size_t tensor = d->cut[i].tensor;
    const uint64_t n = 2 * (uint64_t)d->role[0].place[tensor].elements + 1;
    to[2 * i] = array ? array[2 * tensor] : qn_seed_mix(d->given.seed + k, tensor) % (n + 1);
    to[2 * i + 1] = array ? array[2 * tensor + 1] : n;
  }
}

/* From 1/4 to 1, another for every tensor. */
static void make_scales(const qn_subject *d, double *to)
{
  for (size_t j = 0; j < d->n; j++) to[j] = 0.25 + 0.75 * (double)(qn_seed_mix(d->seed, j) >> 40) / 0x1p24;
}

/* Doubles and whole numbers of 64 bits. */
static void make_hyper(const qn_subject *d, unsigned char *to)
{
  for (size_t k = 0; k < d->op->info.n_params; k++)
    if (param_of(d, k)->hyper_offset)
      memcpy(to + param_of(d, k)->hyper_offset - 1, d->params + param_of(d, k)->offset, sizeof(double));
}

static void make_values(const qn_subject *d, size_t k, void *to)
{
  const float scalar = d->given.scalar[k];
  switch (param_of(d, k)->type) {
  case QN_PARAM_DEVICE_F32: memcpy(to, &scalar, sizeof scalar); break;
  case QN_PARAM_DEVICE_I64: make_pairs(d, k, to); break;
  case QN_PARAM_DEVICE_HYPER: make_hyper(d, to); break;
  case QN_PARAM_DEVICE_F32S: d->check->random_weights(param_of(d, k), to); break;
  case QN_PARAM_HOST_U64: make_numbers(d, k, to); break;
  default: make_scales(d, to); break;
  }
}

/* ---- pointers ---- */

static bool is_wanted(const qn_subject *d, size_t k)
{
  const qn_op_param *param = param_of(d, k);
  const bool is_first = d->op->first_element_offset == param->offset + 1;
  const bool is_id = d->op->tensor_id_offset == param->offset + 1;
  if (!bytes_of(d, param)) return false;
  if (d->given.given >> k & 1 || param->type == QN_PARAM_DEVICE_F32S) return true;
  return (d->way == QN_WAY_SHARD && (is_first || is_id)) || (d->way == QN_WAY_SINGLE && is_id);
}

static qn_status point(qn_subject *d, size_t k)
{
  const size_t bytes = bytes_of(d, param_of(d, k)), all = bytes + GUARD;
  const bool device = is_device(param_of(d, k)->type), first = !d->values[k];
  if (first) qn_try(qn_try_allocate(&d->values[k], all, "what a param points to"));
  if (first) memset(d->values[k], GUARD_BYTE, all);
  if (device && !d->pointed[k]) qn_try(qn_memory_allocate(d->exec.device, all, &d->pointed[k]));
  d->value_bytes[k] = all;
  if (first || param_of(d, k)->type != QN_PARAM_DEVICE_F32S) make_values(d, k, d->values[k]);
  if (device && (first || param_of(d, k)->type != QN_PARAM_DEVICE_F32S))
    qn_try(qn_memory_write(d->exec.device, d->exec.stream, d->pointed[k], d->values[k], all));
  const void *const to = device ? d->pointed[k] : d->values[k];
  memcpy(d->params + param_of(d, k)->offset, &to, sizeof to);
  return QN_OK;
}

qn_status qn_subject_point(qn_subject *d)
{
  qn_require(d->op->info.n_params <= QN_PARAMS_MOST, "%s: its params are too many for a check", d->op->info.name);
  d->hyper = is_given(d, QN_PARAM_DEVICE_HYPER);
  for (size_t k = 0; k < d->op->info.n_params; k++)
    if (is_wanted(d, k)) qn_try(point(d, k));
  return QN_OK;
}

/* Where params lie in device memory, those that the call has in their place must not be looked at. */
void qn_subject_call_params(const qn_subject *d, unsigned char params[QN_SUBJECT_PARAMS])
{
  static const double bad = -12345.5; /* as a whole number it is a large one */
  memcpy(params, d->params, QN_SUBJECT_PARAMS);
  if (!is_given(d, QN_PARAM_DEVICE_HYPER)) return;
  for (size_t k = 0; k < d->op->info.n_params; k++)
    if (param_of(d, k)->hyper_offset) memcpy(params + param_of(d, k)->offset, &bad, sizeof bad);
}

qn_status qn_subject_change(qn_subject *d, const char *text)
{
  qn_try(qn_subject_read(d, text));
  return qn_subject_point(d);
}

void qn_subject_take_setting(qn_subject *d, const qn_setting *setting)
{
  memcpy(d->params, setting->params, d->op->info.params_bytes);
  d->given = *setting;
}

qn_status qn_subject_use(qn_subject *d, const qn_setting *setting)
{
  qn_subject_take_setting(d, setting);
  return qn_subject_point(d);
}
