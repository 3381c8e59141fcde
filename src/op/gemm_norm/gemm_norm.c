/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_norm.c - the op's description, its contract, and the typed calls of quern/gemm_norm.h. The product is
 * cpu.c's business on the processor, dispatch.c's on devices. */
#include "quern/gemm_norm.h"
#include "core/status.h"
#include "op/call.h"
#include "op/gemm_norm/cpu.h"
#include <math.h>
#include <stddef.h>

_Static_assert((int)QN_ACTIVATION_TANH == (int)QN_GEMM_TANH, "the activations have one order");
_Static_assert((int)QN_ACTIVATION_MISH == (int)QN_GEMM_MISH, "the activations have one order");
_Static_assert((int)QN_NORM_RMS == (int)QN_GEMM_RMS_NORM, "the norms have one order");
_Static_assert((int)QN_PRECISION_BF16 == (int)QN_GEMM_BF16, "the precisions have one order");

static const qn_op_tensor tensors[] = {
    [QN_GEMM_ROLE_Y] = {"y", "out", "the result", QN_FILL_MODERATE, 1},
    [QN_GEMM_ROLE_X] = {"x", NULL, "rows that are multiplied", QN_FILL_MODERATE, 1},
    [QN_GEMM_ROLE_W] = {"w", "weight", "a row for every column of the result", QN_FILL_MODERATE, 0.05},
    [QN_GEMM_ROLE_BIAS] = {"bias", NULL, "added to every row of the product", QN_FILL_MODERATE, 0.5},
    [QN_GEMM_ROLE_BIAS2] = {"bias2", NULL, "added behind it", QN_FILL_MODERATE, 0.5},
    [QN_GEMM_ROLE_GAMMA] = {"gamma", NULL, "what the norm's result is multiplied by", QN_FILL_MODERATE, 1},
    [QN_GEMM_ROLE_BETA] = {"beta", NULL, "what is added to that", QN_FILL_MODERATE, 1},
};

static const char *const shapes[] = {"[m, n]", "[m, k]", "[n, k]", "[n]", "[n]", "[n]", "[n]"};

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
    {"lo", "the clamp's lower bound", QN_PARAM_DOUBLE, AT(lo), -1, -HUGE_VAL, HUGE_VAL, 0, NULL, 0},
    {"hi", "the clamp's upper bound", QN_PARAM_DOUBLE, AT(hi), 1, -HUGE_VAL, HUGE_VAL, 0, NULL, 0},
    {"eps", "added to the norm's variance", QN_PARAM_DOUBLE, AT(eps), 1e-5, 0, HUGE_VAL, 0, NULL, 0},
    {"groups", "of the norm \"group\": how many the columns are cut into", QN_PARAM_U64, AT(groups), 1, 0, 0, 0, NULL,
     0},
    {"clamp", "clamp before the activation", QN_PARAM_BOOL, AT(clamp), 1, 0, 1, 0, NULL, 0},
    {"activation", "behind the clamp", QN_PARAM_ENUM, AT(activation), 5, 0, 7, 0,
     "none|relu|gelu|gelu_tanh|silu|mish|sigmoid|tanh", 0},
    {"norm", "over groups of columns of a row", QN_PARAM_ENUM, AT(norm), 1, 0, 3, 0, "none|group|layer|rms", 0},
    {"precision", "the class of the product", QN_PARAM_ENUM, AT(precision), 0, 0, 4, 0, "fp32|tf32|bf16x3|tf32x3|bf16",
     0},
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

static qn_gemm_problem problem_of(const qn_call *call)
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

static qn_status check_relations(const qn_call *call)
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

static qn_status validate(qn_call *call, const qn_tensor *const *given)
{
  qn_try(qn_check_extents(call, given));
  return check_relations(call);
}

static bool is_empty(const qn_gemm_problem *problem) { return !problem->args.m || !problem->args.n; }

static qn_status run(const qn_call *call)
{
  const qn_gemm_problem problem = problem_of(call);
  if (is_empty(&problem)) return QN_OK;
  if (call->exec->device.kind != QN_CPU) return qn_gemm_device_run(&problem, call->exec, call->mode == QN_CALL_PREPARE);
  return call->mode == QN_CALL_PREPARE ? QN_OK : qn_gemm_cpu_run(&problem, call->exec);
}

