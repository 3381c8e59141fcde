/* SPDX-License-Identifier: Apache-2.0 */
/* vector.h - Metal's vector types by name, their operators, and the functions that only vectors have. Element by
 * element, in order; a number beside a vector counts as a vector of it. */
#ifndef QN_DIALECT_VECTOR_H
#define QN_DIALECT_VECTOR_H
#include "kernel/dialect/vec.h"

namespace QN_WORDS {
#define QN_VECTORS(name, type)                                                                                         \
  typedef vec<type, 2> name##2;                                                                                        \
  typedef vec<type, 3> name##3;                                                                                        \
  typedef vec<type, 4> name##4;
QN_VECTORS(bool, bool)
QN_VECTORS(char, signed char)
QN_VECTORS(uchar, unsigned char)
QN_VECTORS(short, short)
QN_VECTORS(ushort, unsigned short)
QN_VECTORS(int, int)
QN_VECTORS(uint, unsigned)
QN_VECTORS(long, long)
QN_VECTORS(ulong, unsigned long)
QN_VECTORS(half, qn_half)
QN_VECTORS(bfloat, qn_bfloat)
QN_VECTORS(float, float)
QN_VECTORS(double, double) /* not Metal's; for references in double on the processor */
#undef QN_VECTORS

/* ---- operators ---- */
#define QN_BINARY(op, result)                                                                                          \
  template <class T, int N> QN_WORD vec<result, N> operator op(vec<T, N> a, vec<T, N> b)                               \
  {                                                                                                                    \
    vec<result, N> y;                                                                                                  \
    for (int k = 0; k < N; k++) y.at_[k] = static_cast<result>(a.at_[k] op b.at_[k]);                                  \
    return y;                                                                                                          \
  }                                                                                                                    \
  template <class T, int N, class S> QN_WORD qn_if_number<S, vec<result, N>> operator op(vec<T, N> a, S s)             \
  {                                                                                                                    \
    return a op vec<T, N>(s);                                                                                          \
  }                                                                                                                    \
  template <class T, int N, class S> QN_WORD qn_if_number<S, vec<result, N>> operator op(S s, vec<T, N> b)             \
  {                                                                                                                    \
    return vec<T, N>(s) op b;                                                                                          \
  }
#define QN_ARITHMETIC(op)                                                                                              \
  QN_BINARY(op, T)                                                                                                     \
  template <class T, int N, class S> QN_WORD vec<T, N> &operator op##=(vec<T, N> &a, S s) { return a = a op s; }
QN_ARITHMETIC(+)
QN_ARITHMETIC(-)
QN_ARITHMETIC(*)
QN_ARITHMETIC(/)
QN_ARITHMETIC(%)
QN_ARITHMETIC(&)
QN_ARITHMETIC(|)
QN_ARITHMETIC(^)
QN_ARITHMETIC(<<)
QN_ARITHMETIC(>>)
QN_BINARY(==, bool)
QN_BINARY(!=, bool)
QN_BINARY(<, bool)
QN_BINARY(>, bool)
QN_BINARY(<=, bool)
QN_BINARY(>=, bool)
QN_BINARY(&&, bool)
QN_BINARY(||, bool)
#undef QN_ARITHMETIC
#undef QN_BINARY

#define QN_UNARY(op, result)                                                                                           \
  template <class T, int N> QN_WORD vec<result, N> operator op(vec<T, N> a)                                            \
  {                                                                                                                    \
    vec<result, N> y;                                                                                                  \
    for (int k = 0; k < N; k++) y.at_[k] = static_cast<result>(op a.at_[k]);                                           \
    return y;                                                                                                          \
  }
QN_UNARY(+, T)
QN_UNARY(-, T)
QN_UNARY(~, T)
QN_UNARY(!, bool)
#undef QN_UNARY
template <class T, int N> QN_WORD vec<T, N> &operator++(vec<T, N> &a) { return a = a + T(1); }
template <class T, int N> QN_WORD vec<T, N> &operator--(vec<T, N> &a) { return a = a - T(1); }
template <class T, int N> QN_WORD vec<T, N> operator++(vec<T, N> &a, int)
{
  const vec<T, N> before = a;
  a = a + T(1);
  return before;
}
template <class T, int N> QN_WORD vec<T, N> operator--(vec<T, N> &a, int)
{
  const vec<T, N> before = a;
  a = a - T(1);
  return before;
}

/* ---- functions of numbers laid over vectors ---- */
template <class T, int N, class S> QN_DEVICE qn_if_number<S, vec<T, N>> qn_mix(vec<T, N>, S);
template <class T, int N, class S> QN_DEVICE qn_if_number<S, vec<T, N>> qn_mix(S, vec<T, N>);
template <class T, int N> QN_DEVICE vec<qn_real<T>, N> qn_real_of(vec<T, N>);
template <class operation, class T, int N> QN_WORD vec<qn_real<T>, N> qn_map(vec<T, N> x)
{
  vec<qn_real<T>, N> y;
  for (int k = 0; k < N; k++) y.at_[k] = qn_map<operation>(x.at_[k]);
  return y;
}
template <class operation, class T, int N> QN_WORD vec<qn_real<T>, N> qn_map(vec<T, N> x, vec<T, N> y)
{
  vec<qn_real<T>, N> z;
  for (int k = 0; k < N; k++) z.at_[k] = qn_map<operation>(x.at_[k], y.at_[k]);
  return z;
}
template <class operation, class T, int N> QN_WORD vec<qn_real<T>, N> qn_map(vec<T, N> x, vec<T, N> y, vec<T, N> z)
{
  vec<qn_real<T>, N> w;
  for (int k = 0; k < N; k++) w.at_[k] = qn_map<operation>(x.at_[k], y.at_[k], z.at_[k]);
  return w;
}
template <class operation, class T, int N> QN_WORD vec<T, N> qn_keep(vec<T, N> x)
{
  for (int k = 0; k < N; k++) x.at_[k] = operation::go(x.at_[k]);
  return x;
}
template <class operation, class T, int N> QN_WORD vec<T, N> qn_keep(vec<T, N> x, vec<T, N> y)
{
  for (int k = 0; k < N; k++) x.at_[k] = operation::go(x.at_[k], y.at_[k]);
  return x;
}
template <class operation, class T, int N> QN_WORD vec<T, N> qn_keep(vec<T, N> x, vec<T, N> y, vec<T, N> z)
{
  for (int k = 0; k < N; k++) x.at_[k] = operation::go(x.at_[k], y.at_[k], z.at_[k]);
  return x;
}
template <class operation, class T, int N> QN_WORD vec<bool, N> qn_test(vec<T, N> x)
{
  vec<bool, N> y;
  for (int k = 0; k < N; k++) y.at_[k] = operation::go(qn_wide(x.at_[k]));
  return y;
}

/* ---- what only vectors have ---- */
template <int N> QN_WORD bool any(vec<bool, N> v)
{
  bool y = false;
  for (int k = 0; k < N; k++) y |= v.at_[k];
  return y;
}
template <int N> QN_WORD bool all(vec<bool, N> v)
{
  bool y = true;
  for (int k = 0; k < N; k++) y &= v.at_[k];
  return y;
}
QN_WORD bool any(bool x) { return x; }
QN_WORD bool all(bool x) { return x; }
template <class T, int N> QN_WORD vec<T, N> select(vec<T, N> no, vec<T, N> yes, vec<bool, N> where)
{
  for (int k = 0; k < N; k++) no.at_[k] = where.at_[k] ? yes.at_[k] : no.at_[k];
  return no;
}
template <class T, int N> QN_WORD vec<T, N> select(vec<T, N> no, vec<T, N> yes, bool where) { return where ? yes : no; }
template <class T, int N> QN_WORD T dot(vec<T, N> a, vec<T, N> b)
{
  T sum = a.at_[0] * b.at_[0];
  for (int k = 1; k < N; k++) sum = sum + a.at_[k] * b.at_[k];
  return sum;
}
template <class T> QN_WORD vec<T, 3> cross(vec<T, 3> a, vec<T, 3> b)
{
  return vec<T, 3>(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}
QN_WORD float qn_root(float x)
{
#ifdef QN_PTX
  return __fsqrt_rn(x);
#elif defined(QN_CUDA_DIALECT)
  return sqrtf(x);
#else
  return __builtin_sqrtf(x);
#endif
}
QN_WORD double qn_root(double x) { return QN_C(sqrt)(x); }
template <class T, int N> QN_WORD T length_squared(vec<T, N> v) { return dot(v, v); }
template <class T, int N> QN_WORD T length(vec<T, N> v) { return T(qn_root(qn_wide(dot(v, v)))); }
template <class T, int N> QN_WORD T distance_squared(vec<T, N> a, vec<T, N> b) { return length_squared(a - b); }
template <class T, int N> QN_WORD T distance(vec<T, N> a, vec<T, N> b) { return length(a - b); }
template <class T, int N> QN_WORD vec<T, N> normalize(vec<T, N> v) { return v / length(v); }
template <class T, int N> QN_WORD vec<T, N> reflect(vec<T, N> i, vec<T, N> n) { return i - n * (T(2) * dot(n, i)); }
template <class T, int N> QN_WORD vec<T, N> faceforward(vec<T, N> n, vec<T, N> i, vec<T, N> of)
{
  return dot(of, i) < T(0) ? n : -n;
}
template <class T, int N, class S> QN_WORD vec<T, N> refract(vec<T, N> i, vec<T, N> n, S eta)
{
  const T d = dot(n, i), e = T(eta), k = T(1) - e * e * (T(1) - d * d);
  if (k < T(0)) return vec<T, N>(T(0));
  return i * e - n * (e * d + T(qn_root(qn_wide(k))));
}

#define QN_OF_VECTORS(name)                                                                                            \
  namespace fast {                                                                                                     \
  using QN_WORDS::name;                                                                                                \
  }                                                                                                                    \
  namespace precise {                                                                                                  \
  using QN_WORDS::name;                                                                                                \
  }
QN_OF_VECTORS(cross)
QN_OF_VECTORS(distance)
QN_OF_VECTORS(distance_squared)
QN_OF_VECTORS(dot)
QN_OF_VECTORS(length)
QN_OF_VECTORS(length_squared)
QN_OF_VECTORS(normalize)
#undef QN_OF_VECTORS
} // namespace QN_WORDS
#endif
