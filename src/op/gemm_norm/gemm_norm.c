/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_norm.c - the op's description, its contract, and the typed calls of quern/gemm_norm.h. The product is
 * cpu.c's business on the processor, dispatch.c's on devices. */
#include "quern/gemm_norm.h"
#include "core/status.h"
#include "op/gemm_norm/cpu.h"
#include <math.h>
#include <stddef.h>

_Static_assert((int)QN_ACTIVATION_TANH == (int)QN_GEMM_TANH, "the activations have one order");
_Static_assert((int)QN_ACTIVATION_MISH == (int)QN_GEMM_MISH, "the activations have one order");
_Static_assert((int)QN_NORM_RMS == (int)QN_GEMM_RMS_NORM, "the norms have one order");
_Static_assert((int)QN_PRECISION_F16X3 == (int)QN_GEMM_F16X3, "the precisions have one order");

#define ROLE(text) .shape = (text), .storage = QN_STORAGE_ROW_MAJOR, .single = 1
static const qn_op_tensor tensors[] = {
    [QN_GEMM_ROLE_Y] = {"y", "out", "the result", QN_FILL_MODERATE, 1, ROLE("[m, n]")},
    [QN_GEMM_ROLE_X] = {"x", NULL, "rows that are multiplied", QN_FILL_MODERATE, 1, ROLE("[m, k]")},
    [QN_GEMM_ROLE_W] = {"w", "weight", "a row for every column of the result", QN_FILL_MODERATE, 0.05, ROLE("[n, k]")},
    [QN_GEMM_ROLE_BIAS] = {"bias", NULL, "added to every row of the product", QN_FILL_MODERATE, 0.5, ROLE("[n]"),
                           .optional = 1},
    [QN_GEMM_ROLE_BIAS2] = {"bias2", NULL, "added behind it", QN_FILL_MODERATE, 0.5, ROLE("[n]"), .optional = 1},
    [QN_GEMM_ROLE_GAMMA] = {"gamma", NULL, "what the norm's result is multiplied by", QN_FILL_MODERATE, 1, ROLE("[n]"),
                            .optional = 1},
    [QN_GEMM_ROLE_BETA] = {"beta", NULL, "what is added to that", QN_FILL_MODERATE, 1, ROLE("[n]"), .optional = 1},
};
#undef ROLE

#define READ_F32                                                                                                       \
  {                                                                                                                    \
    QN_F32, QN_READ                                                                                                    \
  }
static const qn_op_types types[] = {
    {{{QN_F32, QN_WRITE}, READ_F32, READ_F32, READ_F32, READ_F32, READ_F32, READ_F32}},
    {{{QN_BF16, QN_WRITE}, {QN_BF16, QN_READ}, {QN_BF16, QN_READ}, READ_F32, READ_F32, READ_F32, READ_F32}},
};

#define AT(member) offsetof(qn_gemm_norm_params, member)
static const qn_op_param params_table[] = {
    {"lo", "the clamp's lower bound", QN_PARAM_DOUBLE, AT(lo), -HUGE_VAL, HUGE_VAL, 0, NULL, 0},
    {"hi", "the clamp's upper bound", QN_PARAM_DOUBLE, AT(hi), -HUGE_VAL, HUGE_VAL, 0, NULL, 0},
    {"eps", "added to the norm's variance", QN_PARAM_DOUBLE, AT(eps), 0, HUGE_VAL, 0, NULL, 0},
    {"groups", "of the norm \"group\": how many the columns are cut into", QN_PARAM_U64, AT(groups), 0, 0, 0, NULL, 0},
    {"clamp", "clamp before the activation", QN_PARAM_BOOL, AT(clamp), 0, 1, 0, NULL, 0},
    {"activation", "behind the clamp", QN_PARAM_ENUM, AT(activation), 0, 7, 0,
     "none|relu|gelu|gelu_tanh|silu|mish|sigmoid|tanh", 0},
    {"norm", "over groups of columns of a row", QN_PARAM_ENUM, AT(norm), 0, 3, 0, "none|group|layer|rms", 0},
    {"precision", "the class of the product", QN_PARAM_ENUM, AT(precision), 0, 5, 0,
     "fp32|tf32|bf16x3|tf32x3|bf16|f16x3", 0},
};