static size_t workspace(const qn_call *call)
{
  if (!call->tensors[QN_GEMM_ROLE_Y]) return 0;
  const qn_gemm_problem problem = problem_of(call);
  if (is_empty(&problem)) return 0;
  return call->exec->device.kind == QN_CPU ? qn_gemm_cpu_workspace(&problem, call->exec)
                                           : qn_gemm_device_workspace(&problem, call->exec);
}

static const qn_engine engine = {.validate = validate, .workspace = workspace, .run = run};

static const char *choice(const qn_call *call, const char **why)
{
  const qn_gemm_problem problem = problem_of(call);
  return qn_gemm_device_choice(&problem, call->exec->device, why);
}

static const char *refusal(const qn_call *call, size_t k)
{
  const qn_gemm_problem problem = problem_of(call);
  return qn_gemm_device_refusal(&problem, call->exec->device, k);
}

static void tune_key(const qn_call *call, struct qn_tune_key *key)
{
  const qn_gemm_problem problem = problem_of(call);
  qn_gemm_tune_key(&problem, key);
}

static void reference(const qn_call *call, const double *const *input, double *const *wanted, double *const *allowed)
{
  const qn_gemm_problem problem = problem_of(call);
  qn_gemm_norm_cpu_oracle(&(qn_gemm_tile){.problem = &problem,
                                          .input = input,
                                          .reference = wanted[QN_GEMM_ROLE_Y],
                                          .allowed = allowed[QN_GEMM_ROLE_Y],
                                          .looseness = call->looseness});
}

static double operations(const qn_call *call)
{
  return 2.0 * (double)extent(call, 'm') * (double)extent(call, 'n') * (double)extent(call, 'k');
}

/* Sizes about the edges of lanes, of the kernels' register and shared tiles and of the blocks of k; groups of every
 * kind of width; each part of the epilogue left out. */
#define SWEEP(activation)                                                                                              \
  {                                                                                                                    \
    "sweep-" activation,                                                                                               \
        "m=2 n=512 k=8 x=0 bias=sweep norm=none clamp=0 activation=" activation " -bias2 -gamma -beta"                 \
  }
static const qn_shaped_size cases[] = {
    {"one", "m=1 n=1 k=1"},
    {"no-k", "m=3 n=8 k=0 groups=2"},
    {"empty", "m=0 n=8 k=5"},
    {"not-a-number", "m=5 n=24 k=6 groups=3 nan"},
    {"narrow", "m=5 n=12 k=7 groups=3"},
    {"lone-columns", "m=3 n=6 k=9 groups=6"},
    {"odd", "m=17 n=63 k=31 groups=7 -bias2 -beta"},
    {"around-64", "m=65 n=130 k=129 groups=13"},
    {"tile", "m=128 n=256 k=64 groups=8"},
    {"deep", "m=9 n=64 k=777 groups=2 -bias"},
    {"past-a-block", "m=13 n=36 k=257 groups=9 -gamma -beta"},
    {"wide-group", "m=6 n=1200 k=40 groups=2"},
    {"wider-group", "m=3 n=4096 k=24 groups=1 activation=gelu"},
    {"contract", "m=16 n=1024 k=512 groups=32"},
    {"plain", "m=33 n=70 k=100 norm=none activation=none clamp=0 -bias -bias2 -gamma -beta"},
    {"relu", "m=10 n=40 k=50 norm=none activation=relu clamp=0 -bias2 -gamma -beta"},
    {"gelu-layer", "m=11 n=96 k=33 norm=layer activation=gelu clamp=0"},
    {"gelu-tanh-rms", "m=8 n=80 k=64 norm=rms activation=gelu_tanh clamp=0 -beta"},
    {"silu", "m=20 n=48 k=65 groups=4 activation=silu lo=-0.25 hi=3"},
    {"sigmoid-rms", "m=7 n=33 k=20 norm=rms activation=sigmoid"},
    {"tanh-layer", "m=4 n=2050 k=16 norm=layer activation=tanh eps=0.001"},
    {"past-tiles", "m=130 n=320 k=1100 groups=5"},
    {"past-panels", "m=26 n=40 k=2100 groups=5"},
    {"narrow-groups", "m=70 n=416 k=84 groups=52 activation=silu"},
    {"past-chunks", "m=140 n=272 k=200 groups=17"},
    {"past-folds", "m=70 n=132 k=328 norm=none activation=none -gamma -beta"},
    {"halves", "m=9 n=36 k=16 norm=none activation=none clamp=0 halves -bias -bias2 -gamma -beta"},
    SWEEP("relu"),
    SWEEP("gelu"),
    {"three of four left", "m=28 n=72 k=35 groups=9"},
    {"halves, fewer", "m=5 n=20 k=12 norm=none activation=none clamp=0 halves -bias -bias2 -gamma -beta"},
    SWEEP("gelu_tanh"),
    SWEEP("silu"),
    SWEEP("mish"),
    SWEEP("sigmoid"),
    SWEEP("tanh"),
    {"sweep-clamp", "m=2 n=512 k=8 x=0 bias=sweep norm=none activation=none lo=-0.25 hi=3 -bias2 -gamma -beta"},
    {"sweep-groups", "m=2 n=512 k=8 x=0 bias=sweep groups=128 lo=-1e4 hi=1e4 activation=none -bias2"},
    {NULL, NULL},
};

