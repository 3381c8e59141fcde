/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.device.c - the variants whose one kernel does product and epilogue: on Hopper's own instructions
 * (gemm.hopper.cu), and by mma.sync in large tiles (gemm.mma.cu) and small ones (gemm.sliced.cu). Here stands which
 * problems each can serve, its launch, and how long it is thought to take; the constants of those guesses are an
 * H200's, of probes that are not kept. */
#include "core/core.h"
#include "device/cuda/tensor_map.h"
#include "op/gemm/gemm.h"
#include "op/gemm/hopper.h"
#include "op/gemm/split.h"
#include <stdio.h>

enum { WORD = 4, ALIGNED = 16, SPLIT_THREADS = 256 };

static int64_t pieces(int64_t n, int64_t of) { return (n + of - 1) / of; }
static double larger(double a, double b) { return a > b ? a : b; }
static bool aligned(const void *p) { return (uintptr_t)p % ALIGNED == 0; }
static bool normed(const qn_gemm_problem *problem) { return qn_gemm_norm_of(problem->flags) != QN_GEMM_NO_NORM; }

/* What kernels that read and write 16 bytes at a time ask of a problem. */
static const char *refuses_vectors(const qn_gemm_problem *problem)
{
  const qn_gemm_args *a = &problem->args;
  if (problem->short_data) return "its tensors are f32";
  if (a->k == 0) return "k is 0";
  if (a->k % WORD || a->n % WORD) return "k and n are multiples of 4";
  if (!aligned(a->x) || !aligned(a->w) || !aligned(a->y)) return "x, w and y are aligned to 16 bytes";
  return NULL;
}

/* The width of a norm's groups that a tile holds whole, and as the kernels take it: 0 is no norm. */
static bool holds(const qn_gemm_problem *problem, int64_t most)
{
  const int64_t columns = problem->args.columns;
  return !normed(problem) || (columns >= WORD && columns <= most && (columns & (columns - 1)) == 0);
}

static int width(const qn_gemm_problem *problem) { return normed(problem) ? (int)problem->args.columns : 0; }

/* ---- gemm.hopper.cu ---- */

enum { TILE_N = 128, CLUSTER = 2, CHUNK = 32, HOPPER_THREADS = 384, HALF_TILE = 64, ALIGNMENT = 1024, FOLD = 8 };

typedef struct hopper_settings {
  uint32_t tile_m, stages;
  double tf32_ns, split_ns; /* a chunk of k takes so long in a tile; 0: no such kernel, which lacks registers */
} hopper_settings;

static bool splits(const qn_gemm_problem *problem) { return problem->precision == QN_GEMM_BF16X3; }

static const char *refuses_hopper(const qn_gemm_variant *variant, const qn_gemm_problem *problem,
                                  const qn_gemm_target *target)
{
  const qn_gemm_args *a = &problem->args;
  const hopper_settings *s = variant->settings;
  if (splits(problem) && s->split_ns == 0) return "its sums fill the registers, and a split class has them twice";
  if (target->device.kind != QN_CUDA || target->arch.capability != 90) return "it is for compute capability 9.0";
  if (!holds(problem, HALF_TILE)) return "its tiles hold groups of 4 to 64 columns, a power of two";
  if (!aligned(a->bias) || !aligned(a->bias2) || !aligned(a->gamma) || !aligned(a->beta))
    return "biases, gamma and beta are aligned to 16 bytes";
  if (a->m > INT32_MAX || a->n > INT32_MAX || a->k > INT32_MAX) return "an extent is above 2^31 - 1";
  return refuses_vectors(problem);
}

static size_t hopper_workspace(const qn_gemm_variant *variant, const qn_gemm_problem *problem,
                               const qn_gemm_target *target)
{
  (void)variant, (void)target;
  if (!splits(problem)) return 0;
  return (size_t)problem->args.m * (size_t)pieces(problem->args.k, CHUNK) * CHUNK * sizeof(uint32_t);
}

