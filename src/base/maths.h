/* SPDX-License-Identifier: Apache-2.0 */
/* maths.h - exp, exp2, expm1, log, log2, log1p, sin, cos, tanh, sigmoid, erf, GELU and 1/sqrt of a lane, as chains of
 * correctly rounded f32 steps in the words of simd.h, so that every tier and every GPU gives the same bits. No table is
 * looked up, and lanes part only where a sine's or cosine's argument is 65536 or more. All floats are welcome: NaN
 * gives NaN, subnormal arguments and results are kept, and what is too large or too small becomes infinity or zero
 * where the true result rounds to it.
 *
 * Beside each function: its worst error over all floats in units in the last place of the true result (0.5 is the least
 * there is), and its operations, about as a GPU counts them: a comparison or selection is one, a reciprocal three,
 * signs and magnitudes of operands nothing; a division or root, which are many there, one. results/maths.csv has the
 * figures and their places; tests/maths_all.c measures them, and tests/maths.c holds them. Coefficients:
 * tools/fit_maths.py. The oracle's are libm's.
 *
 * qn_sigmoid16 and qn_gelu16 are for results that are stored in 16 bits: their errors are far below what bf16 and f16
 * can tell. */
#ifndef QN_BASE_MATHS_H
#define QN_BASE_MATHS_H
#include "base/simd.h"

#ifdef QN_ORACLE
QN_FN qn_f32 qn_exp(qn_f32 x) { return __builtin_exp(x); }
QN_FN qn_f32 qn_exp2(qn_f32 x) { return __builtin_exp2(x); }
QN_FN qn_f32 qn_expm1(qn_f32 x) { return __builtin_expm1(x); }
QN_FN qn_f32 qn_log(qn_f32 x) { return __builtin_log(x); }
QN_FN qn_f32 qn_log2(qn_f32 x) { return __builtin_log2(x); }
QN_FN qn_f32 qn_log1p(qn_f32 x) { return __builtin_log1p(x); }
QN_FN qn_f32 qn_sin(qn_f32 x) { return __builtin_sin(x); }
QN_FN qn_f32 qn_cos(qn_f32 x) { return __builtin_cos(x); }
QN_FN qn_f32 qn_tanh(qn_f32 x) { return __builtin_tanh(x); }
QN_FN qn_f32 qn_sigmoid(qn_f32 x)
{
  const double e = __builtin_exp(-__builtin_fabs(x));
  return (x < 0 ? e : 1) / (1 + e);
}
QN_FN qn_f32 qn_sigmoid16_of_number(qn_f32 x) { return qn_sigmoid(x); }
QN_FN qn_f32 qn_sigmoid16(qn_f32 x) { return qn_sigmoid(x); }
QN_FN qn_f32 qn_erf(qn_f32 x) { return __builtin_erf(x); }
typedef struct qn_gelu_parts {
  qn_f32 value, slope;
} qn_gelu_parts;
QN_FN qn_gelu_parts qn_gelu_of(qn_f32 x)
{
  const double phi = __builtin_erfc(x * -0x1.6a09e667f3bcdp-1) / 2;
  const double density = 0x1.9884533d43651p-2 * __builtin_exp(-0.5 * x * x);
  qn_gelu_parts g = {phi == 0 ? -0.0 : x * phi, density == 0 ? phi : phi + x * density};
  return g;
}
QN_FN qn_gelu_parts qn_gelu16_of(qn_f32 x) { return qn_gelu_of(x); }
QN_FN qn_f32 qn_gelu(qn_f32 x) { return qn_gelu_of(x).value; }
QN_FN qn_f32 qn_gelu16(qn_f32 x) { return qn_gelu_of(x).value; }
QN_FN qn_f32 qn_rsqrt(qn_f32 x) { return 1 / __builtin_sqrt(x); }
#else

/* The next step of a polynomial in x, highest power first. */
QN_FN qn_f32 qn_then(qn_f32 sum, qn_f32 x, float coefficient) { return qn_fma(sum, x, qn_splat(coefficient)); }

/* ---- powers ----
 * Added to a number of magnitude below 2^22, 1.5 * 2^23 rounds it to a whole one, which then lies in the low bits. A
 * bias added to it is rounded with nothing lost, and lies there too. */
