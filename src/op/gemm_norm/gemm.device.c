/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.device.c - the variants with product kernels of their own, which do the epilogue too where their tile holds
 * whole groups: on Hopper's own instructions (gemm.hopper.cu), by mma.sync in large tiles (gemm.mma.cu) and small ones
 * (gemm.sliced.cu), and by ordinary f32 in tiles (gemm.cores.cu) and for few rows (gemm.rows.cu). Here stands which
 * problems each can serve, its launch, and how long it is thought to take; the constants of those guesses are an
 * H200's, of probes that are not kept. */
#include "core/core.h"
#include "device/cuda/tensor_map.h"
#include "op/gemm_norm/gemm.h"
#include "op/gemm_norm/hopper.h"
#include <math.h>
#include <stdio.h>

enum { WORD = 4, SPLIT_THREADS = 256, MORE = 160 };

static int64_t places_of(const qn_gemm_target *target)
{
  return target->arch.multiprocessors > 0 ? target->arch.multiprocessors : 1;
}

/* How long a tile takes: so many microseconds, and nanoseconds for each column of k. */
typedef struct tile_time {
  double us, column_ns;
} tile_time;

/* Blocks of tiles of so many rows and columns. */
static int64_t blocks_of(const qn_gemm_problem *problem, int64_t rows, int64_t columns)
{
  return qn_gemm_pieces(problem->args.m, rows) * qn_gemm_pieces(problem->args.n, columns) * problem->args.slices;
}

static double larger(double a, double b) { return a > b ? a : b; }

/* Of what goes on beside each other: a little more than the larger. */
static double beside(double a, double b) { return sqrt(hypot(a * a, b * b)); }

/* Blocks on the places that there are. One more block beside those of a place takes such a share of a block's time; 0:
 * places have one each, and the others wait for the next round. */
static double blocks_us(const qn_gemm_problem *problem, int64_t blocks, int64_t places, tile_time time, double share)
{
  const double more = share * larger(0, (double)blocks / (double)places - 1);
  const double rounds = share > 0 ? 1 + more : (double)qn_gemm_pieces(blocks, places);
  return rounds * (time.us + time.column_ns * 1e-3 * (double)problem->args.slice_k);
}

static double begin_us(const qn_gemm_target *target)
{
  return target->device.kind == QN_CUDA ? QN_GEMM_BEGIN_US : QN_GEMM_IMITATED_US;
}

static double reads_us(const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  const double bytes = qn_gemm_bytes(problem);
  return qn_gemm_memory_us(target, bytes, bytes);
}

/* One launch: blocks and the time of memory, which go on beside each other but for the most. */
static double tiles_us(const qn_gemm_problem *problem, const qn_gemm_target *target, int64_t blocks, int64_t places,
                       tile_time time, double share)
{
  return begin_us(target) + hypot(blocks_us(problem, blocks, places, time, share), reads_us(problem, target));
}

/* The width of a norm's groups as the kernels take it: 0 is no norm. */
static int width(const qn_gemm_problem *problem) { return qn_gemm_is_normed(problem) ? (int)problem->args.columns : 0; }

/* Whether y has to be written one element at a time. */
static int loose(const qn_gemm_problem *problem) { return !problem->raw && !qn_gemm_in_fours(problem); }

/* ---- gemm.hopper.cu ---- */

enum { TILE_N = 128, HOPPER_THREADS = 384, HALF_TILE = 64, ALIGNMENT = 1024, PART_BYTES = 128 };
enum { HOPPER_STEP = 64, SHALLOW = 512 }; /* slices are whole chunks in every class; writing y takes longer than k */
enum { STAGES_MOST = 7, HOPPER_SHARED = 227 * 1024 }; /* of a block, in compute capability 9.0 */
enum { ROW_OF_A_SIMDGROUP = 1024 };                   /* columns; a block's row stays in the first-level cache */

/* A class as the kernel takes it: by how many columns of k it goes, how many parts of 128 bytes these are in a row of w
 * and of x, whether x's are made before by gemm.split.cu, and whether sums are kept twice. */
typedef struct hopper_class {
  qn_matrix_kind w, x;
  uint32_t columns, w_parts, x_parts;
  bool made, splits;
} hopper_class;

typedef struct hopper_settings {
  uint32_t tile_m;
  tile_time times[QN_GEMM_PRECISIONS + 1]; /* the last is bf16 in memory */
} hopper_settings;

