/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - what surrounds a variant's product so that every variant serves every problem: rows copied to aligned ones
 * before it (gemm.align.cu), slices of k in it, and behind it the kernel that adds these and does the epilogue
 * (gemm.epilogue.cu). How many slices is the least guessed time. The workspace holds z, then the rows, then what the
 * variant asks for. */
#include "core/core.h"
#include "op/gemm_norm/gemm.h"
#include <math.h>
#include <stdio.h>

enum {
  THREADS = 256,
  LEAST_THREADS = 64,
  NARROW_MOST = 14, /* columns of a group of which a thread takes several */
  WIDE_THREADS = 1024,
  MOST_THREADS = 2048, /* of a multiprocessor; registers leave half of them */
  LANES = 32,
  COLUMNS_MOST = 32,      /* of a thread */
  LARGE_COLUMNS_MOST = 8, /* of one of a large block that takes them one by one: it has fewer registers */
  LARGE_PACKS_MOST = 4,   /* or in packs */
  PART = 16,
  LINE = 8 /* parts */,
  WORD = 4,
  HOST_DEPTH = 256,
  HOST_SLICES = 6,
  BEST = 256
};

/* An H200's, in microseconds and bytes a microsecond, fitted to some 5,000 times of 280 random problems: what rows are
 * copied in beside their bytes; and of the epilogue its beginning, the reads of a slice, one by one or four together,
 * what a thread of a norm takes for a column, and what meeting all threads of a block takes. */
static const double align_us = 0.353, finish_us = 0.344, slice_us[] = {0.195, 0.064}, column_us = 0.084, meet_us = 0.81;
static const double l2_rate = 2.7e6, memory_rate = 3.1e6;

typedef struct plan {
  qn_gemm_problem inner; /* the variant's own */
  qn_gemm_z_args z;      /* of the kernel behind it */
  bool aligns, finishes; /* rows are copied before; that kernel runs */
  size_t z_bytes, row_bytes;
} plan;

static size_t rounded(size_t bytes) { return (bytes + BEST - 1) / BEST * BEST; }
static bool aligned(const void *p, int to) { return (uintptr_t)p % (unsigned)to == 0; }
static int64_t part_of(const qn_gemm_problem *p) { return PART / (p->short_data ? 2 : 4); } /* elements */

static bool vectors_aligned(const qn_gemm_args *a)
{
  return aligned(a->bias, PART) && aligned(a->bias2, PART) && aligned(a->gamma, PART) && aligned(a->beta, PART);
}

bool qn_gemm_in_fours(const qn_gemm_problem *p)
{
  const qn_gemm_args *a = &p->args;
  return a->n % WORD == 0 && aligned(a->y, p->short_data ? PART / 2 : PART) && vectors_aligned(a);
}

/* Does a tile of the variant hold the norm's groups whole? */
static bool holds(const qn_gemm_variant *v, const qn_gemm_problem *p)
{
  const int64_t columns = p->args.columns;
  if (!v->width) return false;
  return !qn_gemm_is_normed(p) || (columns >= WORD && columns <= v->width && (columns & (columns - 1)) == 0);
}

bool qn_gemm_rows_aligned(const qn_gemm_problem *p)
{
  const qn_gemm_args *a = &p->args;
  return a->k % part_of(p) == 0 && aligned(a->x, PART) && aligned(a->w, PART);
}

/* As many of so many columns as make up k, without an empty one. */
static void cut(const qn_gemm_variant *v, qn_gemm_args *a, int64_t slices)
{
  const int64_t steps = v->step ? qn_gemm_pieces(a->k, v->step) : 1;
  const int64_t wanted = slices < 1 ? 1 : slices < steps ? slices : steps;
  a->slice_k = wanted > 1 ? qn_gemm_pieces(steps, wanted) * v->step : a->k;
  a->slices = wanted > 1 ? qn_gemm_pieces(a->k, a->slice_k) : 1;
}