#define QN_TO_WHOLE 0x1.8p23f
#define QN_LOG2_E 0x1.715476p0f
#define QN_LN_2                                                                                                        \
  0x1.62e43p-1f /* times a whole number, taken from x: exact, as both have their last places above 2^-25 */
#define QN_LN_2_REST -0x1.05c61p-29f

/* p 2^n, where low nine bits of t hold n + 254, for |n| <= 190: two factors 2^(h - 127) and 2^(n - h + 127), so that
 * subnormal results are rounded once and too large ones become infinite. 6 operations. And for n from -151 to 0, with
 * n + 191 in t: the first factor is 2^(n + 64), normal. 3 operations. Or an instruction does either. */
#ifdef QN_SCALES
QN_FN qn_f32 qn_times_power(qn_f32 p, qn_bits t, qn_f32 n) { return (void)t, qn_scale(p, n); }
QN_FN qn_f32 qn_times_small_power(qn_f32 p, qn_bits t, qn_f32 n) { return (void)t, qn_scale(p, n); }
#else
QN_FN qn_f32 qn_times_power(qn_f32 p, qn_bits t, qn_f32 n)
{
  qn_bits half = (t << 22) & 0x7f800000u;
  (void)n;
  return p * qn_f32_of(half) * qn_f32_of((t << 23) - half);
}
QN_FN qn_f32 qn_times_small_power(qn_f32 p, qn_bits t, qn_f32 n) { return (void)n, p * qn_f32_of(t << 23) * 0x1p-64f; }
#endif

/* -|x|: one operation on the bits of vectors, a sign of the operand on GPUs. */
QN_FN qn_f32 qn_below(qn_f32 x)
{
#if QN_LANES > 1
  return qn_f32_of(qn_bits_of(x) | 0x80000000u);
#else
  return -qn_abs(x);
#endif
}

/* e^(near + low) - 1 for a sum of magnitude up to ln(2) / 2. 8 operations. */
QN_FN qn_f32 qn_exp_less_near(qn_f32 near, qn_f32 low)
{
  qn_f32 r = near + low, q = qn_splat(0x1.6ac75p-10f);
  q = qn_then(q, r, 0x1.123dep-7f);
  q = qn_then(q, r, 0x1.555858p-5f);
  q = qn_then(q, r, 0x1.55548cp-3f);
  q = qn_then(q, r, 0x1.fffffcp-2f);
  return near + qn_fma(r * r, q, low);
}

QN_FN qn_f32 qn_exp_near(qn_f32 near, qn_f32 low) { return 1.0f + qn_exp_less_near(near, low); }

/* Worst error 0.8763; 21 operations. */
QN_FN qn_f32 qn_exp(qn_f32 x)
{
  x = qn_no_more(qn_no_less(x, -104.0f), 89.0f); /* beyond these limits the result is 0 or infinite */
  qn_f32 t = qn_fma(x, qn_splat(QN_LOG2_E), qn_splat(QN_TO_WHOLE + 254.0f)), n = t - (QN_TO_WHOLE + 254.0f);
  return qn_times_power(qn_exp_near(qn_fma(n, qn_splat(-QN_LN_2), x), n * -QN_LN_2_REST), qn_bits_of(t), n);
}

/* Worst error 0.8784; 17 operations. */
QN_FN qn_f32 qn_exp2(qn_f32 x)
{
  x = qn_no_more(qn_no_less(x, -151.0f), 129.0f);
  qn_f32 t = x + (QN_TO_WHOLE + 254.0f), n = t - (QN_TO_WHOLE + 254.0f), r = x - n;
  qn_f32 q = qn_splat(0x1.41ba84p-13f);
  q = qn_then(q, r, 0x1.5f074ep-10f);
  q = qn_then(q, r, 0x1.3b2d9ap-7f);
  q = qn_then(q, r, 0x1.c6af7ep-5f);
  q = qn_then(q, r, 0x1.ebfbdcp-3f);
  q = qn_then(q, r, 0x1.62e43p-1f);
  return qn_times_power(qn_then(q, r, 1.0f), qn_bits_of(t), n);
}

/* e^y - 1 = 2^n (1 + high + low) - 1, where t holds n and `bias` in its low nine bits. 14 operations. */
typedef struct qn_exp_parts {
  qn_f32 high, low;
  qn_bits t;
} qn_exp_parts;

