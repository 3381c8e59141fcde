/* SPDX-License-Identifier: Apache-2.0 */
/* activation.h - the activations of ops, over maths.h, which has sigmoid and tanh. NaN in, NaN out, of all of them. The
 * oracle has the formulas themselves. */
#ifndef QN_BASE_ACTIVATION_H
#define QN_BASE_ACTIVATION_H
#include "base/maths.h"

/* A constant as f32 has it and as it is: the oracle computes in double. */
#ifdef QN_ORACLE
#define QN_CONSTANT(f32, f64) f64
#else
#define QN_CONSTANT(f32, f64) f32
#endif
#define QN_GELU_SLOPE QN_CONSTANT(0x1.988454p0f, 0x1.9884533d43651p0) /* 2 sqrt(2 / pi) */
#define QN_GELU_CUBIC QN_CONSTANT(0x1.6e4e26p-5f, 0.044715)
#define QN_GELU_BOTH QN_CONSTANT(0x1.b6676cp-3f, 0x1.b6676bf7450fp-3) /* three times their product */

/* e^x and 1 / x, and what is made of them. A kernel whose operands are rounded far more than that may take the GPU's
 * own, at 2 units in the last place; e^x has a half more for each power of two of x. */
#if defined(QN_ACTIVATION_NEAR) && defined(QN_PTX)
QN_FN qn_f32 qn_activation_exp(qn_f32 x)
{
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 0x1.715476p0f));
  return y;
}
QN_FN qn_f32 qn_activation_reciprocal(qn_f32 x)
{
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/* As qn_sigmoid; its power may be subnormal. */
QN_FN qn_f32 qn_activation_sigmoid(qn_f32 x)
{
  float e;
  asm("ex2.approx.f32 %0, %1;" : "=f"(e) : "f"(qn_abs(x) * -0x1.715476p0f));
  return (x < 0.0f ? e : 1.0f) * qn_activation_reciprocal(1.0f + e);
}
/* Below 0.3 its series, where 1 - 2 / (1 + e^2x) would cancel. */
QN_FN qn_f32 qn_activation_tanh(qn_f32 x)
{
  const float x2 = x * x, large = 1.0f - 2.0f * qn_activation_reciprocal(1.0f + qn_activation_exp(x + x));
  float series = qn_fma(x2, 0x1.664f48p-6f, -0x1.ba1ba2p-5f);
  series = qn_fma(x2, qn_fma(x2, series, 0x1.111112p-3f), -0x1.555556p-2f);
  return x2 < 0.09f ? qn_fma(x * x2, series, x) : large;
}
/* 1 - erf(x) of x from 0 on, to 1.5e-7: Abramowitz and Stegun, 7.1.26. */
QN_FN qn_f32 qn_activation_erfc(qn_f32 x)
{
  const float t = qn_activation_reciprocal(qn_fma(x, 0.3275911f, 1.0f));
  const float outer = qn_fma(t, qn_fma(t, 1.061405429f, -1.453152027f), 1.421413741f);
  return t * qn_fma(t, qn_fma(t, outer, -0.284496736f), 0.254829592f) * qn_activation_exp(-x * x);
}
#else
#ifndef QN_ORACLE
QN_FN qn_f32 qn_activation_exp(qn_f32 x) { return qn_exp(x); }
QN_FN qn_f32 qn_activation_reciprocal(qn_f32 x) { return qn_reciprocal(x); }
#endif
QN_FN qn_f32 qn_activation_sigmoid(qn_f32 x) { return qn_sigmoid(x); }
QN_FN qn_f32 qn_activation_tanh(qn_f32 x) { return qn_tanh(x); }
#endif

QN_FN qn_f32 qn_relu(qn_f32 x) { return qn_select(qn_at_most(x, qn_splat(0.0f)), qn_splat(0.0f), x); }

/* x sigmoid(y), 0 where x is so far below zero that the product is: -infinity too. */
QN_FN qn_f32 qn_gated(qn_f32 x, qn_f32 y)
{
  return qn_select(qn_less(x, qn_splat(-200.0f)), qn_splat(-0.0f), x * qn_activation_sigmoid(y));
}

QN_FN qn_f32 qn_silu(qn_f32 x) { return qn_gated(x, x); }

/* GELU's tanh form is x sigmoid(y) with y = 2 sqrt(2 / pi) (x + 0.044715 x^3), which does not cancel. y of x and x^2,
 * and its slope. */
QN_FN qn_f32 qn_gelu_argument(qn_f32 x, qn_f32 x2)
{
  return (x * QN_GELU_SLOPE) * qn_fma(x2, qn_splat(QN_GELU_CUBIC), qn_splat(1.0f));
}
QN_FN qn_f32 qn_gelu_argument_slope(qn_f32 x2) { return qn_fma(x2, qn_splat(QN_GELU_BOTH), qn_splat(QN_GELU_SLOPE)); }

QN_FN qn_f32 qn_gelu_tanh(qn_f32 x)
{
#ifdef QN_ORACLE
  return qn_gated(x, QN_GELU_SLOPE * (x + QN_GELU_CUBIC * x * x * x));
#else
  return qn_gated(x, qn_gelu_argument(x, x * x));
#endif
}

/* 0.5 x (1 + erf(x / sqrt(2))): qn_gelu for sums that do not see relative digits, which are lost where the result is
 * below 1e-3 of x. */
QN_FN qn_f32 qn_gelu_erf(qn_f32 x)
{
#ifdef QN_ORACLE
  if (x < -1000) return -0.0;
  return 0.5 * x * __builtin_erfc(-x * 0.70710678118654752440);
#elif defined(QN_ACTIVATION_NEAR) && defined(QN_PTX)
  const float half = 0.5f * x, rest = qn_activation_erfc(qn_abs(x) * 0x1.6a09e6p-1f);
  if (x < 0.0f) return x < -15.0f ? -0.0f : half * rest;
  return x < 15.0f ? qn_fma(-half, rest, x) : x; /* infinity */
#else
  qn_f32 half = 0.5f * x, all = qn_fma(half, qn_erf(x * 0x1.6a09e6p-1f), half);
  return qn_select(qn_less(x, qn_splat(-6.0f)), qn_splat(-0.0f), all);
#endif
}

/* x tanh(log1p(e^-|x|) + max(x, 0)). With e = e^x the tanh is (2 e + e^2) / (2 + 2 e + e^2): sums of positive terms, so
 * nothing cancels, and one power. Beyond 20 it is 1. */
QN_FN qn_f32 qn_mish(qn_f32 x)
{
#ifdef QN_ORACLE
  if (x < -1000) return -0.0; /* -infinity: the product would be NaN where the limit is 0 */
  return x * __builtin_tanh(__builtin_log1p(__builtin_exp(-__builtin_fabs(x))) + (x > 0 ? x : x == x ? 0 : x));
#else
  qn_f32 e = qn_activation_exp(qn_no_more(x, 20.0f)), top = qn_fma(e, e, e + e);
  qn_f32 product = x * (top * qn_activation_reciprocal(top + 2.0f));
  /* -infinity: e is 0, and the product would be NaN where the limit is 0. */
  return qn_select(qn_less(x, qn_splat(-200.0f)), qn_splat(-0.0f), product);
#endif
}
#endif
