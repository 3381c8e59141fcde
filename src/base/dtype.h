/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.h - 16-bit storage, lane by lane: widening (exact), narrowing to nearest even, narrowing by chance.
 *
 * The bits, which are the contract (docs/numerics.md). A value is stored as sign and magnitude; only the
 * magnitude is rounded. NaN stays NaN, infinity stays infinity, subnormals are kept.
 *   nearest even   IEEE 754: f16 overflows to infinity from 65520 on, bf16 from 2^128 - 2^119 on.
 *   by chance      `word` is 32 random bits. Of the d low bits that storage drops, the magnitude plus (word mod 2^d) is
 *                  taken and the d bits are cut off: up with probability (dropped bits) / 2^d, so the mean is exact.
 *                  bf16: d = 16. f16: d = 13 for magnitudes of at least 2^-14; below that storage has a fixed step of
 *                  2^-24 and d = 14 .. 24 for 2^-15 .. 2^-25 and so on; for d > 32 the significand is first shifted
 *                  right by d - 32 and d = 32 then, so the probability is rounded down to a multiple of 2^-32. A carry
 *                  out of the largest finite value gives infinity, as the sum says; f16: 65536 and more are infinity.
 * To nearest the conversions of GPUs, and of f16 those of F16C and NEON, give these bits and are taken. All else is
 * integer arithmetic: AVX512-BF16 flushes subnormals. The oracle stores doubles: nothing here.
 * f8e4m3 (OCP's E4M3: no infinities) is rounded to nearest even, and what is beyond 448, infinities too, becomes 448.
 * A stored value lies in the low bits of a 32-bit lane, the high ones are zero; f16 to nearest is 16 bits a lane. */
#ifndef QN_BASE_DTYPE_H
#define QN_BASE_DTYPE_H
#include "base/simd.h"

#ifndef QN_ORACLE
#ifdef QN_CUDA_DIALECT
QN_FN qn_f32 qn_widen_bf16(qn_bits h) { return qn_bf16_float((qn_u16)h); }
QN_FN qn_bits qn_narrow_bf16(qn_f32 x) { return qn_float_bf16(x); }
#else
QN_FN qn_f32 qn_widen_bf16(qn_bits h) { return qn_f32_of(h << 16); }

QN_FN qn_bits qn_narrow_bf16(qn_f32 x)
{
  qn_bits u = qn_bits_of(x);
  qn_bits rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return qn_select_bits(qn_is_nan(x), (u >> 16) | 0x40u, rounded);
}
#endif

#if QN_LANES == 16
QN_FN qn_f32 qn_widen_f16(qn_halves h) { return (qn_f32)_mm512_cvtph_ps((__m256i)h); }
QN_FN qn_halves qn_narrow_f16(qn_f32 x) { return (qn_halves)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT); }
#elif QN_LANES == 8
QN_FN qn_f32 qn_widen_f16(qn_halves h) { return (qn_f32)_mm256_cvtph_ps((__m128i)h); }
QN_FN qn_halves qn_narrow_f16(qn_f32 x) { return (qn_halves)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT); }
#elif QN_LANES == 4
QN_FN qn_f32 qn_widen_f16(qn_halves h) { return (qn_f32)vcvt_f32_f16((float16x4_t)h); }
QN_FN qn_halves qn_narrow_f16(qn_f32 x) { return (qn_halves)vcvt_f16_f32((float32x4_t)x); }
#else
QN_FN qn_f32 qn_widen_f16(qn_halves h) { return qn_f16_float(h); }
QN_FN qn_halves qn_narrow_f16(qn_f32 x) { return qn_float_f16(x); }
#endif

QN_FN qn_bits qn_narrow_f8e4m3(qn_f32 x)
{
  qn_bits u = qn_bits_of(x), sign = (u >> 24) & 0x80u, rest = u & 0x7fffffffu;
  qn_bits tiny = qn_bits_of(qn_f32_of(rest) + qn_splat(16384.0f)) - 0x46800000u; /* the addition rounds to 2^-9 */
  qn_bits normal = (rest - 0x3c000000u + 0x7ffffu + ((rest >> 20) & 1u)) >> 20;
  qn_bits finite = qn_select_bits(qn_less_bits(rest, qn_splat_bits(0x3c800000u)), tiny, normal);
  finite = qn_select_bits(qn_less_bits(rest, qn_splat_bits(0x43e00000u)), finite, qn_splat_bits(0x7eu));
  return sign | qn_select_bits(qn_is_nan(x), qn_splat_bits(0x7fu), finite);
}

/* The low half of an infinity is zero, so nothing carries out of it; a NaN's could. */
QN_FN qn_bits qn_narrow_bf16_chance(qn_f32 x, qn_bits word)
{
  qn_bits u = qn_bits_of(x);
  return qn_select_bits(qn_is_nan(x), qn_splat_bits(0x7fffu), (u + (word & 0xffffu)) >> 16);
}

QN_FN qn_bits qn_narrow_f16_chance(qn_f32 x, qn_bits word)
{
  qn_bits u = qn_bits_of(x), sign = (u >> 16) & 0x8000u, rest = u & 0x7fffffffu, zero = qn_splat_bits(0);
  qn_bits normal = (rest - 0x38000000u + (word & 0x1fffu)) >> 13;

  /* Below 2^-14: the significand, of which d = 126 - exponent bits are dropped, in 32-bit arithmetic with its carry. A
   * subnormal float has exponent 1 and no leading bit; its d is 125, and nothing is left of it. */
  qn_mask is_small = qn_less_bits(rest, qn_splat_bits(0x38800000u));
  qn_bits exponent = qn_select_bits(is_small, rest >> 23, qn_splat_bits(112u)); /* elsewhere: any that shifts well */
  qn_bits leading = qn_select_bits(qn_less_bits(exponent, qn_splat_bits(1u)), zero, qn_splat_bits(0x800000u));
  qn_bits d = 126u - (exponent | qn_select_bits(qn_less_bits(exponent, qn_splat_bits(1u)), qn_splat_bits(1u), zero));
  qn_mask is_far = qn_less_bits(qn_splat_bits(32u), d);
  qn_bits far = qn_select_bits(is_far, d - 32u, zero);
  far = qn_select_bits(qn_less_bits(far, qn_splat_bits(31u)), far, qn_splat_bits(31u));
  d = qn_select_bits(is_far, qn_splat_bits(32u), d);
  qn_bits significand = ((rest & 0x7fffffu) | leading) >> far;
  qn_bits sum = significand + (word & (qn_splat_bits(0xffffffffu) >> (32u - d)));
  qn_bits carry = qn_select_bits(qn_less_bits(sum, significand), qn_splat_bits(1u), zero); /* only where d is 32 */
  qn_bits tiny = ((sum >> (d - 1u)) >> 1) + carry;

  qn_bits special = qn_select_bits(qn_is_nan(x), qn_splat_bits(0x7e00u), qn_splat_bits(0x7c00u));
  qn_bits finite = qn_select_bits(is_small, tiny, normal);
  return sign | qn_select_bits(qn_less_bits(rest, qn_splat_bits(0x47800000u)), finite, special);
}
#endif
#endif
