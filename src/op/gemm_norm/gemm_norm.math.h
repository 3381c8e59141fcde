/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_norm.math.h - what is done to the elements of a matrix product before they are stored, written here and nowhere
 * else: biases, clamp, activation, then a norm over groups of consecutive columns of a row. The processor's tiers, host
 * C++ and CUDA instantiate it; the oracle does in double. Which lanes hold which columns, and how sums over a group are
 * taken, is the kernel's business.
 *
 * A norm takes two passes over the group's elements, which a kernel still holds: their mean first, then the mean of the
 * squares of what is left. E[x^2] - E[x]^2 loses all digits of a group whose spread is small against its mean. */
#ifndef QN_OP_GEMM_NORM_MATH_H
#define QN_OP_GEMM_NORM_MATH_H
#include "base/maths.h"
#include "op/gemm_norm/flags.h"

/* e^x. A kernel whose products are rounded far more than that may take the GPU's own, at 2 units in the last place. */
#if defined(QN_GEMM_NEAR) && defined(QN_PTX)
QN_FN qn_f32 qn_gemm_exp(qn_f32 x)
{
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 0x1.715476p0f));
  return y;
}
QN_FN qn_f32 qn_gemm_reciprocal(qn_f32 x)
{
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#elif !defined(QN_ORACLE)
QN_FN qn_f32 qn_gemm_exp(qn_f32 x) { return qn_exp(x); }
QN_FN qn_f32 qn_gemm_reciprocal(qn_f32 x) { return qn_reciprocal(x); }
#endif

/* mish(v) = v tanh(log1p(e^-|v|) + max(v, 0)). With e = e^v the tanh is (2 e + e^2) / (2 + 2 e + e^2): sums of positive
 * terms, so nothing cancels, and one power. Beyond 20 it is 1. The oracle has the formula itself. */
QN_FN qn_f32 qn_gemm_mish(qn_f32 v)
{
#ifdef QN_ORACLE
  if (v < -1000) return -0.0; /* -infinity: the product would be NaN where the limit is 0 */
  return v * __builtin_tanh(__builtin_log1p(__builtin_exp(-__builtin_fabs(v))) + (v > 0 ? v : v == v ? 0 : v));
#else
  qn_f32 e = qn_gemm_exp(qn_no_more(v, 20.0f)), top = qn_fma(e, e, e + e);
  qn_f32 product = v * (top * qn_gemm_reciprocal(top + 2.0f));
  /* -infinity: e is 0, and the product would be NaN where the limit is 0. */
  return qn_select(qn_less(v, qn_splat(-200.0f)), qn_splat(-0.0f), product);
#endif
}

/* 0.5 v (1 + erf(v / sqrt(2))); relative digits are lost where the result is below 1e-3 of v, which the sums that
 * follow do not see. */
QN_FN qn_f32 qn_gemm_gelu(qn_f32 v)
{
#ifdef QN_ORACLE
  if (v < -1000) return -0.0;
  return 0.5 * v * __builtin_erfc(-v * 0.70710678118654752440);
#else
  qn_f32 half = 0.5f * v, all = qn_fma(half, qn_erf(v * 0x1.6a09e6p-1f), half);
  return qn_select(qn_less(v, qn_splat(-6.0f)), qn_splat(-0.0f), all);
#endif
}

/* v sigmoid(y), 0 where v is so far below zero that the product is: -infinity too. */
QN_FN qn_f32 qn_gemm_gated(qn_f32 v, qn_f32 y)
{
  return qn_select(qn_less(v, qn_splat(-200.0f)), qn_splat(-0.0f), v * qn_sigmoid(y));
}

/* The tanh form: v sigmoid(2 sqrt(2 / pi) (v + 0.044715 v^3)), which is the same without its cancellation. */
QN_FN qn_f32 qn_gemm_gelu_tanh(qn_f32 v)
{
#ifdef QN_ORACLE
  return qn_gemm_gated(v, 1.59576912160573071176 * (v + 0.044715 * v * v * v));
#else
  return qn_gemm_gated(v, (v * 0x1.988454p0f) * qn_fma(v * v, qn_splat(0x1.6e4e26p-5f), qn_splat(1.0f)));
#endif
}

/* NaN in, NaN out, of all of them. */
QN_FN qn_f32 qn_gemm_activate(int activation, qn_f32 v)
{
  switch (activation) {
  case QN_GEMM_RELU: return qn_select(qn_at_most(v, qn_splat(0.0f)), qn_splat(0.0f), v);
  case QN_GEMM_GELU: return qn_gemm_gelu(v);
  case QN_GEMM_GELU_TANH: return qn_gemm_gelu_tanh(v);
  case QN_GEMM_SILU: return qn_gemm_gated(v, v);
  case QN_GEMM_MISH: return qn_gemm_mish(v);
  case QN_GEMM_SIGMOID: return qn_sigmoid(v);
  case QN_GEMM_TANH: return qn_tanh(v);
  default: return v;
  }
}

/* An element of the product up to the norm: biases (what is not given is not read: pass 0), clamp, activation. NaN
 * passes the clamp. flags is a constant where this is inlined, or the switch costs what it says. */
QN_FN qn_f32 qn_gemm_element(qn_u32 flags, qn_f32 z, qn_f32 bias, qn_f32 bias2, float lo, float hi)
{
  if (flags & QN_GEMM_BIAS) z = z + bias;
  if (flags & QN_GEMM_BIAS2) z = z + bias2;
  if (flags & QN_GEMM_CLAMPS) {
    z = qn_select(qn_less(z, qn_splat(lo)), qn_splat(lo), z);
    z = qn_select(qn_less(qn_splat(hi), z), qn_splat(hi), z);
  }
  return qn_gemm_activate((int)(flags & QN_GEMM_ACTIVATION_MASK), z);
}

/* What a group is multiplied by: 1 / sqrt(mean of squares + eps), of the elements less their mean where it is taken
 * away. `columns` are the group's. */
QN_FN qn_f32 qn_gemm_scale(qn_f32 squares, float columns, float eps)
{
  return qn_splat(1.0f) / qn_sqrt(squares / qn_splat(columns) + qn_splat(eps));
}

/* The element that is stored. mean is 0 where the norm takes none away; gamma and beta are not read where flags lack
 * them. */
QN_FN qn_f32 qn_gemm_normed(qn_u32 flags, qn_f32 v, qn_f32 mean, qn_f32 scale, qn_f32 gamma, qn_f32 beta)
{
  v = (v - mean) * scale;
  if ((flags & QN_GEMM_GAMMA) && (flags & QN_GEMM_BETA)) return qn_fma(v, gamma, beta);
  if (flags & QN_GEMM_GAMMA) return v * gamma;
  return flags & QN_GEMM_BETA ? v + beta : v;
}
#endif
