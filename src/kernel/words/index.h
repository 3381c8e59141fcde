/* SPDX-License-Identifier: Apache-2.0 */
/* index.h - what MLX's kernels find beside Metal: places of elements in strided arrays, limits of types, complex64_t.
 * Written to MLX's documented signatures; shapes are of int, strides of int64_t, ndim an int. */
#ifndef QN_WORDS_INDEX_H
#define QN_WORDS_INDEX_H
#include "kernel/words/short.h"
#include "kernel/words/names.h"
#include "kernel/words/vec.h"

namespace QN_WORDS {
template <class N, class M> QN_WORD auto ceildiv(N n, M m) -> decltype((n + m - 1) / m) { return (n + m - 1) / m; }

/* ---- where an element lies, its strides in elements. `IdxT` is the type that the caller counts in. ---- */
template <class index = int64_t, class shape_of, class stride_of>
QN_WORD index elem_to_loc(index element, const shape_of *shape, const stride_of *strides, int ndim)
{
  index at = 0;
  for (int d = ndim - 1; d >= 0 && element > 0; d--) {
    at += (element % static_cast<index>(shape[d])) * static_cast<index>(strides[d]);
    element /= static_cast<index>(shape[d]);
  }
  return at;
}
/* Of a three-dimensional position whose z counts all but the last two dimensions. */
template <class index = int64_t, class shape_of, class stride_of>
QN_WORD index elem_to_loc(uint3 element, const shape_of *shape, const stride_of *strides, int ndim)
{
  index at = static_cast<index>(element.x) * static_cast<index>(strides[ndim - 1]);
  if (ndim > 1) at += static_cast<index>(element.y) * static_cast<index>(strides[ndim - 2]);
  for (int d = ndim - 3; d >= 0; d--) {
    at += static_cast<index>(element.z % static_cast<unsigned>(shape[d])) * static_cast<index>(strides[d]);
    element.z /= static_cast<unsigned>(shape[d]);
  }
  return at;
}
template <class index = int64_t, class stride_of> QN_WORD index elem_to_loc_1(unsigned element, const stride_of &stride)
{
  return static_cast<index>(element) * static_cast<index>(stride);
}
template <class index = int64_t, class stride_of>
QN_WORD index elem_to_loc_2(uint2 element, const stride_of (&strides)[2])
{
  return static_cast<index>(element.x) * static_cast<index>(strides[1]) +
         static_cast<index>(element.y) * static_cast<index>(strides[0]);
}
template <class index = int64_t, class stride_of>
QN_WORD index elem_to_loc_3(uint3 element, const stride_of (&strides)[3])
{
  return static_cast<index>(element.x) * static_cast<index>(strides[2]) +
         static_cast<index>(element.y) * static_cast<index>(strides[1]) +
         static_cast<index>(element.z) * static_cast<index>(strides[0]);
}
template <class index = int64_t, class stride_of> QN_WORD index elem_to_loc_2(uint2 element, const stride_of *strides)
{
  return static_cast<index>(element.x) * static_cast<index>(strides[1]) +
         static_cast<index>(element.y) * static_cast<index>(strides[0]);
}
template <class index = int64_t, class stride_of> QN_WORD index elem_to_loc_3(uint3 element, const stride_of *strides)
{
  return static_cast<index>(element.x) * static_cast<index>(strides[2]) +
         static_cast<index>(element.y) * static_cast<index>(strides[1]) +
         static_cast<index>(element.z) * static_cast<index>(strides[0]);
}
/* Of two and of three arrays at once. */
template <class index = int64_t, class shape_of, class stride_of>
QN_WORD vec<index, 2> elem_to_loc_2_nd(uint3 element, const shape_of *shape, const stride_of *a, const stride_of *b,
                                       int ndim)
{
  return vec<index, 2>(elem_to_loc<index>(element, shape, a, ndim), elem_to_loc<index>(element, shape, b, ndim));
}
template <class index = int64_t, class shape_of, class stride_of>
QN_WORD vec<index, 3> elem_to_loc_3_nd(uint3 element, const shape_of *shape, const stride_of *a, const stride_of *b,
                                       const stride_of *c, int ndim)
{
  return vec<index, 3>(elem_to_loc<index>(element, shape, a, ndim), elem_to_loc<index>(element, shape, b, ndim),
                       elem_to_loc<index>(element, shape, c, ndim));
}

/* ---- limits ---- */
template <class T> struct Limits {
  static constexpr bool is_signed = T(-1) < T(0);
  static constexpr T max = is_signed ? T((T(1) << (8 * sizeof(T) - 2)) - 1 + (T(1) << (8 * sizeof(T) - 2))) : T(-1);
  static constexpr T min = is_signed ? T(-max - 1) : T(0);
  static constexpr T finite_max = max, finite_min = min;
};
template <> struct Limits<bool> {
  static constexpr bool max = true, min = false, finite_max = true, finite_min = false;
};
template <> struct Limits<float> {
  static constexpr float max = INFINITY, min = -INFINITY, finite_max = FLT_MAX, finite_min = -FLT_MAX;
};
template <> struct Limits<double> {
  static constexpr double max = INFINITY, min = -INFINITY, finite_max = 1.7976931348623157e308,
                          finite_min = -1.7976931348623157e308;
};
template <qn_format f> struct Limits<qn_short<f>> {
  static constexpr float most = f == qn_format_f16 ? 65504.0f : 3.38953139e38f;
  static constexpr qn_short<f> max = qn_short<f>(INFINITY), min = qn_short<f>(-INFINITY),
                               finite_max = qn_short<f>(most), finite_min = qn_short<f>(-most);
};

/* ---- complex64_t ---- */
struct complex64_t {
  float real, imag;
  complex64_t() = default;
  constexpr QN_WORD complex64_t(float re, float im) : real(re), imag(im) {}
  template <class T, class = qn_if_number<T, int>>
  constexpr QN_WORD complex64_t(T x) : real(static_cast<float>(x)), imag(0)
  {
  }
  QN_WORD complex64_t operator-() const { return {-real, -imag}; }
};
QN_WORD complex64_t operator+(complex64_t a, complex64_t b) { return {a.real + b.real, a.imag + b.imag}; }
QN_WORD complex64_t operator-(complex64_t a, complex64_t b) { return {a.real - b.real, a.imag - b.imag}; }
QN_WORD complex64_t operator*(complex64_t a, complex64_t b)
{
  return {a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real};
}
QN_WORD complex64_t operator/(complex64_t a, complex64_t b)
{
  const float d = b.real * b.real + b.imag * b.imag;
  return {(a.real * b.real + a.imag * b.imag) / d, (a.imag * b.real - a.real * b.imag) / d};
}
QN_WORD bool operator==(complex64_t a, complex64_t b) { return a.real == b.real && a.imag == b.imag; }
QN_WORD bool operator!=(complex64_t a, complex64_t b) { return !(a == b); }
/* By the real part, then by the imaginary one. */
QN_WORD bool operator<(complex64_t a, complex64_t b)
{
  return a.real < b.real || (a.real == b.real && a.imag < b.imag);
}
QN_WORD bool operator>(complex64_t a, complex64_t b) { return b < a; }
QN_WORD bool operator<=(complex64_t a, complex64_t b) { return !(b < a) && a == a && b == b; }
QN_WORD bool operator>=(complex64_t a, complex64_t b) { return b <= a; }
#define QN_ASSIGN(op)                                                                                                  \
  QN_WORD complex64_t &operator op##=(complex64_t &a, complex64_t b) { return a = a op b; }
QN_ASSIGN(+)
QN_ASSIGN(-)
QN_ASSIGN(*)
QN_ASSIGN(/)
#undef QN_ASSIGN
} // namespace QN_WORDS
#endif
