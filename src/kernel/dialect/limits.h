/* SPDX-License-Identifier: Apache-2.0 */
/* limits.h - numeric_limits (metal_limits) of Metal's numbers, half and bfloat among them; and double, for references
 * on the processor. */
#ifndef QN_DIALECT_LIMITS_H
#define QN_DIALECT_LIMITS_H
#include "kernel/dialect/metal_types.h"
#include "kernel/dialect/half.h"

namespace QN_WORDS {
enum float_denorm_style { denorm_indeterminate = -1, denorm_absent = 0, denorm_present = 1 };
enum float_round_style {
  round_indeterminate = -1,
  round_toward_zero = 0,
  round_to_nearest = 1,
  round_toward_infinity = 2,
  round_toward_neg_infinity = 3
};

/* Members of all types; zeros where the type is no number. */
template <class T, int kind> struct qn_limits {
  static constexpr bool is_specialized = kind != 0, is_signed = kind > 1, is_integer = kind == 1, is_exact = kind == 1;
  static constexpr bool has_infinity = kind > 1, has_quiet_NaN = kind > 1, has_signaling_NaN = kind > 1;
  static constexpr bool has_denorm_loss = false, is_iec559 = kind > 1, is_bounded = kind != 0, is_modulo = false;
  static constexpr bool traps = false, tinyness_before = false;
  static constexpr int radix = kind ? 2 : 0, digits = 0, digits10 = 0, max_digits10 = 0;
  static constexpr int min_exponent = 0, min_exponent10 = 0, max_exponent = 0, max_exponent10 = 0;
  static constexpr float_denorm_style has_denorm = kind > 1 ? denorm_present : denorm_absent;
  static constexpr float_round_style round_style = kind > 1 ? round_to_nearest : round_toward_zero;
  static constexpr QN_WORD T min() { return T(); }
  static constexpr QN_WORD T max() { return T(); }
  static constexpr QN_WORD T lowest() { return T(); }
  static constexpr QN_WORD T epsilon() { return T(); }
  static constexpr QN_WORD T round_error() { return T(); }
  static constexpr QN_WORD T infinity() { return T(); }
  static constexpr QN_WORD T quiet_NaN() { return T(); }
  static constexpr QN_WORD T signaling_NaN() { return T(); }
  static constexpr QN_WORD T denorm_min() { return T(); }
};

/* A whole number: of its own kind's, those that differ. */
template <class T> struct qn_whole_limits : qn_limits<T, 1> {
  static constexpr bool is_signed = T(-1) < T(0), is_modulo = !is_signed && T(2) != T(1);
  static constexpr int digits = T(2) == T(1) ? 1 : int(8 * sizeof(T)) - is_signed, digits10 = digits * 643 / 2136;
  static constexpr QN_WORD T max() { return T(2) == T(1) ? T(1) : T(~0ull >> (64 - digits)); }
  static constexpr QN_WORD T min() { return is_signed ? T(-max() - 1) : T(0); }
  static constexpr QN_WORD T lowest() { return min(); }
};

/* A number with a point: digits of its significand, exponents, and its bits. */
template <class T, class bits, int significand, int most, int digits_10, int least_10, int most_10>
struct qn_real_limits : qn_limits<T, 2> {
  static constexpr int digits = significand, digits10 = digits_10, max_digits10 = 2 + significand * 643 / 2136;
  static constexpr int min_exponent = 3 - most, max_exponent = most, min_exponent10 = least_10,
                       max_exponent10 = most_10;
  static constexpr bits qn_one = 1, qn_top = bits(bits(2 * most - 1) << (significand - 1)); /* the exponents' bits */
  static constexpr QN_WORD T qn_of(bits b) { return __builtin_bit_cast(T, b); }
  static constexpr QN_WORD T min() { return qn_of(bits(qn_one << (significand - 1))); }
  static constexpr QN_WORD T max() { return qn_of(bits(qn_top - 1)); }
  static constexpr QN_WORD T lowest() { return qn_of(bits((qn_top - 1) | qn_one << (8 * sizeof(bits) - 1))); }
  static constexpr QN_WORD T epsilon() { return qn_of(bits(bits(most - significand) << (significand - 1))); }
  static constexpr QN_WORD T round_error() { return qn_of(bits(bits(most - 2) << (significand - 1))); }
  static constexpr QN_WORD T infinity() { return qn_of(qn_top); }
  static constexpr QN_WORD T quiet_NaN() { return qn_of(bits(qn_top | qn_one << (significand - 2))); }
  static constexpr QN_WORD T signaling_NaN() { return qn_of(bits(qn_top | qn_one << (significand - 3))); }
  static constexpr QN_WORD T denorm_min() { return qn_of(qn_one); }
};

template <class T, int kind> struct qn_limits_of : qn_limits<T, 0> {
};
template <class T> struct qn_limits_of<T, 1> : qn_whole_limits<T> {
};
template <class T> struct numeric_limits : qn_limits_of<T, __is_enum(T) ? 0 : qn_kind<T>::value> {
};
template <class T> struct numeric_limits<const T> : numeric_limits<T> {
};
template <> struct numeric_limits<float> : qn_real_limits<float, unsigned, 24, 128, 6, -37, 38> {
};
template <> struct numeric_limits<double> : qn_real_limits<double, unsigned long, 53, 1024, 15, -307, 308> {
};
template <> struct numeric_limits<qn_half> : qn_real_limits<qn_half, unsigned short, 11, 16, 3, -4, 4> {
};
template <> struct numeric_limits<qn_bfloat> : qn_real_limits<qn_bfloat, unsigned short, 8, 128, 2, -37, 38> {
};
} // namespace QN_WORDS
#endif
