/* SPDX-License-Identifier: Apache-2.0 */
/* metal.h - the common functions of Metal. Safe (and precise::) ones are chains of correctly rounded steps, the same
 * bits on processor and GPU; fast:: ones are the GPU's own where it has them, and everything is in fast mode. Functions
 * that base/maths.h has not are metal_math.h's, those of whole numbers integer.h's. */
#ifndef QN_DIALECT_METAL_H
#define QN_DIALECT_METAL_H
#include "kernel/dialect/metal_types.h"
#include "base/maths.h"

namespace QN_WORDS {
/* ---- what is asked of a number ---- */
#define QN_TEST(name, of_float, of_double)                                                                             \
  struct qn_op_##name {                                                                                                \
    static QN_WORD bool go(float x) { return of_float; }                                                               \
    static QN_WORD bool go(double x) { return of_double; }                                                             \
  };                                                                                                                   \
  template <class T> QN_WORD auto name(T x) { return qn_test<qn_op_##name>(x); }
template <class operation, class T> QN_WORD qn_if_number<T, bool> qn_test(T x) { return operation::go(qn_wide(x)); }
#define QN_HIGH (qn_double_bits(x) & 0x7fffffffffffffffull)
#define QN_LOW (qn_float_bits(x) & 0x7fffffffu)
QN_TEST(isnan, QN_LOW > 0x7f800000u, QN_HIGH > 0x7ff0000000000000ull)
QN_TEST(isinf, QN_LOW == 0x7f800000u, QN_HIGH == 0x7ff0000000000000ull)
QN_TEST(isfinite, QN_LOW < 0x7f800000u, QN_HIGH < 0x7ff0000000000000ull)
QN_TEST(isnormal, QN_LOW < 0x7f800000u && QN_LOW >= 0x00800000u,
        QN_HIGH < 0x7ff0000000000000ull && QN_HIGH >= 0x0010000000000000ull)
QN_TEST(signbit, qn_float_bits(x) >> 31, qn_double_bits(x) >> 63)
#undef QN_TEST
#undef QN_HIGH
#undef QN_LOW

/* ---- of any numbers, in their own type ----
 * Of two numbers one of which is NaN, min and max give the other; of zeros of two signs, the first. */
struct qn_op_min {
  template <class T> static QN_WORD T go(T a, T b) { return b < a || a != a ? b : a; }
};
struct qn_op_max {
  template <class T> static QN_WORD T go(T a, T b) { return a < b || a != a ? b : a; }
};
struct qn_op_clamp {
  template <class T> static QN_WORD T go(T x, T low, T high) { return qn_op_min::go(qn_op_max::go(x, low), high); }
};
struct qn_op_abs {
  template <class T> static QN_WORD qn_if_whole<T, T> go(T x) { return x < T(0) ? static_cast<T>(T(0) - x) : x; }
  static QN_WORD float go(float x) { return qn_bits_float(qn_float_bits(x) & 0x7fffffffu); }
  static QN_WORD double go(double x) { return qn_bits_double(qn_double_bits(x) & 0x7fffffffffffffffull); }
  template <qn_format f> static QN_WORD qn_short<f> go(qn_short<f> x)
  {
    return qn_short<f>::qn_of_bits(static_cast<qn_u16>(x.bits_ & 0x7fffu));
  }
};
#define QN_KEEP_1(name, operation)                                                                                     \
  template <class T> QN_WORD T name(T x) { return qn_keep<operation>(x); }
#define QN_KEEP_2(name, operation)                                                                                     \
  template <class A, class B> QN_WORD qn_common<A, B> name(A a, B b)                                                   \
  {                                                                                                                    \
    typedef qn_common<A, B> T;                                                                                         \
    return qn_keep<operation>(static_cast<T>(a), static_cast<T>(b));                                                   \
  }
#define QN_KEEP_3(name, operation)                                                                                     \
  template <class A, class B, class C> QN_WORD qn_common<qn_common<A, B>, C> name(A a, B b, C c)                       \
  {                                                                                                                    \
    typedef qn_common<qn_common<A, B>, C> T;                                                                           \
    return qn_keep<operation>(static_cast<T>(a), static_cast<T>(b), static_cast<T>(c));                                \
  }
QN_KEEP_1(abs, qn_op_abs)
QN_KEEP_2(min, qn_op_min)
QN_KEEP_2(max, qn_op_max)
QN_KEEP_3(clamp, qn_op_clamp)
#define QN_BOTH(name)                                                                                                  \
  namespace fast {                                                                                                     \
  using QN_WORDS::name;                                                                                                \
  }                                                                                                                    \
  namespace precise {                                                                                                  \
  using QN_WORDS::name;                                                                                                \
  }
QN_BOTH(abs)
QN_BOTH(min)
QN_BOTH(max)
QN_BOTH(clamp)
template <class A, class B> QN_WORD auto isordered(A x, B y) { return !isnan(x) && !isnan(y); }
template <class A, class B> QN_WORD auto isunordered(A x, B y) { return isnan(x) || isnan(y); }
template <class T> QN_WORD T select(T no, T yes, bool where) { return where ? yes : no; }

/* ---- real functions ----
 * QN_REAL_1(name, of a float, of a double, a GPU's own of a float): in precise::, fast:: and, by the mode, with no
 * prefix. */
#if QN_MATH == 2
#define QN_BY_MODE(name) using fast::name;
#else
#define QN_BY_MODE(name) using precise::name;
#endif
#ifdef QN_CUDA_DIALECT
#define QN_QUICK(safe, quick) quick
#else
#define QN_QUICK(safe, quick) safe
#endif
#define QN_PLACES(name, template_, result, parameters, call)                                                           \
  namespace precise {                                                                                                  \
  template_ QN_WORD result name parameters                                                                             \
  {                                                                                                                    \
    typedef qn_op_##name operation;                                                                                    \
    return call;                                                                                                       \
  }                                                                                                                    \
  }                                                                                                                    \
  namespace fast {                                                                                                     \
  template_ QN_WORD result name parameters                                                                             \
  {                                                                                                                    \
    typedef qn_quick_##name operation;                                                                                 \
    return call;                                                                                                       \
  }                                                                                                                    \
  }                                                                                                                    \
  QN_BY_MODE(name)
#define QN_OP(name, parameters, wide_parameters, safe, wide, quick)                                                    \
  struct qn_op_##name {                                                                                                \
    static QN_WORD float go parameters { return safe; }                                                                \
    static QN_WORD double go wide_parameters { return wide; }                                                          \
  };                                                                                                                   \
  struct qn_quick_##name {                                                                                             \
    static QN_WORD float go parameters { return QN_QUICK(safe, quick); }                                               \
    static QN_WORD double go wide_parameters { return wide; }                                                          \
  };
