/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - what surrounds a variant's product so that every variant serves every problem: rows copied to aligned ones
 * before it (gemm.align.cu), slices of k in it, and behind it the kernel that adds these and does the epilogue
 * (gemm.epilogue.cu). How many slices is the least guessed time. The workspace holds z, then the rows, then what the
 * variant asks for. */
#include "core/core.h"
#include "op/gemm_norm/gemm.h"
#include <stdio.h>

enum {
  THREADS = 256,
  LANES = 32,
  ITEMS_MOST = 8,
  PART = 16,
  LINE = 8 /* parts */,
  WORD = 4,
  HOST_DEPTH = 256,
  HOST_SLICES = 3,
  BEST = 256
};

/* An H200's, in microseconds and bytes a microsecond: what a kernel behind another costs beside its work. */
static const double launch_us = 1.4, l2_rate = 3.5e6, memory_rate = 3.5e6;

typedef struct plan {
  qn_gemm_problem inner; /* the variant's own */
  qn_gemm_z_args z;      /* of the kernel behind it */
  bool aligns, finishes; /* rows are copied before; that kernel runs */
  size_t z_bytes, row_bytes;
} plan;

static int64_t pieces(int64_t n, int64_t of) { return (n + of - 1) / of; }
static size_t rounded(size_t bytes) { return (bytes + BEST - 1) / BEST * BEST; }
static bool aligned(const void *p, int to) { return (uintptr_t)p % (unsigned)to == 0; }
static bool normed(const qn_gemm_problem *p) { return qn_gemm_norm_of(p->flags) != QN_GEMM_NO_NORM; }
static int64_t part_of(const qn_gemm_problem *p) { return PART / (p->short_data ? 2 : 4); } /* elements */

static bool vectors_aligned(const qn_gemm_args *a)
{
  return aligned(a->bias, PART) && aligned(a->bias2, PART) && aligned(a->gamma, PART) && aligned(a->beta, PART);
}

/* Can y be written four columns at once, and the vectors read so? */
static bool in_fours(const qn_gemm_problem *p)
{
  const qn_gemm_args *a = &p->args;
  return a->n % WORD == 0 && aligned(a->y, p->short_data ? PART / 2 : PART) && vectors_aligned(a);
}

/* Does a tile of the variant hold the norm's groups whole? */
static bool holds(const qn_gemm_variant *v, const qn_gemm_problem *p)
{
  const int64_t columns = p->args.columns;
  if (!v->width || !in_fours(p)) return false;
  return !normed(p) || (columns >= WORD && columns <= v->width && (columns & (columns - 1)) == 0);
}

static bool copies_rows(const qn_gemm_variant *v, const qn_gemm_problem *p)
{
  const qn_gemm_args *a = &p->args;
  return !v->any_rows && (a->k % part_of(p) || !aligned(a->x, PART) || !aligned(a->w, PART));
}

/* As many of so many columns as make up k, without an empty one. */
static void cut(const qn_gemm_variant *v, qn_gemm_args *a, int64_t slices)
{
  const int64_t steps = v->step ? pieces(a->k, v->step) : 1;
  const int64_t wanted = slices < 1 ? 1 : slices < steps ? slices : steps;
  a->slice_k = wanted > 1 ? pieces(steps, wanted) * v->step : a->k;
  a->slices = wanted > 1 ? pieces(a->k, a->slice_k) : 1;
}