/* ---- from a checked call to a problem ---- */

static int64_t extent(const qn_call *call, char letter) { return call->extent[letter - 'a']; }

static void *data_of(const qn_call *call, size_t role)
{
  return call->tensors[role] ? call->tensors[role]->data : NULL;
}

static bool is_short(const qn_call *call)
{
  return call->op->info.types[call->row].tensor[QN_GEMM_ROLE_X].dtype == QN_BF16;
}

qn_gemm_problem qn_gemm_problem_of(const qn_call *call)
{
  const qn_gemm_norm_params *p = call->params;
  qn_gemm_problem problem = {.precision = p->precision, .short_data = is_short(call)};
  problem.args = (qn_gemm_args){.x = data_of(call, QN_GEMM_ROLE_X),
                                .w = data_of(call, QN_GEMM_ROLE_W),
                                .y = data_of(call, QN_GEMM_ROLE_Y),
                                .bias = data_of(call, QN_GEMM_ROLE_BIAS),
                                .bias2 = data_of(call, QN_GEMM_ROLE_BIAS2),
                                .gamma = data_of(call, QN_GEMM_ROLE_GAMMA),
                                .beta = data_of(call, QN_GEMM_ROLE_BETA),
                                .m = extent(call, 'm'),
                                .n = extent(call, 'n'),
                                .k = extent(call, 'k'),
                                .lo = (float)p->lo,
                                .hi = (float)p->hi,
                                .eps = (float)p->eps};
  problem.args.columns = p->norm == QN_NORM_GROUP ? problem.args.n / (int64_t)p->groups : problem.args.n;
  problem.flags = (uint32_t)p->activation | (uint32_t)p->norm << QN_GEMM_NORM_SHIFT;
  if (p->clamp) problem.flags |= QN_GEMM_CLAMPS;
  if (call->tensors[QN_GEMM_ROLE_BIAS]) problem.flags |= QN_GEMM_BIAS;
  if (call->tensors[QN_GEMM_ROLE_BIAS2]) problem.flags |= QN_GEMM_BIAS2;
  if (call->tensors[QN_GEMM_ROLE_GAMMA]) problem.flags |= QN_GEMM_GAMMA;
  if (call->tensors[QN_GEMM_ROLE_BETA]) problem.flags |= QN_GEMM_BETA;
  return problem;
}

static qn_status check(const qn_call *call)
{
  const qn_gemm_norm_params *p = call->params;
  const uint64_t n = (uint64_t)extent(call, 'n');
  qn_require(!p->clamp || p->lo <= p->hi, "gemm_norm: lo is %g and hi is %g, which leaves nothing between", p->lo,
             p->hi);
  qn_require(p->norm != QN_NORM_GROUP || (p->groups && n % p->groups == 0),
             "gemm_norm: %llu columns cannot be cut into groups = %llu of one width", (unsigned long long)n,
             (unsigned long long)p->groups);
  qn_require(p->norm != QN_NORM_NONE || (!call->tensors[QN_GEMM_ROLE_GAMMA] && !call->tensors[QN_GEMM_ROLE_BETA]),
             "gemm_norm: gamma or beta is given and norm is none: nothing would read it");
  qn_require(!is_short(call) || p->precision == QN_PRECISION_BF16,
             "gemm_norm: x and w are bf16, and precision is %s: products of bf16 numbers are of the class bf16",
             qn_gemm_precision_names[p->precision]);
  return QN_OK;
}

/* ---- the engine ---- */

static bool is_empty(const qn_gemm_problem *problem) { return !problem->args.m || !problem->args.n; }

static qn_status run(const qn_call *call)
{
  const qn_gemm_problem problem = qn_gemm_problem_of(call);
  if (is_empty(&problem)) return QN_OK;
  if (call->exec->device.kind != QN_CPU) return qn_gemm_device_run(&problem, call->exec, call->mode == QN_CALL_PREPARE);
  return call->mode == QN_CALL_PREPARE ? QN_OK : qn_gemm_cpu_run(&problem, call->exec);
}

static size_t workspace(const qn_call *call)
{
  if (!call->tensors[QN_GEMM_ROLE_Y]) return 0;
  const qn_gemm_problem problem = qn_gemm_problem_of(call);
  if (is_empty(&problem)) return 0;
  return call->exec->device.kind == QN_CPU ? qn_gemm_cpu_workspace(&problem, call->exec)
                                           : qn_gemm_device_workspace(&problem, call->exec);
}