static qn_status split(const qn_gemm_problem *problem, const qn_gemm_call *call)
{
  const qn_gemm_args *a = &problem->args;
  const qn_gemm_split_args argument = {
      .x = a->x, .to = call->workspace, .rows = a->m, .columns = a->k, .parts = 2 * pieces(a->k, CHUNK)};
  const uint64_t threads = (uint64_t)a->m * (uint64_t)argument.parts * 4;
  qn_gemm_problem any = {.precision = problem->precision}; /* one kernel serves all epilogues */
  const qn_device_function *function;
  qn_try(qn_gemm_function(&any, call, "op/gemm/gemm.split.cu", "gemm_split", NULL, &function));
  return qn_gemm_launch(call, function, (threads + SPLIT_THREADS - 1) / SPLIT_THREADS, SPLIT_THREADS, 0, &argument,
                        sizeof argument);
}

static qn_status hopper_maps(const qn_gemm_problem *problem, const qn_gemm_call *call, const hopper_settings *s,
                             qn_gemm_hopper_args *argument)
{
  const qn_gemm_args *a = &problem->args;
  const bool apart = splits(problem);
  const qn_matrix_kind kind = apart ? QN_MATRIX_F32 : QN_MATRIX_F32_AS_TF32;
  qn_try(qn_cuda_tensor_map(call->exec->device, kind, a->w, a->n, a->k, TILE_N, &argument->w));
  return qn_cuda_tensor_map(call->exec->device, kind, apart ? call->workspace : a->x, a->m,
                            apart ? (int64_t)argument->chunks * CHUNK : a->k, s->tile_m / CLUSTER, &argument->x);
}

static qn_status run_hopper(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_call *call)
{
  const hopper_settings *s = variant->settings;
  const qn_gemm_args *a = &problem->args;
  const uint32_t shared = s->stages * (TILE_N + s->tile_m) * 128 + 2 * HALF_TILE * HALF_TILE * WORD + 16 * s->stages;
  qn_gemm_hopper_args argument = {
      .of = *a, .chunks = (uint32_t)pieces(a->k, CHUNK), .m_tiles = (uint32_t)pieces(a->m, s->tile_m)};
  char columns[40], tile[40], stages[40], cluster[40], fold[40];
  const qn_device_function *function;
  snprintf(columns, sizeof columns, "QN_GEMM_COLUMNS=%d", width(problem));
  snprintf(tile, sizeof tile, "QN_GEMM_TILE_M=%u", s->tile_m);
  snprintf(stages, sizeof stages, "QN_GEMM_STAGES=%u", s->stages);
  snprintf(cluster, sizeof cluster, "QN_GEMM_CLUSTER=%d", CLUSTER);
  snprintf(fold, sizeof fold, "QN_GEMM_FOLD=%d", FOLD);
  argument.tiles = argument.m_tiles * (uint32_t)pieces(a->n, TILE_N * CLUSTER);
  qn_try(qn_gemm_function(problem, call, "op/gemm/gemm.hopper.cu", "gemm_hopper",
                          (const char *[]){columns, tile, stages, cluster, fold, "QN_GEMM_NEAR", NULL}, &function));
  if (splits(problem)) qn_try(split(problem, call));
  if (call->prepare) return QN_OK;
  qn_try(hopper_maps(problem, call, s, &argument));
  const uint32_t clusters = (uint32_t)call->target->arch.multiprocessors / CLUSTER;
  return qn_gemm_launch(call, function, (clusters < argument.tiles ? clusters : argument.tiles) * CLUSTER,
                        HOPPER_THREADS, shared + ALIGNMENT, &argument, sizeof argument);
}