QN_FN qn_exp_parts qn_exp_split(qn_f32 y, float bias)
{
  qn_f32 t = qn_fma(y, qn_splat(QN_LOG2_E), qn_splat(QN_TO_WHOLE + bias)), n = t - (QN_TO_WHOLE + bias);
  qn_f32 r = qn_fma(n, qn_splat(-QN_LN_2_REST), qn_fma(n, qn_splat(-QN_LN_2), y)), r2 = r * r;
  qn_f32 q = qn_splat(0x1.a2136ep-13f);
  q = qn_then(q, r, 0x1.6d3b14p-10f);
  q = qn_then(q, r, 0x1.11101ap-7f);
  q = qn_then(q, r, 0x1.5554f8p-5f);
  q = qn_then(q, r, 0x1.555556p-3f);
  q = qn_then(q, r, 0x1p-1f);
  qn_exp_parts e;
  e.high = qn_fma(r2, q, r);
  e.low = qn_fma(r2, q, r - e.high);
  e.t = qn_bits_of(t);
  return e;
}

/* Half of it, so that 2^128 is not needed; what is small is x itself. Worst error 1.4391; 27 operations. */
QN_FN qn_f32 qn_expm1(qn_f32 x)
{
  qn_exp_parts e = qn_exp_split(qn_no_more(qn_no_less(x, -20.0f), 89.0f), 126.0f);
  qn_f32 power = qn_f32_of(e.t << 23), half = qn_fma(power, e.high, qn_fma(power, e.low, power - 0.5f));
  return qn_select(qn_less_bits(qn_bits_of(x) << 1, qn_splat_bits(0x33000000u << 1)), x, half + half);
}

/* ---- functions of e^|x| ---- */

/* tanh|x| = m / (m + 2) with m = e^(2|x|) - 1. What rounding m and m + 2 drops is kept, and one step of Newton's takes
 * it into the quotient. Worst error 0.7311; 36 operations. */
QN_FN qn_f32 qn_tanh(qn_f32 x)
{
  qn_f32 a = qn_abs(x);
  qn_exp_parts e = qn_exp_split(qn_no_more(a + a, 20.0f), 127.0f);
  qn_f32 power = qn_f32_of(e.t << 23), less = power - 1.0f;
  qn_f32 m = qn_fma(power, e.high, less), m_rest = qn_fma(power, e.low, qn_fma(power, e.high, less - m));
  qn_f32 d = m + 2.0f, d_rest = (qn_no_more(m, 2.0f) - (d - qn_no_less(m, 2.0f))) + m_rest, inverse = qn_reciprocal(d);
  qn_f32 quotient = m * inverse;
  qn_f32 left = qn_fma(-quotient, d_rest, qn_fma(-quotient, d, m) + m_rest);
  quotient = qn_fma(left, inverse, quotient);
  return qn_f32_of(qn_bits_of(quotient) | (qn_bits_of(x) & 0x80000000u));
}

/* 1 / (1 + e^-x) as e / (1 + e) or 1 / (1 + e) with e = e^-|x|, so that nothing overflows and small results keep their
 * digits. Worst error 1.4797; 29 operations. */
QN_FN qn_f32 qn_sigmoid(qn_f32 x)
{
  qn_f32 y = qn_no_less(qn_below(x), -104.0f), one = qn_splat(1.0f);
  qn_f32 t = qn_fma(y, qn_splat(QN_LOG2_E), qn_splat(QN_TO_WHOLE + 191.0f)), n = t - (QN_TO_WHOLE + 191.0f);
  qn_f32 p = qn_exp_near(qn_fma(n, qn_splat(-QN_LN_2), y), n * -QN_LN_2_REST);
  qn_f32 e = qn_times_small_power(p, qn_bits_of(t), n);
  qn_f32 d = e + 1.0f, d_rest = e - (d - 1.0f), inverse = qn_reciprocal(d);
  qn_f32 top = qn_select(qn_less(x, qn_splat(0.0f)), e, one), quotient = top * inverse;
  qn_f32 left = qn_fma_less(quotient, d_rest, qn_fma_less(quotient, d, top));
  return qn_fma(left, inverse, quotient);
}

