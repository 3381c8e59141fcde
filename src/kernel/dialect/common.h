/* SPDX-License-Identifier: Apache-2.0 */
/* common.h - what all other words of a kernel's body stand on, in either dialect: the namespace (QN_WORDS, which the
 * generated text names), how functions are declared, which numbers mix to what, and how a function of one number is
 * laid over 16-bit types and vectors. It knows no function. */
#ifndef QN_DIALECT_COMMON_H
#define QN_DIALECT_COMMON_H
#include "base/kernel.h"

#ifndef QN_WORDS
#define QN_WORDS quern_metal
#endif
#ifndef QN_MATH
#define QN_MATH 0 /* 0 safe, 1 relaxed, 2 fast */
#endif

#ifdef QN_CUDA_DIALECT
#define QN_WORD __device__ __forceinline__
#define QN_C(name) ::name /* the compiler's own function of this name */
#define QN_THREADGROUP __shared__
#define QN_CONSTANT static __constant__ constexpr
#else
#define QN_WORD inline __attribute__((always_inline))
#define QN_C(name) __builtin_##name
#define QN_THREADGROUP static thread_local /* a group runs on one thread of the system */
#define QN_CONSTANT static constexpr
#endif

namespace QN_WORDS {
/* Numbers of 16 bits: half.h. */
enum qn_format { qn_format_f16, qn_format_bf16 };
template <qn_format format> struct qn_short;
typedef qn_short<qn_format_f16> qn_half;
typedef qn_short<qn_format_bf16> qn_bfloat;

/* ---- kinds of numbers ---- */
template <bool, class T = int> struct qn_if {
};
template <class T> struct qn_if<true, T> {
  typedef T type;
};
template <class A, class B> struct qn_is {
  static constexpr bool same = false;
};
template <class A> struct qn_is<A, A> {
  static constexpr bool same = true;
};
/* 0: no number; 1: whole, bool too; 2: of 16 bits; 3: float, double */
template <class T> struct qn_kind {
  static constexpr int value = __is_enum(T) ? 1 : 0;
};
#define QN_KIND(type, kind)                                                                                            \
  template <> struct qn_kind<type> {                                                                                   \
    static constexpr int value = kind;                                                                                 \
  };
QN_KIND(bool, 1)
QN_KIND(char, 1)
QN_KIND(signed char, 1)
QN_KIND(unsigned char, 1)
QN_KIND(short, 1)
QN_KIND(unsigned short, 1)
QN_KIND(int, 1)
QN_KIND(unsigned int, 1)
QN_KIND(long, 1)
QN_KIND(unsigned long, 1)
QN_KIND(long long, 1)
QN_KIND(unsigned long long, 1)
QN_KIND(float, 3)
QN_KIND(double, 3)
#undef QN_KIND
template <class T, class R> using qn_if_number = typename qn_if<qn_kind<T>::value != 0, R>::type;
template <class T, class R> using qn_if_whole = typename qn_if<qn_kind<T>::value == 1, R>::type;
template <class T, class R>
using qn_if_builtin = typename qn_if<qn_kind<T>::value == 1 || qn_kind<T>::value == 3, R>::type;

/* The common type of two arguments: their own type where they agree, C's where both are C's. half.h and vec.h say
 * what they do with theirs. */
template <class T> QN_DEVICE T qn_mix(T, T);
template <class A, class B,
          class = typename qn_if<!qn_is<A, B>::same && (qn_kind<A>::value & 1) && (qn_kind<B>::value & 1)>::type>
QN_DEVICE decltype(A() + B()) qn_mix(A, B);
template <class A, class B> using qn_common = decltype(qn_mix(A(), B()));

/* The type of a real function's result, and the one that it is computed in. */
QN_DEVICE float qn_real_of(float);
QN_DEVICE double qn_real_of(double);
template <class T> QN_DEVICE qn_if_whole<T, float> qn_real_of(T);
template <class T> using qn_real = decltype(qn_real_of(T()));
QN_WORD float qn_wide(float x) { return x; }
QN_WORD double qn_wide(double x) { return x; }
template <class T> QN_WORD qn_if_whole<T, float> qn_wide(T x) { return static_cast<float>(x); }

/* operation::go(float) or go(double) of numbers; of vectors, element by element (vector.h). `keep`: go of the very
 * type. */
template <class operation, class T> QN_WORD qn_if_number<T, qn_real<T>> qn_map(T x)
{
  return qn_real<T>(operation::go(qn_wide(x)));
}
template <class operation, class T> QN_WORD qn_if_number<T, qn_real<T>> qn_map(T x, T y)
{
  return qn_real<T>(operation::go(qn_wide(x), qn_wide(y)));
}
template <class operation, class T> QN_WORD qn_if_number<T, qn_real<T>> qn_map(T x, T y, T z)
{
  return qn_real<T>(operation::go(qn_wide(x), qn_wide(y), qn_wide(z)));
}
template <class operation, class T> QN_WORD qn_if_number<T, T> qn_keep(T x) { return operation::go(x); }
template <class operation, class T> QN_WORD qn_if_number<T, T> qn_keep(T x, T y) { return operation::go(x, y); }
template <class operation, class T> QN_WORD qn_if_number<T, T> qn_keep(T x, T y, T z) { return operation::go(x, y, z); }

/* ---- bits ---- */
QN_WORD unsigned long long qn_double_bits(double x)
{
#ifdef QN_CUDA_DIALECT
  return static_cast<unsigned long long>(__double_as_longlong(x));
#else
  unsigned long long bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
#endif
}

QN_WORD double qn_bits_double(unsigned long long bits)
{
#ifdef QN_CUDA_DIALECT
  return __longlong_as_double(static_cast<long long>(bits));
#else
  double x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
#endif
}

/* The bytes of one type as another of the same size. */
template <class to, class from> QN_WORD to qn_bits_as(const from &x)
{
  static_assert(sizeof(to) == sizeof(from), "the two types of as_type differ in size");
  to y;
#ifdef QN_CUDA_DIALECT
  memcpy(&y, &x, sizeof y);
#else
  __builtin_memcpy(static_cast<void *>(&y), &x, sizeof y);
#endif
  return y;
}
} // namespace QN_WORDS
#endif
