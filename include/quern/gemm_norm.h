/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_norm.h - a matrix product whose epilogue holds what follows it: biases, clamp, activation and a norm over groups
 * of columns, in one pass over the result.
 *
 *     z = x w^T + bias + bias2      x (m, k), w (n, k), y and z (m, n), row-major; bias and bias2 (n), each optional
 *     v = activation(clamp(z, lo, hi))
 *     y = (v - mean) / sqrt(variance + eps) * gamma + beta     over groups of n / groups consecutive columns of a row
 *
 * Every part can be left out: clamp = 0, activation and norm of "none". layer: one group of n columns; rms: the same,
 * no mean is taken away; group: n is a multiple of `groups`. The variance is the mean of squares about the mean, in two
 * passes. gamma and beta (n) are optional, and are read where there is a norm.
 *
 * How the product is taken is a class by name, and is never changed in silence:
 *     fp32     products of f32, sums in f32
 *     tf32     both operands rounded to 11 bits, halves away from zero; sums in f32
 *     bf16x3   each operand in two bf16 words, three products of them: results as of fp32, to a few units
 *     tf32x3   the same in two tf32 words
 *     f16x3    the same in two f16 words of rows scaled by powers of two: an element is off by up to 2^-22 of itself
 * and 2^-38 of its row's greatest. The fastest of results as of fp32 on compute capability 9.0; tf32x3 elsewhere bf16
 * both operands rounded to 8 bits, to nearest even; sums in f32 On the processor the x3 classes are computed as fp32.
 * The order of sums is not part of the contract: results differ in their last digits between devices and variants, and
 * are the same for any number of threads. */
#ifndef QN_GEMM_NORM_H
#define QN_GEMM_NORM_H
#include "op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef enum qn_activation {
  QN_ACTIVATION_NONE,
  QN_ACTIVATION_RELU,
  QN_ACTIVATION_GELU, /* by erf */
  QN_ACTIVATION_GELU_TANH,
  QN_ACTIVATION_SILU,
  QN_ACTIVATION_MISH, /* v tanh(log1p(e^-|v|) + max(v, 0)) */
  QN_ACTIVATION_SIGMOID,
  QN_ACTIVATION_TANH
} qn_activation;

typedef enum qn_norm { QN_NORM_NONE, QN_NORM_GROUP, QN_NORM_LAYER, QN_NORM_RMS } qn_norm;

typedef enum qn_precision {
  QN_PRECISION_FP32,
  QN_PRECISION_TF32,
  QN_PRECISION_BF16X3,
  QN_PRECISION_TF32X3,
  QN_PRECISION_BF16,
  QN_PRECISION_F16X3
} qn_precision;

/* Numbers have no hidden default: start from QN_GEMM_NORM_DEFAULTS. */
typedef struct qn_gemm_norm_params {
  size_t size;        /* sizeof(qn_gemm_norm_params) */
  double lo, hi;      /* of the clamp; lo <= hi */
  double eps;         /* of the norm; >= 0 */
  uint64_t groups;    /* of norm "group": at least 1, and n is a multiple of it */
  int32_t clamp;      /* 0 or 1 */
  int32_t activation; /* qn_activation */
  int32_t norm;       /* qn_norm */
  int32_t precision;  /* qn_precision */
} qn_gemm_norm_params;

/* The clamp, Mish and one group of all columns: give `groups`. A plain product: clamp, activation and norm of 0. */
#define QN_GEMM_NORM_DEFAULTS                                                                                          \
  {                                                                                                                    \
    sizeof(qn_gemm_norm_params), -1.0, 1.0, 1e-5, 1, 1, QN_ACTIVATION_MISH, QN_NORM_GROUP, QN_PRECISION_FP32           \
  }

/* y = the epilogue of x w^T. Each tensor is row-major and dense, on exec's device. y, x, w: all f32, or all bf16 with
 * precision bf16; bias, bias2, gamma, beta: f32, NULL where not given. y overlaps nothing. Nothing is synchronised or
 * allocated, except that the first call of a kind compiles. exec lends the workspace that qn_gemm_norm_workspace_bytes
 * asks for. Bad input: a status, a sentence, nothing written. */
QN_API qn_status qn_gemm_norm_step(const qn_exec *exec, const qn_gemm_norm_params *params, const qn_tensor *y,
                                   const qn_tensor *x, const qn_tensor *w, const qn_tensor *bias,
                                   const qn_tensor *bias2, const qn_tensor *gamma, const qn_tensor *beta);
/* Compile and load what such a call would need; no workspace is needed for it. */
QN_API qn_status qn_gemm_norm_prepare(const qn_exec *exec, const qn_gemm_norm_params *params, const qn_tensor *y,
                                      const qn_tensor *x, const qn_tensor *w, const qn_tensor *bias,
                                      const qn_tensor *bias2, const qn_tensor *gamma, const qn_tensor *beta);
/* Bytes of exec's device memory that such a call needs, 16-byte aligned; 0 where the call would be refused. */
QN_API size_t qn_gemm_norm_workspace_bytes(const qn_exec *exec, const qn_gemm_norm_params *params, const qn_tensor *y,
                                           const qn_tensor *x, const qn_tensor *w, const qn_tensor *bias,
                                           const qn_tensor *bias2, const qn_tensor *gamma, const qn_tensor *beta);

#ifdef __cplusplus
}
#endif
#endif