/* The same for results stored in 16 bits: one word of ln(2) and a shorter polynomial, no second step of the quotient.
 * NaN gives any number, for products with x itself, which are NaN then. Worst error 4.7280; 18 operations. */
QN_FN qn_f32 qn_sigmoid16_of_number(qn_f32 x)
{
  qn_f32 y = qn_no_less(qn_below(x), -104.0f), one = qn_splat(1.0f);
  qn_f32 t = qn_fma(y, qn_splat(QN_LOG2_E), qn_splat(QN_TO_WHOLE + 64.0f)), n = t - (QN_TO_WHOLE + 64.0f);
  qn_f32 r = qn_fma(n, qn_splat(-QN_LN_2), y), q = qn_splat(0x1.0f9932p-7f);
  q = qn_then(q, r, 0x1.573accp-5f);
  q = qn_then(q, r, 0x1.555a8ap-3f);
  q = qn_then(q, r, 0x1.fffdc4p-2f);
  q = qn_then(q, r, 0x1.fffff6p-1f);
  /* n + 64, above -90, is added to the exponent of a number near 1; NaN would be lost there. */
  qn_f32 e = qn_f32_of(qn_bits_of(qn_then(q, r, 1.0f)) + (qn_bits_of(t) << 23)) * 0x1p-64f;
  return qn_select(qn_less(x, qn_splat(0.0f)), e, one) * qn_reciprocal(1.0f + e);
}

/* With NaN. 20 operations. */
QN_FN qn_f32 qn_sigmoid16(qn_f32 x) { return qn_select(qn_is_nan(x), x, qn_sigmoid16_of_number(x)); }

/* Below 1 x + x q(x^2), from there on 1 - e^(x q(x)). Worst error 0.9909; 33 operations. */
QN_FN qn_f32 qn_erf(qn_f32 x)
{
  qn_f32 a = qn_abs(x), s = a * a, p = qn_splat(0x1.4c344ep-14f);
  p = qn_then(p, s, -0x1.a50b0ep-11f);
  p = qn_then(p, s, 0x1.542e1p-8f);
  p = qn_then(p, s, -0x1.b7fe9p-6f);
  p = qn_then(p, s, 0x1.ce2d5p-4f);
  p = qn_then(p, s, -0x1.81274p-2f);
  p = qn_then(p, s, 0x1.06eba8p-3f);
  qn_f32 b = qn_no_more(a, 4.0f), q = qn_splat(0x1.b8c89cp-13f);
  q = qn_then(q, b, -0x1.a13754p-9f);
  q = qn_then(q, b, 0x1.755388p-6f);
  q = qn_then(q, b, -0x1.ae79bap-4f);
  q = qn_then(q, b, -0x1.458dacp-1f);
  q = qn_then(q, b, -0x1.20e3c6p0f);
  qn_f32 power = b * q, t = qn_fma(power, qn_splat(QN_LOG2_E), qn_splat(QN_TO_WHOLE + 127.0f));
  qn_f32 n = t - (QN_TO_WHOLE + 127.0f); /* the rest of ln(2) changes nothing here */
  qn_f32 e = qn_exp_near(qn_fma(n, qn_splat(-QN_LN_2), power), qn_fma(b, q, -power));
  qn_f32 far = qn_fma(-e, qn_f32_of(qn_bits_of(t) << 23), qn_splat(1.0f));
  qn_f32 y = qn_select(qn_less(a, qn_splat(1.0f)), qn_fma(a, p, a), far);
  return qn_f32_of(qn_bits_of(y) | (qn_bits_of(x) & 0x80000000u));
}

/* ---- x Phi(x), where Phi(x) = erfc(-x / sqrt(2)) / 2 is the normal distribution's ----
 * With t = |x| it is max(x, 0) - t Phi(-t), and its slope Phi(-t) - t phi(t) below zero, 1 less that above, phi being
 * the density: nothing cancels but where the slope itself is zero. Phi(-t) = e^(-t^2 / 2) v q(v) with v = 1 / (1 + c
 * t). From 14.625 on t Phi(-t) and t phi(t) vanish. The zero below zero is -0, that of 0 is not: the maximum is asked
 * for as one, because clang 14 makes of a choice by x < 0 one that gives -0 for 0. */
typedef struct qn_gelu_parts {
  qn_f32 value, slope;
} qn_gelu_parts;

