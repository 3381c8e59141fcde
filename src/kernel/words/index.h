/* SPDX-License-Identifier: Apache-2.0 */
/* index.h - what MLX's kernels find beside Metal: places of elements in strided arrays, limits of types.
 * Written to MLX's documented signatures; shapes are of int, strides of int64_t, ndim an int. */
#ifndef QN_WORDS_INDEX_H
#define QN_WORDS_INDEX_H
#include "kernel/words/complex.h"
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
} // namespace QN_WORDS
#endif
