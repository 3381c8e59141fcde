/* SPDX-License-Identifier: Apache-2.0 */
/* simd.h - the words that element formulas are written in.
 *
 * A `qn_f32` is one float here, four, eight or sixteen there, one float in a GPU thread, one double in the accuracy
 * oracle. + - * / work on all of them as C writes them; only what has no operator is named below. Every operation is
 * correctly rounded and contraction is off, so all instantiations give the same bits (any NaN equals any NaN). A
 * formula works on a pack: QN_PACK such variables, in memory order. It includes no header but the intrinsics of a
 * vector tier, so that NVRTC and a bare C++ compiler read it too. Loads and stores are not here: for_packs.h has them.
 */
#ifndef QN_BASE_SIMD_H
#define QN_BASE_SIMD_H
#include "base/kernel.h"

#ifdef QN_TIER /* flags and types are constants only where all is inlined, whatever included kernel.h first */
#undef QN_FN
#define QN_FN static inline __attribute__((always_inline))
#endif

#if defined(QN_WIDE) && defined(__AVX512F__) && !defined(QN_ORACLE)
#include <immintrin.h>
#define QN_LANES 16
#elif defined(QN_WIDE) && defined(__AVX2__) && !defined(QN_ORACLE)
#include <immintrin.h>
#define QN_LANES 8
#elif defined(QN_WIDE) && defined(__ARM_NEON) && !defined(QN_ORACLE)
#include <arm_neon.h>
#define QN_LANES 4
#else
#define QN_LANES 1
#endif

#ifndef QN_PACK
#define QN_PACK 4 /* lane variables in a pack; a multiple of 4 */
#endif

#if QN_LANES == 1
/* ---- one lane: the reference, the oracle, a GPU thread ---- */
#ifdef QN_ORACLE
typedef double qn_f32;
#else
typedef float qn_f32;
#endif
typedef qn_f32 qn_scalar; /* a number that all lanes get */
typedef qn_u32 qn_bits;   /* 32 bits a lane */
typedef qn_u16 qn_halves; /* 16 bits a lane: storage */
typedef qn_u8 qn_bytes;   /* 8 bits a lane: likewise */
typedef int qn_mask;      /* true or false a lane */

QN_FN qn_f32 qn_splat(qn_scalar x) { return x; }
QN_FN qn_bits qn_splat_bits(qn_u32 x) { return x; }
QN_FN qn_mask qn_less(qn_f32 a, qn_f32 b) { return a < b; }
QN_FN qn_mask qn_at_most(qn_f32 a, qn_f32 b) { return a <= b; }
QN_FN qn_mask qn_equal(qn_f32 a, qn_f32 b) { return a == b; }
QN_FN qn_mask qn_is_nan(qn_f32 x) { return x != x; }
QN_FN qn_mask qn_less_bits(qn_bits a, qn_bits b) { return a < b; }
QN_FN qn_f32 qn_select(qn_mask where, qn_f32 yes, qn_f32 no) { return where ? yes : no; }
QN_FN qn_bits qn_select_bits(qn_mask where, qn_bits yes, qn_bits no) { return where ? yes : no; }
QN_FN qn_u32 qn_count(qn_mask where) { return where ? 1u : 0u; }
QN_FN qn_bits qn_bits_of_halves(qn_halves x) { return x; }
QN_FN qn_halves qn_halves_of(qn_bits x) { return (qn_halves)x; } /* x is below 2^16 */
QN_FN qn_bytes qn_bytes_of(qn_bits x) { return (qn_bytes)x; }    /* x is below 2^8 */
QN_FN qn_f32 qn_sign(qn_f32 x)                                   /* -1, +0 or +1; NaN stays NaN */
{
#ifdef QN_METAL_DIALECT
  return metal::fabs(x) > 0.0f ? metal::copysign(1.0f, x) : metal::fabs(x);
#elif defined(QN_CUDA_DIALECT)
  return fabsf(x) > 0.0f ? copysignf(1.0f, x) : fabsf(x); /* a value not above zero is zero or NaN here */
#elif defined(QN_ORACLE)
  return __builtin_fabs(x) > 0 ? __builtin_copysign(1.0, x) : __builtin_fabs(x);
#else
  return __builtin_fabsf(x) > 0 ? __builtin_copysignf(1.0f, x) : __builtin_fabsf(x);
#endif
}