static const qn_shaped_size workloads[] = {
    {"kernelbench", "m=128 n=1024 k=512 groups=32"},    {"kernelbench-large", "m=1024 n=8192 k=8192 groups=256"},
    {"decode", "m=1 n=8192 k=8192 groups=256"},         {"rows-16", "m=16 n=8192 k=8192 groups=256"},
    {"rows-256", "m=256 n=8192 k=8192 groups=256"},     {"groups-of-4", "m=128 n=4096 k=1024 groups=1024"},
    {"groups-of-128", "m=128 n=4096 k=1024 groups=32"}, {"groups-of-256", "m=128 n=4096 k=1024 groups=16"},
    {"groups-of-4096", "m=128 n=4096 k=1024 groups=1"}, {NULL, NULL},
};

/* The word that the refusal must hold, and what must be refused. */
static const qn_shaped_size refused[] = {
    {"groups", "m=3 n=10 k=4 groups=3"}, {"groups", "m=3 n=10 k=4 groups=0"}, {"groups", "m=3 n=10 k=4 groups=11"},
    {"lo", "m=3 n=10 k=4 lo=2 hi=1"},    {"gamma", "m=3 n=10 k=4 norm=none"}, {NULL, NULL},
};

static const char *variation(size_t row, size_t k)
{
  static const char *const of_f32[] = {"precision=fp32",   "precision=tf32", "precision=bf16x3",
                                       "precision=tf32x3", "precision=bf16", NULL};
  static const char *const of_bf16[] = {"precision=bf16", NULL};
  return row ? of_bf16[k] : of_f32[k];
}

static const char *const looser[] = {"precision=tf32", "precision=bf16", NULL};

