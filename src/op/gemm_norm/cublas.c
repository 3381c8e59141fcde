/* SPDX-License-Identifier: Apache-2.0 */
/* cublas.c - the variant that has its product made by cuBLAS, where that is installed, and the epilogue behind it: the
 * baseline of all others on NVIDIA GPUs, and the fastest for what they do not hold. Where cuBLAS has no class of its
 * own for a precision, the split ones, it computes fp32; f32 operands of the class bf16 it may round to tf32, or not at
 * all. So what it gives is of the class that was asked for or of a tighter one. */
#include "core/core.h"
#include "device/cuda/cublas.h"
#include "op/gemm_norm/gemm.h"
#include <math.h>
#include <stdio.h>

enum { TENSOR_CORES = 80, HOPPER = 90 }; /* compute capabilities; f32 operands are rounded from the first on */

/* What cuBLAS may use for sums that it splits: about what it would allocate for itself. */
static size_t scratch_bytes(const qn_gemm_target *target)
{
  return (size_t)(target->arch.capability >= HOPPER ? 32 : 8) << 20;
}

/* Without a workspace, what there is to ask about. */
static qn_cublas_product product_of(const qn_gemm_problem *problem, const qn_gemm_call *call)
{
  static const qn_cublas_class classes[QN_GEMM_PRECISIONS] = {
      [QN_GEMM_FP32] = QN_CUBLAS_F32,   [QN_GEMM_TF32] = QN_CUBLAS_TF32, [QN_GEMM_BF16X3] = QN_CUBLAS_F32,
      [QN_GEMM_TF32X3] = QN_CUBLAS_F32, [QN_GEMM_BF16] = QN_CUBLAS_BF16, [QN_GEMM_F16X3] = QN_CUBLAS_F32};
  const qn_gemm_args *a = &problem->args;
  return (qn_cublas_product){.operands = problem->short_data ? QN_CUBLAS_OF_BF16 : classes[problem->precision],
                             .m = a->m,
                             .n = a->n,
                             .k = a->k,
                             .x = a->x,
                             .w = a->w,
                             .z = a->y,
                             .narrow = problem->short_data && !problem->raw && !problem->flags,
                             .workspace = call->workspace,
                             .workspace_bytes = scratch_bytes(call->target)};
}

static const char *refuses(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  const qn_gemm_args *a = &problem->args;
  const bool rounds = problem->precision == QN_GEMM_TF32 || problem->precision == QN_GEMM_BF16;
  (void)variant;
  if (target->device.kind != QN_CUDA) return "it is for NVIDIA GPUs";
  if (rounds && target->arch.capability < TENSOR_CORES) return "cuBLAS rounds operands from compute capability 8.0 on";
  if (a->k == 0) return "k is 0";
  if (a->m > INT32_MAX || a->n > INT32_MAX || a->k > INT32_MAX) return "an extent is above 2^31 - 1";
  return NULL;
}

/* Asked last, as it may load the library, and asks cuBLAS for its kernel. */
static const char *lacks(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  static _Thread_local char why[512];
  qn_cublas_product product = product_of(problem, &(qn_gemm_call){.target = target});
  (void)variant;
  if (problem->short_data && problem->flags) product.z = NULL; /* sums go to the workspace, which is aligned */
  if (qn_cublas_prepare(target->device, &product) == QN_OK) return NULL;
  snprintf(why, sizeof why, "%s", qn_last_error());
  return why;
}

static size_t workspace_bytes(const qn_gemm_variant *variant, const qn_gemm_problem *problem,
                              const qn_gemm_target *target)
{
  (void)variant, (void)problem;
  return scratch_bytes(target);
}

static qn_status run(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_call *call)
{
  qn_cublas_product product = product_of(problem, call);
  (void)variant;
  product.stream = call->exec->stream;
  return call->prepare ? QN_OK : qn_cublas_multiply(call->exec->device, &product);
}

/* An H200's, as in plan.c: a beginning, then tiles of 64 by 64 at such a rate, or so many times the time of memory, and
 * what a long k costs. Tensor cores are so many times slower where rows are not aligned to 16 bytes.
 * The rate of f32 is that of large products. */
typedef struct speed {
  double begin_us, flops_us, memory, depth_us, rough;
} speed;

static double guess_us(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  static const speed of_f32 = {8.46, 45.7e6, 2.17, 0.044, 1}, of_tf32 = {10.2, 345e6, 1.04, 0.010, 4.64},
                     of_rounded = {9.84, 316e6, 0.81, 0.020, 3.8}, of_bf16 = {7.99, 691e6, 0.83, 0.017, 10.5};
  const qn_gemm_args *a = &problem->args;
  const int share = target->arch.multiprocessors > 0 ? target->arch.multiprocessors : 1;
  const bool f32 = problem->precision != QN_GEMM_TF32 && problem->precision != QN_GEMM_BF16;
  const speed *s = problem->short_data                  ? &of_bf16
                   : f32                                ? &of_f32
                   : problem->precision == QN_GEMM_TF32 ? &of_tf32
                                                        : &of_rounded;
  const double m = (double)((a->m + 63) / 64 * 64), n = (double)((a->n + 63) / 64 * 64), k = (double)a->k;
  const bool rough = !qn_gemm_rows_aligned(problem) || a->n % 4;
  const double uneven = problem->short_data && a->n < 128 && a->n % 8 ? 1.6 : 1; /* bf16's columns go by eights */
  const double work = 2 * m * n * k * (rough ? s->rough : 1) / (s->flops_us * share / 132);
  const double bytes = ((double)(a->m + a->n) * k + (double)a->m * (double)a->n) * (problem->short_data ? 2 : 4);
  (void)variant;
  return s->begin_us + fmax(work, uneven * s->memory * qn_gemm_memory_us(target, bytes, bytes)) + s->depth_us * sqrt(k);
}

const qn_gemm_variant qn_gemm_cublas[] = {
    {.name = "cublas",
     .precisions = (1u << QN_GEMM_PRECISIONS) - 1,
     .looseness = 2, /* its own rounding, of the class or a tighter one */
     .refuses = refuses,
     .writes_y = true,
     .any_rows = true,
     .lacks = lacks,
     .workspace_bytes = workspace_bytes,
     .run = run,
     .guess_us = guess_us},
    {.name = NULL},
};