static double guess_hopper(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  const hopper_settings *s = variant->settings;
  const qn_gemm_args *a = &problem->args;
  const int64_t tiles = pieces(a->m, s->tile_m) * pieces(a->n, TILE_N * CLUSTER);
  const double rounds = (double)pieces(tiles, target->arch.multiprocessors / CLUSTER);
  const double chunk = (splits(problem) ? s->split_ns : s->tf32_ns) * 1e-3;
  const double before = splits(problem) ? 3 + 8e-6 * (double)a->m * (double)a->k / 4 : 0;
  return 5 + before + rounds * (3 + (double)pieces(a->k, CHUNK) * chunk);
}

#define HOPPER(m)                                                                                                      \
  .precisions = 1u << QN_GEMM_TF32 | 1u << QN_GEMM_BF16X3, .settings = &hopper_##m, .refuses = refuses_hopper,         \
  .workspace_bytes = hopper_workspace, .run = run_hopper, .guess_us = guess_hopper

static const hopper_settings hopper_256 = {256, 4, 670, 0}, hopper_128 = {128, 6, 395, 560},
                             hopper_64 = {64, 7, 300, 435};
const qn_gemm_variant qn_gemm_hopper[] = {
    {.name = "wgmma-256x128", HOPPER(256)},
    {.name = "wgmma-128x128", HOPPER(128)},
    {.name = "wgmma-64x128", HOPPER(64)},
    {.name = NULL},
};

/* ---- gemm.sliced.cu ---- */

enum { SLICED_THREADS = 256, SLICED_ARCH = 80, SLICED_MOST_MN = INT32_MAX };

typedef struct sliced_settings {
  uint32_t tile_m, tile_n, ahead;
} sliced_settings;

/* Where there are the words of base/matrix.h: what is slow on the host is their twin, and the split classes have all of
 * it, so that these are enough there. */
static const char *refuses_products(const qn_gemm_problem *problem, const qn_gemm_target *target)
{
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
  if (!holds(problem, s->tile_n)) return "its tile does not hold the norm's groups whole, or they are no power of two";
  return refuses_vectors(problem);
}

static qn_status run_sliced(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_call *call)
{
  const sliced_settings *s = variant->settings;
  const qn_gemm_args *a = &problem->args;
  const uint64_t blocks = (uint64_t)pieces(a->m, s->tile_m) * (uint64_t)pieces(a->n, s->tile_n);
  const uint32_t ahead = problem->precision == QN_GEMM_TF32X3 && s->ahead > 1 ? s->ahead / 2 : s->ahead; /* registers */
  char columns[40], tile_m[40], tile_n[40], aheads[40];
  const qn_device_function *function;
  snprintf(columns, sizeof columns, "QN_GEMM_COLUMNS=%d", width(problem));
  snprintf(tile_m, sizeof tile_m, "QN_GEMM_TILE_M=%u", s->tile_m);
  snprintf(tile_n, sizeof tile_n, "QN_GEMM_TILE_N=%u", s->tile_n);
  snprintf(aheads, sizeof aheads, "QN_GEMM_AHEAD=%u", ahead);
  qn_try(qn_gemm_function(problem, call, "op/gemm/gemm.sliced.cu", "gemm_sliced",
                          (const char *[]){columns, tile_m, tile_n, aheads, NULL}, &function));
  return qn_gemm_launch(call, function, blocks, SLICED_THREADS,
                        SLICED_THREADS / 32 * s->tile_m * (s->tile_n + 8) * WORD, a, sizeof *a);
}

/* Rounds of tiles, each as long as its reads: 8.5 ns for a column of k in 32 by 32; or memory's time for w. On the
 * host what it imitates lane by lane is slower than what it does plainly. */
static double guess_sliced(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  const sliced_settings *s = variant->settings;
  const qn_gemm_args *a = &problem->args;
  const int64_t tiles = pieces(a->m, s->tile_m) * pieces(a->n, s->tile_n);
  const double rounds = (double)pieces(tiles, target->arch.multiprocessors > 0 ? target->arch.multiprocessors : 1);
  const double each = 1 + 8.5e-3 * (double)a->k * (s->tile_m + s->tile_n) / 64;
  const double memory = 4.0 * (double)a->n * (double)a->k / 3.5e6;
  return (target->device.kind == QN_CUDA ? 4 : 1e9) + larger(rounds * each, memory);
}