/* Blocks that share rows of x; where one has all columns of y, a second would have none. */
static uint32_t cluster_of(const qn_gemm_problem *problem) { return problem->args.n <= TILE_N ? 1 : 2; }

static int row_of(const qn_gemm_problem *problem)
{
  return problem->short_data ? QN_GEMM_PRECISIONS : problem->precision;
}

static const hopper_class *class_of(const qn_gemm_problem *problem)
{
  static const hopper_class classes[QN_GEMM_PRECISIONS + 1] = {
      [QN_GEMM_TF32] = {QN_MATRIX_F32_AS_TF32, QN_MATRIX_F32_AS_TF32, 32, 1, 1, false, false},
      [QN_GEMM_BF16X3] = {QN_MATRIX_F32, QN_MATRIX_F32, 32, 1, 1, true, true},
      [QN_GEMM_TF32X3] = {QN_MATRIX_F32, QN_MATRIX_F32, 32, 1, 2, true, true},
      [QN_GEMM_BF16] = {QN_MATRIX_F32, QN_MATRIX_F32, 64, 2, 1, true, false},
      [QN_GEMM_F16X3] = {QN_MATRIX_F32, QN_MATRIX_F32, 32, 1, 1, true, true},
      [QN_GEMM_PRECISIONS] = {QN_MATRIX_BF16, QN_MATRIX_BF16, 64, 1, 1, false, false},
  };
  return &classes[row_of(problem)];
}

static const char *refuses_hopper(const qn_gemm_variant *variant, const qn_gemm_problem *problem,
                                  const qn_gemm_target *target)
{
  const qn_gemm_args *a = &problem->args;
  const hopper_settings *s = variant->settings;
  if (class_of(problem)->splits && s->tile_m > 128)
    return "its sums fill the registers, and a split class has them twice";
  if (target->device.kind != QN_CUDA || target->arch.capability != 90) return "it is for compute capability 9.0";
  const int64_t most = INT32_MAX / qn_gemm_batches(problem);
  if (a->m > most || a->n > most || a->k > INT32_MAX / 2) return "an extent is above 2^31 - 1, or k 2^30 - 1";
  return a->k ? NULL : "k is 0";
}

static int64_t chunks_of(const qn_gemm_problem *problem)
{
  return qn_gemm_pieces(problem->args.k, class_of(problem)->columns);
}

/* Of all batches. */
static int64_t rows_of_x(const qn_gemm_problem *problem) { return problem->args.m * qn_gemm_batches(problem); }

static int64_t rows_of_w(const qn_gemm_problem *problem) { return problem->args.n * qn_gemm_batches(problem); }
static bool scales(const qn_gemm_problem *problem) { return problem->precision == QN_GEMM_F16X3; }

/* The workspace: x's words, then of f16x3 the factors of x's rows, then of w's, both from a part of 16 bytes on. */
typedef struct hopper_space {
  size_t x_factors, w_factors, bytes;
} hopper_space;

static hopper_space space_of(const qn_gemm_problem *problem)
{
  const hopper_class *c = class_of(problem);
  hopper_space s = {0};
  if (!c->made) return s;
  s.x_factors = (size_t)rows_of_x(problem) * (size_t)chunks_of(problem) * c->x_parts * PART_BYTES;
  s.w_factors = s.x_factors + (size_t)qn_gemm_pieces(rows_of_x(problem), 4) * 4 * WORD;
  s.bytes = scales(problem) ? s.w_factors + (size_t)qn_gemm_pieces(rows_of_w(problem), 4) * 4 * WORD : s.x_factors;
  return s;
}

static float *factors_at(const qn_gemm_call *call, size_t at)
{
  return call->workspace ? (float *)(void *)((char *)call->workspace + at) : NULL;
}

static size_t hopper_workspace(const qn_gemm_variant *variant, const qn_gemm_problem *problem,
                               const qn_gemm_target *target)
{
  (void)variant, (void)target;
  return space_of(problem).bytes;
}