/* Flags: the contract's, GELU with a layer norm, nothing at all. */
#define F32 "QN_GEMM_FLAGS=2005u", "QN_GEMM_SHORT=0"
#define DEFINES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define HOPPER(precision, columns, rows, stages, ...)                                                                  \
  {                                                                                                                    \
    "op/gemm_norm/gemm.hopper.cu",                                                                                     \
        DEFINES("QN_GEMM_PRECISION=" #precision, "QN_GEMM_COLUMNS=" #columns, "QN_GEMM_TILE_M=" #rows,                 \
                "QN_GEMM_STAGES=" #stages, "QN_GEMM_CLUSTER=2", "QN_GEMM_FOLD=8", __VA_ARGS__),                        \
        "sm_90a"                                                                                                       \
  }
static const qn_shaped_unit units[] = {
    {"op/gemm_norm/gemm_norm.cu", DEFINES("QN_GEMM_PRECISION=0", "QN_GEMM_SHORT=0"), NULL},
    {"op/gemm_norm/gemm_norm.cu", DEFINES("QN_GEMM_PRECISION=4", "QN_GEMM_SHORT=1"), NULL},
    {"op/gemm_norm/gemm.epilogue.cu",
     DEFINES("QN_GEMM_FLAGS=2005u", "QN_GEMM_SHORT=0", "QN_GEMM_TEAM=32", "QN_GEMM_ITEMS=1"), NULL},
    {"op/gemm_norm/gemm.epilogue.cu",
     DEFINES("QN_GEMM_FLAGS=1954u", "QN_GEMM_SHORT=1", "QN_GEMM_TEAM=256", "QN_GEMM_ITEMS=16"), NULL},
    {"op/gemm_norm/gemm.epilogue.cu",
     DEFINES("QN_GEMM_FLAGS=2005u", "QN_GEMM_SHORT=0", "QN_GEMM_TEAM=256", "QN_GEMM_ITEMS=0"), NULL},
    {"op/gemm_norm/gemm.split.cu", DEFINES("QN_GEMM_PRECISION=2"), NULL},
    {"op/gemm_norm/gemm.split.cu", DEFINES("QN_GEMM_PRECISION=3"), "sm_90a"},
    {"op/gemm_norm/gemm.split.cu", DEFINES("QN_GEMM_PRECISION=4"), "sm_90a"},
    {"op/gemm_norm/gemm.mma.cu", DEFINES(F32, "QN_GEMM_PRECISION=3", "QN_GEMM_COLUMNS=128", "QN_GEMM_STAGES=3"),
     "sm_80"},
    {"op/gemm_norm/gemm.sliced.cu",
     DEFINES(F32, "QN_GEMM_PRECISION=2", "QN_GEMM_COLUMNS=32", "QN_GEMM_TILE_M=32", "QN_GEMM_TILE_N=32",
             "QN_GEMM_AHEAD=4"),
     "sm_80"},
    {"op/gemm_norm/gemm.cores.cu",
     DEFINES(F32, "QN_GEMM_PRECISION=0", "QN_GEMM_COLUMNS=32", "QN_GEMM_TILE_M=128", "QN_GEMM_TILE_N=128",
             "QN_GEMM_CHUNK=32", "QN_GEMM_STAGES=3", "QN_GEMM_DOWN=4", "QN_GEMM_ACROSS=2"),
     "sm_90a"},
    {"op/gemm_norm/gemm.cores.cu",
     DEFINES(F32, "QN_GEMM_PRECISION=0", "QN_GEMM_COLUMNS=32", "QN_GEMM_TILE_M=16", "QN_GEMM_TILE_N=64",
             "QN_GEMM_CHUNK=64", "QN_GEMM_STAGES=4", "QN_GEMM_DOWN=1", "QN_GEMM_ACROSS=1"),
     NULL},
    HOPPER(1, 32, 128, 6, F32, "QN_ACTIVATION_NEAR"),
    HOPPER(2, 64, 64, 7, F32, "QN_ACTIVATION_NEAR"),
    HOPPER(3, 32, 128, 4, F32),
    HOPPER(4, 32, 128, 4, F32, "QN_ACTIVATION_NEAR"),
    HOPPER(4, 32, 128, 6, "QN_GEMM_FLAGS=2005u", "QN_GEMM_SHORT=1", "QN_ACTIVATION_NEAR"),
    {NULL, NULL, NULL},
};

static const qn_shaped shaped = {
    .reference = reference,
    .operations = operations,
    .cases = cases,
    .workloads = workloads,
    .refused = refused,
    .variation = variation,
    .looser = looser,
    .independent = 'm',
    .looseness = qn_gemm_looseness,
    .variant = qn_gemm_variant_name,
    .variant_option = "gemm",
    .check_option = qn_gemm_option_check,
    .choice = choice,
    .refusal = refusal,
    .tune_key = tune_key,
    .units = units,
};

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
             .params = params_table,
             .n_params = sizeof params_table / sizeof params_table[0],
             .params_bytes = sizeof(qn_gemm_norm_params),
             .agreement = QN_REDUCTION,
             .agreement_units = 1, /* of what `reference` allows, whose derivation is beside it */
             .shapes = shapes,
             .optional = 1u << QN_GEMM_ROLE_BIAS | 1u << QN_GEMM_ROLE_BIAS2 | 1u << QN_GEMM_ROLE_GAMMA |
                         1u << QN_GEMM_ROLE_BETA},
    .engine = &engine,
    .shaped = &shaped,
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
