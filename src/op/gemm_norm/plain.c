/* SPDX-License-Identifier: Apache-2.0 */
/* plain.c - the variant that every device has, gemm_norm.cu; and the launch of any kernel of a GEMM. */
#include "core/core.h"
#include "jit/jit.h"
#include "op/gemm_norm/gemm.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 256, TILE = 64, DEFINES_MOST = 16 };

qn_status qn_gemm_function(const qn_gemm_problem *problem, const qn_gemm_call *call, const char *source,
                           const char *name, const char *more, const qn_device_function **function)
{
  char text[320], *rest = text;
  const char *defines[DEFINES_MOST] = {NULL};
  snprintf(text, sizeof text, "QN_GEMM_FLAGS=%uu QN_GEMM_PRECISION=%d QN_GEMM_SHORT=%d QN_GEMM_RAW=%d %s",
           problem->flags, problem->precision, problem->short_data, problem->raw, more);
  for (size_t k = 0; rest && *rest && k + 1 < DEFINES_MOST; k++) defines[k] = strsep(&rest, " ");
  return qn_jit_function(call->exec->device, &(qn_unit){.source = source, .defines = defines}, name, function);
}

qn_status qn_gemm_launch(const qn_gemm_call *call, const qn_device_function *function, uint64_t blocks,
                         uint32_t threads, uint32_t shared_bytes, const void *argument, size_t argument_bytes)
{
  const qn_backend *backend;
  if (call->prepare) return QN_OK;
  qn_try(qn_backend_of(call->exec->device, &backend));
  return backend->launch(call->exec->device, function,
                         &(qn_launch){.blocks = blocks,
                                      .threads = threads,
                                      .shared_bytes = shared_bytes,
                                      .early = call->early,
                                      .stream = call->exec->stream,
                                      .pool = call->exec->pool,
                                      .argument = argument,
                                      .argument_bytes = argument_bytes});
}

/* ---- the product ---- */

static const char *refuses(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  (void)variant, (void)problem, (void)target;
  return NULL;
}

static qn_status run(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_call *call)
{
  const qn_gemm_args *a = &problem->args;
  const uint64_t blocks = (uint64_t)((a->m + TILE - 1) / TILE) * (uint64_t)((a->n + TILE - 1) / TILE);
  const qn_device_function *function;
  (void)variant;
  qn_try(qn_gemm_function(problem, call, "op/gemm_norm/gemm_norm.cu", "gemm_norm", "", &function));
  return qn_gemm_launch(call, function, blocks, THREADS, 0, a, sizeof *a);
}

/* An H200's, as in plan.c: a tile alone on its multiprocessor, or tiles that share one. */
static double guess_us(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  const qn_gemm_args *a = &problem->args;
  const double tiles = (double)((a->m + TILE - 1) / TILE) * (double)((a->n + TILE - 1) / TILE);
  const double places = target->arch.multiprocessors > 0 ? target->arch.multiprocessors : 1;
  const double bytes = qn_gemm_bytes(problem);
  const double each = tiles / places, work = 0.59 * fmax(1, 2 * each) + (double)a->k * fmax(0.076, 0.052 * each);
  (void)variant;
  return QN_GEMM_BEGIN_US + hypot(qn_gemm_memory_us(target, bytes, bytes), work);
}

const qn_gemm_variant qn_gemm_plain[] = {
    {.name = "plain",
     .precisions = (1u << QN_GEMM_PRECISIONS) - 1,
     .refuses = refuses,
     .any_rows = true,
     .run = run,
     .guess_us = guess_us},
    {.name = NULL},
};