/* x's words, and of f16x3 the rows' factors; there a simdgroup takes a row, or a block where these are long. */
static qn_status make_x(const qn_gemm_problem *problem, const qn_gemm_call *call)
{
  const qn_gemm_args *a = &problem->args;
  const hopper_space s = space_of(problem);
  const qn_gemm_split_args argument = {.x = a->x,
                                       .to = call->workspace,
                                       .rows = rows_of_x(problem),
                                       .columns = a->k,
                                       .parts = chunks_of(problem) * class_of(problem)->columns / 16,
                                       .w = a->w,
                                       .x_factors = factors_at(call, s.x_factors),
                                       .w_factors = factors_at(call, s.w_factors),
                                       .w_rows = rows_of_w(problem)};
  const uint64_t team = a->k > ROW_OF_A_SIMDGROUP ? SPLIT_THREADS : 32;
  const uint64_t threads = scales(problem) ? (uint64_t)(argument.rows + argument.w_rows) * team
                                           : (uint64_t)argument.rows * (uint64_t)argument.parts * 4;
  qn_gemm_problem any = {.precision = problem->precision}; /* one kernel serves all epilogues */
  const qn_device_function *function;
  char more[MORE];
  snprintf(more, sizeof more, "QN_GEMM_TEAM=%d", (int)team);
  qn_try(
      qn_gemm_function(&any, call, "op/gemm_norm/gemm.split.cu", "gemm_split", scales(problem) ? more : "", &function));
  return qn_gemm_launch(call, function, (threads + SPLIT_THREADS - 1) / SPLIT_THREADS, SPLIT_THREADS, 0, &argument,
                        sizeof argument);
}

static qn_status hopper_maps(const qn_gemm_problem *problem, const qn_gemm_call *call, uint32_t tile_m,
                             qn_gemm_hopper_args *argument)
{
  const qn_gemm_args *a = &problem->args;
  const hopper_class *c = class_of(problem);
  const int64_t words = (int64_t)argument->chunks * c->x_parts * (PART_BYTES / WORD);
  qn_try(qn_cuda_tensor_map(call->exec->device, c->w, a->w, a->n * argument->batches, a->k, argument->w_rows,
                            &argument->w));
  return qn_cuda_tensor_map(call->exec->device, c->x, c->made ? call->workspace : a->x, rows_of_x(problem),
                            c->made ? words : a->k, tile_m / cluster_of(problem), &argument->x);
}

/* Stages of the ring: what fits beside the tiles of y and the barriers. */
static uint32_t stages_of(const hopper_class *c, uint32_t tile_m, uint32_t *shared)
{
  const uint32_t stage = (c->w_parts * TILE_N + c->x_parts * tile_m) * PART_BYTES + 16; /* two barriers */
  const uint32_t beside = 2 * HALF_TILE * HALF_TILE * WORD + ALIGNMENT, fit = (HOPPER_SHARED - beside) / stage;
  const uint32_t stages = fit < STAGES_MOST ? fit : STAGES_MOST;
  *shared = stages * stage + beside;
  return stages;
}

static qn_status hopper_function(const qn_gemm_problem *problem, const qn_gemm_call *call, uint32_t tile_m,
                                 uint32_t stages, const qn_device_function **function)
{
  const char *near = qn_gemm_is_near(problem) ? " QN_ACTIVATION_NEAR" : "";
  const int fold = problem->args.k < 2048 ? 2 : 4; /* chunks: PyTorch's own error is smaller where k is short */
  char more[MORE];
  snprintf(
      more, sizeof more,
      "QN_GEMM_COLUMNS=%d QN_GEMM_LOOSE=%d QN_GEMM_TILE_M=%u QN_GEMM_STAGES=%u QN_GEMM_CLUSTER=%u QN_GEMM_FOLD=%d%s",
      width(problem), loose(problem), tile_m, stages, cluster_of(problem), fold, near);
  return qn_gemm_function(problem, call, "op/gemm_norm/gemm.hopper.cu", "gemm_hopper", more, function);
}

