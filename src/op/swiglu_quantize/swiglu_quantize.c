/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_quantize.c - the call of quern/swiglu_quantize.h: its refusals, rows shared out on the processor, one launch
 * on a device (swiglu_quantize.device.c). It is no op of the registry, whose ops know four types of storage and f8e4m3
 * is none of them. */
#include "quern/swiglu_quantize.h"
#include "core/core.h"
#include "cpu/tier.h"
#include "op/call.h"
#include "op/swiglu/swiglu.h"
#include "op/swiglu_quantize/swiglu_quantize.h"
#include "quern/device.h"
#include <math.h>

enum { TASK_ELEMENTS = 1 << 15 };

QN_SWIGLU_PARAMS_BEGIN(qn_swiglu_quantize_params);

QN_CPU_DECLARE_TIERS(swiglu_quantize, qn_swiglu_quantize_fn);
static qn_swiglu_quantize_fn *const cpu[QN_TIER_COUNT] = {QN_CPU_TIERS(swiglu_quantize)};

/* For the checks of params and exec, which all ops share. */
static const qn_op_param params_table[] = {QN_SWIGLU_PARAMS(qn_swiglu_quantize_params),
                                           {"computes", "whether scale is written", QN_PARAM_BOOL,
                                            offsetof(qn_swiglu_quantize_params, computes), 0, 0, 1, 0, NULL, 0}};
static const qn_op described = {.info = {.name = "swiglu_quantize",
                                         .params = params_table,
                                         .n_params = sizeof params_table / sizeof params_table[0],
                                         .params_bytes = sizeof(qn_swiglu_quantize_params)}};

/* ---- what is refused ---- */
static qn_status check_one(const qn_exec *exec, const qn_tensor *t, const char *name)
{
  qn_require(t, "swiglu_quantize: %s is NULL", name);
  qn_require(t->device.kind == exec->device.kind && t->device.index == exec->device.index,
             "swiglu_quantize: %s is on %s:%d and the call is on %s:%d", name, qn_device_kind_name(t->device.kind),
             t->device.index, qn_device_kind_name(exec->device.kind), exec->device.index);
  qn_require(t->ndim >= 0 && t->ndim <= QN_MAX_NDIM && (t->shape || !t->ndim),
             "swiglu_quantize: %s has %d dimensions, or no shape", name, t->ndim);
  for (int d = 0; d < t->ndim; d++)
    qn_require(t->shape[d] >= 0 && t->shape[d] < INT64_C(1) << 40, "swiglu_quantize: extent %d of %s is %lld", d, name,
               (long long)t->shape[d]);
  return QN_OK;
}

/* A matrix of the shape of c. */
static qn_status check_matrix(const qn_tensor *t, const char *name, const qn_tensor *c, qn_u64 *stride)
{
  qn_require(t->ndim == 2, "swiglu_quantize: %s has %d dimensions, it must have two, rows and columns", name, t->ndim);
  qn_require(t->shape[0] == c->shape[0] && t->shape[1] == c->shape[1],
             "swiglu_quantize: %s has the shape %lldx%lld and c has %lldx%lld", name, (long long)t->shape[0],
             (long long)t->shape[1], (long long)c->shape[0], (long long)c->shape[1]);
  const int64_t rows = t->shape[0], cols = t->shape[1], apart = t->strides && rows > 1 ? t->strides[0] : cols;
  const size_t bytes = qn_dtype_bytes(t->dtype);
  qn_require(!t->strides || cols <= 1 || t->strides[1] == 1,
             "swiglu_quantize: the columns of %s are %lld elements apart, they must lie side by side", name,
             (long long)(t->strides ? t->strides[1] : 1));
  qn_require(apart >= cols && apart < INT64_C(1) << 40,
             "swiglu_quantize: the rows of %s are %lld elements apart and have %lld", name, (long long)apart,
             (long long)cols);
  qn_require(t->data || !rows || !cols, "swiglu_quantize: the data of %s is NULL", name);
  qn_require((uintptr_t)t->data % bytes == 0, "swiglu_quantize: %s cannot be at address 0x%zx, it is of %s", name,
             (size_t)(uintptr_t)t->data, qn_dtype_name(t->dtype));
  *stride = (qn_u64)apart * bytes;
  return QN_OK;
}

static qn_status check_types(const qn_tensor *c, const qn_tensor *scale, const qn_tensor *a, const qn_tensor *b)
{
  const bool known = a->dtype == QN_F32 || a->dtype == QN_BF16 || a->dtype == QN_F16;
  if (c->dtype != QN_F8E4M3 || scale->dtype != QN_F32 || a->dtype != b->dtype || !known)
    return qn_fail(
        QN_BAD_TYPE,
        "swiglu_quantize: there is no kernel for c %s, scale %s, a %s, b %s; c is f8e4m3, scale f32, a and b "
        "are both f32, bf16 or f16",
        qn_dtype_name(c->dtype), qn_dtype_name(scale->dtype), qn_dtype_name(a->dtype), qn_dtype_name(b->dtype));
  return QN_OK;
}

static qn_status check_scale(const qn_tensor *scale, const qn_swiglu_quantize_params *params, qn_u64 rows)
{
  qn_u64 n = 1;
  for (int d = 0; d < scale->ndim; d++) n = n > rows && n > 1 ? n : n * (qn_u64)scale->shape[d];
  qn_require(n == rows || (n == 1 && !params->computes),
             "swiglu_quantize: scale has %llu elements; there are %llu rows, and it must have one a row%s",
             (unsigned long long)n, (unsigned long long)rows,
             params->computes ? " to be computed" : ", or one for all");
  int64_t dense = 1;
  for (int d = scale->ndim; d-- > 0; dense *= scale->shape[d])
    qn_require(!scale->strides || scale->shape[d] <= 1 || scale->strides[d] == dense,
               "swiglu_quantize: scale is not dense");
  qn_require((scale->data || !n) && (uintptr_t)scale->data % 4 == 0,
             "swiglu_quantize: scale cannot be at address 0x%zx", (size_t)(uintptr_t)scale->data);
  return QN_OK;
}