#define QN_LIST(...) __VA_ARGS__
#define QN_REAL_1(name, safe, wide, quick)                                                                             \
  QN_OP(name, (float x), (double x), safe, wide, quick)                                                                \
  QN_PLACES(name, template <class T>, qn_real<T>, (T x), qn_map<operation>(x))
#define QN_REAL_2(name, safe, wide, quick)                                                                             \
  QN_OP(name, (float x, float y), (double x, double y), safe, wide, quick)                                             \
  QN_PLACES(name, QN_LIST(template <class A, class B>), QN_LIST(qn_real<qn_common<A, B>>), (A x, B y),                 \
            QN_LIST(qn_map<operation>(static_cast<qn_common<A, B>>(x), static_cast<qn_common<A, B>>(y))))
#define QN_REAL_3(name, safe, wide, quick)                                                                             \
  QN_OP(name, (float x, float y, float z), (double x, double y, double z), safe, wide, quick)                          \
  QN_PLACES(name, QN_LIST(template <class A, class B, class C, class T = qn_common<qn_common<A, B>, C>>), qn_real<T>,  \
            (A x, B y, C z), QN_LIST(qn_map<operation>(static_cast<T>(x), static_cast<T>(y), static_cast<T>(z))))

QN_REAL_1(exp, qn_exp(x), QN_C(exp)(x), __expf(x))
QN_REAL_1(exp2, qn_exp2(x), QN_C(exp2)(x), ::exp2f(x))
QN_REAL_1(expm1, qn_expm1(x), QN_C(expm1)(x), ::expm1f(x))
QN_REAL_1(log, qn_log(x), QN_C(log)(x), __logf(x))
QN_REAL_1(log2, qn_log2(x), QN_C(log2)(x), __log2f(x))
QN_REAL_1(log1p, qn_log1p(x), QN_C(log1p)(x), ::log1pf(x))
QN_REAL_1(sin, qn_sin(x), QN_C(sin)(x), __sinf(x))
QN_REAL_1(cos, qn_cos(x), QN_C(cos)(x), __cosf(x))
QN_REAL_1(tanh, qn_tanh(x), QN_C(tanh)(x), ::tanhf(x))
QN_REAL_1(erf, qn_erf(x), QN_C(erf)(x), ::erff(x))
QN_REAL_1(sqrt, qn_sqrt(x), QN_C(sqrt)(x), ::sqrtf(x))
QN_REAL_1(rsqrt, qn_rsqrt(x), 1 / QN_C(sqrt)(x), ::rsqrtf(x))
QN_REAL_1(fabs, qn_op_abs::go(x), qn_op_abs::go(x), qn_op_abs::go(x))
QN_REAL_1(floor, QN_C(floorf)(x), QN_C(floor)(x), QN_C(floorf)(x))
QN_REAL_1(ceil, QN_C(ceilf)(x), QN_C(ceil)(x), QN_C(ceilf)(x))
QN_REAL_1(trunc, QN_C(truncf)(x), QN_C(trunc)(x), QN_C(truncf)(x))
QN_REAL_1(rint, QN_C(rintf)(x), QN_C(rint)(x), QN_C(rintf)(x))
QN_REAL_1(round, QN_C(roundf)(x), QN_C(round)(x), QN_C(roundf)(x))
QN_REAL_2(fmin, qn_op_min::go(x, y), qn_op_min::go(x, y), ::fminf(x, y))
QN_REAL_2(fmax, qn_op_max::go(x, y), qn_op_max::go(x, y), ::fmaxf(x, y))
QN_REAL_2(copysign, qn_bits_float((qn_float_bits(x) & 0x7fffffffu) | (qn_float_bits(y) & 0x80000000u)),
          QN_C(copysign)(x, y), ::copysignf(x, y))