static qn_status run_hopper(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_call *call)
{
  const hopper_settings *s = variant->settings;
  const qn_gemm_args *a = &problem->args;
  qn_gemm_hopper_args argument = {.of = *a,
                                  .chunks = (uint32_t)chunks_of(problem),
                                  .m_tiles = (uint32_t)qn_gemm_pieces(a->m, s->tile_m),
                                  .batches = (uint32_t)qn_gemm_batches(problem),
                                  .w_rows = a->n < TILE_N ? (uint32_t)qn_gemm_pieces(a->n, 8) * 8 : TILE_N};
  uint32_t shared;
  const uint32_t stages = stages_of(class_of(problem), s->tile_m, &shared), cluster = cluster_of(problem);
  const qn_device_function *function;
  argument.tiles = argument.m_tiles * (uint32_t)qn_gemm_pieces(a->n, TILE_N * cluster) * argument.batches;
  argument.across = a->k <= SHALLOW;
  argument.slices = (uint32_t)a->slices;
  argument.slice_chunks = a->slices > 1 ? (uint32_t)(a->slice_k / class_of(problem)->columns) : argument.chunks;
  qn_try(hopper_function(problem, call, s->tile_m, stages, &function));
  qn_gemm_call behind = *call;
  behind.early |= class_of(problem)->made;
  if (class_of(problem)->made) qn_try(make_x(problem, call));
  if (call->prepare) return QN_OK;
  argument.x_factors = factors_at(call, space_of(problem).x_factors);
  argument.w_factors = factors_at(call, space_of(problem).w_factors);
  qn_try(hopper_maps(problem, call, s->tile_m, &argument));
  const uint32_t clusters = (uint32_t)call->target->arch.multiprocessors / cluster;
  const uint32_t work = argument.tiles * argument.slices;
  return qn_gemm_launch(&behind, function, (clusters < work ? clusters : work) * cluster, HOPPER_THREADS, shared,
                        &argument, sizeof argument);
}

static double guess_hopper(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  const hopper_settings *s = variant->settings;
  const double of_x = 8 * (double)rows_of_x(problem) * (double)problem->args.k;
  const double of_w = 4 * (double)rows_of_w(problem) * (double)problem->args.k;
  const int64_t row_bytes = problem->args.row * (problem->short_data ? 2 : 4);
  tile_time time = s->times[row_of(problem)];
  if (row_bytes % PART_BYTES) time.column_ns *= 1.09; /* what is read at once lies in two lines of the cache */
  const int64_t cluster = cluster_of(problem);
  const int64_t blocks = blocks_of(problem, s->tile_m, TILE_N * cluster) * qn_gemm_batches(problem);
  const double products = blocks_us(problem, blocks, places_of(target) / cluster, time, 0);
  const double reads = reads_us(problem, target); /* of a block that waits for no other they hide each other more */
  const double us = begin_us(target) + (cluster == 1 ? beside(products, reads) : hypot(products, reads));
  const double made = of_x + (scales(problem) ? of_w : 0);
  return us + (class_of(problem)->made ? 2.45 + qn_gemm_memory_us(target, made, made) : 0);
}

/* They are multiplied faster, and w is read once more. */
static bool f16_pays(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  qn_gemm_problem by_tf32 = *problem;
  by_tf32.precision = QN_GEMM_TF32X3;
  return guess_hopper(variant, problem, target) < guess_hopper(variant, &by_tf32, target);
}

#define HOPPER(m)                                                                                                      \
  .precisions =                                                                                                        \
      1u << QN_GEMM_TF32 | 1u << QN_GEMM_BF16X3 | 1u << QN_GEMM_TF32X3 | 1u << QN_GEMM_BF16 | 1u << QN_GEMM_F16X3,     \
  .looseness = 1, /* the tensor unit rounds to tf32, to nearest: of halves it is not said which way */                 \
      .width = HALF_TILE, .step = HOPPER_STEP, .batches = true, .settings = &hopper_##m, .refuses = refuses_hopper,    \
  .workspace_bytes = hopper_workspace, .f16_pays = f16_pays, .run = run_hopper, .guess_us = guess_hopper

/* By class: tf32, bf16x3, tf32x3, bf16, f16x3, bf16 in memory. */
static const hopper_settings
    hopper_256 = {256, {{0, 0}, {3.06, 17.5}, {0, 0}, {0, 0}, {2.04, 8.58}, {0, 0}, {3.24, 9.13}}},
    hopper_128 = {128, {{0, 0}, {2.59, 9.06}, {1.49, 15}, {3.96, 25.8}, {1.21, 6.25}, {1.49, 16}, {2.46, 4.6}}},
    hopper_64 = {64, {{0, 0}, {1.52, 7.18}, {1.05, 10.9}, {2.73, 15.9}, {0.944, 5.65}, {1.05, 11.6}, {1.68, 3.45}}};
const qn_gemm_variant qn_gemm_hopper[] = {
    {.name = "wgmma-256x128", HOPPER(256)},
    {.name = "wgmma-128x128", HOPPER(128)},
    {.name = "wgmma-64x128", HOPPER(64)},
    {.name = NULL},
};

/* ---- gemm.sliced.cu ---- */

