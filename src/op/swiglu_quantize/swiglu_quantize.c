/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_quantize.c - the op's description and engine, and the typed call of quern/swiglu_quantize.h: rows are shared
 * out on the processor; swiglu_quantize.device.c makes one launch of them. */
#include "quern/swiglu_quantize.h"
#include "core/core.h"
#include "cpu/tier.h"
#include "op/launch_shape.h"
#include "op/swiglu/swiglu.h"
#include "op/swiglu_quantize/swiglu_quantize.h"
#include <math.h>

enum { TASK_ELEMENTS = 1 << 15 };

QN_SWIGLU_PARAMS_BEGIN(qn_swiglu_quantize_params);

QN_CPU_DECLARE_TIERS(swiglu_quantize, qn_swiglu_quantize_fn);
static qn_swiglu_quantize_fn *const cpu[QN_TIER_COUNT] = {QN_CPU_TIERS(swiglu_quantize)};

#define MATRIX .shape = "[m, n]", .storage = QN_STORAGE_PITCHED, .single = 1
static const qn_op_tensor tensors[] = {
    [QN_SWIGLU_QUANTIZE_C] = {"c", "out", "the product over its row's scale", QN_FILL_MODERATE, 1, MATRIX},
    [QN_SWIGLU_QUANTIZE_SCALE] = {"scale", NULL, "of each row; one of all where it is read", QN_FILL_NON_NEGATIVE, 0.1,
                                  .shape = "[m] or [1]", .storage = QN_STORAGE_ROW_MAJOR, .single = 1,
                                  .written_where = 1 + offsetof(qn_swiglu_quantize_params, computes)},
    [QN_SWIGLU_QUANTIZE_A] = {"a", "gate", "the gate's half, before its activation", QN_FILL_MODERATE, 2, MATRIX},
    [QN_SWIGLU_QUANTIZE_B] = {"b", "up", "the other half", QN_FILL_MODERATE, 1, MATRIX},
};
#undef MATRIX

static const qn_op_types types[] = {
#define X(t) {{{QN_F8E4M3, QN_WRITE}, {QN_F32, QN_READ_WRITE}, {QN_##t, QN_READ}, {QN_##t, QN_READ}}},
    QN_SWIGLU_ROWS(X)
#undef X
};

static const qn_op_param params_table[] = {QN_SWIGLU_PARAMS(qn_swiglu_quantize_params),
                                           {"computes", "whether scale is written, one a row, or read", QN_PARAM_BOOL,
                                            offsetof(qn_swiglu_quantize_params, computes), 0, 1, 0, NULL, 0}};

/* ---- the engine ---- */

static size_t workspace(const qn_call *call)
{
  (void)call;
  return 0;
}

/* From row to row, in bytes. */
static qn_u64 stride_of(const qn_tensor *t)
{
  return (qn_u64)(t->strides && t->shape[0] > 1 ? t->strides[0] : t->shape[1]) * qn_dtype_bytes(t->dtype);
}

qn_swiglu_quantize_problem qn_swiglu_quantize_problem_of(const qn_call *call)
{
  const qn_swiglu_quantize_params *p = call->params;
  const qn_tensor *c = call->tensors[QN_SWIGLU_QUANTIZE_C], *scale = call->tensors[QN_SWIGLU_QUANTIZE_SCALE],
                  *a = call->tensors[QN_SWIGLU_QUANTIZE_A], *b = call->tensors[QN_SWIGLU_QUANTIZE_B];
  qn_swiglu_quantize_problem problem = {.args = {.c = c->data,
                                                 .scale = scale->data,
                                                 .a = a->data,
                                                 .b = b->data,
                                                 .rows = (qn_u64)c->shape[0],
                                                 .cols = (qn_u64)c->shape[1],
                                                 .c_stride = stride_of(c),
                                                 .a_stride = stride_of(a),
                                                 .b_stride = stride_of(b),
                                                 .scale_step = scale->shape[0] == 1 ? 0 : 1}};
  qn_swiglu_coefficients(p, &problem.args.coef);
  problem.kind = (qn_swiglu_quantize_kind){.flags = (qn_u32)p->activation |
                                                    (problem.args.coef.down_multiplier != 1 ? QN_SWIGLU_DOWN : 0) |
                                                    (problem.args.coef.gate_multiplier != 1 ? QN_SWIGLU_SCALED : 0),
                                           .storage = (int)call->row, /* rows of types stand in the storages' order */
                                           .computes = p->computes};
  return problem;
}

