/* SPDX-License-Identifier: Apache-2.0 */
/* metal_math.h - the real functions of Metal that base/maths.h has not. They are computed in double from + - * / and
 * roots, without tables and without contraction, and rounded once to float: the same bits on processor and GPU, and the
 * nearest float but where the true result lies within some 1e-7 of the middle between two. fast:: ones are the GPU's
 * own. For arguments of double they are the C library's. */
#ifndef QN_DIALECT_METAL_MATH_H
#define QN_DIALECT_METAL_MATH_H
#include "kernel/dialect/metal.h"

namespace QN_WORDS {
/* ---- in double; arguments come from floats ---- */
#define QN_TO_WHOLE_DOUBLE 0x1.8p52 /* added to a number below 2^51, it rounds it to a whole one */
#define QN_HALF_PI 1.57079632679489661923
QN_WORD double qn_d_root(double x) { return QN_C(sqrt)(x); }
QN_WORD double qn_d_none() { return qn_bits_double(0x7ff8000000000000ull); }
QN_WORD double qn_d_infinity() { return qn_bits_double(0x7ff0000000000000ull); }
QN_WORD double qn_d_abs(double x) { return qn_bits_double(qn_double_bits(x) & 0x7fffffffffffffffull); }
QN_WORD double qn_d_signed(double x, float as) /* x from 0 up, with a sign */
{
  return qn_float_bits(as) >> 31 ? -x : x;
}
QN_WORD double qn_d_power_of_two(int n) { return qn_bits_double(static_cast<unsigned long long>(n + 1023) << 52); }

/* sum of x^k / k! from k = 1, over x, for |x| <= 0.35 (error below 1e-16). */
QN_WORD double qn_d_exp_series(double x)
{
  double q = 1;
  QN_UNROLL
  for (int k = 13; k > 1; k--) q = 1 + q * x * (1.0 / k);
  return q;
}
/* e^x, of |x| up to 300 kept, NaN of NaN. */
QN_WORD double qn_d_exp(double x)
{
  x = x > 300 ? 300 : x < -300 ? -300 : x;
  if (x != x) return x;
  const double n = (x * 1.4426950408889634074 + QN_TO_WHOLE_DOUBLE) - QN_TO_WHOLE_DOUBLE;
  const double r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33; /* ln(2), whose first word has few digits */
  return (1 + r * qn_d_exp_series(r)) * qn_d_power_of_two(static_cast<int>(n));
}
/* ln((1 + s) / (1 - s)), |s| <= 0.172 */
QN_WORD double qn_d_log_series(double s)
{
  const double z = s * s;
  double q = 0;
  QN_UNROLL
  for (int k = 21; k > 1; k -= 2) q = (q + 1.0 / k) * z;
  return 2 * (s + s * q);
}
QN_WORD double qn_d_log(double x)
{
  if (!(x > 0 && x < qn_d_infinity())) return x == 0 ? -qn_d_infinity() : x < 0 ? qn_d_none() : x;
  const unsigned long long root = 0x3fe6a09e667f3bcdull, u = qn_double_bits(x) + (0x3ff0000000000000ull - root);
  const double k = static_cast<double>(static_cast<int>(u >> 52) - 1023);
  const double m = qn_bits_double((u & 0x000fffffffffffffull) + root);
  return k * 0x1.62e42feep-1 + (k * 0x1.a39ef35793c76p-33 + qn_d_log_series((m - 1) / (m + 1)));
}
QN_WORD double qn_d_log1p(double x) { return qn_d_abs(x) < 0.25 ? qn_d_log_series(x / (2 + x)) : qn_d_log(1 + x); }
/* Sine over x and cosine for |x| <= 0.79. */
QN_WORD double qn_d_sin_series(double x)
{
  const double z = x * x;
  double q = 1;
  QN_UNROLL
  for (int k = 18; k > 0; k -= 2) q = 1 - q * z * (1.0 / (k * (k + 1)));
  return q;
}
QN_WORD double qn_d_cos_series(double x)
{
  const double z = x * x;
  double q = 1;
  QN_UNROLL
  for (int k = 17; k > 0; k -= 2) q = 1 - q * z * (1.0 / (k * (k + 1)));
  return q;
}
/* x from 0 up, infinity too. */
QN_WORD double qn_d_atan(double x)
{
  const bool large = x > 1;
  if (large) x = 1 / x;
  const bool middle = x > 0.41421356237309503; /* tan(pi/8) */
  if (middle) x = (x - 1) / (x + 1);
  const double z = x * x;
  double q = 0;
  QN_UNROLL
  for (int k = 33; k > 1; k -= 2) q = (1.0 / k - q) * z; /* up to z = 0.172 */
  double y = x - x * q;
  if (middle) y = QN_HALF_PI / 2 + y;
  return large ? QN_HALF_PI - y : y;
}
QN_WORD double qn_d_asin(double x) { return qn_d_atan(x / qn_d_root((1 - x) * (1 + x))); }
QN_WORD double qn_d_acos(double x) { return qn_d_atan(qn_d_root((1 - x) * (1 + x)) / x); }

/* ---- of floats ---- */
QN_WORD float qn_tan(float x)
{
  const qn_angle angle = qn_angle_of(qn_op_abs::go(x));
  const double t = static_cast<double>(angle.r) + static_cast<double>(angle.rest);
  const double sin = t * qn_d_sin_series(t), cos = qn_d_cos_series(t), y = angle.quarter & 1u ? -cos / sin : sin / cos;
  return static_cast<float>(qn_float_bits(x) >> 31 ? -y : y);
}
/* Of pi |x|: the distance to the nearest quarter turn, and which. |x| from 2^25 up is an even number. */
QN_WORD double qn_quarter_turns(float x, unsigned *quarter)
{
  const double a = qn_d_abs(static_cast<double>(x)), few = a < 0x1p25 ? a : a < qn_d_infinity() ? 0 : qn_d_none();
  const double n = (2 * few + QN_TO_WHOLE_DOUBLE) - QN_TO_WHOLE_DOUBLE;
  *quarter = static_cast<unsigned>(n == n ? n : 0);
  return (few - n / 2) * (2 * QN_HALF_PI);
}
QN_WORD float qn_sinpi(float x)
{
  unsigned quarter;
  const double t = qn_quarter_turns(x, &quarter), y = quarter & 1u ? qn_d_cos_series(t) : t * qn_d_sin_series(t);
  const bool negative = (quarter & 2u) != (qn_float_bits(x) >> 31 ? 2u : 0u);
  return static_cast<float>(y == 0 ? qn_d_signed(0, x) : negative ? -y : y);
}
QN_WORD float qn_cospi(float x)
{
  unsigned quarter;
  const double t = qn_quarter_turns(x, &quarter), y = quarter & 1u ? -t * qn_d_sin_series(t) : qn_d_cos_series(t);
  return static_cast<float>(y == 0 ? 0 : quarter & 2u ? -y : y);
}
QN_WORD float qn_tanpi(float x)
{
  unsigned quarter;
  const double t = qn_quarter_turns(x, &quarter), sin = t * qn_d_sin_series(t), cos = qn_d_cos_series(t);
  const double y = quarter & 1u ? -cos / sin : sin / cos;
  return static_cast<float>(qn_float_bits(x) >> 31 ? -y : y);
}
QN_WORD float qn_asin(float x)
{
  return static_cast<float>(qn_d_signed(qn_d_asin(qn_d_abs(static_cast<double>(x))), x));
}
QN_WORD float qn_acos(float x)
{
  const double y = qn_d_acos(qn_d_abs(static_cast<double>(x)));
  return static_cast<float>(x < 0 ? 2 * QN_HALF_PI - y : y);
}
QN_WORD float qn_atan(float x)
{
  return static_cast<float>(qn_d_signed(qn_d_atan(qn_d_abs(static_cast<double>(x))), x));
}
QN_WORD float qn_atan2(float y, float x)
{
  if (x != x || y != y) return x + y;
  double a = qn_d_abs(static_cast<double>(y)), b = qn_d_abs(static_cast<double>(x));
  if (a == b) a = b = a > 0 ? 1 : 0; /* infinities and zeros too */
  double angle = b > 0 ? qn_d_atan(a / b) : a > 0 ? QN_HALF_PI : 0;
  if (qn_float_bits(x) >> 31) angle = 2 * QN_HALF_PI - angle;
  return static_cast<float>(qn_d_signed(angle, y));
}
QN_WORD float qn_sinh(float x)
{
  const double a = qn_d_abs(static_cast<double>(x)), z = a * a;
  double y = 1;
  if (a < 1) {
    QN_UNROLL
    for (int k = 16; k > 0; k -= 2) y = 1 + y * z * (1.0 / (k * (k + 1)));
    y = y * a;
  } else {
    const double e = qn_d_exp(a);
    y = (e - 1 / e) / 2;
  }
  return static_cast<float>(qn_d_signed(y, x));
}
QN_WORD float qn_cosh(float x)
{
  const double e = qn_d_exp(qn_d_abs(static_cast<double>(x)));
  return static_cast<float>((e + 1 / e) / 2);
}
QN_WORD float qn_asinh(float x)
{
  const double a = qn_d_abs(static_cast<double>(x));
  if (!(a < qn_d_infinity())) return x;
  return static_cast<float>(qn_d_signed(qn_d_log1p(a + a * a / (1 + qn_d_root(a * a + 1))), x));
}
QN_WORD float qn_acosh(float x)
{
  const double t = static_cast<double>(x) - 1;
  return static_cast<float>(t < 0 ? qn_d_none() : qn_d_log1p(t + qn_d_root(t * (t + 2))));
}
QN_WORD float qn_atanh(float x)
{
  const double a = qn_d_abs(static_cast<double>(x));
  return static_cast<float>(qn_d_signed(qn_d_log1p(2 * a / (1 - a)) / 2, x));
}
QN_WORD float qn_exp10(float x)
{
  return static_cast<float>(qn_d_exp(static_cast<double>(x) * 2.30258509299404568402));
}
QN_WORD float qn_log10(float x)
{
  return static_cast<float>(qn_d_log(static_cast<double>(x)) * 0.43429448190325182765);
}
QN_WORD float qn_pow(float x, float y)
{
  if (y == 0 || x == 1) return 1;
  if (x != x || y != y) return x + y;
  const float a = qn_op_abs::go(x), size = qn_op_abs::go(y);
  if (a == 1 && size == INFINITY) return 1;
  const bool whole = size >= 0x1p24f || static_cast<float>(static_cast<int>(size)) == size;
  const bool odd = size < 0x1p24f && whole && (static_cast<int>(size) & 1);
  if (x < 0 && a < INFINITY && !whole) return qn_bits_float(0x7fc00000u);
  const double p = qn_d_exp(static_cast<double>(y) * qn_d_log(static_cast<double>(a)));
  return static_cast<float>(odd && qn_float_bits(x) >> 31 ? -p : p);
}
QN_WORD float qn_powr(float x, float y) { return x < 0 ? qn_bits_float(0x7fc00000u) : qn_pow(x, y); }
/* Exact, with x's sign: whole significands, forty bits at a time. */
QN_WORD float qn_fmod(float x, float y)
{
  const qn_u32 sign = qn_float_bits(x) & 0x80000000u, a = qn_float_bits(x) & 0x7fffffffu,
               b = qn_float_bits(y) & 0x7fffffffu;
  if (a >= 0x7f800000u || b > 0x7f800000u || b == 0) return qn_bits_float(0x7fc00000u);
  if (a < b) return x;
  const qn_u32 ea = a >> 23 ? a >> 23 : 1, eb = b >> 23 ? b >> 23 : 1;
  const qn_u64 mb = (b & 0x7fffffu) | (b >> 23 ? 0x800000u : 0u);
  qn_u64 m = ((a & 0x7fffffu) | (a >> 23 ? 0x800000u : 0u)) % mb;
  for (qn_u32 left = ea - eb; left;) {
    const qn_u32 some = left < 40 ? left : 40;
    m = (m << some) % mb;
    left -= some;
  }
  qn_u32 e = eb;
  while (m && m < 0x800000u && e > 1) m <<= 1, e--;
  return qn_bits_float(sign |
                       (m < 0x800000u ? static_cast<qn_u32>(m) : (e << 23) + static_cast<qn_u32>(m - 0x800000u)));
}
QN_WORD float qn_nextafter(float x, float y)
{
  if (x != x || y != y) return x + y;
  if (x == y) return y;
  const qn_u32 bits = qn_float_bits(x);
  if (!(bits << 1)) return qn_bits_float((qn_float_bits(y) & 0x80000000u) | 1u);
  return qn_bits_float((x < y) == !(bits >> 31) ? bits + 1u : bits - 1u);
}
QN_WORD float qn_scaled(float x, int k)
{
  k = k > 400 ? 400 : k < -400 ? -400 : k;
  return static_cast<float>(static_cast<double>(x) * qn_d_power_of_two(k));
}

#define QN_MORE_1(name, quick) QN_REAL_1(name, qn_##name(x), QN_C(name)(x), quick)
#define QN_MORE_2(name, quick) QN_REAL_2(name, qn_##name(x, y), QN_C(name)(x, y), quick)
QN_MORE_1(tan, __tanf(x))
QN_MORE_1(asin, ::asinf(x))
QN_MORE_1(acos, ::acosf(x))
QN_MORE_1(atan, ::atanf(x))
QN_MORE_1(sinh, ::sinhf(x))
QN_MORE_1(cosh, ::coshf(x))
QN_MORE_1(asinh, ::asinhf(x))
QN_MORE_1(acosh, ::acoshf(x))
QN_MORE_1(atanh, ::atanhf(x))
QN_MORE_1(log10, __log10f(x))
QN_MORE_2(pow, __powf(x, y))
QN_MORE_2(fmod, ::fmodf(x, y))
QN_MORE_2(atan2, ::atan2f(x, y))
QN_MORE_2(nextafter, ::nextafterf(x, y))
QN_REAL_1(exp10, qn_exp10(x), QN_C(pow)(10.0, x), __exp10f(x))
QN_REAL_1(sinpi, qn_sinpi(x), QN_C(sin)(2 * QN_HALF_PI * x), ::sinpif(x))
QN_REAL_1(cospi, qn_cospi(x), QN_C(cos)(2 * QN_HALF_PI * x), ::cospif(x))
QN_REAL_1(tanpi, qn_tanpi(x), QN_C(tan)(2 * QN_HALF_PI * x), qn_tanpi(x))
QN_REAL_2(powr, qn_powr(x, y), QN_C(pow)(x, y), __powf(x, y))
QN_REAL_2(fdim, x > y ? x - y : x == x && y == y ? 0.0f : x + y, QN_C(fdim)(x, y), ::fdimf(x, y))
#undef QN_MORE_1
#undef QN_MORE_2

/* ---- with a second result, or a whole number ---- */
template <class T> QN_WORD qn_if_number<T, T> ldexp(T x, int k) { return T(qn_scaled(qn_wide(x), k)); }
QN_WORD double ldexp(double x, int k) { return QN_C(ldexp)(x, k); }
template <class T, class E> QN_WORD qn_if_number<T, T> frexp(T x, E &exponent)
{
  const float wide = static_cast<float>(qn_wide(x));
  const qn_u32 size = qn_float_bits(wide) & 0x7fffffffu;
  exponent = 0;
  if (size == 0 || size >= 0x7f800000u) return x;
  const float scaled = size < 0x800000u ? wide * 0x1p24f : wide;
  const qn_u32 bits = qn_float_bits(scaled);
  exponent = static_cast<E>(static_cast<int>(bits >> 23 & 0xffu) - (size < 0x800000u ? 150 : 126));
  return T(qn_bits_float((bits & 0x807fffffu) | 0x3f000000u));
}
QN_WORD double frexp(double x, int &exponent) { return QN_C(frexp)(x, &exponent); }
template <class T> QN_WORD int ilogb(T x)
{
  int exponent;
  const float wide = static_cast<float>(qn_wide(x));
  const qn_u32 size = qn_float_bits(wide) & 0x7fffffffu;
  if (size == 0) return -2147483647 - 1;
  if (size >= 0x7f800000u) return 2147483647;
  (void)frexp(wide, exponent);
  return exponent - 1;
}
template <class T> QN_WORD T modf(T x, T &whole)
{
  whole = trunc(x);
  return copysign(x == whole ? T(0) : T(x - whole), x);
}
QN_BOTH(ldexp)
QN_BOTH(frexp)
QN_BOTH(ilogb)
QN_BOTH(modf)
#define QN_WITH_COSINE(name, place)                                                                                    \
  namespace place {                                                                                                    \
  template <class T> QN_WORD T name(T x, T &cosine)                                                                    \
  {                                                                                                                    \
    const T sine = sin(x);                                                                                             \
    cosine = cos(x);                                                                                                   \
    return sine;                                                                                                       \
  }                                                                                                                    \
  }
QN_WITH_COSINE(sincos, precise)
QN_WITH_COSINE(sincos, fast)
QN_BY_MODE(sincos)
} // namespace QN_WORDS
#endif