QN_FN qn_f32 qn_fma(qn_f32 a, qn_f32 b, qn_f32 c)
{
#ifdef QN_METAL_DIALECT
  return metal::fma(a, b, c);
#elif defined(QN_PTX)
  return __fmaf_rn(a, b, c);
#elif defined(QN_ORACLE)
  return __builtin_fma(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

QN_FN qn_f32 qn_fma_less(qn_f32 a, qn_f32 b, qn_f32 c) { return qn_fma(-a, b, c); } /* c - a b */

QN_FN qn_f32 qn_sqrt(qn_f32 x)
{
#ifdef QN_METAL_DIALECT
  return metal::precise::sqrt(x);
#elif defined(QN_PTX)
  return __fsqrt_rn(x);
#elif defined(QN_CUDA_DIALECT)
  return sqrtf(x); /* AMD's library rounds it; the compiler's own is the instruction */
#elif defined(QN_ORACLE)
  return __builtin_sqrt(x);
#else
  return __builtin_sqrtf(x);
#endif
}

QN_FN qn_f32 qn_abs(qn_f32 x)
{
#ifdef QN_ORACLE
  return __builtin_fabs(x);
#elif defined(QN_PTX)
  return fabsf(x); /* a sign of the operand, where the bits would be an operation */
#else
  return qn_bits_float(qn_float_bits(x) & 0x7fffffffu);
#endif
}

#ifndef QN_ORACLE
QN_FN qn_bits qn_bits_of(qn_f32 x) { return qn_float_bits(x); }
QN_FN qn_f32 qn_f32_of(qn_bits x) { return qn_bits_float(x); }
/* x, or the bound where x is beyond it; NaN stays NaN. A bound is not 0; -0 may be the least, and leaves zeros alone.
 */
QN_FN qn_f32 qn_no_less(qn_f32 x, float low) { return qn_float_no_less(x, low); }
QN_FN qn_f32 qn_no_more(qn_f32 x, float high) { return qn_float_no_more(x, high); }
QN_FN qn_f32 qn_reciprocal(qn_f32 x) { return qn_float_reciprocal(x); } /* 1 / x for x from 1 to below 2^126, or NaN */
#endif
QN_FN int qn_any(qn_mask where) { return where; }

/* The 64-bit product of every lane with m: the low halves, and the high ones through the pointer. */
QN_FN qn_bits qn_multiply_wide(qn_bits a, qn_u32 m, qn_bits *high)
{
  qn_u64 product = (qn_u64)a * m;
  *high = (qn_bits)(product >> 32);
  return (qn_bits)product;
}

/* The same, lane by lane. */
QN_FN qn_bits qn_multiply_lanes(qn_bits a, qn_bits b, qn_bits *high) { return qn_multiply_wide(a, b, high); }

#else
/* ---- vectors: what the compiler's vector extension says well is the same text for all widths ---- */
typedef float qn_f32 __attribute__((vector_size(4 * QN_LANES)));
typedef float qn_scalar;
typedef qn_u32 qn_bits __attribute__((vector_size(4 * QN_LANES)));
typedef qn_u16 qn_halves __attribute__((vector_size(2 * QN_LANES)));
typedef qn_u8 qn_bytes __attribute__((vector_size(QN_LANES)));

QN_FN qn_f32 qn_splat(float x) { return x - (qn_f32){0}; }
QN_FN qn_bits qn_splat_bits(qn_u32 x) { return x - (qn_bits){0}; }
QN_FN qn_bits qn_bits_of(qn_f32 x) { return (qn_bits)x; }
QN_FN qn_f32 qn_f32_of(qn_bits x) { return (qn_f32)x; }
QN_FN qn_f32 qn_abs(qn_f32 x) { return (qn_f32)((qn_bits)x & 0x7fffffffu); }
QN_FN qn_f32 qn_reciprocal(qn_f32 x) { return 1.0f / x; }
QN_FN qn_bytes qn_bytes_of(qn_bits x) { return __builtin_convertvector(x, qn_bytes); }

#if QN_LANES == 16
typedef __mmask16 qn_mask;

QN_FN qn_mask qn_less(qn_f32 a, qn_f32 b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ); }
QN_FN qn_mask qn_at_most(qn_f32 a, qn_f32 b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LE_OQ); }
QN_FN qn_mask qn_equal(qn_f32 a, qn_f32 b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_EQ_OQ); }
QN_FN qn_mask qn_is_nan(qn_f32 x) { return _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q); }
QN_FN qn_mask qn_less_bits(qn_bits a, qn_bits b) { return _mm512_cmplt_epu32_mask((__m512i)a, (__m512i)b); }
QN_FN qn_u32 qn_count(qn_mask where) { return (qn_u32)__builtin_popcount(where); }
QN_FN qn_f32 qn_select(qn_mask where, qn_f32 yes, qn_f32 no)
{
  return (qn_f32)_mm512_mask_blend_ps(where, (__m512)no, (__m512)yes);
}
QN_FN qn_bits qn_select_bits(qn_mask where, qn_bits yes, qn_bits no)
{
  return (qn_bits)_mm512_mask_blend_epi32(where, (__m512i)no, (__m512i)yes);
}
QN_FN qn_f32 qn_fma(qn_f32 a, qn_f32 b, qn_f32 c) { return (qn_f32)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
/* c - a b. */
QN_FN qn_f32 qn_fma_less(qn_f32 a, qn_f32 b, qn_f32 c)
{
  return (qn_f32)_mm512_fnmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
/* x 2^n for whole n, rounded once. */
#define QN_SCALES
QN_FN qn_f32 qn_scale(qn_f32 x, qn_f32 n) { return (qn_f32)_mm512_scalef_ps((__m512)x, (__m512)n); }
QN_FN qn_f32 qn_sqrt(qn_f32 x) { return (qn_f32)_mm512_sqrt_ps((__m512)x); }
/* -1, +0 or +1; NaN stays NaN. The instruction maps kinds of numbers; a digit for each: quiet NaN, signalling NaN (2:
 * quieted), zero (8: +0), one (10), -inf (9: -1), +inf, negative, positive; the first kind is the lowest digit. */
QN_FN qn_f32 qn_sign(qn_f32 x)
{
  return (qn_f32)_mm512_fixupimm_ps((__m512)x, (__m512)x, _mm512_set1_epi32((int)0xa9a9a822u), 0);
}
QN_FN qn_bits qn_bits_of_halves(qn_halves x) { return (qn_bits)_mm512_cvtepu16_epi32((__m256i)x); }
QN_FN qn_halves qn_halves_of(qn_bits x) { return (qn_halves)_mm512_cvtepi32_epi16((__m512i)x); }
QN_FN void qn_stream_halves(void *to, qn_halves x) { _mm256_stream_si256((__m256i *)to, (__m256i)x); }
QN_FN void qn_stream_lanes(void *to, qn_f32 x) { _mm512_stream_ps((float *)to, (__m512)x); }
QN_FN qn_bits qn_multiply_wide(qn_bits a, qn_u32 m, qn_bits *high)
{
  __m512i by = _mm512_set1_epi64(m);
  __m512i even = _mm512_mul_epu32((__m512i)a, by), odd = _mm512_mul_epu32(_mm512_srli_epi64((__m512i)a, 32), by);
  *high = (qn_bits)_mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
  return (qn_bits)_mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
}
QN_FN qn_bits qn_multiply_lanes(qn_bits a, qn_bits b, qn_bits *high)
{
  __m512i even = _mm512_mul_epu32((__m512i)a, (__m512i)b);
  __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64((__m512i)a, 32), _mm512_srli_epi64((__m512i)b, 32));
  *high = (qn_bits)_mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
  return (qn_bits)_mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
}
/* Where an operand is NaN, the instruction gives the second. */
QN_FN qn_f32 qn_no_less(qn_f32 x, float low) { return (qn_f32)_mm512_max_ps(_mm512_set1_ps(low), (__m512)x); }
QN_FN qn_f32 qn_no_more(qn_f32 x, float high) { return (qn_f32)_mm512_min_ps(_mm512_set1_ps(high), (__m512)x); }
QN_FN int qn_any(qn_mask where) { return where != 0; }

#else
typedef int qn_mask __attribute__((vector_size(4 * QN_LANES))); /* all bits of a lane, or none */

QN_FN qn_mask qn_less(qn_f32 a, qn_f32 b) { return a < b; }
QN_FN qn_mask qn_at_most(qn_f32 a, qn_f32 b) { return a <= b; }
QN_FN qn_mask qn_equal(qn_f32 a, qn_f32 b) { return a == b; }
QN_FN qn_mask qn_is_nan(qn_f32 x) { return x != x; }
QN_FN qn_mask qn_less_bits(qn_bits a, qn_bits b) { return (qn_mask)(a < b); }
QN_FN qn_f32 qn_sign(qn_f32 x) /* -1, +0 or +1; NaN stays NaN, of which all bits are set */
{
  qn_bits one = ((qn_bits)x & 0x80000000u) | 0x3f800000u;
  return (qn_f32)((one & (qn_bits)(x != 0.0f)) | (qn_bits)(x != x));
}

#if QN_LANES == 8
QN_FN qn_f32 qn_select(qn_mask where, qn_f32 yes, qn_f32 no)
{
  return (qn_f32)_mm256_blendv_ps((__m256)no, (__m256)yes, (__m256)where);
}
QN_FN qn_f32 qn_fma(qn_f32 a, qn_f32 b, qn_f32 c) { return (qn_f32)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
QN_FN qn_f32 qn_fma_less(qn_f32 a, qn_f32 b, qn_f32 c)
{
  return (qn_f32)_mm256_fnmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
QN_FN qn_f32 qn_sqrt(qn_f32 x) { return (qn_f32)_mm256_sqrt_ps((__m256)x); }
QN_FN qn_u32 qn_count(qn_mask where) { return (qn_u32)__builtin_popcount((unsigned)_mm256_movemask_ps((__m256)where)); }
QN_FN qn_bits qn_bits_of_halves(qn_halves x) { return (qn_bits)_mm256_cvtepu16_epi32((__m128i)x); }
QN_FN qn_halves qn_halves_of(qn_bits x)
{
  return (qn_halves)_mm_packus_epi32(_mm256_castsi256_si128((__m256i)x), _mm256_extracti128_si256((__m256i)x, 1));
}
QN_FN void qn_stream_halves(void *to, qn_halves x) { _mm_stream_si128((__m128i *)to, (__m128i)x); }
QN_FN void qn_stream_lanes(void *to, qn_f32 x) { _mm256_stream_ps((float *)to, (__m256)x); }
QN_FN qn_bits qn_multiply_wide(qn_bits a, qn_u32 m, qn_bits *high)
{
  __m256i by = _mm256_set1_epi64x(m);
  __m256i even = _mm256_mul_epu32((__m256i)a, by), odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)a, 32), by);
  *high = (qn_bits)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
  return (qn_bits)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}
