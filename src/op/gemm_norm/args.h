/* SPDX-License-Identifier: Apache-2.0 */
/* args.h - what every device kernel of a GEMM is launched with: a struct by value, shared by C that fills it and the
 * kernels that read it. A kernel that needs more (bulk copies' maps, split sums) has a struct of its own that begins
 * with this one. */
#ifndef QN_OP_GEMM_NORM_ARGS_H
#define QN_OP_GEMM_NORM_ARGS_H
#include "base/kernel.h"

/* Row-major: x (m, k), w (n, k), y (m, n). f32, or bf16 where QN_GEMM_SHORT is 1. What the flags (see
 * gemm_norm.math.h) lack is NULL. Where QN_GEMM_RAW is 1 the kernel writes sums alone, in f32: k is cut into slices,
 * and those of slice s stand `slice` elements behind those of the one before. */
typedef struct qn_gemm_args {
  const void *x, *w;
  void *y;
  const float *bias, *bias2, *gamma, *beta; /* n elements */
  qn_i64 m, n, k;
  qn_i64 row, pitch;             /* elements from a row of x or w to the next, and of y */
  qn_i64 slices, slice_k, slice; /* of k, columns of k in one, elements of y from one to the next */
  qn_i64 columns;                /* of a norm's group; n is a multiple of it. No norm: n */
  float lo, hi, eps;
} qn_gemm_args;

/* Of the kernel that takes x apart into its class's words (gemm.split.cu). */
typedef struct qn_gemm_split_args {
  const float *x; /* (rows, columns), dense; columns a multiple of 4 */
  qn_u32 *to;     /* rows of `parts` parts: in bf16x3 and f16x3 of 16 words each, in tf32x3 of 32, in bf16 of 8 */
  qn_i64 rows, columns;
  qn_i64 parts;   /* of 16 columns; even */
  const float *w; /* of f16x3: (w_rows, columns), dense; and where the factors of rows go (scale.h) */
  float *x_factors, *w_factors;
  qn_i64 w_rows;
} qn_gemm_split_args;

/* Of the kernel that copies x and w into rows of 16-byte parts (gemm.align.cu), with zeros behind column k. */
typedef struct qn_gemm_align_args {
  const void *x, *w;
  void *to; /* x's rows, then w's */
  qn_i64 m, n, k;
  qn_i64 row; /* elements */
} qn_gemm_align_args;

/* Of the epilogue that makes y of sums in memory (gemm.epilogue.cu). */
typedef struct qn_gemm_z_args {
  qn_gemm_args of;
  const float *z;      /* `slices` times (m, n), `slice` elements apart, which are added in this order */
  qn_i64 pitch, slice; /* elements from a row of z to the next, from a slice to the next */
  qn_i64 slices;
} qn_gemm_z_args;

/* A loop over registers must be laid out on a GPU; on the host that would only take the compiler seconds. */
#ifdef QN_CUDA_DIALECT
#define QN_GEMM_EACH QN_UNROLL
#else
#define QN_GEMM_EACH
#endif
#endif
