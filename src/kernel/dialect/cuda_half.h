/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_half.h - __half, __nv_bfloat16, pairs of them and their usual functions, as classes of our own on the processor
 * and on a GPU, where no header of CUDA's is read. Each function rounds once. */
#ifndef QN_DIALECT_CUDA_HALF_H
#define QN_DIALECT_CUDA_HALF_H
#include "kernel/dialect/cuda.h"
#include "kernel/dialect/metal.h"
#include "kernel/dialect/half.h"

namespace QN_WORDS {
typedef qn_half __half;
typedef qn_bfloat __nv_bfloat16;
typedef qn_bfloat nv_bfloat16;

template <class H> struct alignas(4) qn_pair {
  H x, y;
  qn_pair() = default;
  QN_WORD qn_pair(H a, H b) : x(a), y(b) {}
};
typedef qn_pair<__half> __half2;
typedef qn_pair<__half> half2;
typedef qn_pair<__nv_bfloat16> __nv_bfloat162;
typedef qn_pair<__nv_bfloat16> nv_bfloat162;

/* a b + c, rounded once: the product is exact in double, and what the sum drops shows in its last bit. */
template <qn_format f> QN_WORD qn_short<f> qn_short_fma(qn_short<f> a, qn_short<f> b, qn_short<f> c)
{
  const double p = static_cast<double>(static_cast<float>(a)) * static_cast<double>(static_cast<float>(b));
  const double q = static_cast<float>(c), sum = p + q, part = sum - q, rest = (p - part) + (q - (sum - part));
  unsigned long long bits = qn_double_bits(sum);
  if (rest != 0 && rest == rest && !(bits & 1ull)) bits += (rest > 0) == (sum > 0) ? 1 : -1;
  const double odd = qn_bits_double(bits), size = odd < 0 ? -odd : odd;
  float y = static_cast<float>(odd);
  const double got = y < 0 ? -static_cast<double>(y) : static_cast<double>(y);
  if (got != size && size < 3e38 && size == size) { /* the last bit of the float says that something follows */
    qn_u32 word = qn_float_bits(y);
    if (got > size) word--;
    y = qn_bits_float(word | 1u);
  }
  return qn_short<f>(y);
}

#define QN_HALF_2(name, expression)                                                                                    \
  template <qn_format f> QN_WORD qn_short<f> name(qn_short<f> a, qn_short<f> b) { return expression; }                 \
  template <class H> QN_WORD qn_pair<H> name##2(qn_pair<H> a, qn_pair<H> b) { return {name(a.x, b.x), name(a.y, b.y)}; }
QN_HALF_2(__hadd, a + b)
QN_HALF_2(__hsub, a - b)
QN_HALF_2(__hmul, a *b)
QN_HALF_2(__hadd_rn, a + b)
QN_HALF_2(__hsub_rn, a - b)
QN_HALF_2(__hmul_rn, a *b)
QN_HALF_2(__hmin, qn_op_min::go(a, b))
QN_HALF_2(__hmax, qn_op_max::go(a, b))
#undef QN_HALF_2
template <qn_format f> QN_WORD qn_short<f> __hdiv(qn_short<f> a, qn_short<f> b) { return a / b; }
template <class H> QN_WORD qn_pair<H> __h2div(qn_pair<H> a, qn_pair<H> b) { return {a.x / b.x, a.y / b.y}; }
template <qn_format f> QN_WORD qn_short<f> __hfma(qn_short<f> a, qn_short<f> b, qn_short<f> c)
{
  return qn_short_fma(a, b, c);
}
template <class H> QN_WORD qn_pair<H> __hfma2(qn_pair<H> a, qn_pair<H> b, qn_pair<H> c)
{
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
template <qn_format f> QN_WORD qn_short<f> __hneg(qn_short<f> a) { return -a; }
template <qn_format f> QN_WORD qn_short<f> __habs(qn_short<f> a) { return qn_op_abs::go(a); }
template <class H> QN_WORD qn_pair<H> __hneg2(qn_pair<H> a) { return {-a.x, -a.y}; }
template <class H> QN_WORD qn_pair<H> __habs2(qn_pair<H> a) { return {__habs(a.x), __habs(a.y)}; }
template <qn_format f> QN_WORD bool __hisnan(qn_short<f> a) { return isnan(a); }
template <qn_format f> QN_WORD int __hisinf(qn_short<f> a) { return isinf(a) ? signbit(a) ? -1 : 1 : 0; }
#define QN_HALF_TEST(name, op)                                                                                         \
  template <qn_format f> QN_WORD bool name(qn_short<f> a, qn_short<f> b)                                               \
  {                                                                                                                    \
    return static_cast<float>(a) op static_cast<float>(b);                                                             \
  }
QN_HALF_TEST(__heq, ==)
QN_HALF_TEST(__hne, !=)
QN_HALF_TEST(__hlt, <)
QN_HALF_TEST(__hle, <=)
QN_HALF_TEST(__hgt, >)
QN_HALF_TEST(__hge, >=)
#undef QN_HALF_TEST
#define QN_HALF_1(name, function)                                                                                      \
  template <qn_format f> QN_WORD qn_short<f> name(qn_short<f> x) { return function(x); }                               \
  template <class H> QN_WORD qn_pair<H> h2##function(qn_pair<H> v) { return {function(v.x), function(v.y)}; }
QN_HALF_1(hexp, exp)
QN_HALF_1(hexp2, exp2)
QN_HALF_1(hlog, log)
QN_HALF_1(hlog2, log2)
QN_HALF_1(hsin, sin)
QN_HALF_1(hcos, cos)
QN_HALF_1(hsqrt, sqrt)
QN_HALF_1(hrsqrt, rsqrt)
QN_HALF_1(hfloor, floor)
QN_HALF_1(hceil, ceil)
QN_HALF_1(htrunc, trunc)
QN_HALF_1(hrint, rint)
#undef QN_HALF_1
template <qn_format f> QN_WORD qn_short<f> hrcp(qn_short<f> x) { return qn_short<f>(1.0f / static_cast<float>(x)); }

/* ---- conversions; `half` and `bfloat16` in the names ---- */
#define QN_CONVERSIONS(H, P, name, pair, short_name)                                                                   \
  QN_WORD H __float2##name(float x) { return H(x); }                                                                   \
  QN_WORD H __float2##name##_rn(float x) { return H(x); }                                                              \
  QN_WORD H __double2##name(double x) { return H(x); }                                                                 \
  QN_WORD H __int2##name##_rn(int x) { return H(x); }                                                                  \
  QN_WORD H __uint2##name##_rn(unsigned x) { return H(x); }                                                            \
  QN_WORD H __ushort_as_##name(unsigned short x) { return H::qn_of_bits(x); }                                          \
  QN_WORD H __short_as_##name(short x) { return H::qn_of_bits(static_cast<unsigned short>(x)); }                       \
  QN_WORD unsigned short __##name##_as_ushort(H x) { return x.bits_; }                                                 \
  QN_WORD short __##name##_as_short(H x) { return static_cast<short>(x.bits_); }                                       \
  QN_WORD P __floats2##pair##_rn(float a, float b) { return {H(a), H(b)}; }                                            \
  QN_WORD P __float22##pair##_rn(float2 v) { return {H(v.x), H(v.y)}; }                                                \
  QN_WORD P __float2##pair##_rn(float a) { return {H(a), H(a)}; }                                                      \
  QN_WORD P __halves2##pair(H a, H b) { return {a, b}; }                                                               \
  QN_WORD P __##name##2##pair(H a) { return {a, a}; }                                                                  \
  QN_WORD P make_##pair(H a, H b) { return {a, b}; }                                                                   \
  QN_WORD H __low2##name(P v) { return v.x; }                                                                          \
  QN_WORD H __high2##name(P v) { return v.y; }
QN_CONVERSIONS(__half, __half2, half, half2, half)
QN_CONVERSIONS(__nv_bfloat16, __nv_bfloat162, bfloat16, bfloat162, bfloat16)
#undef QN_CONVERSIONS
QN_WORD float __half2float(__half x) { return static_cast<float>(x); }
QN_WORD float __bfloat162float(__nv_bfloat16 x) { return static_cast<float>(x); }
QN_WORD int __half2int_rz(__half x) { return static_cast<int>(static_cast<float>(x)); }
QN_WORD int __half2int_rn(__half x) { return static_cast<int>(static_cast<float>(rint(x))); }
QN_WORD float2 __half22float2(__half2 v) { return make_float2(static_cast<float>(v.x), static_cast<float>(v.y)); }
QN_WORD float2 __bfloat1622float2(__nv_bfloat162 v)
{
  return make_float2(static_cast<float>(v.x), static_cast<float>(v.y));
}
template <class H> QN_WORD float __low2float(qn_pair<H> v) { return static_cast<float>(v.x); }
template <class H> QN_WORD float __high2float(qn_pair<H> v) { return static_cast<float>(v.y); }
template <class H> QN_WORD qn_pair<H> __lowhigh2highlow(qn_pair<H> v) { return {v.y, v.x}; }

#define QN_PAIR(op)                                                                                                    \
  template <class H> QN_WORD qn_pair<H> operator op(qn_pair<H> a, qn_pair<H> b) { return {a.x op b.x, a.y op b.y}; }   \
  template <class H> QN_WORD qn_pair<H> &operator op##=(qn_pair<H> &a, qn_pair<H> b) { return a = a op b; }
QN_PAIR(+)
QN_PAIR(-)
QN_PAIR(*)
QN_PAIR(/)
#undef QN_PAIR
template <class H> QN_WORD bool operator==(qn_pair<H> a, qn_pair<H> b) { return a.x == b.x && a.y == b.y; }
template <class H> QN_WORD bool operator!=(qn_pair<H> a, qn_pair<H> b) { return !(a == b); }
} // namespace QN_WORDS
#endif
