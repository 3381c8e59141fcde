/* SPDX-License-Identifier: Apache-2.0 */
/* simdgroup.h - matrices of 8 x 8 that the 32 lanes of a simdgroup hold together, two numbers of a row each. Which lane
 * holds which is Apple's layout, which public kernels that take thread_elements() apart rely on. A product is summed in
 * float from the first of its eight terms to the last, without contraction: the same bits on processor and GPU. All 32
 * lanes take part. */
#ifndef QN_DIALECT_SIMDGROUP_H
#define QN_DIALECT_SIMDGROUP_H
#include "kernel/dialect/lanes.h"
#include "kernel/dialect/metal_types.h"
#include "kernel/dialect/half.h"
#include "kernel/dialect/vec.h"

namespace QN_WORDS {
/* The row, and the first of the two columns, that a lane holds. */
QN_WORD unsigned qn_matrix_row(unsigned lane) { return (lane >> 2 & 4u) + (lane >> 1 & 3u); }
QN_WORD unsigned qn_matrix_column(unsigned lane) { return (lane >> 1 & 4u) + (lane & 1u) * 2u; }
QN_WORD unsigned qn_matrix_lane(unsigned row, unsigned column)
{
  return (row & 4u) << 2 | (column & 4u) << 1 | (row & 3u) << 1 | (column >> 1 & 1u);
}

template <class T, int C, int R> struct simdgroup_matrix {
  static_assert(C == 8 && R == 8, "matrices of a simdgroup have 8 columns and 8 rows");
  typedef vec<T, 2> storage_type;
  storage_type at_;
  simdgroup_matrix() = default;
  explicit QN_WORD simdgroup_matrix(T diagonal) : at_(T(0))
  {
    const unsigned row = qn_matrix_row(qn_lane()), column = qn_matrix_column(qn_lane());
    if (row >> 1 == column >> 1) at_.at_[row & 1u] = diagonal;
  }
  QN_WORD storage_type &thread_elements() { return at_; }
  QN_WORD const storage_type &thread_elements() const { return at_; }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<qn_half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<qn_bfloat, 8, 8> simdgroup_bfloat8x8;

template <class T, int C, int R = C> QN_WORD simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T x)
{
  simdgroup_matrix<T, C, R> m;
  m.at_ = vec<T, 2>(x);
  return m;
}
template <class T, int C, int R = C> QN_WORD simdgroup_matrix<T, C, R> make_diagonal_simdgroup_matrix(T x)
{
  return simdgroup_matrix<T, C, R>(x);
}

/* Where number k (0 or 1) of this lane lies in memory. */
QN_WORD ulong qn_matrix_place(unsigned k, ulong row_elements, vec<ulong, 2> origin, bool transposed)
{
  const unsigned row = qn_matrix_row(qn_lane()), column = qn_matrix_column(qn_lane()) + k;
  return (origin.y + (transposed ? column : row)) * row_elements + origin.x + (transposed ? row : column);
}
template <class T, class S>
QN_WORD void simdgroup_load(simdgroup_matrix<T, 8, 8> &m, const S *from, ulong elements_per_row = 8,
                            vec<ulong, 2> origin = 0, bool transposed = false)
{
  static_assert(qn_is<T, S>::same, "simdgroup_load: the matrix and the memory are of one type");
  m.at_.x = from[qn_matrix_place(0, elements_per_row, origin, transposed)];
  m.at_.y = from[qn_matrix_place(1, elements_per_row, origin, transposed)];
}
template <class T, class S>
QN_WORD void simdgroup_store(const simdgroup_matrix<T, 8, 8> &m, S *to, ulong elements_per_row = 8,
                             vec<ulong, 2> origin = 0, bool transposed = false)
{
  static_assert(qn_is<T, S>::same, "simdgroup_store: the matrix and the memory are of one type");
  to[qn_matrix_place(0, elements_per_row, origin, transposed)] = m.at_.x;
  to[qn_matrix_place(1, elements_per_row, origin, transposed)] = m.at_.y;
}

/* a * b + c, of which each lane has its two numbers. */
template <class A, class B> struct qn_matrix_pair {
  vec<A, 2> a;
  vec<B, 2> b;
};
template <class A, class B>
QN_WORD vec<float, 2> qn_matrix_product(vec<A, 2> a, vec<B, 2> b, vec<float, 2> sum, int line)
{
#ifdef QN_CUDA_DIALECT
  const qn_meeting<vec<A, 2>> of_a(a, 0, line);
  const qn_meeting<vec<B, 2>> of_b(b, 0, line);
  const unsigned lane = of_a.lane;
#else
  const qn_meeting<qn_matrix_pair<A, B>> both({a, b}, 0, line);
  const unsigned lane = both.lane;
#endif
  const unsigned row = qn_matrix_row(lane), column = qn_matrix_column(lane);
  QN_UNROLL
  for (unsigned k = 0; k < 8; k += 2) {
#ifdef QN_CUDA_DIALECT
    const vec<A, 2> left = of_a.from(qn_matrix_lane(row, k));
    const vec<B, 2> first = of_b.from(qn_matrix_lane(k, column)), second = of_b.from(qn_matrix_lane(k + 1, column));
#else
    const vec<A, 2> left = both.from(qn_matrix_lane(row, k)).a;
    const vec<B, 2> first = both.from(qn_matrix_lane(k, column)).b, second = both.from(qn_matrix_lane(k + 1, column)).b;
#endif
    sum.x = sum.x + qn_wide(left.x) * qn_wide(first.x);
    sum.y = sum.y + qn_wide(left.x) * qn_wide(first.y);
    sum.x = sum.x + qn_wide(left.y) * qn_wide(second.x);
    sum.y = sum.y + qn_wide(left.y) * qn_wide(second.y);
  }
  return sum;
}
template <class D, class A, class B, class C>
QN_WORD void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8> &d, const simdgroup_matrix<A, 8, 8> &a,
                                           const simdgroup_matrix<B, 8, 8> &b, const simdgroup_matrix<C, 8, 8> &c,
                                           int line = QN_LINE)
{
  d.at_ = vec<D, 2>(qn_matrix_product(a.at_, b.at_, vec<float, 2>(qn_wide(c.at_.x), qn_wide(c.at_.y)), line));
}
template <class D, class A, class B>
QN_WORD void simdgroup_multiply(simdgroup_matrix<D, 8, 8> &d, const simdgroup_matrix<A, 8, 8> &a,
                                const simdgroup_matrix<B, 8, 8> &b, int line = QN_LINE)
{
  d.at_ = vec<D, 2>(qn_matrix_product(a.at_, b.at_, vec<float, 2>(0.0f), line));
}
} // namespace QN_WORDS
#endif
