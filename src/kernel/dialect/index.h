/* SPDX-License-Identifier: Apache-2.0 */
/* index.h - what MLX's kernels find beside Metal: places of elements in strided arrays, limits of types.
 * Written to MLX's documented signatures; shapes are of int, strides of int64_t, ndim an int. */
#ifndef QN_DIALECT_INDEX_H
#define QN_DIALECT_INDEX_H
#include "kernel/dialect/complex.h"
#include "kernel/dialect/loc.h"
#include "kernel/dialect/half.h"
#include "kernel/dialect/metal_types.h"
#include "kernel/dialect/vec.h"

namespace QN_WORDS {
/* ---- where an element lies, its strides in elements. `index` is what the caller counts in, and changes nothing: a
 * place has 64 bits and a sign. ---- */
/* Of a three-dimensional position whose z counts all but the last two dimensions. */
template <class index = int64_t, class shape_of, class stride_of>
QN_WORD int64_t elem_to_loc(uint3 element, const shape_of *shape, const stride_of *strides, int ndim)
{
  int64_t at = static_cast<int64_t>(element.x) * static_cast<int64_t>(strides[ndim - 1]);
  if (ndim > 1) at += static_cast<int64_t>(element.y) * static_cast<int64_t>(strides[ndim - 2]);
  for (int d = ndim - 3; d >= 0; d--) at += qn_step(element.z, shape[d], strides[d]);
  return at;
}
template <class index = int64_t, class stride_of>
QN_WORD int64_t elem_to_loc_1(unsigned element, const stride_of &stride)
{
  return static_cast<int64_t>(element) * static_cast<int64_t>(stride);
}
template <class index = int64_t, class stride_of> QN_WORD int64_t elem_to_loc_2(uint2 element, const stride_of *strides)
{
  return static_cast<int64_t>(element.x) * static_cast<int64_t>(strides[1]) +
         static_cast<int64_t>(element.y) * static_cast<int64_t>(strides[0]);
}
template <class index = int64_t, class stride_of> QN_WORD int64_t elem_to_loc_3(uint3 element, const stride_of *strides)
{
  return static_cast<int64_t>(element.x) * static_cast<int64_t>(strides[2]) +
         static_cast<int64_t>(element.y) * static_cast<int64_t>(strides[1]) +
         static_cast<int64_t>(element.z) * static_cast<int64_t>(strides[0]);
}
/* Of two and of three arrays at once. */
template <class index = int64_t, class shape_of, class stride_of>
QN_WORD vec<int64_t, 2> elem_to_loc_2_nd(uint3 element, const shape_of *shape, const stride_of *a, const stride_of *b,
                                         int ndim)
{
  return vec<int64_t, 2>(elem_to_loc(element, shape, a, ndim), elem_to_loc(element, shape, b, ndim));
}
template <class index = int64_t, class shape_of, class stride_of>
QN_WORD vec<int64_t, 3> elem_to_loc_3_nd(uint3 element, const shape_of *shape, const stride_of *a, const stride_of *b,
                                         const stride_of *c, int ndim)
{
  return vec<int64_t, 3>(elem_to_loc(element, shape, a, ndim), elem_to_loc(element, shape, b, ndim),
                         elem_to_loc(element, shape, c, ndim));
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
} // namespace QN_WORDS
#endif