enum { SLICED_THREADS = 256, SLICED_ARCH = 80, SLICED_STEP = 128 };

typedef struct sliced_settings {
  uint32_t tile_m, tile_n, ahead;
  double share;
  tile_time times[QN_GEMM_PRECISIONS];
} sliced_settings;

static const char *refuses_f32(const qn_gemm_problem *problem)
{
  return problem->short_data ? "its tensors are f32" : problem->args.k ? NULL : "k is 0";
}

/* Where there are the words of base/matrix.h: what is slow on the host is their twin, and the split classes have all of
 * it, so that these are enough there. */
static const char *refuses_products(const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  const char *why = refuses_f32(problem);
  if (why) return why;
  if (target->device.kind == QN_CUDA)
    return target->arch.capability < SLICED_ARCH ? "it is for compute capability 8.0 and later" : NULL;
  if (problem->precision != QN_GEMM_BF16X3 && problem->precision != QN_GEMM_TF32X3)
    return "on the host the split classes stand for the others";
  return NULL;
}

static const char *refuses_sliced(const qn_gemm_variant *variant, const qn_gemm_problem *problem,
                                  const qn_gemm_target *target)
{
  const sliced_settings *s = variant->settings;
  const char *why = refuses_products(problem, target);
  if (why) return why;
  if (problem->precision == QN_GEMM_TF32X3 && s->tile_n == 128) return "two words of tf32 overflow its registers";
  if (target->device.kind != QN_CUDA && s->tile_m != 32)
    return "on the host the tile of 32 by 32 stands for the others";
  return NULL;
}

static qn_status run_sliced(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_call *call)
{
  const sliced_settings *s = variant->settings;
  const qn_gemm_args *a = &problem->args;
  const uint64_t blocks = (uint64_t)blocks_of(problem, s->tile_m, s->tile_n);
  const uint32_t ahead = problem->precision == QN_GEMM_TF32X3 && s->ahead > 1 ? s->ahead / 2 : s->ahead; /* registers */
  char more[MORE];
  const qn_device_function *function;
  snprintf(more, sizeof more,
           "QN_GEMM_COLUMNS=%d QN_GEMM_LOOSE=%d QN_GEMM_TILE_M=%u QN_GEMM_TILE_N=%u QN_GEMM_AHEAD=%u", width(problem),
           loose(problem), s->tile_m, s->tile_n, ahead);
  qn_try(qn_gemm_function(problem, call, "op/gemm_norm/gemm.sliced.cu", "gemm_sliced", more, &function));
  return qn_gemm_launch(call, function, blocks, SLICED_THREADS,
                        SLICED_THREADS / 32 * s->tile_m * (s->tile_n + 8) * WORD, a, sizeof *a);
}

static double guess_sliced(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  const sliced_settings *s = variant->settings;
  return tiles_us(problem, target, blocks_of(problem, s->tile_m, s->tile_n), places_of(target),
                  s->times[problem->precision], s->share);
}

#define SLICED(m, n)                                                                                                   \
  .precisions = 1u << QN_GEMM_TF32 | 1u << QN_GEMM_BF16X3 | 1u << QN_GEMM_TF32X3 | 1u << QN_GEMM_BF16, .width = (n),   \
  .step = SLICED_STEP, .settings = &sliced_##m##_##n, .refuses = refuses_sliced, .run = run_sliced,                    \
  .guess_us = guess_sliced

/* By class: tf32, bf16x3, tf32x3, bf16. */
static const sliced_settings
    sliced_32_32 = {32, 32, 4, 0, {{0, 0}, {1.87, 4.59}, {2.17, 4.01}, {2.03, 6.8}, {1.73, 2.27}}},
    sliced_16_32 = {16, 32, 2, 0.603, {{0, 0}, {0.892, 4.15}, {0.842, 4.36}, {1.05, 7.59}, {0.976, 3.42}}},
    sliced_16_64 = {16, 64, 2, 0, {{0, 0}, {1.39, 5.25}, {1.61, 4.63}, {1.67, 10.3}, {1.35, 3.46}}},
    sliced_16_128 = {16, 128, 1, 0, {{0, 0}, {1.68, 8.85}, {2.03, 8.38}, {0, 0}, {1.47, 6.68}}};
const qn_gemm_variant qn_gemm_sliced[] = {
    {.name = "sliced-32x32", SLICED(32, 32)},
    {.name = "sliced-16x32", SLICED(16, 32)},
    {.name = "sliced-16x64", SLICED(16, 64)},
    {.name = "sliced-16x128", SLICED(16, 128)},
    {.name = NULL},
};

