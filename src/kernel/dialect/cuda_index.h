/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_index.h - what a body of MLX's cuda_kernel finds beside CUDA: Shape and Strides, places of elements, limits of
 * types, vectors of any element. Written to MLX's documented names. */
#ifndef QN_DIALECT_CUDA_INDEX_H
#define QN_DIALECT_CUDA_INDEX_H
#include "kernel/dialect/complex.h"
#include "kernel/dialect/cuda.h"
#include "kernel/dialect/cuda_half.h"
#include "kernel/dialect/loc.h"

namespace QN_WORDS {
static constexpr int WARP_SIZE = 32;
static constexpr int MAX_NDIM = 10;

/* The extents of an array, which lie in the launch's argument: `x_shape[0]`, `x_shape.data()`, and a pointer where one
 * is wanted. */
template <class T> struct qn_extents {
  const T *at_;
  unsigned n_;
  QN_WORD const T *data() const { return at_; }
  QN_WORD const T *begin() const { return at_; }
  QN_WORD const T *end() const { return at_ + n_; }
  QN_WORD decltype(sizeof 0) size() const { return n_; }
  QN_WORD bool empty() const { return !n_; }
  QN_WORD const T &front() const { return at_[0]; }
  QN_WORD const T &back() const { return at_[n_ - 1]; }
  QN_WORD operator const T *() const { return at_; }
};
typedef qn_extents<int> Shape;
typedef qn_extents<long> Strides;

template <int n_dims, class index = long, class shapes, class strides_of>
QN_WORD long elem_to_loc_nd(index element, const shapes &shape, const strides_of &strides)
{
  long at = 0;
  QN_UNROLL
  for (int d = n_dims - 1; d >= 0; d--) at += qn_step(element, shape[d], strides[d]);
  return at;
}

/* Of two and of three arrays of one shape at once, to be bound: `auto [a, b] = ...`. */
struct qn_two_places {
  long first, second;
};
struct qn_three_places {
  long first, second, third;
};
template <class index = long, class shapes, class strides_of>
QN_WORD qn_two_places elem_to_loc(index element, const shapes &shape, const strides_of &a, const strides_of &b,
                                  int ndim)
{
  return {elem_to_loc(element, shape, a, ndim), elem_to_loc(element, shape, b, ndim)};
}
template <class index = long, class shapes, class strides_of>
QN_WORD qn_three_places elem_to_loc(index element, const shapes &shape, const strides_of &a, const strides_of &b,
                                    const strides_of &c, int ndim)
{
  return {elem_to_loc(element, shape, a, ndim), elem_to_loc(element, shape, b, ndim),
          elem_to_loc(element, shape, c, ndim)};
}
template <int n_dims, class index = long, class shapes, class strides_of>
QN_WORD qn_two_places elem_to_loc_nd(index element, const shapes &shape, const strides_of &a, const strides_of &b)
{
  return {elem_to_loc_nd<n_dims>(element, shape, a), elem_to_loc_nd<n_dims>(element, shape, b)};
}
template <int n_dims, class index = long, class shapes, class strides_of>
QN_WORD qn_three_places elem_to_loc_nd(index element, const shapes &shape, const strides_of &a, const strides_of &b,
                                       const strides_of &c)
{
  return {elem_to_loc_nd<n_dims>(element, shape, a), elem_to_loc_nd<n_dims>(element, shape, b),
          elem_to_loc_nd<n_dims>(element, shape, c)};
}

/* ---- limits: functions, as MLX's for CUDA are ---- */
template <class T> struct Limits {
  static constexpr bool is_signed = T(-1) < T(0);
  static constexpr QN_WORD T max()
  {
    return is_signed ? T((T(1) << (8 * sizeof(T) - 2)) - 1 + (T(1) << (8 * sizeof(T) - 2))) : T(-1);
  }
  static constexpr QN_WORD T min() { return is_signed ? T(-max() - 1) : T(0); }
  static constexpr QN_WORD T finite_max() { return max(); }
  static constexpr QN_WORD T finite_min() { return min(); }
};
template <> struct Limits<bool> {
  static constexpr QN_WORD bool max() { return true; }
  static constexpr QN_WORD bool min() { return false; }
};
template <> struct Limits<float> {
  static QN_WORD float max() { return qn_bits_float(0x7f800000u); }
  static QN_WORD float min() { return -max(); }
  static constexpr QN_WORD float finite_max() { return 3.402823466e+38f; }
  static constexpr QN_WORD float finite_min() { return -3.402823466e+38f; }
};
template <> struct Limits<double> {
  static QN_WORD double max() { return qn_bits_double(0x7ff0000000000000ull); }
  static QN_WORD double min() { return -max(); }
  static constexpr QN_WORD double finite_max() { return 1.7976931348623157e308; }
  static constexpr QN_WORD double finite_min() { return -1.7976931348623157e308; }
};
template <qn_format f> struct Limits<qn_short<f>> {
  static QN_WORD qn_short<f> max() { return qn_short<f>(Limits<float>::max()); }
  static QN_WORD qn_short<f> min() { return qn_short<f>(Limits<float>::min()); }
  static QN_WORD qn_short<f> finite_max() { return qn_short<f>(f == qn_format_f16 ? 65504.0f : 3.38953139e38f); }
  static QN_WORD qn_short<f> finite_min() { return qn_short<f>(f == qn_format_f16 ? -65504.0f : -3.38953139e38f); }
};

/* ---- several elements at once ---- */
template <class T, int N> struct alignas(sizeof(T) * N) AlignedVector {
  T val[N];
  QN_WORD T &operator[](int k) { return val[k]; }
  QN_WORD T operator[](int k) const { return val[k]; }
};
template <int N, class T> QN_WORD bool is_aligned(T *at)
{
  return reinterpret_cast<unsigned long>(at) % (N * sizeof(T)) == 0;
}
template <int N, class T> QN_WORD AlignedVector<T, N> unsafe_load_vector(const T *from, unsigned offset)
{
  return reinterpret_cast<const AlignedVector<T, N> *>(from)[offset];
}
template <int N, class T> QN_WORD void unsafe_store_vector(T *to, unsigned offset, const AlignedVector<T, N> &v)
{
  reinterpret_cast<AlignedVector<T, N> *>(to)[offset] = v;
}
template <int N, class T> QN_WORD AlignedVector<T, N> load_vector(const T *from, unsigned offset)
{
  AlignedVector<T, N> v;
  if (is_aligned<N>(from)) return unsafe_load_vector<N>(from, offset);
  QN_UNROLL
  for (int k = 0; k < N; k++) v[k] = from[offset * N + static_cast<unsigned>(k)];
  return v;
}
/* Of an array of `size` elements; what lies behind it is `fallback`. */
template <int N, class T, class size_of>
QN_WORD AlignedVector<T, N> load_vector(const T *from, unsigned offset, size_of size, T fallback)
{
  AlignedVector<T, N> v;
  if (is_aligned<N>(from) && static_cast<size_of>(offset + 1) * N <= size) return unsafe_load_vector<N>(from, offset);
  QN_UNROLL
  for (int k = 0; k < N; k++) {
    const size_of at = static_cast<size_of>(offset) * N + static_cast<size_of>(k);
    v[k] = at < size ? from[at] : fallback;
  }
  return v;
}
template <int N, class T> QN_WORD void store_vector(T *to, unsigned offset, const AlignedVector<T, N> &v)
{
  if (is_aligned<N>(to)) {
    unsafe_store_vector<N>(to, offset, v);
    return;
  }
  QN_UNROLL
  for (int k = 0; k < N; k++) to[offset * N + static_cast<unsigned>(k)] = v[k];
}
template <int N, class T, class size_of>
QN_WORD void store_vector(T *to, unsigned offset, const AlignedVector<T, N> &v, size_of size)
{
  if (is_aligned<N>(to) && static_cast<size_of>(offset + 1) * N <= size) {
    unsafe_store_vector<N>(to, offset, v);
    return;
  }
  for (int k = 0; k < N; k++) {
    const size_of at = static_cast<size_of>(offset) * N + static_cast<size_of>(k);
    if (at < size) to[at] = v[k];
  }
}
} // namespace QN_WORDS
#endif
