/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_norm.check.c - what gemm_norm brings for checks and benches: its reference in double, cases, workloads, and
 * units of device sources. No part of the library. */
#include "op/gemm_norm/reference.h"
#include "workbench/op_check.h"

static int64_t extent(const qn_call *call, char letter) { return call->extent[letter - 'a']; }

static qn_status reference(const qn_reference *r)
{
  const qn_gemm_problem problem = qn_gemm_problem_of(r->call);
  qn_gemm_reference t = {.problem = &problem,
                         .y = r->value[QN_GEMM_ROLE_Y][0],
                         .allowed = r->allowed[QN_GEMM_ROLE_Y][0],
                         .looseness = r->looseness,
                         .on_gpu = r->call->exec->device.kind == QN_CUDA};
  for (size_t role = QN_GEMM_ROLE_X; role < QN_GEMM_ROLES; role++)
    if (r->value[role]) t.input[role] = r->value[role][0];
  qn_gemm_refer(&t);
  return QN_OK;
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
static const qn_check_text cases[] = {
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
    {"past-panels", "m=50 n=40 k=2400 groups=5"},
    {"narrow-groups", "m=70 n=416 k=84 groups=52 activation=silu"},
    {"past-chunks", "m=140 n=272 k=200 groups=17"},
    {"past-folds", "m=70 n=132 k=328 norm=none activation=none -gamma -beta"},
    {"one short of a vector", "m=3 n=7 k=31 norm=layer"},
    {"past-slices", "m=3 n=24 k=4100 groups=3"},
    {"lone-and-deep", "m=1 n=50 k=2049 norm=layer -bias2"},
    {"few and deep", "m=6 n=10 k=600 groups=5 activation=tanh"},
    {"few, past parts of k", "m=5 n=34 k=4131 groups=2"},
    {"large blocks", "m=2 n=5003 k=12 norm=layer activation=gelu"},
    {"past large blocks", "m=2 n=9001 k=12 norm=rms activation=sigmoid -beta"},
    {"unaligned-groups", "m=41 n=99 k=515 groups=3 activation=relu"},
    {"odd columns past tiles", "m=130 n=387 k=72 norm=none activation=silu clamp=0 -gamma -beta"},
    {"halves", "m=9 n=36 k=16 norm=none activation=none clamp=0 halves -bias -bias2 -gamma -beta"},
    /* Subnormal operands, and sums of products, by way of few rows, few columns and many. */
    {"subnormal, few",
     "m=5 n=40 k=33 x=2.938735877055719e-39 w=1024 norm=none activation=none clamp=0 -bias -bias2 -gamma -beta"},
    {"subnormal, few columns",
     "m=2050 n=3 k=33 x=1024 w=2.938735877055719e-39 norm=none activation=none clamp=0 -bias -bias2 -gamma -beta"},
    {"subnormal, many",
     "m=70 n=72 k=33 x=1024 w=2.938735877055719e-39 norm=none activation=none clamp=0 -bias -bias2 -gamma -beta"},
    {"small sums", "m=5 n=40 k=3 x=1.3552527156068805e-20 w=1.3552527156068805e-20 norm=none activation=none clamp=0 "
                   "-bias -bias2 -gamma -beta"},
    {"small sums, many", "m=70 n=72 k=3 x=1.3552527156068805e-20 w=1.3552527156068805e-20 norm=none activation=none "
                         "clamp=0 -bias -bias2 -gamma -beta"},
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
    /* One thing alone between the product and the result. */
    {"bias alone", "m=5 n=21 k=12 norm=none activation=none clamp=0 -bias2 -gamma -beta"},
    {"second bias alone", "m=5 n=21 k=12 norm=none activation=none clamp=0 -bias -gamma -beta"},
    /* Many groups that are too wide for a simdgroup, whole packs or not, and rows of y that are not aligned for these.
     */
    {"many wide groups", "m=9 n=2608 k=8 groups=2"},
    {"many wide rows", "m=13 n=1303 k=8 norm=layer"},
    {"many narrow groups", "m=7 n=60 k=12 groups=12 activation=silu"},
    {"many pairs", "m=5 n=48 k=8 groups=24 activation=none"},
    {"many groups of six", "m=9 n=60 k=8 groups=10 -bias2"},
    {"many odd rows", "m=33 n=131 k=12 norm=rms activation=relu -beta"},
    {"clamp alone", "m=5 n=21 k=12 norm=none activation=none lo=-0.25 hi=3 -bias -bias2 -gamma -beta"},
    {NULL, NULL},
};

static const qn_check_text workloads[] = {
    {"kernelbench", "m=128 n=1024 k=512 groups=32"},    {"kernelbench-large", "m=1024 n=8192 k=8192 groups=256"},
    {"decode", "m=1 n=8192 k=8192 groups=256"},         {"rows-16", "m=16 n=8192 k=8192 groups=256"},
    {"rows-256", "m=256 n=8192 k=8192 groups=256"},     {"groups-of-4", "m=128 n=4096 k=1024 groups=1024"},
    {"groups-of-128", "m=128 n=4096 k=1024 groups=32"}, {"groups-of-256", "m=128 n=4096 k=1024 groups=16"},
    {"groups-of-4096", "m=128 n=4096 k=1024 groups=1"}, {NULL, NULL},
};

/* The word that the refusal must hold, and what must be refused. */
static const qn_check_text refused[] = {
    {"groups", "m=3 n=10 k=4 groups=3"}, {"groups", "m=3 n=10 k=4 groups=0"}, {"groups", "m=3 n=10 k=4 groups=11"},
    {"lo", "m=3 n=10 k=4 lo=2 hi=1"},    {"gamma", "m=3 n=10 k=4 norm=none"}, {NULL, NULL},
};

static const char *variation(qn_device_kind kind, size_t row, size_t k)
{
  (void)kind;
  static const char *const of_f32[] = {"precision=fp32",
                                       "precision=tf32",
                                       "precision=bf16x3",
                                       "precision=tf32x3",
                                       "precision=bf16",
                                       "precision=f16x3",
                                       NULL};
  static const char *const of_bf16[] = {"precision=bf16", NULL};
  return row ? of_bf16[k] : of_f32[k];
}

static const char *const looser[] = {"precision=tf32", "precision=bf16", NULL};

/* Flags: the contract's, GELU with a layer norm, nothing at all, two biases and SiLU. */
#define F32 "QN_GEMM_FLAGS=2005u", "QN_GEMM_SHORT=0", "QN_GEMM_RAW=0", "QN_GEMM_LOOSE=0"
#define SHORT "QN_GEMM_FLAGS=2005u", "QN_GEMM_SHORT=1", "QN_GEMM_RAW=0", "QN_GEMM_LOOSE=0"
#define SUMS "QN_GEMM_FLAGS=0u", "QN_GEMM_RAW=1", "QN_GEMM_COLUMNS=0", "QN_GEMM_LOOSE=0"
#define LOOSE "QN_GEMM_FLAGS=388u", "QN_GEMM_SHORT=1", "QN_GEMM_RAW=0", "QN_GEMM_COLUMNS=0", "QN_GEMM_LOOSE=1"
#define DEFINES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define EPILOGUE(flags, is_short, threads, team, items, pack)                                                          \
  {                                                                                                                    \
    "op/gemm_norm/gemm.epilogue.cu",                                                                                   \
        DEFINES("QN_GEMM_FLAGS=" #flags, "QN_GEMM_SHORT=" #is_short, "QN_GEMM_THREADS=" #threads,                      \
                "QN_GEMM_TEAM=" #team, "QN_GEMM_ITEMS=" #items, "QN_GEMM_PACK=" #pack, "QN_GEMM_LOOSE=0",              \
                "QN_GEMM_GROUPS=1"),                                                                                   \
        NULL                                                                                                           \
  }
#define WHOLE(rows, strip, deep, flags, is_short, aligned, team, items, pack)                                          \
  {                                                                                                                    \
    "op/gemm_norm/gemm.whole.cu",                                                                                      \
        DEFINES("QN_GEMM_TILE_M=" #rows, "QN_GEMM_STRIP=" #strip, "QN_GEMM_DEEP=" #deep, "QN_GEMM_FLAGS=" #flags,      \
                "QN_GEMM_SHORT=" #is_short, "QN_GEMM_ALIGNED=" #aligned, "QN_GEMM_TEAM=" #team,                        \
                "QN_GEMM_ITEMS=" #items, "QN_GEMM_PACK=" #pack, "QN_GEMM_LOOSE=0", "QN_GEMM_GROUPS=1"),                \
        NULL                                                                                                           \
  }
#define ROWS(rows, aligned, ...)                                                                                       \
  {                                                                                                                    \
    "op/gemm_norm/gemm.rows.cu",                                                                                       \
        DEFINES("QN_GEMM_PRECISION=0", "QN_GEMM_TILE_M=" #rows, "QN_GEMM_STRIP=4", "QN_GEMM_ALIGNED=" #aligned,        \
                __VA_ARGS__),                                                                                          \
        NULL                                                                                                           \
  }
#define SLICED(precision, rows, columns, ahead, ...)                                                                   \
  {                                                                                                                    \
    "op/gemm_norm/gemm.sliced.cu",                                                                                     \
        DEFINES("QN_GEMM_PRECISION=" #precision, "QN_GEMM_TILE_M=" #rows, "QN_GEMM_TILE_N=" #columns,                  \
                "QN_GEMM_AHEAD=" #ahead, __VA_ARGS__),                                                                 \
        "sm_80"                                                                                                        \
  }
#define CORES(rows, columns, chunk, stages, down, across, arch, ...)                                                   \
  {                                                                                                                    \
    "op/gemm_norm/gemm.cores.cu",                                                                                      \
        DEFINES("QN_GEMM_PRECISION=0", "QN_GEMM_TILE_M=" #rows, "QN_GEMM_TILE_N=" #columns, "QN_GEMM_CHUNK=" #chunk,   \
                "QN_GEMM_STAGES=" #stages, "QN_GEMM_DOWN=" #down, "QN_GEMM_ACROSS=" #across, __VA_ARGS__),             \
        arch                                                                                                           \
  }
#define HOPPER(precision, rows, stages, cluster, ...)                                                                  \
  {                                                                                                                    \
    "op/gemm_norm/gemm.hopper.cu",                                                                                     \
        DEFINES("QN_GEMM_PRECISION=" #precision, "QN_GEMM_TILE_M=" #rows, "QN_GEMM_STAGES=" #stages,                   \
                "QN_GEMM_CLUSTER=" #cluster, "QN_GEMM_FOLD=2", __VA_ARGS__),                                           \
        "sm_90a"                                                                                                       \
  }
static const qn_device_unit units[] = {
    {"op/gemm_norm/gemm_norm.cu", DEFINES("QN_GEMM_PRECISION=0", "QN_GEMM_SHORT=0"), NULL},
    {"op/gemm_norm/gemm_norm.cu", DEFINES("QN_GEMM_PRECISION=4", "QN_GEMM_SHORT=1"), NULL},
    EPILOGUE(2005u, 0, 256, 32, 1, 1),
    EPILOGUE(1954u, 1, 256, 256, 4, 4),
    EPILOGUE(1954u, 1, 256, 256, 16, 1),
    EPILOGUE(1954u, 1, 1024, 1024, 4, 4),
    EPILOGUE(2005u, 0, 1024, 1024, 8, 1),
    EPILOGUE(2005u, 0, 1024, 1024, 0, 4),
    EPILOGUE(2005u, 0, 256, 256, 0, 1),
    EPILOGUE(2005u, 0, 256, 32, 3, 4),
    EPILOGUE(1989u, 0, 256, 32, 1, 4),
    EPILOGUE(1989u, 1, 64, 64, 8, 4),
    {"op/gemm_norm/gemm.epilogue.cu",
     DEFINES("QN_GEMM_FLAGS=1954u", "QN_GEMM_SHORT=1", "QN_GEMM_THREADS=256", "QN_GEMM_TEAM=32", "QN_GEMM_ITEMS=8",
             "QN_GEMM_PACK=4", "QN_GEMM_LOOSE=1", "QN_GEMM_GROUPS=1"),
     NULL},
    {"op/gemm_norm/gemm.epilogue.cu",
     DEFINES("QN_GEMM_FLAGS=1989u", "QN_GEMM_SHORT=1", "QN_GEMM_THREADS=256", "QN_GEMM_TEAM=1", "QN_GEMM_ITEMS=5",
             "QN_GEMM_PACK=4", "QN_GEMM_LOOSE=0", "QN_GEMM_GROUPS=4"),
     NULL},
    {"op/gemm_norm/gemm.epilogue.cu",
     DEFINES("QN_GEMM_FLAGS=2005u", "QN_GEMM_SHORT=0", "QN_GEMM_THREADS=256", "QN_GEMM_TEAM=4", "QN_GEMM_ITEMS=4",
             "QN_GEMM_PACK=1", "QN_GEMM_LOOSE=0", "QN_GEMM_GROUPS=1", "QN_ACTIVATION_NEAR"),
     NULL},
    {"op/gemm_norm/gemm.align.cu", DEFINES("QN_GEMM_SHORT=0"), NULL},
    {"op/gemm_norm/gemm.align.cu", DEFINES("QN_GEMM_SHORT=1"), NULL},
    {"op/gemm_norm/gemm.split.cu", DEFINES("QN_GEMM_PRECISION=2"), NULL},
    {"op/gemm_norm/gemm.split.cu", DEFINES("QN_GEMM_PRECISION=3"), "sm_90a"},
    {"op/gemm_norm/gemm.split.cu", DEFINES("QN_GEMM_PRECISION=4"), "sm_90a"},
    {"op/gemm_norm/gemm.split.cu", DEFINES("QN_GEMM_PRECISION=5", "QN_GEMM_TEAM=32"), "sm_90a"},
    {"op/gemm_norm/gemm.split.cu", DEFINES("QN_GEMM_PRECISION=5", "QN_GEMM_TEAM=256"), "sm_90a"},
    ROWS(8, 1, SUMS, "QN_GEMM_SHORT=0"),
    ROWS(1, 0, F32, "QN_GEMM_COLUMNS=8"),
    ROWS(8, 1, SHORT, "QN_GEMM_COLUMNS=8"),
    ROWS(8, 1, LOOSE),
    WHOLE(1, 16, 1, 2005u, 0, 0, 256, 16, 1),
    WHOLE(1, 8, 1, 1954u, 1, 0, 32, 4, 4),
    WHOLE(8, 4, 1, 1954u, 1, 1, 32, 4, 4),
    WHOLE(8, 4, 4, 5u, 0, 1, 1, 1, 4),
    {"op/gemm_norm/gemm.mma.cu", DEFINES(F32, "QN_GEMM_PRECISION=3", "QN_GEMM_COLUMNS=128", "QN_GEMM_STAGES=3"),
     "sm_80"},
    SLICED(2, 32, 32, 4, F32, "QN_GEMM_COLUMNS=32"),
    SLICED(3, 16, 64, 1, SUMS, "QN_GEMM_SHORT=0"),
    CORES(128, 128, 32, 3, 4, 2, "sm_90a", F32, "QN_GEMM_COLUMNS=32"),
    CORES(16, 64, 64, 4, 1, 1, NULL, F32, "QN_GEMM_COLUMNS=32"),
    HOPPER(1, 128, 6, 1, F32, "QN_GEMM_COLUMNS=32", "QN_ACTIVATION_NEAR"),
    HOPPER(1, 256, 4, 2, SUMS, "QN_GEMM_SHORT=0", "QN_ACTIVATION_NEAR"),
    HOPPER(2, 64, 7, 2, F32, "QN_GEMM_COLUMNS=64", "QN_ACTIVATION_NEAR"),
    HOPPER(3, 128, 4, 2, F32, "QN_GEMM_COLUMNS=32"),
    HOPPER(3, 128, 4, 2, SUMS, "QN_GEMM_SHORT=0"),
    HOPPER(5, 128, 6, 2, F32, "QN_GEMM_COLUMNS=32"),
    HOPPER(5, 64, 7, 1, SUMS, "QN_GEMM_SHORT=0"),
    HOPPER(4, 128, 4, 2, F32, "QN_GEMM_COLUMNS=32", "QN_ACTIVATION_NEAR"),
    HOPPER(4, 128, 6, 2, SHORT, "QN_GEMM_COLUMNS=32", "QN_ACTIVATION_NEAR"),
    HOPPER(4, 128, 6, 2, LOOSE, "QN_ACTIVATION_NEAR"),
    HOPPER(4, 64, 7, 1, SUMS, "QN_GEMM_SHORT=1", "QN_ACTIVATION_NEAR"),
    {NULL, NULL, NULL},
};

const qn_op_check qn_check_gemm_norm = {
    .reference = reference,
    .operations = operations,
    .cases = cases,
    .sample = "m=7 n=33 k=20 norm=rms activation=sigmoid",
    .workloads = workloads,
    .refused = refused,
    .variation = variation,
    .looser = looser,
    .domain = {.shapes = "m=1..16384,n=8..16384,k=8..131072", .values = "groups=/n norm=none|group|layer|rms"},
    .independent = 'm',
    .looseness = qn_gemm_looseness,
    .units = units};