/* t^2 and 1 + c t are in two words. The value takes 48 operations, the slope 6 more. */
QN_FN qn_gelu_parts qn_gelu_of(qn_f32 x)
{
  qn_f32 t = qn_no_more(qn_abs(x), 14.625f), square = t * t, square_rest = qn_fma(t, t, -square), y = square * -0.5f;
  qn_f32 whole = qn_fma(y, qn_splat(QN_LOG2_E), qn_splat(QN_TO_WHOLE + 191.0f)), n = whole - (QN_TO_WHOLE + 191.0f);
  qn_f32 low = qn_fma(square_rest, qn_splat(-0.5f), n * -QN_LN_2_REST);
  qn_f32 e_less = qn_exp_less_near(qn_fma(n, qn_splat(-QN_LN_2), y), low);
  qn_f32 power = qn_f32_of(qn_bits_of(whole) << 23); /* of two, 2^64 times */
  qn_f32 d = qn_fma(t, qn_splat(0.25f), qn_splat(1.0f)), d_rest = qn_fma(t, qn_splat(0.25f), 1.0f - d);
  qn_f32 v = qn_reciprocal(d), left = qn_fma(-v, d_rest, qn_fma(-v, d, qn_splat(1.0f))), u = v - 0.59375f;
  qn_f32 q = qn_splat(0x1.17f54ap-6f);
  q = qn_then(q, u, 0x1.aa7a02p-6f);
  q = qn_then(q, u, -0x1.29b804p-5f);
  q = qn_then(q, u, -0x1.5d4824p-4f);
  q = qn_then(q, u, 0x1.47eb54p-6f);
  q = qn_then(q, u, 0x1.0b5494p-2f);
  q = qn_then(q, u, 0x1.df1deep-2f);
  q = qn_then(q, u, 0x1.02ac52p-1f);
  q = qn_then(q, u, 0x1.8c7b6cp-2f);
  q = qn_then(q, u, 0x1.c4b37ap-3f);
  qn_f32 h = qn_fma(v, q, v * q * (left * qn_fma(v, qn_splat(2.0f), qn_splat(1.0f))));
  qn_f32 tail = qn_fma(h, e_less, h) * power, inner = qn_fma(-t, (1.0f + e_less) * power * 0x1.988454p-2f, tail);
  qn_mask below = qn_less(x, qn_splat(0.0f));
  qn_gelu_parts g;
  g.value = qn_fma(t * tail, qn_splat(-0x1p-64f), qn_no_less(x, -0.0f));
  g.slope = qn_select(below, inner * 0x1p-64f, qn_fma(inner, qn_splat(-0x1p-64f), qn_splat(1.0f)));
  return g;
}

/* The same for results stored in 16 bits: all in one word, and shorter polynomials. 27 operations, the slope 4 more. */
QN_FN qn_gelu_parts qn_gelu16_of(qn_f32 x)
{
  qn_f32 t = qn_no_more(qn_abs(x), 14.625f), square = t * t;
  qn_f32 whole = qn_fma(square, qn_splat(-0.5f * QN_LOG2_E), qn_splat(QN_TO_WHOLE + 191.0f));
  qn_f32 n = whole - (QN_TO_WHOLE + 191.0f), r = qn_fma(square, qn_splat(-0.5f * QN_LOG2_E), -n);
  qn_f32 p = qn_splat(0x1.6036a2p-10f);
  p = qn_then(p, r, 0x1.3cf2dcp-7f);
  p = qn_then(p, r, 0x1.c6acf8p-5f);
  p = qn_then(p, r, 0x1.ebf9a4p-3f);
  p = qn_then(p, r, 0x1.62e432p-1f);
  qn_f32 e = qn_then(p, r, 1.0f) * qn_f32_of(qn_bits_of(whole) << 23); /* 2^64 times */
  qn_f32 v = qn_reciprocal(qn_fma(t, qn_splat(0.375f), qn_splat(1.0f)));
  qn_f32 q = qn_splat(0x1.8c22aep-69f); /* 2^-64 times */
  q = qn_then(q, v, -0x1.50367p-67f);
  q = qn_then(q, v, 0x1.071aep-67f);
  q = qn_then(q, v, 0x1.be4448p-69f);
  q = qn_then(q, v, 0x1.129adp-67f);
  q = qn_then(q, v, 0x1.317edcp-67f);
  q = qn_then(q, v, 0x1.3268ap-67f);
  qn_f32 tail = v * q * e, inner = qn_fma(-t, e * 0x1.988454p-66f, tail);
  qn_mask below = qn_less(x, qn_splat(0.0f));
  qn_gelu_parts g;
  g.value = qn_fma(-t, tail, qn_no_less(x, -0.0f));
  g.slope = qn_select(below, inner, 1.0f - inner);
  return g;
}