QN_FN qn_bits qn_multiply_lanes(qn_bits a, qn_bits b, qn_bits *high)
{
  __m256i even = _mm256_mul_epu32((__m256i)a, (__m256i)b);
  __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)a, 32), _mm256_srli_epi64((__m256i)b, 32));
  *high = (qn_bits)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
  return (qn_bits)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}
/* Where an operand is NaN, the instruction gives the second. */
QN_FN qn_f32 qn_no_less(qn_f32 x, float low) { return (qn_f32)_mm256_max_ps(_mm256_set1_ps(low), (__m256)x); }
QN_FN qn_f32 qn_no_more(qn_f32 x, float high) { return (qn_f32)_mm256_min_ps(_mm256_set1_ps(high), (__m256)x); }
QN_FN int qn_any(qn_mask where) { return _mm256_movemask_ps((__m256)where) != 0; }
#else
QN_FN qn_f32 qn_select(qn_mask where, qn_f32 yes, qn_f32 no)
{
  return (qn_f32)vbslq_f32((uint32x4_t)where, (float32x4_t)yes, (float32x4_t)no);
}
QN_FN qn_f32 qn_fma(qn_f32 a, qn_f32 b, qn_f32 c)
{
  return (qn_f32)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
QN_FN qn_f32 qn_fma_less(qn_f32 a, qn_f32 b, qn_f32 c) { return qn_fma(-a, b, c); }
QN_FN qn_f32 qn_sqrt(qn_f32 x) { return (qn_f32)vsqrtq_f32((float32x4_t)x); }
QN_FN qn_u32 qn_count(qn_mask where) { return vaddvq_u32(vshrq_n_u32((uint32x4_t)where, 31)); }
QN_FN qn_bits qn_bits_of_halves(qn_halves x) { return (qn_bits)vmovl_u16((uint16x4_t)x); }
QN_FN qn_halves qn_halves_of(qn_bits x) { return (qn_halves)vmovn_u32((uint32x4_t)x); }
QN_FN qn_bits qn_multiply_wide(qn_bits a, qn_u32 m, qn_bits *high)
{
  uint32x4_t x = (uint32x4_t)a;
  uint32x4_t low = vreinterpretq_u32_u64(vmull_n_u32(vget_low_u32(x), m));
  uint32x4_t top = vreinterpretq_u32_u64(vmull_n_u32(vget_high_u32(x), m));
  *high = (qn_bits)vuzp2q_u32(low, top);
  return (qn_bits)vuzp1q_u32(low, top);
}
QN_FN qn_bits qn_multiply_lanes(qn_bits a, qn_bits b, qn_bits *high)
{
  uint32x4_t x = (uint32x4_t)a, y = (uint32x4_t)b;
  uint32x4_t low = vreinterpretq_u32_u64(vmull_u32(vget_low_u32(x), vget_low_u32(y)));
  uint32x4_t top = vreinterpretq_u32_u64(vmull_high_u32(x, y));
  *high = (qn_bits)vuzp2q_u32(low, top);
  return (qn_bits)vuzp1q_u32(low, top);
}
QN_FN qn_f32 qn_no_less(qn_f32 x, float low) { return (qn_f32)vmaxq_f32((float32x4_t)x, vdupq_n_f32(low)); }
QN_FN qn_f32 qn_no_more(qn_f32 x, float high) { return (qn_f32)vminq_f32((float32x4_t)x, vdupq_n_f32(high)); }
QN_FN int qn_any(qn_mask where) { return vmaxvq_u32((uint32x4_t)where) != 0; }
#endif

QN_FN qn_bits qn_select_bits(qn_mask where, qn_bits yes, qn_bits no)
{
  return (qn_bits)qn_select(where, (qn_f32)yes, (qn_f32)no);
}
#endif
#endif

/* ---- said with the words above, for every width ---- */

/* Lane j of a vector within each group of four: low gives a0 b0 a1 b1, high gives a2 b2 a3 b3. Groups stay in place, so
 * this is one cheap instruction on every vector machine. */
#if QN_LANES == 16
#define QN_ZIP(a, b, j)                                                                                                \
  __builtin_shufflevector(a, b, j, 16 + j, 1 + j, 17 + j, 4 + j, 20 + j, 5 + j, 21 + j, 8 + j, 24 + j, 9 + j, 25 + j,  \
                          12 + j, 28 + j, 13 + j, 29 + j)
#elif QN_LANES == 8
#define QN_ZIP(a, b, j) __builtin_shufflevector(a, b, j, 8 + j, 1 + j, 9 + j, 4 + j, 12 + j, 5 + j, 13 + j)
#elif QN_LANES == 4
#define QN_ZIP(a, b, j) __builtin_shufflevector(a, b, j, 4 + j, 1 + j, 5 + j)
#endif
#if QN_LANES > 1
QN_FN qn_bits qn_zip_low(qn_bits a, qn_bits b) { return QN_ZIP(a, b, 0); }
QN_FN qn_bits qn_zip_high(qn_bits a, qn_bits b) { return QN_ZIP(a, b, 2); }
#endif

/* All even lanes of a and b in order; and a0 b0 a1 b1 ... of the lower, of the upper halves of both. */
#if QN_LANES == 16
#define QN_EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define QN_MIX(a, b, j)                                                                                                \
  __builtin_shufflevector(a, b, j, 16 + j, 1 + j, 17 + j, 2 + j, 18 + j, 3 + j, 19 + j, 4 + j, 20 + j, 5 + j, 21 + j,  \
                          6 + j, 22 + j, 7 + j, 23 + j)
#elif QN_LANES == 8
#define QN_EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define QN_MIX(a, b, j) __builtin_shufflevector(a, b, j, 8 + j, 1 + j, 9 + j, 2 + j, 10 + j, 3 + j, 11 + j)
#elif QN_LANES == 4
#define QN_EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define QN_MIX(a, b, j) __builtin_shufflevector(a, b, j, 4 + j, 1 + j, 5 + j)
#endif
#if QN_LANES > 1
QN_FN qn_bits qn_even_lanes(qn_bits a, qn_bits b) { return QN_EVEN(a, b); }
QN_FN qn_bits qn_mix_low(qn_bits a, qn_bits b) { return QN_MIX(a, b, 0); }
QN_FN qn_bits qn_mix_high(qn_bits a, qn_bits b) { return QN_MIX(a, b, QN_LANES / 2); }
#endif
#endif