/* The class by which a variant computes the problem. */
static int words_of(const qn_gemm_variant *v, const qn_gemm_problem *inner, const qn_gemm_target *target)
{
  if (inner->precision != QN_GEMM_F16X3) return inner->precision;
  const bool has = v->precisions >> QN_GEMM_F16X3 & 1;
  return has && (!v->f16_pays || v->f16_pays(v, inner, target)) ? QN_GEMM_F16X3 : QN_GEMM_TF32X3;
}

static plan plan_of(qn_gemm_choice choice, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  const qn_gemm_variant *v = choice.variant;
  plan p = {.inner = *problem, .aligns = !v->any_rows && !qn_gemm_rows_aligned(problem)};
  qn_gemm_args *a = &p.inner.args;
  a->row = a->k;
  a->pitch = a->n;
  if (p.aligns) {
    a->row = a->k = qn_gemm_pieces(a->k, LINE * part_of(problem)) * LINE * part_of(problem);
    p.row_bytes = rounded((size_t)(a->m + a->n) * (size_t)a->row * (problem->short_data ? 2 : 4));
  }
  cut(v, a, choice.slices);
  p.inner.precision = words_of(v, &p.inner, target);
  p.inner.raw = !v->whole && (a->slices > 1 || !(v->writes_y ? problem->flags == 0 : holds(v, problem)));
  if (!p.inner.raw) return p;
  if (v->width) a->pitch = qn_gemm_pieces(a->n, WORD) * WORD;
  a->slice = a->m * a->pitch;
  a->columns = a->n;
  a->bias = a->bias2 = a->gamma = a->beta = NULL;
  p.inner.flags = 0;
  const bool in_y = !problem->short_data && a->slices == 1 && a->pitch == a->n && (!v->width || aligned(a->y, PART));
  if (!in_y) p.z_bytes = rounded((size_t)a->slices * (size_t)a->slice * sizeof(float));
  p.finishes = !in_y || problem->flags;
  return p;
}

static void place(plan *p, const qn_gemm_problem *problem, char *workspace)
{
  qn_gemm_args *a = &p->inner.args;
  if (p->z_bytes) a->y = workspace;
  if (p->aligns && workspace) {
    a->x = workspace + p->z_bytes;
    a->w = workspace + p->z_bytes + (size_t)a->m * (size_t)a->row * (problem->short_data ? 2 : 4);
  }
  p->z = (qn_gemm_z_args){problem->args, a->y, a->pitch, a->slice, a->slices};
}

/* Are all batches one launch of the variant, with nothing before or behind it? */
static bool together(const qn_gemm_variant *v, const plan *p)
{
  return qn_gemm_batches(&p->inner) == 1 || (v->batches && !p->aligns && !p->finishes && p->inner.args.slices == 1);
}

/* The k-th of a problem's batches, alone. */
static qn_gemm_problem batch_of(const qn_gemm_problem *problem, int64_t k)
{
  const qn_gemm_args *a = &problem->args;
  const int64_t bytes = problem->short_data ? 2 : 4;
  qn_gemm_problem one = *problem;
  one.batches = 1;
  one.args.x = (const char *)a->x + k * a->m * a->k * bytes;
  one.args.w = (const char *)a->w + k * a->n * a->k * bytes;
  one.args.y = (char *)a->y + k * a->m * a->n * bytes;
  return one;
}

/* ---- the kernels before and behind ---- */

static qn_status align(const plan *p, const qn_gemm_problem *problem, const qn_gemm_call *call)
{
  const qn_gemm_args *a = &problem->args;
  const qn_gemm_align_args argument = {
      a->x, a->w, (void *)(uintptr_t)p->inner.args.x, a->m, a->n, a->k, p->inner.args.row};
  const uint64_t parts = (uint64_t)(a->m + a->n) * (uint64_t)(argument.row / part_of(problem));
  const qn_gemm_problem any = {.short_data = problem->short_data}; /* one kernel serves all */
  const qn_device_function *function;
  qn_try(qn_gemm_function(&any, call, "op/gemm_norm/gemm.align.cu", "gemm_align", "", &function));
  return qn_gemm_launch(call, function, (parts + THREADS - 1) / THREADS, THREADS, 0, &argument, sizeof argument);
}

