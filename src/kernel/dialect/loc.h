/* SPDX-License-Identifier: Apache-2.0 */
/* loc.h - where an element of a strided array lies, in either dialect, with the names of MLX's helpers. `index` is what
 * the caller counts in; a place has 64 bits and a sign whatever that is, since strides may be negative. */
#ifndef QN_DIALECT_LOC_H
#define QN_DIALECT_LOC_H
#include "kernel/dialect/common.h"

namespace QN_WORDS {
template <class N, class M> QN_WORD auto ceildiv(N n, M m) -> decltype((n + m - 1) / m) { return (n + m - 1) / m; }

/* The next dimension's part of a place, taken from `element`. */
template <class index, class stride_of> QN_WORD long qn_step(index &element, int extent, stride_of stride)
{
  const index n = static_cast<index>(extent), rest = element % n;
  element /= n;
  return static_cast<long>(rest) * static_cast<long>(stride);
}

/* Shapes and strides are pointers, or what has `data()` and becomes one. */
template <class index = long, class shapes, class strides_of>
QN_WORD qn_if_whole<index, long> elem_to_loc(index element, const shapes &shape, const strides_of &strides, int ndim)
{
  long at = 0;
  for (int d = ndim - 1; d >= 0 && element > 0; d--) at += qn_step(element, shape[d], strides[d]);
  return at;
}
} // namespace QN_WORDS
#endif