static plan plan_of(qn_gemm_choice choice, const qn_gemm_problem *problem)
{
  const qn_gemm_variant *v = choice.variant;
  plan p = {.inner = *problem, .aligns = copies_rows(v, problem)};
  qn_gemm_args *a = &p.inner.args;
  a->row = a->k;
  a->pitch = a->n;
  if (p.aligns) {
    a->row = a->k = pieces(a->k, LINE * part_of(problem)) * LINE * part_of(problem);
    p.row_bytes = rounded((size_t)(a->m + a->n) * (size_t)a->row * (problem->short_data ? 2 : 4));
  }
  cut(v, a, choice.slices);
  p.inner.raw = a->slices > 1 || !(v->writes_y ? problem->flags == 0 : holds(v, problem));
  if (!p.inner.raw) return p;
  if (v->width) a->pitch = pieces(a->n, WORD) * WORD;
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
 * to a simdgroup; else the block. */
static uint32_t team_of(int64_t packs, int64_t each)
{
  uint32_t team = 1;
  if (packs > LANES * 8) return THREADS;
  while (team < LANES && team * each < packs) team *= 2;
  return team;
}

/* Packs of a group that a thread holds, in powers of two so that few kernels are compiled; 0: too many. */
static uint32_t items_of(int64_t packs, uint32_t team, int64_t most)
{
  uint32_t items = 1;
  while (items <= most && (int64_t)items * team < packs) items *= 2;
  return items > most ? 0 : items;
}

static qn_status finish(const plan *p, const qn_gemm_problem *problem, const qn_gemm_call *call)
{
  const qn_gemm_args *a = &problem->args;
  const bool norms = normed(problem);
  const int64_t each = in_fours(problem) && a->columns % WORD == 0 && p->z.pitch % WORD == 0 ? WORD : 1;
  const int64_t packs = a->columns / each;
  const uint32_t team = norms ? team_of(packs, each == WORD ? 2 : 4) : 1;
  const uint64_t n = (uint64_t)a->m * (uint64_t)(norms ? a->n / a->columns * team : a->n / each);
  const qn_device_function *function;
  const bool near = problem->precision != QN_GEMM_FP32 && problem->precision != QN_GEMM_TF32X3;
  char more[128];
  qn_gemm_problem any = *problem;
  any.precision = QN_GEMM_FP32; /* one kernel for all classes, but for the activation's words */
  snprintf(more, sizeof more, "QN_GEMM_TEAM=%u QN_GEMM_ITEMS=%u QN_GEMM_PACK=%d%s", team,
           norms ? items_of(packs, team, ITEMS_MOST * (WORD / each)) : 1, (int)each, near ? " QN_ACTIVATION_NEAR" : "");
  qn_try(qn_gemm_function(&any, call, "op/gemm_norm/gemm.epilogue.cu", "gemm_epilogue", more, &function));
  return qn_gemm_launch(call, function, (n + THREADS - 1) / THREADS, THREADS, 0, &p->z, sizeof p->z);
}

qn_status qn_gemm_choice_run(qn_gemm_choice choice, const qn_gemm_problem *problem, const qn_gemm_call *call)
{
  plan p = plan_of(choice, problem);
  qn_gemm_call own = *call;
  place(&p, problem, call->workspace);
  if (call->workspace) own.workspace = (char *)call->workspace + p.z_bytes + p.row_bytes;
  if (p.aligns) qn_try(align(&p, problem, call));
  own.early = p.aligns;
  qn_try(choice.variant->run(choice.variant, &p.inner, &own));
  own.early = true;
  return p.finishes ? finish(&p, problem, &own) : QN_OK;
}

size_t qn_gemm_choice_bytes(qn_gemm_choice choice, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  const qn_gemm_variant *v = choice.variant;
  const plan p = plan_of(choice, problem);
  return p.z_bytes + p.row_bytes + (v->workspace_bytes ? v->workspace_bytes(v, &p.inner, target) : 0);
}

/* ---- what it takes ---- */

double qn_gemm_memory_us(const qn_gemm_target *target, double bytes, double in_all)
{
  return bytes / (in_all < 0.7 * (double)target->arch.l2_bytes ? l2_rate : memory_rate);
}

static double guess(qn_gemm_choice choice, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  const qn_gemm_variant *v = choice.variant;
  const plan p = plan_of(choice, problem);
  const qn_gemm_args *a = &p.inner.args;
  const double of_y = (double)a->m * (double)a->n * 4, of_rows = (double)(a->m + a->n) * (double)a->k * 4;
  double us = v->guess_us(v, &p.inner, target);
  if (p.aligns) us += launch_us + qn_gemm_memory_us(target, 2 * of_rows, 2 * of_rows);
  if (p.finishes)
    us += launch_us + 0.02 * (double)a->slices +
          qn_gemm_memory_us(target, of_y * (double)(a->slices + 1), of_y * (double)(a->slices + 1));
  return us;
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
  choice->slices = plan_of(*choice, problem).inner.args.slices; /* k may not be cut into so many */
  return guess(*choice, problem, target);
}