/* Threads that take a group of so many packs, `each` of which a thread has where there are so many: a power of two, up
 * to a simdgroup; else the block. A thread of a simdgroup has up to `most` of them. */
static uint32_t team_of(int64_t packs, int64_t each, int64_t most, uint32_t block)
{
  uint32_t team = 1;
  if (packs > LANES * most) return block;
  while (team < LANES && team * each < packs) team *= 2;
  return team;
}

/* Packs of a group that a thread holds, in steps so that few kernels are compiled, of which two thirds are no more than
 * the step before (epilogue.h); 0: too many. */
static uint32_t items_of(int64_t packs, uint32_t team, uint32_t most)
{
  static const uint32_t steps[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
  for (size_t k = 0; k < sizeof steps / sizeof *steps && steps[k] <= most; k++)
    if ((int64_t)steps[k] * team >= packs) return steps[k];
  return 0;
}

/* Of the epilogue of sums in memory, by blocks of so many threads. */
typedef struct shape {
  uint32_t block, team, items;
  int64_t each;   /* columns of a pack */
  bool loose;     /* but y's rows and the vectors are not aligned for packs */
  int64_t groups; /* of a thread */
  int64_t teams;
} shape;

/* Neighbouring groups of a few columns that make up whole packs of a row of them, and that registers hold; 1: there are
 * none. */
static int64_t groups_of(const qn_gemm_args *a)
{
  const int64_t all = a->n / a->columns;
  if (a->columns % WORD == 0 || a->columns > NARROW_MOST) return 1;
  return all % 4 == 0 && a->columns <= NARROW_MOST / 2 ? 4 : all % 2 == 0 && a->columns % 2 == 0 ? 2 : 1;
}

/* Of rows of sums `pitch` apart, which may be read in packs or not. Where there are `many` groups a thread takes more
 * columns of them, as fewer threads then wait for each other; `most`: what its registers hold of a group that is a
 * block's. */
static shape shape_of(const qn_gemm_problem *problem, int64_t pitch, bool packs_may, uint32_t block, bool many,
                      int64_t most)
{
  const qn_gemm_args *a = &problem->args;
  const bool normed = qn_gemm_is_normed(problem), in_fours = qn_gemm_in_fours(problem);
  const bool in_rows = packs_may && pitch % WORD == 0 && (normed || in_fours);
  const bool in_packs = in_rows && (a->columns % WORD == 0 || a->columns == a->n);
  shape s = {.block = block, .team = 1, .items = 1, .each = in_packs ? WORD : 1, .groups = 1};
  s.loose = in_packs && !in_fours;
  s.teams = a->m * qn_gemm_pieces(a->n, s.each);
  if (!normed) return s;
  if (in_rows && many && in_fours && groups_of(a) > 1) {
    s.groups = groups_of(a);
    s.each = WORD;
    s.items = (uint32_t)(s.groups * a->columns / WORD);
    s.teams = a->m * (a->n / a->columns / s.groups);
    return s;
  }
  const int64_t packs = qn_gemm_pieces(a->columns, s.each), few = many ? 8 : 4; /* columns taken one by one */
  const int64_t of_lane = in_packs ? (many ? 8 : 4) : (many ? 32 : 8);
  s.team = team_of(packs, in_packs ? 2 : few, of_lane, block);
  s.items = items_of(packs, s.team, (uint32_t)(s.team <= LANES ? of_lane : most / s.each));
  s.teams = a->m * (a->n / a->columns);
  return s;
}

/* Where there are many groups, the smallest block whose registers hold a group that is too wide for a simdgroup: its
 * threads wait for each other. Else a larger one where a group is too wide for 256 threads, and where there are fewer
 * groups than places for them. */
static shape finish_shape(const plan *p, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  const qn_gemm_args *a = &problem->args;
  const int64_t places = target->arch.multiprocessors > 0 ? target->arch.multiprocessors : 1;
  const bool many = a->m * (a->n / a->columns) >= THREADS / LANES * places;
  const bool in_packs = (many || a->columns > LARGE_COLUMNS_MOST * WIDE_THREADS || qn_gemm_in_fours(problem)) &&
                        (p->z_bytes || aligned(a->y, PART));
  shape usual = shape_of(problem, p->z.pitch, in_packs, many ? LEAST_THREADS : THREADS, many, COLUMNS_MOST);
  while (!usual.items && usual.block < THREADS)
    usual = shape_of(problem, p->z.pitch, in_packs, 2 * usual.block, many, COLUMNS_MOST);
  const shape wide = shape_of(problem, p->z.pitch, in_packs, WIDE_THREADS, false,
                              usual.each == WORD ? LARGE_PACKS_MOST * WORD : LARGE_COLUMNS_MOST);
  const bool few = usual.teams <= places && usual.items * usual.each > WORD;
  if (usual.team <= LANES) usual.block = THREADS;
  return usual.team == THREADS && (!usual.items || few) ? wide : usual;
}

static void shape_text(const qn_gemm_problem *problem, shape s, char *text, size_t size)
{
  snprintf(text, size, "QN_GEMM_TEAM=%u QN_GEMM_ITEMS=%u QN_GEMM_PACK=%d QN_GEMM_LOOSE=%d QN_GEMM_GROUPS=%d%s", s.team,
           s.items, (int)s.each, s.loose, (int)s.groups, qn_gemm_is_near(problem) ? " QN_ACTIVATION_NEAR" : "");
}

/* Of sums in shared memory. */
static shape whole_shape(const qn_gemm_problem *problem, int64_t pitch)
{
  return shape_of(problem, pitch, qn_gemm_in_fours(problem), THREADS, false, COLUMNS_MOST / 2);
}

void qn_gemm_epilogue_text(const qn_gemm_problem *problem, int64_t pitch, char *text, size_t size)
{
  shape_text(problem, whole_shape(problem, pitch), text, size);
}

static qn_status finish(const plan *p, const qn_gemm_problem *problem, const qn_gemm_call *call)
{
  const shape s = finish_shape(p, problem, call->target);
  const uint64_t n = (uint64_t)s.teams * s.team;
  const qn_device_function *function;
  char text[128], more[160];
  qn_gemm_problem any = *problem;
  any.precision = QN_GEMM_FP32; /* one kernel for all classes, but for the activation's words */
  shape_text(problem, s, text, sizeof text);
  snprintf(more, sizeof more, "%s QN_GEMM_THREADS=%u", text, s.block);
  qn_try(qn_gemm_function(&any, call, "op/gemm_norm/gemm.epilogue.cu", "gemm_epilogue", more, &function));
  return qn_gemm_launch(call, function, (n + s.block - 1) / s.block, s.block, 0, &p->z, sizeof p->z);
}

static qn_status run_plan(plan p, qn_gemm_choice choice, const qn_gemm_problem *problem, const qn_gemm_call *call)
{
  qn_gemm_call own = *call;
  place(&p, problem, call->workspace);
  if (call->workspace) own.workspace = (char *)call->workspace + p.z_bytes + p.row_bytes;
  if (p.aligns) qn_try(align(&p, problem, call));
  own.early = p.aligns;
  qn_try(choice.variant->run(choice.variant, &p.inner, &own));
  own.early = true;
  return p.finishes ? finish(&p, problem, &own) : QN_OK;
}

qn_status qn_gemm_choice_run(qn_gemm_choice choice, const qn_gemm_problem *problem, const qn_gemm_call *call)
{
  const plan p = plan_of(choice, problem, call->target);
  if (together(choice.variant, &p)) return run_plan(p, choice, problem, call);
  for (int64_t k = 0; k < problem->batches; k++) {
    const qn_gemm_problem one = batch_of(problem, k);
    qn_try(run_plan(plan_of(choice, &one, call->target), choice, &one, call));
  }
  return QN_OK;
}

size_t qn_gemm_choice_bytes(qn_gemm_choice choice, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  const qn_gemm_variant *v = choice.variant;
  plan p = plan_of(choice, problem, target);
  if (!together(v, &p)) p.inner.batches = 1;
  return p.z_bytes + p.row_bytes + (v->workspace_bytes ? v->workspace_bytes(v, &p.inner, target) : 0);
}

/* ---- what it takes ---- */

double qn_gemm_bytes(const qn_gemm_problem *problem)
{
  const qn_gemm_args *a = &problem->args;
  const double m = (double)a->m, n = (double)a->n, k = (double)a->k;
  const double each = (m + n) * k * (problem->short_data ? 2 : 4) + m * n * (double)a->slices * 4;
  return each * (double)qn_gemm_batches(problem);
}

double qn_gemm_memory_us(const qn_gemm_target *target, double bytes, double in_all)
{
  return bytes / (in_all < 0.7 * (double)target->arch.l2_bytes ? l2_rate : memory_rate);
}

/* The columns that a thread of the norm has, one after the other. */
static double columns_of(shape s, int64_t columns)
{
  return (double)(s.items ? s.items * s.each : qn_gemm_pieces(columns, s.team));
}

double qn_gemm_epilogue_us(const qn_gemm_problem *problem, int64_t pitch)
{
  return qn_gemm_is_normed(problem) ? column_us * columns_of(whole_shape(problem, pitch), problem->args.columns) : 0;
}

static double finish_guess(const plan *p, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  const qn_gemm_args *a = &problem->args;
  const shape s = finish_shape(p, problem, target);
  const int64_t slices = p->inner.args.slices, each = MOST_THREADS / 2 / s.block;
  const int64_t places = (target->arch.multiprocessors > 0 ? target->arch.multiprocessors : 1) * each;
  const double bytes = (double)a->m * (double)a->n * 4 * (double)(slices + 1);
  const double rounds = (double)qn_gemm_pieces(qn_gemm_pieces(s.teams * s.team, s.block), places);
  const double work =
      qn_gemm_is_normed(problem) ? column_us * columns_of(s, a->columns) + (s.team > LANES ? meet_us : 0) : 0;
  const bool early = s.items && s.items * s.each <= (s.block > THREADS ? WORD : 2 * WORD); /* as in epilogue.h */
  return finish_us + slice_us[early] * (double)slices + fmax(rounds * work, qn_gemm_memory_us(target, bytes, bytes));
}

static double guess(qn_gemm_choice choice, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  const qn_gemm_variant *v = choice.variant;
  plan p = plan_of(choice, problem, target);
  const qn_gemm_args *a = &p.inner.args;
  const double of_rows = (double)(a->m + a->n) * (double)a->k * (problem->short_data ? 4 : 8);
  const int64_t times = together(v, &p) ? 1 : problem->batches;
  if (times > 1) p.inner.batches = 1;
  double us = v->guess_us(v, &p.inner, target);
  p.z.pitch = a->pitch;
  if (p.aligns) us += align_us + qn_gemm_memory_us(target, of_rows, of_rows);
  return (double)times * (p.finishes ? us + finish_guess(&p, problem, target) : us);
}

/* The number of slices whose guessed time is least. */
static int64_t best_slices(const qn_gemm_variant *v, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  static const int64_t counts[] = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
  if (target->device.kind != QN_CUDA) /* so that checks see slices */
    return v->step && problem->args.k > HOST_DEPTH ? HOST_SLICES : 1;
  qn_gemm_choice best = {v, 1};
  double least = guess(best, problem, target);
  for (size_t k = 0; k < sizeof counts / sizeof *counts && v->step && counts[k] * v->step <= problem->args.k; k++) {
    const qn_gemm_choice other = {v, counts[k]};
    const double us = guess(other, problem, target);
    if (us < least) best = other, least = us;
  }
  return best.slices;
}

double qn_gemm_choice_guess(qn_gemm_choice *choice, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  if (!choice->slices) choice->slices = best_slices(choice->variant, problem, target);
  choice->slices = plan_of(*choice, problem, target).inner.args.slices; /* k may not be cut into so many */
  return guess(*choice, problem, target);
}