typedef struct span {
  const char *name;
  uintptr_t begin, end;
} span;

static span span_of(const char *name, const void *data, qn_u64 rows, qn_u64 stride, qn_u64 row_bytes)
{
  const uintptr_t begin = (uintptr_t)data;
  return (span){name, begin, begin + (rows && row_bytes ? (uintptr_t)((rows - 1) * stride + row_bytes) : 0)};
}

static qn_status check_overlap(const qn_swiglu_quantize_args *args, bool computes, size_t bytes)
{
  const span all[] = {span_of("c", args->c, args->rows, args->c_stride, args->cols),
                      span_of("scale", args->scale, 1, 0, (args->scale_step ? args->rows : 1) * sizeof(float)),
                      span_of("a", args->a, args->rows, args->a_stride, args->cols * bytes),
                      span_of("b", args->b, args->rows, args->b_stride, args->cols * bytes)};
  for (int written = 0; written <= computes; written++)
    for (int k = written + 1; k < 4; k++)
      qn_require(all[written].begin >= all[k].end || all[k].begin >= all[written].end,
                 "swiglu_quantize: %s, which is written, and %s share memory", all[written].name, all[k].name);
  return QN_OK;
}

/* ---- on the processor ---- */
typedef struct work {
  const qn_swiglu_quantize_args *args;
  const qn_swiglu_quantize_kind *kind;
  qn_swiglu_quantize_fn *fn;
  qn_u64 rows; /* of a task */
} work;

static void run_task(void *user, size_t task)
{
  const work *w = user;
  const qn_u64 first = task * w->rows, last = first + w->rows;
  w->fn(w->args, w->kind, first, last < w->args->rows ? last : w->args->rows);
}

static qn_status run_on_cpu(const qn_exec *exec, const qn_swiglu_quantize_args *args,
                            const qn_swiglu_quantize_kind *kind)
{
  qn_tier tier;
  qn_try(qn_tier_in_force(&tier));
  work w = {args, kind, cpu[tier], TASK_ELEMENTS / (args->cols + 1) + 1};
  qn_pool_run(exec->pool, (size_t)((args->rows + w.rows - 1) / w.rows), run_task, &w);
  return QN_OK;
}

/* ---- the call ---- */
static qn_status check(const qn_exec *exec, const qn_swiglu_quantize_params *params, const qn_tensor *const t[4],
                       qn_swiglu_quantize_args *args)
{
  static const char *const names[] = {"c", "scale", "a", "b"};
  qn_try(qn_validate_exec_and_params(&(qn_call){.op = &described, .exec = exec, .params = params}));
  qn_try(qn_swiglu_check(&(qn_call){.params = params}));
  for (int k = 0; k < 4; k++) qn_try(check_one(exec, t[k], names[k]));
  const qn_tensor *c = t[0], *scale = t[1], *a = t[2], *b = t[3];
  qn_try(check_types(c, scale, a, b));
  qn_try(check_matrix(c, "c", c, &args->c_stride));
  qn_try(check_matrix(a, "a", c, &args->a_stride));
  qn_try(check_matrix(b, "b", c, &args->b_stride));
  args->rows = (qn_u64)c->shape[0], args->cols = (qn_u64)c->shape[1];
  qn_try(check_scale(scale, params, args->rows));
  args->c = c->data, args->scale = scale->data, args->a = a->data, args->b = b->data;
  args->scale_step = qn_tensor_elements(scale) == 1 && !params->computes ? 0 : 1;
  return check_overlap(args, params->computes, qn_dtype_bytes(a->dtype));
}

static qn_status checked(const qn_exec *exec, const qn_swiglu_quantize_params *params, const qn_tensor *const t[4])
{
  qn_swiglu_quantize_args args = {0};
  qn_try(check(exec, params, t, &args));
  if (!args.rows || (!args.cols && !params->computes)) return QN_OK;
  qn_swiglu_coefficients(params, &args.coef);
  const qn_dtype type = t[2]->dtype;
  const qn_swiglu_quantize_kind kind = {.flags = (qn_u32)params->activation |
                                                 (args.coef.down_multiplier != 1 ? QN_SWIGLU_DOWN : 0) |
                                                 (args.coef.gate_multiplier != 1 ? QN_SWIGLU_SCALED : 0),
                                        .storage = type == QN_F32    ? QN_SWIGLU_F32
                                                   : type == QN_BF16 ? QN_SWIGLU_BF16
                                                                     : QN_SWIGLU_F16,
                                        .computes = params->computes};
  if (exec->device.kind != QN_CPU) return qn_swiglu_quantize_launch(exec, &args, &kind);
  return run_on_cpu(exec, &args, &kind);
}

qn_status qn_swiglu_quantize(const qn_exec *exec, const qn_swiglu_quantize_params *params, const qn_tensor *c,
                             const qn_tensor *scale, const qn_tensor *a, const qn_tensor *b)
{
  const qn_tensor *const t[4] = {c, scale, a, b};
  const qn_fp_word word = qn_fp_enter();
  const qn_status status = checked(exec, params, t);
  qn_fp_leave(word);
  return status;
}
