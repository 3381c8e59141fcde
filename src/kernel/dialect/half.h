/* SPDX-License-Identifier: Apache-2.0 */
/* half.h - half and bfloat as classes over 16 bits, for both dialects. An operation of two of a kind, or of one and a
 * whole number, is a float's, rounded once to 16 bits (which for + - * / is the correctly rounded result); with a float
 * it is a float, as Metal has it. A variable without initialiser holds nothing, so that arrays may be shared memory.
 * Comparisons, `if` and mixed arithmetic go through the conversion to float. */
#ifndef QN_DIALECT_HALF_H
#define QN_DIALECT_HALF_H
#include "kernel/dialect/common.h"

namespace QN_WORDS {
/* The same roundings where the compiler computes a constant: no bits of a float are at hand there. */
template <qn_format format> QN_DEVICE constexpr qn_u16 qn_short_constant(float x)
{
  const int digits = format == qn_format_f16 ? 11 : 8, least = format == qn_format_f16 ? -14 : -126;
  const int most = format == qn_format_f16 ? 15 : 127;
  if (x != x) return 0x7fffu;
  const bool negative = x < 0;
  double a = negative ? -double(x) : double(x), unit = 1;
  const unsigned sign = negative ? 0x8000u : 0, infinity = unsigned(2 * most + 1) << (digits - 1);
  if (a == 0) return qn_u16(sign);
  if (a > 3.5e38) return qn_u16(sign | infinity);
  int exponent = 0;
  while (a >= 2 * unit) unit *= 2, exponent++;
  while (a < unit && exponent > least) unit /= 2, exponent--;
  for (int k = 1; k < digits; k++) unit /= 2;
  const double steps = a / unit;
  unsigned whole = unsigned(steps);
  const double rest = steps - whole;
  if (rest > 0.5 || (rest == 0.5 && whole % 2)) whole++;
  const unsigned bits = whole + (unsigned(exponent - least) << (digits - 1)); /* the leading one adds one */
  return qn_u16(sign | (bits < infinity ? bits : infinity));
}

/* A whole number as a float that rounds to 16 bits as the number itself would: what does not fit leaves a last one. */
template <class T> QN_DEVICE constexpr float qn_whole_float(T x)
{
  const bool negative = !(x > T(0)) && x != T(0);
  unsigned long long a = negative ? 0ull - static_cast<unsigned long long>(x) : static_cast<unsigned long long>(x);
  float unit = 1;
  while (a >> 24) a = (a >> 1) | (a & 1), unit *= 2;
  return (negative ? -float(a) : float(a)) * unit;
}
template <class T, bool small = sizeof(T) <= 2> struct qn_to_float {
  QN_DEVICE static constexpr float of(T x) { return static_cast<float>(x); }
};
template <class T> struct qn_to_float<T, false> {
  QN_DEVICE static constexpr float of(T x) { return qn_whole_float(x); }
};
template <> struct qn_to_float<float, false> {
  QN_DEVICE static constexpr float of(float x) { return x; }
};
template <> struct qn_to_float<double, false> {
  QN_DEVICE static constexpr float of(double x) { return static_cast<float>(x); }
};

template <qn_format format> struct qn_short {
  qn_u16 bits_;

  static QN_WORD qn_u16 qn_round(float x) { return format == qn_format_f16 ? qn_float_f16(x) : qn_float_bf16(x); }
  qn_short() = default;
  template <class T, class = qn_if_builtin<T, int>>
  constexpr QN_WORD qn_short(T x)
      : bits_(__builtin_is_constant_evaluated() ? qn_short_constant<format>(qn_to_float<T>::of(x))
                                                : qn_round(qn_to_float<T>::of(x)))
  {
  }
  template <qn_format other, class = typename qn_if<other != format>::type>
  QN_WORD qn_short(qn_short<other> x) : bits_(qn_round(static_cast<float>(x)))
  {
  }
  QN_WORD operator float() const { return format == qn_format_f16 ? qn_f16_float(bits_) : qn_bf16_float(bits_); }
  static QN_WORD qn_short qn_of_bits(qn_u16 bits)
  {
    qn_short x;
    x.bits_ = bits;
    return x;
  }

  QN_WORD qn_short operator+() const { return *this; }
  QN_WORD qn_short operator-() const { return qn_of_bits(static_cast<qn_u16>(bits_ ^ 0x8000u)); }
  template <class T> QN_WORD qn_short &operator+=(T x) { return *this = qn_short(*this + x); }
  template <class T> QN_WORD qn_short &operator-=(T x) { return *this = qn_short(*this - x); }
  template <class T> QN_WORD qn_short &operator*=(T x) { return *this = qn_short(*this * x); }
  template <class T> QN_WORD qn_short &operator/=(T x) { return *this = qn_short(*this / x); }
  QN_WORD qn_short &operator++() { return *this += 1; }
  QN_WORD qn_short &operator--() { return *this -= 1; }
  QN_WORD qn_short operator++(int)
  {
    const qn_short before = *this;
    *this += 1;
    return before;
  }
  QN_WORD qn_short operator--(int)
  {
    const qn_short before = *this;
    *this -= 1;
    return before;
  }
};

#define QN_OPERATOR(op)                                                                                                \
  template <qn_format f> QN_WORD qn_short<f> operator op(qn_short<f> a, qn_short<f> b)                                 \
  {                                                                                                                    \
    return static_cast<float>(a) op static_cast<float>(b);                                                             \
  }                                                                                                                    \
  template <qn_format f, class T> QN_WORD qn_if_whole<T, qn_short<f>> operator op(qn_short<f> a, T b)                  \
  {                                                                                                                    \
    return a op qn_short<f>(b);                                                                                        \
  }                                                                                                                    \
  template <qn_format f, class T> QN_WORD qn_if_whole<T, qn_short<f>> operator op(T a, qn_short<f> b)                  \
  {                                                                                                                    \
    return qn_short<f>(a) op b;                                                                                        \
  }
QN_OPERATOR(+)
QN_OPERATOR(-)
QN_OPERATOR(*)
QN_OPERATOR(/)
#undef QN_OPERATOR

/* An arm of a choice (kernel/choice.h): a whole number becomes one of its kind, and it becomes a float, nothing else.
 */
template <qn_format f> struct qn_half_arm {
  qn_short<f> value_;
  constexpr QN_WORD qn_half_arm(const qn_short<f> &x) : value_(x) {}
  template <class T, class = qn_if_whole<T, int>> constexpr QN_WORD qn_half_arm(T x) : value_(x) {}
  template <class T, class = typename qn_if<qn_is<T, float>::same>::type> QN_WORD operator T() const { return value_; }
};
template <class T> struct qn_arm_of {
  typedef T type;
};
template <qn_format f> struct qn_arm_of<qn_short<f>> {
  typedef qn_half_arm<f> type;
};
template <qn_format f> struct qn_arm_of<const qn_short<f>> : qn_arm_of<qn_short<f>> {
};
template <qn_format f> struct qn_arm_of<qn_short<f> &> : qn_arm_of<qn_short<f>> {
};
template <qn_format f> struct qn_arm_of<const qn_short<f> &> : qn_arm_of<qn_short<f>> {
};
struct qn_arm {
  template <class T> constexpr QN_WORD typename qn_arm_of<T>::type operator|=(T &&x) const
  {
    return static_cast<T &&>(x);
  }
};
struct qn_whole {
  template <class T> constexpr QN_WORD T operator|=(T &&x) const { return static_cast<T &&>(x); }
  template <qn_format f> constexpr QN_WORD qn_short<f> operator|=(qn_half_arm<f> x) const { return x.value_; }
};

template <qn_format f> struct qn_kind<qn_short<f>> {
  static constexpr int value = 2;
};
template <qn_format f, class T> QN_DEVICE qn_if_whole<T, qn_short<f>> qn_mix(qn_short<f>, T);
template <qn_format f, class T> QN_DEVICE qn_if_whole<T, qn_short<f>> qn_mix(T, qn_short<f>);
template <qn_format f> QN_DEVICE float qn_mix(qn_short<f>, float);
template <qn_format f> QN_DEVICE float qn_mix(float, qn_short<f>);
template <qn_format f> QN_DEVICE double qn_mix(qn_short<f>, double);
template <qn_format f> QN_DEVICE double qn_mix(double, qn_short<f>);
QN_DEVICE float qn_mix(qn_short<qn_format_f16>, qn_short<qn_format_bf16>);
QN_DEVICE float qn_mix(qn_short<qn_format_bf16>, qn_short<qn_format_f16>);
template <qn_format f> QN_DEVICE qn_short<f> qn_real_of(qn_short<f>);
template <qn_format f> QN_WORD float qn_wide(qn_short<f> x) { return static_cast<float>(x); }
} // namespace QN_WORDS
#endif