/* Worst error 3.9602; 48 operations. */
QN_FN qn_f32 qn_gelu(qn_f32 x) { return qn_gelu_of(x).value; }
/* Worst error 103.7635; 27 operations. */
QN_FN qn_f32 qn_gelu16(qn_f32 x) { return qn_gelu16_of(x).value; }

/* ---- logarithms ---- */

/* x = 2^k (1 + f) with 1 + f from sqrt(1/2) to sqrt(2), for x above zero and finite; ln(1 + f) = f + rest. */
typedef struct qn_log_parts {
  qn_f32 k, f, rest;
} qn_log_parts;

/* ln(1 + f) - f. 10 operations. */
QN_FN qn_f32 qn_log_less_f(qn_f32 f)
{
  qn_f32 q = qn_splat(-0x1.2ff48p-4f);
  q = qn_then(q, f, 0x1.06990ep-3f);
  q = qn_then(q, f, -0x1.0ffabcp-3f);
  q = qn_then(q, f, 0x1.22bcbcp-3f);
  q = qn_then(q, f, -0x1.541adap-3f);
  q = qn_then(q, f, 0x1.999feap-3f);
  q = qn_then(q, f, -0x1.00044cp-2f);
  q = qn_then(q, f, 0x1.555558p-2f);
  q = qn_then(q, f, -0x1.fffff8p-2f);
  return f * f * q;
}

