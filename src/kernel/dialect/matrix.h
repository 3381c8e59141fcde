/* SPDX-License-Identifier: Apache-2.0 */
/* matrix.h - Metal's matrices of 2 to 4 columns and rows: columns of vectors, linear algebra's products, each element
 * summed from its first product to its last. */
#ifndef QN_DIALECT_MATRIX_H
#define QN_DIALECT_MATRIX_H
#include "kernel/dialect/half.h"
#include "kernel/dialect/vector.h"

namespace QN_WORDS {
template <class T, int C, int R> struct matrix {
  vec<T, R> columns[C];
  matrix() = default;
  /* On the diagonal. */
  template <class S, class = qn_if_number<S, int>> explicit QN_WORD matrix(S s)
  {
    for (int c = 0; c < C; c++) {
      columns[c] = vec<T, R>(T(0));
      if (c < R) columns[c].at_[c] = static_cast<T>(s);
    }
  }
  template <class U, class = typename qn_if<!qn_is<T, U>::same>::type> explicit QN_WORD matrix(const matrix<U, C, R> &m)
  {
    for (int c = 0; c < C; c++) columns[c] = vec<T, R>(m.columns[c]);
  }
  /* Its columns, or its numbers column by column. */
  template <class A, class B, class... D> QN_WORD matrix(const A &a, const B &b, const D &...d)
  {
    static_assert(qn_parts<A>::n + qn_parts<B>::n + (0 + ... + qn_parts<D>::n) == C * R,
                  "a matrix is made of as many numbers as it has");
    int k = 0;
    qn_put(k, a), qn_put(k, b), (qn_put(k, d), ...);
  }
  template <class S> QN_WORD qn_if_number<S, void> qn_put(int &k, const S &s)
  {
    columns[k / R].at_[k % R] = static_cast<T>(s);
    k++;
  }
  template <class U, int M> QN_WORD void qn_put(int &k, const vec<U, M> &v)
  {
    for (int j = 0; j < M; j++) qn_put(k, v.at_[j]);
  }
  template <class I> QN_WORD vec<T, R> &operator[](I c) { return columns[c]; }
  template <class I> QN_WORD const vec<T, R> &operator[](I c) const { return columns[c]; }
};

#define QN_ELEMENTWISE(op)                                                                                             \
  template <class T, int C, int R>                                                                                     \
  QN_WORD matrix<T, C, R> operator op(const matrix<T, C, R> &a, const matrix<T, C, R> &b)                              \
  {                                                                                                                    \
    matrix<T, C, R> y;                                                                                                 \
    for (int c = 0; c < C; c++) y.columns[c] = a.columns[c] op b.columns[c];                                           \
    return y;                                                                                                          \
  }                                                                                                                    \
  template <class T, int C, int R>                                                                                     \
  QN_WORD matrix<T, C, R> &operator op##=(matrix<T, C, R> &a, const matrix<T, C, R> &b)                                \
  {                                                                                                                    \
    return a = a op b;                                                                                                 \
  }
QN_ELEMENTWISE(+)
QN_ELEMENTWISE(-)
#undef QN_ELEMENTWISE
template <class T, int C, int R> QN_WORD matrix<T, C, R> operator-(const matrix<T, C, R> &a)
{
  matrix<T, C, R> y;
  for (int c = 0; c < C; c++) y.columns[c] = -a.columns[c];
  return y;
}
template <class T, int C, int R, class S>
QN_WORD qn_if_number<S, matrix<T, C, R>> operator*(const matrix<T, C, R> &a, S s)
{
  matrix<T, C, R> y;
  for (int c = 0; c < C; c++) y.columns[c] = a.columns[c] * s;
  return y;
}
template <class T, int C, int R, class S>
QN_WORD qn_if_number<S, matrix<T, C, R>> operator*(S s, const matrix<T, C, R> &a)
{
  return a * s;
}
template <class T, int C, int R> QN_WORD vec<T, R> operator*(const matrix<T, C, R> &m, const vec<T, C> &v)
{
  vec<T, R> y = m.columns[0] * v.at_[0];
  for (int c = 1; c < C; c++) y = y + m.columns[c] * v.at_[c];
  return y;
}
template <class T, int C, int R> QN_WORD vec<T, C> operator*(const vec<T, R> &v, const matrix<T, C, R> &m)
{
  vec<T, C> y;
  for (int c = 0; c < C; c++) y.at_[c] = dot(v, m.columns[c]);
  return y;
}
template <class T, int K, int R, int C>
QN_WORD matrix<T, C, R> operator*(const matrix<T, K, R> &a, const matrix<T, C, K> &b)
{
  matrix<T, C, R> y;
  for (int c = 0; c < C; c++) y.columns[c] = a * b.columns[c];
  return y;
}
template <class T, int C, int R, class S> QN_WORD matrix<T, C, R> &operator*=(matrix<T, C, R> &a, const S &s)
{
  return a = a * s;
}
template <class T, int C, int R> QN_WORD bool operator==(const matrix<T, C, R> &a, const matrix<T, C, R> &b)
{
  for (int c = 0; c < C; c++)
    if (!all(a.columns[c] == b.columns[c])) return false;
  return true;
}
template <class T, int C, int R> QN_WORD bool operator!=(const matrix<T, C, R> &a, const matrix<T, C, R> &b)
{
  return !(a == b);
}

template <class T, int C, int R> QN_WORD matrix<T, R, C> transpose(const matrix<T, C, R> &m)
{
  matrix<T, R, C> y;
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) y.columns[r].at_[c] = m.columns[c].at_[r];
  return y;
}
template <class T> QN_WORD T determinant(const matrix<T, 2, 2> &m) { return m[0].x * m[1].y - m[1].x * m[0].y; }
template <class T> QN_WORD T determinant(const matrix<T, 3, 3> &m) { return dot(m[0], cross(m[1], m[2])); }
template <class T> QN_WORD T determinant(const matrix<T, 4, 4> &m)
{
  T sum = T(0);
  for (int r = 0; r < 4; r++) {
    matrix<T, 3, 3> rest;
    for (int c = 0; c < 3; c++)
      for (int k = 0; k < 3; k++) rest.columns[c].at_[k] = m[c + 1].at_[k + (k >= r)];
    const T part = m[0].at_[r] * determinant(rest);
    sum = r & 1 ? sum - part : sum + part;
  }
  return sum;
}

#define QN_MATRICES(name, type)                                                                                        \
  typedef matrix<type, 2, 2> name##2x2;                                                                                \
  typedef matrix<type, 2, 3> name##2x3;                                                                                \
  typedef matrix<type, 2, 4> name##2x4;                                                                                \
  typedef matrix<type, 3, 2> name##3x2;                                                                                \
  typedef matrix<type, 3, 3> name##3x3;                                                                                \
  typedef matrix<type, 3, 4> name##3x4;                                                                                \
  typedef matrix<type, 4, 2> name##4x2;                                                                                \
  typedef matrix<type, 4, 3> name##4x3;                                                                                \
  typedef matrix<type, 4, 4> name##4x4;
QN_MATRICES(float, float)
QN_MATRICES(half, qn_half)
QN_MATRICES(bfloat, qn_bfloat)
#undef QN_MATRICES
} // namespace QN_WORDS
#endif