QN_REAL_2(step, y < x ? 0.0f : 1.0f, y < x ? 0.0 : 1.0, y < x ? 0.0f : 1.0f)
QN_REAL_2(divide, x / y, x / y, __fdividef(x, y))
QN_REAL_3(fma, qn_fma(x, y, z), QN_C(fma)(x, y, z), __fmaf_rn(x, y, z))
QN_REAL_3(mix, x + (y - x) * z, x + (y - x) * z, x + (y - x) * z)

/* From 0 to below 1, though x - floor(x) may round to 1; -1, x itself where it is a zero, or 1; 0 of NaN. */
template <class T> QN_WORD T qn_fract(T x, T whole, T most)
{
  const T rest = x - whole;
  return rest > most ? most : rest;
}
template <class T> QN_WORD T qn_sign_of(T x) { return x > T(0) ? T(1) : x < T(0) ? T(-1) : x == x ? x : T(0); }
template <class T> QN_WORD T qn_saturate(T x) { return x > T(0) ? x < T(1) ? x : T(1) : T(0); }
template <class T> QN_WORD T qn_smoothstep(T low, T high, T x)
{
  const T t = qn_saturate((x - low) / (high - low));
  return t * t * (T(3) - T(2) * t);
}
#define QN_ALIKE_1(name, expression) QN_REAL_1(name, expression, expression, expression)
QN_REAL_1(fract, qn_fract(x, QN_C(floorf)(x), 0x1.fffffep-1f),
          qn_fract(x, QN_C(floor)(x), double(0x1.fffffffffffffp-1)), qn_fract(x, QN_C(floorf)(x), 0x1.fffffep-1f))
QN_ALIKE_1(sign, qn_sign_of(x))
QN_ALIKE_1(saturate, qn_saturate(x))
QN_REAL_3(smoothstep, qn_smoothstep(x, y, z), qn_smoothstep(x, y, z), qn_smoothstep(x, y, z))
} // namespace QN_WORDS
#endif