/* ---- on the processor ---- */
typedef struct work {
  const qn_swiglu_quantize_problem *problem;
  qn_swiglu_quantize_fn *fn;
  qn_u64 rows; /* of a task */
} work;

static void run_task(void *user, size_t task)
{
  const work *w = user;
  const qn_u64 first = task * w->rows, last = first + w->rows, all = w->problem->args.rows;
  w->fn(&w->problem->args, &w->problem->kind, first, last < all ? last : all);
}

static qn_status run_on_cpu(const qn_exec *exec, const qn_swiglu_quantize_problem *problem)
{
  qn_tier tier;
  qn_try(qn_tier_in_force(&tier));
  work w = {problem, cpu[tier], TASK_ELEMENTS / (problem->args.cols + 1) + 1};
  qn_pool_run(exec->pool, (size_t)((problem->args.rows + w.rows - 1) / w.rows), run_task, &w);
  return QN_OK;
}

static qn_status run(const qn_call *call)
{
  const qn_swiglu_quantize_problem problem = qn_swiglu_quantize_problem_of(call);
  if (!problem.args.rows || (!problem.args.cols && !problem.kind.computes)) return QN_OK;
  if (call->exec->device.kind != QN_CPU) return qn_swiglu_quantize_launch(call, &problem);
  return call->mode == QN_CALL_PREPARE ? QN_OK : run_on_cpu(call->exec, &problem);
}

static const qn_engine engine = {.workspace = workspace,
                                 .run = run,
                                 .option = "launch_shape",
                                 .check_option = qn_launch_shape_check,
                                 .variant = qn_swiglu_quantize_variant,
                                 .refuses = qn_swiglu_quantize_refuses,
                                 .choice = qn_swiglu_quantize_choice,
                                 .key = qn_swiglu_quantize_key};

const qn_op qn_op_swiglu_quantize = {
    .info = {.name = "swiglu_quantize",
             .brief = "gated activations (SwiGLU and its kin), forward, stored as f8e4m3 with scales",
             .doc = "What swiglu would store, over a scale for all rows or one a row, stored as f8e4m3 in the same "
                    "pass. Scales are given, or computed: the row's largest finite magnitude / 448.",
             .tensors = tensors,
             .n_tensors = QN_SWIGLU_QUANTIZE_ROLES,
             .types = types,
             .n_types = sizeof types / sizeof types[0],
             QN_OP_PARAMS(params_table, qn_swiglu_quantize_params, QN_SWIGLU_QUANTIZE_DEFAULTS),
             .agreement = QN_BITWISE,
             .operations = 34},
    .engine = &engine,
    .check = qn_swiglu_check,
    .device_source = "op/swiglu_quantize/swiglu_quantize.cu",
};

/* ---- the typed call ---- */

/* A dense scale of any shape as the op has it: the row of its elements. */
static const qn_tensor *as_row(const qn_tensor *scale, qn_tensor *row, int64_t *n)
{
  *n = 1;
  if (!scale || scale->ndim < 0 || scale->ndim > QN_MAX_NDIM || (!scale->shape && scale->ndim)) return scale;
  for (int d = scale->ndim; d-- > 0;) {
    if (scale->strides && scale->shape[d] > 1 && scale->strides[d] != *n) return scale;
    if (scale->shape[d] < 0 || __builtin_mul_overflow(*n, scale->shape[d], n)) return scale;
  }
  *row = (qn_tensor){scale->data, scale->dtype, 1, n, NULL, scale->device};
  return row;
}

qn_status qn_swiglu_quantize(const qn_exec *exec, const qn_swiglu_quantize_params *params, const qn_tensor *c,
                             const qn_tensor *scale, const qn_tensor *a, const qn_tensor *b)
{
  int64_t n;
  qn_tensor row;
  const qn_tensor *const roles[QN_MAX_TENSORS] = {[QN_SWIGLU_QUANTIZE_C] = c,
                                                  [QN_SWIGLU_QUANTIZE_SCALE] = as_row(scale, &row, &n),
                                                  [QN_SWIGLU_QUANTIZE_A] = a,
                                                  [QN_SWIGLU_QUANTIZE_B] = b};
  return qn_op_step(&qn_op_swiglu_quantize.info, exec, params, 1, roles);
}