/* 21 operations. */
QN_FN qn_log_parts qn_log_split(qn_f32 x)
{
  qn_mask tiny = qn_less_bits(qn_bits_of(x), qn_splat_bits(0x00800000u));
  qn_bits u = qn_bits_of(qn_select(tiny, x * 0x1p23f, x)) + (0x3f800000u - 0x3f3504f3u); /* sqrt(1/2) to 1 */
  qn_log_parts l;
  l.f = qn_f32_of((u & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
  l.k = qn_f32_of((u >> 23) | 0x4b000000u) - qn_select(tiny, qn_splat(0x1p23f + 150.0f), qn_splat(0x1p23f + 127.0f));
  l.rest = qn_log_less_f(l.f);
  return l;
}

/* A logarithm y where x is above zero and finite; else -infinity of zeros, NaN below them, x itself above. 6
 * operations.
 */
QN_FN qn_f32 qn_log_special(qn_f32 x, qn_f32 y)
{
  qn_f32 zero = qn_splat(0.0f), none = qn_f32_of(qn_splat_bits(0x7fc00000u));
  qn_f32 of_zero = qn_f32_of(qn_splat_bits(0xff800000u));
  qn_f32 special = qn_select(qn_equal(x, zero), of_zero, qn_select(qn_less(x, zero), none, x));
  return qn_select(qn_less_bits(qn_bits_of(x) - 1u, qn_splat_bits(0x7f7fffffu)), y, special);
}

/* k ln(2) + f + rest. 6 operations. */
QN_FN qn_f32 qn_log_of(qn_log_parts l)
{
  qn_f32 y = qn_fma(l.k, qn_splat(QN_LN_2), l.f), y_rest = qn_fma(l.k, qn_splat(QN_LN_2), -y) + l.f;
  return y + (qn_fma(l.k, qn_splat(QN_LN_2_REST), l.rest) + y_rest);
}

/* Worst error 0.9047; 34 operations. */
QN_FN qn_f32 qn_log(qn_f32 x) { return qn_log_special(x, qn_log_of(qn_log_split(x))); }

/* 1 + x in two words, of which the first is split. Their sum has x's sign, zeros too. Worst error 1.0046; 42
 * operations. */
QN_FN qn_f32 qn_log1p(qn_f32 x)
{
  qn_f32 sum = x + 1.0f, x_there = sum - 1.0f, rest = (1.0f - (sum - x_there)) + (x - x_there);
  qn_bits u = qn_bits_of(sum) + (0x3f800000u - 0x3f3504f3u);
  qn_f32 f = qn_f32_of((u & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
  qn_f32 power = qn_f32_of((255u - (u >> 23)) << 23); /* 2^(1 - k) */
  qn_log_parts l;
  l.k = qn_f32_of((u >> 23) | 0x4b000000u) - (0x1p23f + 127.0f);
  l.f = qn_fma(rest * 0.5f, power, f);
  l.rest = qn_log_less_f(l.f) + qn_fma(rest * 0.5f, power, f - l.f);
  return qn_log_special(sum, qn_f32_of(qn_bits_of(qn_log_of(l)) | (qn_bits_of(x) & 0x80000000u)));
}

/* Worst error 1.1082; 38 operations. */
QN_FN qn_f32 qn_log2(qn_f32 x)
{
  qn_log_parts l = qn_log_split(x);
  qn_f32 high = l.f * QN_LOG2_E, low = qn_fma(l.f, qn_splat(QN_LOG2_E), -high);
  low = low + qn_fma(l.f, qn_splat(0x1.4ae0cp-26f), l.rest * QN_LOG2_E);
  qn_f32 y = l.k + high;
  return qn_log_special(x, y + ((high - (y - l.k)) + low));
}

/* ---- sine and cosine ---- */

/* |x| = (4 m + quarter) pi/2 + r + rest, |r| up to a little over pi/4. Quarter: the low two bits; what is above them
 * means nothing. */
typedef struct qn_angle {
  qn_f32 r, rest;
  qn_bits quarter;
} qn_angle;

/* For a from 65536 up, finite. The significand times the digits of 2/pi that matter at its exponent, in integers: two
 * bits for the quarter and 62 for what is left of it (Payne and Hanek, 1983). */
QN_FN qn_angle qn_angle_far(qn_f32 a)
{
  const qn_u32 digits[7] = {0,           0xa2f9836eu, 0x4e441529u, 0xfc2757d1u,
                            0xf534ddc0u, 0xdb629599u, 0x3c439041u}; /* from 2^32, where there are none */
  qn_bits bits = qn_bits_of(a), whole = (bits << 8) | 0x80000000u;
  qn_bits at = (bits >> 23) - 128u, shift = at & 31u; /* the first digit of four times a that matters */
  qn_mask far = qn_less_bits(qn_splat_bits(63u), at), odd = qn_less_bits(qn_splat_bits(31u), at & 63u);
  qn_bits word[5], c[4], high[2], carried;
  QN_UNROLL
  for (int k = 0; k < 5; k++) word[k] = qn_select_bits(far, qn_splat_bits(digits[k + 2]), qn_splat_bits(digits[k]));
  QN_UNROLL
  for (int k = 0; k < 4; k++) c[k] = qn_select_bits(odd, word[k + 1], word[k]);
  QN_UNROLL
  for (int k = 0; k < 3; k++) c[k] = (c[k] << shift) | ((c[k + 1] >> 1) >> (31u - shift));
  (void)qn_multiply_lanes(whole, c[2], &carried);
  qn_bits low = qn_multiply_lanes(whole, c[1], &high[0]) + carried;
  qn_bits top = whole * c[0] + high[0];
  top = qn_select_bits(qn_less_bits(low, carried), top + 1u, top);

  /* As a signed number of 64 bits the fraction is to the nearest quarter. Its magnitude in 23, 23 and 17 bits. */
  qn_angle angle;
  angle.quarter = (top + 0x20000000u) >> 30;
  top = (top << 2) | (low >> 30), low = low << 2;
  qn_bits sign = top & 0x80000000u, flip = 0u - (sign >> 31);
  top = top ^ flip, low = low ^ flip; /* less by one unit of the 64th digit, which does not matter */
  qn_f32 first = qn_f32_of((top >> 8) | 0x3f000000u) - 0.5f;
  qn_f32 second = qn_f32_of(((top & 0xffu) << 15) | (low >> 17) | 0x33800000u) - 0x1p-24f;
  qn_f32 third = qn_f32_of((low & 0x1ffffu) | 0x2b000000u) - 0x1p-41f;
  qn_f32 part = first + second, part_rest = (second - (part - first)) + third;
  qn_f32 r = part * 0x1.921fb6p0f, rest = qn_fma(part, qn_splat(0x1.921fb6p0f), -r);
  rest = qn_fma(part, qn_splat(-0x1.777a5cp-25f), qn_fma(part_rest, qn_splat(0x1.921fb6p0f), rest));
  part = r + rest; /* now the rest is below half of r's last place */
  angle.r = qn_f32_of(qn_bits_of(part) ^ sign);
  angle.rest = qn_f32_of(qn_bits_of(rest - (part - r)) ^ sign);
  return angle;
}

/* 13 operations, and for lanes from 65536 up some 90. Infinities and NaN become NaN. */
QN_FN qn_angle qn_angle_of(qn_f32 a)
{
  qn_f32 t = qn_fma(a, qn_splat(0x1.45f306p-1f), qn_splat(QN_TO_WHOLE)), n = t - QN_TO_WHOLE;
  /* The first is exact: a multiple of 2^-23, or of a's last place, below 1. So is what the sum drops. */
  qn_f32 near = qn_fma(n, qn_splat(-0x1.921fb6p0f), a), next = n * 0x1.777a5cp-25f, r = near + next;
  qn_f32 rest = (next - (r - near)) + qn_fma(n, qn_splat(0x1.777a5cp-25f), -next);
  qn_angle angle = {r, qn_fma(n, qn_splat(0x1.ee59dap-50f), rest), qn_bits_of(t)};
  qn_mask far = qn_less_bits(qn_bits_of(a) - 0x47800000u, qn_splat_bits(0x7f800000u - 0x47800000u));
  if (!qn_any(far)) return angle;
  const qn_angle other = qn_angle_far(a);
  angle.r = qn_select(far, other.r, angle.r);
  angle.rest = qn_select(far, other.rest, angle.rest);
  angle.quarter = qn_select_bits(far, other.quarter, angle.quarter);
  return angle;
}

/* The sine of an angle. 22 operations. */
QN_FN qn_f32 qn_angle_sin(qn_angle angle)
{
  qn_f32 r = angle.r, s = r * r;
  qn_f32 p = qn_then(qn_then(qn_splat(-0x1.994f52p-13f), s, 0x1.11077p-7f), s, -0x1.555546p-3f);
  qn_f32 q = qn_then(qn_then(qn_splat(0x1.99e0eep-16f), s, -0x1.6c0c1ap-10f), s, 0x1.55554ap-5f);
  qn_f32 sin = r + qn_fma(r * s, p, angle.rest);
  qn_f32 half = 0.5f * s, w = 1.0f - half; /* 1 - r^2/2 in two words */
  qn_f32 cos = w + (((1.0f - w) - half) + qn_fma(s * s, q, -(r * angle.rest)));
  qn_f32 y = qn_select(qn_less_bits((angle.quarter & 1u) - 1u, qn_splat_bits(1u)), cos, sin);
  return qn_f32_of(qn_bits_of(y) ^ ((angle.quarter << 30) & 0x80000000u));
}

/* Worst error 0.8731; 36 operations. */
QN_FN qn_f32 qn_sin(qn_f32 x)
{
  return qn_f32_of(qn_bits_of(qn_angle_sin(qn_angle_of(qn_abs(x)))) ^ (qn_bits_of(x) & 0x80000000u));
}

/* Worst error 0.8725; 36 operations. */
QN_FN qn_f32 qn_cos(qn_f32 x)
{
  qn_angle angle = qn_angle_of(qn_abs(x));
  angle.quarter = angle.quarter + 1u;
  return qn_angle_sin(angle);
}

/* ---- 1 / sqrt(x), of -0 -infinity, NaN below; one step of Newton's, with x y^2 in two words ---- */

/* Worst error 0.5000; 10 operations. */
QN_FN qn_f32 qn_rsqrt(qn_f32 x)
{
  qn_f32 y = 1.0f / qn_sqrt(x), root = x * y, root_rest = qn_fma(x, y, -root);
  qn_f32 off = qn_fma(-root_rest, y, qn_fma(-root, y, qn_splat(1.0f)));
  qn_f32 better = qn_fma(0.5f * y, off, y);
  return qn_select(qn_is_nan(better), y, better); /* y is right where it is 0 or infinite */
}
#endif
#endif