static const char *variant(const qn_op *op, size_t k)
{
  (void)op;
  return qn_gemm_variant_name(k);
}

static const char *choice(const qn_call *call, const char **why)
{
  const qn_gemm_problem problem = qn_gemm_problem_of(call);
  return qn_gemm_device_choice(&problem, call->exec->device, why);
}

static const char *refuses(const qn_call *call, size_t k)
{
  const qn_gemm_problem problem = qn_gemm_problem_of(call);
  return qn_gemm_device_refusal(&problem, call->exec->device, k);
}

static void key(const qn_call *call, struct qn_tune_key *key)
{
  const qn_gemm_problem problem = qn_gemm_problem_of(call);
  qn_gemm_tune_key(&problem, key);
}

static const qn_engine engine = {.workspace = workspace,
                                 .run = run,
                                 .option = "gemm",
                                 .check_option = qn_gemm_option_check,
                                 .variant = variant,
                                 .refuses = refuses,
                                 .choice = choice,
                                 .key = key};

const qn_op qn_op_gemm_norm = {
    .info = {.name = "gemm_norm",
             .brief = "a matrix product with biases, clamp, activation and a norm in its epilogue",
             .doc = "y = norm(activation(clamp(x w^T + bias + bias2, lo, hi))), the norm over groups of consecutive "
                    "columns of a row, in one pass over the result. Each part can be left out; the precision of the "
                    "product is a class by name.",
             .tensors = tensors,
             .n_tensors = QN_GEMM_ROLES,
             .types = types,
             .n_types = sizeof types / sizeof types[0],
             QN_OP_PARAMS(params_table, qn_gemm_norm_params, QN_GEMM_NORM_DEFAULTS),
             .agreement = QN_REDUCTION,
             .agreement_units = 1}, /* of what the reference allows, whose derivation is beside it (reference.c) */
    .engine = &engine,
    .bf16_tiers = true,
    .check = check,
    .device_source = "op/gemm_norm/gemm_norm.cu",
};

/* ---- the typed calls ---- */

#define ROLES                                                                                                          \
  {                                                                                                                    \
    [QN_GEMM_ROLE_Y] = y, [QN_GEMM_ROLE_X] = x, [QN_GEMM_ROLE_W] = w, [QN_GEMM_ROLE_BIAS] = bias,                      \
    [QN_GEMM_ROLE_BIAS2] = bias2, [QN_GEMM_ROLE_GAMMA] = gamma, [QN_GEMM_ROLE_BETA] = beta                             \
  }

qn_status qn_gemm_norm_step(const qn_exec *exec, const qn_gemm_norm_params *params, const qn_tensor *y,
                            const qn_tensor *x, const qn_tensor *w, const qn_tensor *bias, const qn_tensor *bias2,
                            const qn_tensor *gamma, const qn_tensor *beta)
{
  const qn_tensor *const roles[QN_MAX_TENSORS] = ROLES;
  return qn_op_step(&qn_op_gemm_norm.info, exec, params, 1, roles);
}

qn_status qn_gemm_norm_prepare(const qn_exec *exec, const qn_gemm_norm_params *params, const qn_tensor *y,
                               const qn_tensor *x, const qn_tensor *w, const qn_tensor *bias, const qn_tensor *bias2,
                               const qn_tensor *gamma, const qn_tensor *beta)
{
  const qn_tensor *const roles[QN_MAX_TENSORS] = ROLES;
  return qn_op_prepare(&qn_op_gemm_norm.info, exec, params, 1, roles);
}

size_t qn_gemm_norm_workspace_bytes(const qn_exec *exec, const qn_gemm_norm_params *params, const qn_tensor *y,
                                    const qn_tensor *x, const qn_tensor *w, const qn_tensor *bias,
                                    const qn_tensor *bias2, const qn_tensor *gamma, const qn_tensor *beta)
{
  const qn_tensor *const roles[QN_MAX_TENSORS] = ROLES;
  return qn_op_call_workspace_bytes(&qn_op_gemm_norm.info, exec, params, 1, roles);
}