/* ---- gemm.mma.cu ---- */

enum {
  MMA_STEP = 64,
  MMA_TILE = 128,
  MMA_CHUNK = 32,
  MMA_STAGES = 3,
  MMA_SHARED = MMA_STAGES * 2 * MMA_TILE * MMA_CHUNK * WORD
};

static const char *refuses_mma(const qn_gemm_variant *variant, const qn_gemm_problem *problem,
                               const qn_gemm_target *target)
{
  const char *why = refuses_products(problem, target);
  (void)variant;
  if (why) return why;
  if (target->device.kind == QN_CUDA && target->arch.shared_block_bytes < MMA_SHARED)
    return "a block has too little shared memory";
  return NULL;
}

static qn_status run_mma(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_call *call)
{
  const qn_gemm_args *a = &problem->args;
  char more[MORE];
  const qn_device_function *function;
  (void)variant;
  snprintf(more, sizeof more, "QN_GEMM_COLUMNS=%d QN_GEMM_LOOSE=%d QN_GEMM_STAGES=%d", width(problem), loose(problem),
           MMA_STAGES);
  qn_try(qn_gemm_function(problem, call, "op/gemm_norm/gemm.mma.cu", "gemm_mma", more, &function));
  return qn_gemm_launch(call, function, (uint64_t)blocks_of(problem, MMA_TILE, MMA_TILE), SLICED_THREADS, MMA_SHARED, a,
                        sizeof *a);
}

static double guess_mma(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  static const tile_time times[QN_GEMM_PRECISIONS] = {{0, 0}, {2.22, 49.9}, {2.91, 51.5}, {4.95, 83.5}, {2.5, 31.7}};
  (void)variant;
  return tiles_us(problem, target, blocks_of(problem, MMA_TILE, MMA_TILE), places_of(target), times[problem->precision],
                  1);
}

const qn_gemm_variant qn_gemm_mma[] = {
    {.name = "mma-128x128",
     .precisions = 1u << QN_GEMM_TF32 | 1u << QN_GEMM_BF16X3 | 1u << QN_GEMM_TF32X3 | 1u << QN_GEMM_BF16,
     .width = MMA_TILE,
     .step = MMA_STEP,
     .refuses = refuses_mma,
     .run = run_mma,
     .guess_us = guess_mma},
    {.name = NULL},
};

/* ---- gemm.cores.cu ---- */

enum { CORES_THREADS = 256, CORES_STEP = 64 };

typedef struct cores_settings {
  uint32_t tile_m, tile_n, chunk, stages, down, across;
  tile_time time;
  double share;
  bool host;
} cores_settings;

static uint32_t cores_shared(const cores_settings *s)
{
  const uint32_t slices = CORES_THREADS / 32 / (s->down * s->across);
  const uint32_t stages = s->stages * (s->tile_m + s->tile_n) * (s->chunk + 4) * WORD;
  const uint32_t sums = slices * s->tile_m * (s->tile_n + 8) * WORD;
  return stages > sums ? stages : sums;
}

static const char *refuses_cores(const qn_gemm_variant *variant, const qn_gemm_problem *problem,
                                 const qn_gemm_target *target)
{
  const cores_settings *s = variant->settings;
  if (target->device.kind == QN_CUDA && target->arch.shared_block_bytes < (int64_t)cores_shared(s))
    return "a block has too little shared memory";
  if (target->device.kind != QN_CUDA && !s->host) return "on the host the tile of 16 by 64 stands for the others";
  return refuses_f32(problem);
}

static qn_status run_cores(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_call *call)
{
  const cores_settings *s = variant->settings;
  const qn_gemm_args *a = &problem->args;
  const uint64_t blocks = (uint64_t)blocks_of(problem, s->tile_m, s->tile_n);
  char more[MORE];
  const qn_device_function *function;
  snprintf(more, sizeof more,
           "QN_GEMM_COLUMNS=%d QN_GEMM_LOOSE=%d QN_GEMM_TILE_M=%u QN_GEMM_TILE_N=%u QN_GEMM_CHUNK=%u QN_GEMM_STAGES=%u "
           "QN_GEMM_DOWN=%u "
           "QN_GEMM_ACROSS=%u",
           width(problem), loose(problem), s->tile_m, s->tile_n, s->chunk, s->stages, s->down, s->across);
  qn_try(qn_gemm_function(problem, call, "op/gemm_norm/gemm.cores.cu", "gemm_cores", more, &function));
  return qn_gemm_launch(call, function, blocks, CORES_THREADS, cores_shared(s), a, sizeof *a);
}

