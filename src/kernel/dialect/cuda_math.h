/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_math.h - CUDA's functions of real numbers. In safe mode they are the chains of rounded steps of metal.h and
 * metal_math.h on the GPU as well, so that processor and GPU give the same bits; in fast mode the GPU's own. Those
 * whose names say that they are inexact (__expf) are the GPU's own always, and on the processor the exact ones. */
#ifndef QN_DIALECT_CUDA_MATH_H
#define QN_DIALECT_CUDA_MATH_H
#include "kernel/dialect/cuda.h"
#include "kernel/dialect/metal_math.h"

namespace QN_WORDS {
#define QN_ALIAS_1(name)                                                                                               \
  QN_WORD float name##f(float x) { return name(x); }
#define QN_ALIAS_2(name)                                                                                               \
  QN_WORD float name##f(float x, float y) { return name(x, y); }
QN_ALIAS_1(exp)
QN_ALIAS_1(exp2)
QN_ALIAS_1(exp10)
QN_ALIAS_1(expm1)
QN_ALIAS_1(log)
QN_ALIAS_1(log2)
QN_ALIAS_1(log10)
QN_ALIAS_1(log1p)
QN_ALIAS_1(sin)
QN_ALIAS_1(cos)
QN_ALIAS_1(tan)
QN_ALIAS_1(asin)
QN_ALIAS_1(acos)
QN_ALIAS_1(atan)
QN_ALIAS_1(sinh)
QN_ALIAS_1(cosh)
QN_ALIAS_1(tanh)
QN_ALIAS_1(asinh)
QN_ALIAS_1(acosh)
QN_ALIAS_1(atanh)
QN_ALIAS_1(sinpi)
QN_ALIAS_1(cospi)
QN_ALIAS_1(erf)
QN_ALIAS_1(sqrt)
QN_ALIAS_1(rsqrt)
QN_ALIAS_1(fabs)
QN_ALIAS_1(floor)
QN_ALIAS_1(ceil)
QN_ALIAS_1(trunc)
QN_ALIAS_1(rint)
QN_ALIAS_1(round)
QN_ALIAS_2(pow)
QN_ALIAS_2(fmod)
QN_ALIAS_2(atan2)
QN_ALIAS_2(fmin)
QN_ALIAS_2(fmax)
QN_ALIAS_2(fdim)
QN_ALIAS_2(copysign)
QN_ALIAS_2(nextafter)
#undef QN_ALIAS_1
#undef QN_ALIAS_2
QN_WORD float nearbyintf(float x) { return rint(x); }
QN_WORD float fmaf(float x, float y, float z) { return fma(x, y, z); }
QN_WORD float ldexpf(float x, int k) { return ldexp(x, k); }
QN_WORD float scalbnf(float x, int k) { return ldexp(x, k); }
QN_WORD float frexpf(float x, int *k) { return frexp(x, *k); }
QN_WORD float modff(float x, float *whole) { return modf(x, *whole); }
QN_WORD float saturatef(float x) { return saturate(x); }
QN_WORD float normcdff(float x) { return 0.5f * (1.0f + erf(x * 0.70710678f)); }
QN_WORD void sincosf(float x, float *s, float *c) { *s = sin(x), *c = cos(x); }
QN_WORD float hypotf(float x, float y)
{
  if (isinf(x) || isinf(y)) return INFINITY;
  const double a = x, b = y;
  return static_cast<float>(qn_d_root(a * a + b * b));
}
QN_WORD float cbrtf(float x)
{
  const double a = qn_d_abs(static_cast<double>(x));
  return a > 0 && a < qn_d_infinity() ? static_cast<float>(qn_d_signed(qn_d_exp(qn_d_log(a) / 3), x)) : x;
}
#ifndef QN_CUDA_DIALECT
#define QN_INEXACT(name)                                                                                               \
  QN_WORD float __##name##f(float x) { return name(x); }
QN_INEXACT(exp)
QN_INEXACT(exp10)
QN_INEXACT(log)
QN_INEXACT(log2)
QN_INEXACT(log10)
QN_INEXACT(sin)
QN_INEXACT(cos)
QN_INEXACT(tan)
#undef QN_INEXACT
QN_WORD float __powf(float x, float y) { return pow(x, y); }
QN_WORD float __fdividef(float x, float y) { return x / y; }
QN_WORD float __saturatef(float x) { return saturate(x); }
QN_WORD void __sincosf(float x, float *s, float *c) { *s = sin(x), *c = cos(x); }
QN_WORD float __fmaf_rn(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
QN_WORD double __fma_rn(double x, double y, double z) { return __builtin_fma(x, y, z); }
QN_WORD float __fadd_rn(float x, float y) { return x + y; }
QN_WORD float __fsub_rn(float x, float y) { return x - y; }
QN_WORD float __fmul_rn(float x, float y) { return x * y; }
QN_WORD float __fdiv_rn(float x, float y) { return x / y; }
QN_WORD float __frcp_rn(float x) { return 1.0f / x; }
QN_WORD float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
QN_WORD float __frsqrt_rn(float x) { return qn_rsqrt(x); }
QN_WORD double __dsqrt_rn(double x) { return __builtin_sqrt(x); }
QN_WORD double __ddiv_rn(double x, double y) { return x / y; }
QN_WORD float __int2float_rn(int x) { return static_cast<float>(x); }
QN_WORD float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
QN_WORD int __float2int_rz(float x) { return static_cast<int>(x); }
QN_WORD unsigned __float2uint_rz(float x) { return static_cast<unsigned>(x); }
QN_WORD int __float2int_rn(float x) { return static_cast<int>(__builtin_rintf(x)); }
QN_WORD int __float2int_rd(float x) { return static_cast<int>(__builtin_floorf(x)); }
QN_WORD int __float2int_ru(float x) { return static_cast<int>(__builtin_ceilf(x)); }
QN_WORD unsigned __float2uint_rn(float x) { return static_cast<unsigned>(__builtin_rintf(x)); }
QN_WORD float __double2float_rn(double x) { return static_cast<float>(x); }
QN_WORD int __sad(int a, int b, unsigned c)
{
  return static_cast<int>(c + static_cast<unsigned>(a > b ? a - b : b - a));
}
QN_WORD long lrintf(float x) { return static_cast<long>(__builtin_rintf(x)); }
QN_WORD long lroundf(float x) { return static_cast<long>(__builtin_roundf(x)); }
#endif
} // namespace QN_WORDS
#endif
