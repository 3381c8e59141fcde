/* SPDX-License-Identifier: Apache-2.0 */
/* vec.h - Metal's vectors of 2, 3 and 4 numbers: their memory (3 take the room of 4), how they are made, their elements
 * and swizzles. Operators and functions are vector.h's. */
#ifndef QN_DIALECT_VEC_H
#define QN_DIALECT_VEC_H
#include "kernel/dialect/common.h"

namespace QN_WORDS {
template <class T, int N> struct vec;

template <int... at> struct qn_swizzle {
};

/* The target of `v.zx = ...`. */
template <class T, int N, int... at> struct qn_picked {
  T *of;
  typedef vec<T, sizeof...(at)> value;
  QN_WORD operator value() const
  {
    value v;
    int k = 0;
    ((v.at_[k++] = of[at]), ...);
    return v;
  }
  QN_WORD const qn_picked &operator=(value v) const
  {
    int k = 0;
    ((of[at] = v.at_[k++]), ...);
    return *this;
  }
  QN_WORD const qn_picked &operator=(const qn_picked &p) const { return *this = value(p); }
#define QN_ASSIGN(op)                                                                                                  \
  template <class S> QN_WORD const qn_picked &operator op##=(const S &s) const { return *this = value(*this) op s; }
  QN_ASSIGN(+)
  QN_ASSIGN(-)
  QN_ASSIGN(*)
  QN_ASSIGN(/)
  QN_ASSIGN(%)
  QN_ASSIGN(&)
  QN_ASSIGN(|)
  QN_ASSIGN(^)
#undef QN_ASSIGN
  template <class S> QN_WORD const qn_picked &operator<<=(const S &s) const { return *this = value(*this) << s; }
  template <class S> QN_WORD const qn_picked &operator>>=(const S &s) const { return *this = value(*this) >> s; }
};

/* A packed vector's is the vector of its numbers: packed.h. */
template <class S> constexpr QN_WORD const S &qn_open(const S &s) { return s; }

/* Members of vectors of all sizes. */
#define QN_VEC(size)                                                                                                   \
  vec() = default;                                                                                                     \
  template <class S, class = qn_if_number<S, int>> constexpr QN_WORD vec(S s) : at_{}                                  \
  {                                                                                                                    \
    for (int k = 0; k < size; k++) at_[k] = static_cast<T>(s);                                                         \
  }                                                                                                                    \
  template <class U, class = typename qn_if<!qn_is<T, U>::same>::type>                                                 \
  explicit constexpr QN_WORD vec(const vec<U, size> &v) : at_{}                                                        \
  {                                                                                                                    \
    for (int k = 0; k < size; k++) at_[k] = static_cast<T>(v.at_[k]);                                                  \
  }                                                                                                                    \
  template <class A, class B, class... C> constexpr QN_WORD vec(const A &a, const B &b, const C &...c) : at_{}         \
  {                                                                                                                    \
    static_assert(qn_parts<A>::n + qn_parts<B>::n + (0 + ... + qn_parts<C>::n) == size,                                \
                  "a vector is made of as many numbers as it has");                                                    \
    int k = 0;                                                                                                         \
    qn_put(k, qn_open(a)), qn_put(k, qn_open(b)), (qn_put(k, qn_open(c)), ...);                                        \
  }                                                                                                                    \
  template <class P, class V = typename P::qn_open_type> explicit QN_WORD vec(const P &p) : vec(qn_open(p)) {}         \
  template <class S> constexpr QN_WORD qn_if_number<S, void> qn_put(int &k, const S &s)                                \
  {                                                                                                                    \
    at_[k++] = static_cast<T>(s);                                                                                      \
  }                                                                                                                    \
  template <class U, int M> constexpr QN_WORD void qn_put(int &k, const vec<U, M> &v)                                  \
  {                                                                                                                    \
    for (int j = 0; j < M; j++) at_[k++] = static_cast<T>(v.at_[j]);                                                   \
  }                                                                                                                    \
  template <class I> QN_WORD T &operator[](I k) { return at_[k]; }                                                     \
  template <class I> constexpr QN_WORD const T &operator[](I k) const { return at_[k]; }                               \
  template <int... at> QN_WORD vec<T, sizeof...(at)> qn_get(qn_swizzle<at...>) const                                   \
  {                                                                                                                    \
    return vec<T, sizeof...(at)>(at_[at]...);                                                                          \
  }                                                                                                                    \
  template <int... at> QN_WORD qn_picked<T, size, at...> qn_set(qn_swizzle<at...>) { return {at_}; }

template <class S> struct qn_parts {
  static constexpr int n = 1;
};
template <class T, int N> struct qn_parts<vec<T, N>> {
  static constexpr int n = N;
};

/* The numbers of a vector by place and by name, also packed.h's. */
#define QN_NUMBERS(size, xyzw, rgba)                                                                                   \
  union {                                                                                                              \
    T at_[size];                                                                                                       \
    struct {                                                                                                           \
      T xyzw;                                                                                                          \
    };                                                                                                                 \
    struct {                                                                                                           \
      T rgba;                                                                                                          \
    };                                                                                                                 \
  };
#define QN_XY x, y
#define QN_XYZ x, y, z
#define QN_XYZW x, y, z, w
#define QN_RG r, g
#define QN_RGB r, g, b
#define QN_RGBA r, g, b, a
template <class T> struct alignas(2 * sizeof(T)) vec<T, 2> {
  QN_NUMBERS(2, QN_XY, QN_RG)
  QN_VEC(2)
};
template <class T> struct alignas(4 * sizeof(T)) vec<T, 3> {
  QN_NUMBERS(3, QN_XYZ, QN_RGB)
  QN_VEC(3)
};
template <class T> struct alignas(4 * sizeof(T)) vec<T, 4> {
  QN_NUMBERS(4, QN_XYZW, QN_RGBA)
  QN_VEC(4)
};
#undef QN_VEC

typedef vec<unsigned, 2> uint2;
typedef vec<unsigned, 3> uint3;
} // namespace QN_WORDS
#endif
