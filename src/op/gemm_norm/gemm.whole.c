/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.whole.c - the variant for small products: one kernel whose blocks have whole rows of y (gemm.whole.cu). Of small
 * problems the launch of a second kernel takes longer than all the work. */
#include "core/core.h"
#include "op/gemm_norm/gemm.h"
#include <math.h>
#include <stdio.h>

enum { THREADS = 256, SIMDS = 8, ROWS_MOST = 8, SHARED_MOST = 64 * 1024, WORD = 4, LANES = 32 };

/* How a block divides its work. */
typedef struct whole {
  int rows;       /* of x: as few as there are places for */
  int strip;      /* rows of w that a simdgroup takes at once: what registers hold, if all have some */
  int deep;       /* simdgroups that share out k: those that would have no rows of w */
  int64_t pitch;  /* of a row of sums */
  int64_t strips; /* that a simdgroup takes one after the other */
  int64_t steps;  /* of k, of one of them */
  size_t shared_bytes;
} whole;

static whole whole_of(const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  const qn_gemm_args *a = &problem->args;
  const int64_t steps = qn_gemm_pieces(a->k, LANES * (problem->short_data ? 8 : 4));
  whole w = {.rows = 1, .strip = 4, .deep = 1};
  while (w.rows < ROWS_MOST && w.rows * (int64_t)target->arch.multiprocessors < a->m) w.rows *= 2;
  while (2 * w.strip * w.rows <= (problem->short_data ? 8 : 16) && w.strip * SIMDS < a->n) w.strip *= 2;
  const int64_t strips = qn_gemm_pieces(a->n, w.strip);
  while (w.deep < SIMDS && 2 * w.deep * strips <= SIMDS && 2 * w.deep <= steps) w.deep *= 2;
  w.pitch = strips * w.strip;
  w.strips = qn_gemm_pieces(strips, SIMDS / w.deep);
  w.steps = qn_gemm_pieces(steps, w.deep);
  w.shared_bytes = (size_t)w.deep * (size_t)w.rows * (size_t)w.pitch * WORD;
  return w;
}

static const char *refuses(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  (void)variant;
  const size_t most = target->device.kind == QN_CUDA && target->arch.shared_block_bytes < SHARED_MOST
                          ? (size_t)target->arch.shared_block_bytes
                          : SHARED_MOST;
  return whole_of(problem, target).shared_bytes > most ? "a block's rows of y exceed its shared memory" : NULL;
}

static qn_status run(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_call *call)
{
  const qn_gemm_args *a = &problem->args;
  const whole w = whole_of(problem, call->target);
  qn_gemm_problem any = *problem;
  char epilogue[128], more[240];
  const qn_device_function *function;
  (void)variant;
  any.precision = QN_GEMM_FP32; /* one kernel serves all classes, but for the activation's words */
  qn_gemm_epilogue_text(problem, w.pitch, epilogue, sizeof epilogue);
  snprintf(more, sizeof more, "%s QN_GEMM_TILE_M=%d QN_GEMM_STRIP=%d QN_GEMM_DEEP=%d QN_GEMM_ALIGNED=%d", epilogue,
           w.rows, w.strip, w.deep, qn_gemm_rows_aligned(problem));
  qn_try(qn_gemm_function(&any, call, "op/gemm_norm/gemm.whole.cu", "gemm_whole", more, &function));
  return qn_gemm_launch(call, function, (uint64_t)qn_gemm_pieces(a->m, w.rows), THREADS, (uint32_t)w.shared_bytes, a,
                        sizeof *a);
}

/* An H200's, as in plan.c: of a strip, of a step of its k where it is 16 sums wide, and the share of a block's time
 * that one more takes beside it; by type and alignment. */
static double guess_us(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  static const struct {
    double strip_us, step_us, share;
  } times[2][2] = {{{0.058, 1.33, 0.378}, {0.342, 0.935, 0.45}}, {{0.009, 1.76, 0.76}, {0.092, 0.936, 0.79}}};
  const whole w = whole_of(problem, target);
  const qn_gemm_args *a = &problem->args;
  const int aligned = qn_gemm_rows_aligned(problem), is_short = problem->short_data;
  const double places = target->arch.multiprocessors > 0 ? target->arch.multiprocessors : 1;
  const double more = (double)qn_gemm_pieces(a->m, w.rows) / places - 1, sums = 0.5 + 0.5 * w.rows * w.strip / 16;
  const double strip = times[is_short][aligned].strip_us + times[is_short][aligned].step_us * sums * (double)w.steps;
  const double work = (1 + times[is_short][aligned].share * (more > 0 ? more : 0)) * (double)w.strips * strip;
  const double bytes = qn_gemm_bytes(problem);
  (void)variant;
  return (target->device.kind == QN_CUDA ? QN_GEMM_BEGIN_US : QN_GEMM_IMITATED_US) +
         hypot(work, qn_gemm_memory_us(target, bytes, bytes)) + qn_gemm_epilogue_us(problem, w.pitch);
}

const qn_gemm_variant qn_gemm_whole[] = {
    {.name = "whole-8",
     .precisions = (1u << QN_GEMM_PRECISIONS) - 1,
     .looseness = 2, /* f32 is tighter than any class */
     .whole = true,
     .any_rows = true,
     .refuses = refuses,
     .run = run,
     .guess_us = guess_us},
    {.name = NULL},
};