static double guess_cores(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  const cores_settings *s = variant->settings;
  return tiles_us(problem, target, blocks_of(problem, s->tile_m, s->tile_n), places_of(target), s->time, s->share);
}

#define CORES(m, n)                                                                                                    \
  .precisions = 1u << QN_GEMM_FP32, .width = (n), .step = CORES_STEP, .settings = &cores_##m##_##n,                    \
  .refuses = refuses_cores, .run = run_cores, .guess_us = guess_cores

static const cores_settings cores_128_128 = {128, 128, 32, 3, 4, 2, {3.52, 97.7}, 0, false},
                            cores_16_64 = {16, 64, 64, 4, 1, 1, {1.6, 11.3}, 0.665, true};
const qn_gemm_variant qn_gemm_cores[] = {
    {.name = "cores-128x128", CORES(128, 128)},
    {.name = "cores-16x64", CORES(16, 64)},
    {.name = NULL},
};

/* ---- gemm.rows.cu ---- */

enum { ROWS_THREADS = 256, ROWS_STEP = 1024, ROWS_MOST = 8, ROWS_TILE = 8, FEW = 64 };

static const char *refuses_rows(const qn_gemm_variant *variant, const qn_gemm_problem *problem,
                                const qn_gemm_target *target)
{
  (void)variant, (void)target;
  if (problem->args.m > FEW) return "it reads w once for each 8 rows of x, and these are more than 64";
  return problem->args.k ? NULL : "k is 0";
}

/* Rows of x of a block: the power of two from m on, up to 8. */
static int rows_of(const qn_gemm_problem *problem)
{
  int rows = 1;
  while (rows < ROWS_MOST && rows < problem->args.m) rows *= 2;
  return rows;
}

static qn_status run_rows(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_call *call)
{
  const qn_gemm_args *a = &problem->args;
  const int rows = rows_of(problem);
  qn_gemm_problem any = *problem;
  char more[MORE];
  const qn_device_function *function;
  (void)variant;
  any.precision = QN_GEMM_FP32; /* one kernel serves all classes */
  snprintf(more, sizeof more,
           "QN_GEMM_COLUMNS=%d QN_GEMM_LOOSE=%d QN_GEMM_TILE_M=%d QN_GEMM_STRIP=4 QN_GEMM_ALIGNED=%d", width(problem),
           loose(problem), rows, qn_gemm_rows_aligned(problem));
  qn_try(qn_gemm_function(&any, call, "op/gemm_norm/gemm.rows.cu", "gemm_rows", more, &function));
  return qn_gemm_launch(call, function, (uint64_t)blocks_of(problem, rows, ROWS_TILE), ROWS_THREADS, 0, a, sizeof *a);
}

static double guess_rows(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  /* By type, whether a tile has 8 rows, and alignment. */
  static const struct {
    tile_time time;
    double share;
  } guess[2][2][2] = {
      {{{{2.35, 2.54}, 0.143}, {{1.06, 2.69}, 0.01}}, {{{1.89, 5.66}, 0.286}, {{1.77, 5.41}, 0.282}}},
      {{{{0.969, 1.05}, 0.623}, {{0.642, 0.892}, 0.303}}, {{{1.65, 3.12}, 0.479}, {{0.954, 1.07}, 0.568}}}};
  const int many = rows_of(problem) == ROWS_MOST, aligned = qn_gemm_rows_aligned(problem),
            is_short = problem->short_data;
  (void)variant;
  return tiles_us(problem, target, blocks_of(problem, rows_of(problem), ROWS_TILE), places_of(target),
                  guess[is_short][many][aligned].time, guess[is_short][many][aligned].share);
}

const qn_gemm_variant qn_gemm_rows[] = {
    {.name = "rows-8",
     .precisions = (1u << QN_GEMM_PRECISIONS) - 1,
     .looseness = 2, /* f32 is tighter than any class */
     .width = ROWS_TILE,
     .step = ROWS_STEP,
     .any_rows = true,
     .refuses = refuses_rows,
     .run = run_rows,
     .guess_us = guess_rows},
    {.name = NULL},
};
