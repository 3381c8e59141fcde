/* SPDX-License-Identifier: Apache-2.0 */
/* packed.h - Metal's packed vectors: as many bytes as their numbers have, aligned as one of them. They are memory: in
 * an expression they count as the vector of that size. */
#ifndef QN_DIALECT_PACKED_H
#define QN_DIALECT_PACKED_H
#include "kernel/dialect/vector.h"

namespace QN_WORDS {
template <class T, int N> struct qn_packed;
#define QN_PACKED(size)                                                                                                \
  typedef vec<T, size> qn_open_type;                                                                                   \
  qn_packed() = default;                                                                                               \
  QN_WORD qn_packed(const vec<T, size> &v)                                                                             \
  {                                                                                                                    \
    for (int k = 0; k < size; k++) at_[k] = v.at_[k];                                                                  \
  }                                                                                                                    \
  template <class S, class = qn_if_number<S, int>> QN_WORD qn_packed(S s) : qn_packed(vec<T, size>(s)) {}              \
  template <class U, class = typename qn_if<!qn_is<T, U>::same>::type>                                                 \
  explicit QN_WORD qn_packed(const vec<U, size> &v) : qn_packed(vec<T, size>(v))                                       \
  {                                                                                                                    \
  }                                                                                                                    \
  template <class A, class B, class... C>                                                                              \
  QN_WORD qn_packed(const A &a, const B &b, const C &...c) : qn_packed(vec<T, size>(a, b, c...))                       \
  {                                                                                                                    \
  }                                                                                                                    \
  QN_WORD operator vec<T, size>() const                                                                                \
  {                                                                                                                    \
    vec<T, size> v;                                                                                                    \
    for (int k = 0; k < size; k++) v.at_[k] = at_[k];                                                                  \
    return v;                                                                                                          \
  }                                                                                                                    \
  template <class I> QN_WORD T &operator[](I k) { return at_[k]; }                                                     \
  template <class I> QN_WORD const T &operator[](I k) const { return at_[k]; }                                         \
  template <int... at> QN_WORD vec<T, sizeof...(at)> qn_get(qn_swizzle<at...>) const                                   \
  {                                                                                                                    \
    return vec<T, sizeof...(at)>(at_[at]...);                                                                          \
  }                                                                                                                    \
  template <int... at> QN_WORD qn_picked<T, size, at...> qn_set(qn_swizzle<at...>) { return {at_}; }

template <class T> struct qn_packed<T, 2> {
  QN_NUMBERS(2, QN_XY, QN_RG)
  QN_PACKED(2)
};
template <class T> struct qn_packed<T, 3> {
  QN_NUMBERS(3, QN_XYZ, QN_RGB)
  QN_PACKED(3)
};
template <class T> struct qn_packed<T, 4> {
  QN_NUMBERS(4, QN_XYZW, QN_RGBA)
  QN_PACKED(4)
};
#undef QN_PACKED

template <class T, int N> struct qn_parts<qn_packed<T, N>> {
  static constexpr int n = N;
};
template <class T, int N> QN_WORD vec<T, N> qn_open(const qn_packed<T, N> &p) { return p; }
template <class A> struct qn_is_packed {
  static constexpr bool yes = false;
};
template <class T, int N> struct qn_is_packed<qn_packed<T, N>> {
  static constexpr bool yes = true;
};
template <class A, class B> using qn_if_packed = typename qn_if<qn_is_packed<A>::yes || qn_is_packed<B>::yes>::type;

#define QN_NAMES(name, type)                                                                                           \
  typedef qn_packed<type, 2> packed_##name##2;                                                                         \
  typedef qn_packed<type, 3> packed_##name##3;                                                                         \
  typedef qn_packed<type, 4> packed_##name##4;
QN_NAMES(char, signed char)
QN_NAMES(uchar, unsigned char)
QN_NAMES(short, short)
QN_NAMES(ushort, unsigned short)
QN_NAMES(int, int)
QN_NAMES(uint, unsigned)
QN_NAMES(long, long)
QN_NAMES(ulong, unsigned long)
QN_NAMES(half, qn_half)
QN_NAMES(bfloat, qn_bfloat)
QN_NAMES(float, float)
#undef QN_NAMES

#define QN_OPENED(op)                                                                                                  \
  template <class A, class B, class = qn_if_packed<A, B>>                                                              \
  QN_WORD auto operator op(const A &a, const B &b)->decltype(qn_open(a) op qn_open(b))                                 \
  {                                                                                                                    \
    return qn_open(a) op qn_open(b);                                                                                   \
  }
#define QN_OPENED_BOTH(op)                                                                                             \
  QN_OPENED(op)                                                                                                        \
  template <class T, int N, class S> QN_WORD qn_packed<T, N> &operator op##=(qn_packed<T, N> &a, const S &s)           \
  {                                                                                                                    \
    return a = qn_open(a) op qn_open(s);                                                                               \
  }
QN_OPENED_BOTH(+)
QN_OPENED_BOTH(-)
QN_OPENED_BOTH(*)
QN_OPENED_BOTH(/)
QN_OPENED_BOTH(%)
QN_OPENED_BOTH(&)
QN_OPENED_BOTH(|)
QN_OPENED_BOTH(^)
QN_OPENED_BOTH(<<)
QN_OPENED_BOTH(>>)
QN_OPENED(==)
QN_OPENED(!=)
QN_OPENED(<)
QN_OPENED(>)
QN_OPENED(<=)
QN_OPENED(>=)
#undef QN_OPENED_BOTH
#undef QN_OPENED
template <class T, int N> QN_WORD vec<T, N> operator-(const qn_packed<T, N> &a) { return -qn_open(a); }

/* ---- functions take the vector ---- */
template <class T, int N> QN_DEVICE vec<T, N> qn_mix(qn_packed<T, N>, qn_packed<T, N>);
template <class T, int N> QN_DEVICE vec<T, N> qn_mix(qn_packed<T, N>, vec<T, N>);
template <class T, int N> QN_DEVICE vec<T, N> qn_mix(vec<T, N>, qn_packed<T, N>);
template <class T, int N, class S> QN_DEVICE qn_if_number<S, vec<T, N>> qn_mix(qn_packed<T, N>, S);
template <class T, int N, class S> QN_DEVICE qn_if_number<S, vec<T, N>> qn_mix(S, qn_packed<T, N>);
template <class T, int N> QN_DEVICE vec<qn_real<T>, N> qn_real_of(qn_packed<T, N>);
template <class operation, class T, int N> QN_WORD vec<qn_real<T>, N> qn_map(const qn_packed<T, N> &x)
{
  return qn_map<operation>(qn_open(x));
}
template <class operation, class T, int N> QN_WORD vec<T, N> qn_keep(const qn_packed<T, N> &x)
{
  return qn_keep<operation>(qn_open(x));
}
template <class operation, class T, int N> QN_WORD vec<bool, N> qn_test(const qn_packed<T, N> &x)
{
  return qn_test<operation>(qn_open(x));
}
#define QN_OPEN_1(name)                                                                                                \
  template <class T, int N> QN_WORD auto name(const qn_packed<T, N> &a) { return name(qn_open(a)); }
#define QN_OPEN_2(name)                                                                                                \
  template <class A, class B, class = qn_if_packed<A, B>> QN_WORD auto name(const A &a, const B &b)                    \
  {                                                                                                                    \
    return name(qn_open(a), qn_open(b));                                                                               \
  }
QN_OPEN_1(length)
QN_OPEN_1(length_squared)
QN_OPEN_1(normalize)
QN_OPEN_2(dot)
QN_OPEN_2(cross)
QN_OPEN_2(distance)
QN_OPEN_2(distance_squared)
QN_OPEN_2(reflect)
#undef QN_OPEN_1
#undef QN_OPEN_2
} // namespace QN_WORDS
#endif