#define SLICED(m, n)                                                                                                   \
  .precisions = 1u << QN_GEMM_TF32 | 1u << QN_GEMM_BF16X3 | 1u << QN_GEMM_TF32X3 | 1u << QN_GEMM_BF16,                 \
  .settings = &sliced_##m##_##n, .refuses = refuses_sliced, .run = run_sliced, .guess_us = guess_sliced

static const sliced_settings sliced_32_32 = {32, 32, 4}, sliced_16_32 = {16, 32, 2}, sliced_16_64 = {16, 64, 2},
                             sliced_16_128 = {16, 128, 1};
const qn_gemm_variant qn_gemm_sliced[] = {
    {.name = "sliced-32x32", SLICED(32, 32)},
    {.name = "sliced-16x32", SLICED(16, 32)},
    {.name = "sliced-16x64", SLICED(16, 64)},
    {.name = "sliced-16x128", SLICED(16, 128)},
    {.name = NULL},
};

/* ---- gemm.mma.cu ---- */

enum { MMA_TILE = 128, MMA_CHUNK = 32, MMA_STAGES = 3, MMA_SHARED = MMA_STAGES * 2 * MMA_TILE * MMA_CHUNK * WORD };

static const char *refuses_mma(const qn_gemm_variant *variant, const qn_gemm_problem *problem,
                               const qn_gemm_target *target)
{
  const char *why = refuses_products(problem, target);
  (void)variant;
  if (why) return why;
  if (target->device.kind == QN_CUDA && target->arch.shared_block_bytes < MMA_SHARED)
    return "a block has too little shared memory";
  if (!holds(problem, MMA_TILE)) return "its tile holds groups of 4 to 128 columns, a power of two";
  return refuses_vectors(problem);
}

static qn_status run_mma(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_call *call)
{
  const qn_gemm_args *a = &problem->args;
  char columns[40], stages[40];
  const qn_device_function *function;
  (void)variant;
  snprintf(columns, sizeof columns, "QN_GEMM_COLUMNS=%d", width(problem));
  snprintf(stages, sizeof stages, "QN_GEMM_STAGES=%d", MMA_STAGES);
  qn_try(qn_gemm_function(problem, call, "op/gemm/gemm.mma.cu", "gemm_mma", (const char *[]){columns, stages, NULL},
                          &function));
  return qn_gemm_launch(call, function, (uint64_t)pieces(a->m, MMA_TILE) * (uint64_t)pieces(a->n, MMA_TILE),
                        SLICED_THREADS, MMA_SHARED, a, sizeof *a);
}

/* Rounds of tiles, each as many chunks of 32 columns of k long, whose microseconds depend on the class. */
static double guess_mma(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  const qn_gemm_args *a = &problem->args;
  const int64_t tiles = pieces(a->m, MMA_TILE) * pieces(a->n, MMA_TILE);
  const double rounds = (double)pieces(tiles, target->arch.multiprocessors > 0 ? target->arch.multiprocessors : 1);
  const double chunk = problem->precision == QN_GEMM_TF32X3 ? 2.8 : 1.75;
  (void)variant;
  return (target->device.kind == QN_CUDA ? 6 : 1e9) + rounds * chunk * (double)pieces(a->k, MMA_CHUNK);
}

const qn_gemm_variant qn_gemm_mma[] = {
    {.name = "mma-128x128",
     .precisions = 1u << QN_GEMM_TF32 | 1u << QN_GEMM_BF16X3 | 1u << QN_GEMM_TF32X3 | 1u << QN_GEMM_BF16,
     .refuses = refuses_mma,
     .run = run_mma,
     .guess_us = guess_mma},
    {.name = NULL},
};
