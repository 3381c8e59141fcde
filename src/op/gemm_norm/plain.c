/* SPDX-License-Identifier: Apache-2.0 */
/* plain.c - the variant that every device has: the product by gemm_norm.cu, the epilogue behind it; and the launch of
 * that epilogue, and of any kernel of a GEMM, for the other variants. */
#include "core/core.h"
#include "jit/jit.h"
#include "op/gemm_norm/gemm.h"
#include <stdio.h>
#include <string.h>

enum { THREADS = 256, TILE = 64, DEFINES_MOST = 16, LANES = 32, ITEMS_MOST = 16 };

qn_status qn_gemm_function(const qn_gemm_problem *problem, const qn_gemm_call *call, const char *source,
                           const char *name, const char *more, const qn_device_function **function)
{
  char text[320], *rest = text;
  const char *defines[DEFINES_MOST] = {NULL};
  snprintf(text, sizeof text, "QN_GEMM_FLAGS=%uu QN_GEMM_PRECISION=%d QN_GEMM_SHORT=%d %s", problem->flags,
           problem->precision, problem->short_data, more);
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
                                      .stream = call->exec->stream,
                                      .pool = call->exec->pool,
                                      .argument = argument,
                                      .argument_bytes = argument_bytes});
}

size_t qn_gemm_z_bytes(const qn_gemm_problem *problem)
{
  const size_t n = (size_t)problem->args.m * (size_t)problem->args.n;
  return problem->short_data ? (n * sizeof(float) + 255) / 256 * 256 : 0;
}

float *qn_gemm_z(const qn_gemm_problem *problem, const qn_gemm_call *call)
{
  return problem->short_data ? call->workspace : problem->args.y;
}

/* ---- the epilogue ---- */

/* Threads that take a group: the power of two from its columns on, up to a simdgroup; 256 for more than 256 columns. */
static uint32_t team_of(int64_t columns)
{
  uint32_t team = 1;
  if (columns > LANES * 8) return THREADS;
  while (team < LANES && team < columns) team *= 2;
  return team;
}

/* Elements of a group that a thread holds, in powers of two so that few kernels are compiled; 0: too many. */
static uint32_t items_of(int64_t columns, uint32_t team)
{
  uint32_t items = 1;
  while (items <= ITEMS_MOST && (int64_t)items * team < columns) items *= 2;
  return items > ITEMS_MOST ? 0 : items;
}

qn_status qn_gemm_epilogue(const qn_gemm_problem *problem, const qn_gemm_call *call, float *z)
{
  const qn_gemm_args *a = &problem->args;
  const bool norms = qn_gemm_norm_of(problem->flags) != QN_GEMM_NO_NORM;
  const uint32_t team = norms ? team_of(a->columns) : 1;
  const uint64_t n = (uint64_t)a->m * (uint64_t)(norms ? a->n / a->columns * team : a->n);
  const qn_device_function *function;
  char more[80];
  const qn_gemm_z_args argument = {*a, z};
  qn_gemm_problem any = *problem;
  any.precision = QN_GEMM_FP32; /* one kernel for all classes */
  snprintf(more, sizeof more, "QN_GEMM_TEAM=%u QN_GEMM_ITEMS=%u", team, norms ? items_of(a->columns, team) : 1);
  qn_try(qn_gemm_function(&any, call, "op/gemm_norm/gemm.epilogue.cu", norms ? "gemm_epilogue" : "gemm_elements", more,
                          &function));
  return qn_gemm_launch(call, function, (n + THREADS - 1) / THREADS, THREADS, 0, &argument, sizeof argument);
}

/* ---- the product ---- */

static const char *refuses(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  (void)variant, (void)problem, (void)target;
  return NULL;
}

static size_t workspace_bytes(const qn_gemm_variant *variant, const qn_gemm_problem *problem,
                              const qn_gemm_target *target)
{
  (void)variant, (void)target;
  return qn_gemm_z_bytes(problem);
}

static qn_status run(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_call *call)
{
  const qn_gemm_args *a = &problem->args;
  const qn_gemm_z_args argument = {*a, qn_gemm_z(problem, call)};
  const uint64_t blocks = (uint64_t)((a->m + TILE - 1) / TILE) * (uint64_t)((a->n + TILE - 1) / TILE);
  qn_gemm_problem product = *problem;
  const qn_device_function *function;
  (void)variant;
  product.flags = 0; /* the epilogue's; one kernel serves all of them */
  qn_try(qn_gemm_function(&product, call, "op/gemm_norm/gemm_norm.cu", "gemm_norm", "", &function));
  qn_try(qn_gemm_launch(call, function, blocks, THREADS, 0, &argument, sizeof argument));
  return qn_gemm_epilogue(problem, call, argument.z);
}

/* A sixth of what a GPU's ordinary cores could: some 60 GFLOP/s a multiprocessor. */
static double guess_us(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  const qn_gemm_args *a = &problem->args;
  const double tiles = (double)((a->m + TILE - 1) / TILE) * (double)((a->n + TILE - 1) / TILE);
  const double work = 2.0 * TILE * TILE * tiles * (double)a->k;
  (void)variant;
  return 10 + work / (60e3 * (target->arch.multiprocessors > 0 ? target->arch.multiprocessors : 1));
}

const qn_gemm_variant qn_gemm_plain[] = {
    {.name = "plain",
     .precisions = (1u << QN_GEMM_PRECISIONS) - 1,
     .refuses = refuses,
     .workspace_bytes = workspace_bytes,
     .run = run,
     .guess_us = guess_us},
    {.name = NULL},
};
