/* SPDX-License-Identifier: Apache-2.0 */
/* complex.h - complex64_t, two floats, as MLX's kernels have it: arithmetic by the schoolbook's formulas, without
 * scaling; order by the real part, then by the imaginary one. */
#ifndef QN_DIALECT_COMPLEX_H
#define QN_DIALECT_COMPLEX_H
#include "kernel/dialect/common.h"

namespace QN_WORDS {
struct complex64_t {
  float real, imag;
  complex64_t() = default;
  constexpr QN_WORD complex64_t(float re, float im) : real(re), imag(im) {}
  template <class T, class = qn_if_number<T, int>>
  constexpr QN_WORD complex64_t(T x) : real(static_cast<float>(x)), imag(0)
  {
  }
  QN_WORD complex64_t operator-() const { return {-real, -imag}; }

  /* Seen only where an operand is complex, so that no number is taken for one. */
  friend QN_WORD complex64_t operator+(complex64_t a, complex64_t b) { return {a.real + b.real, a.imag + b.imag}; }
  friend QN_WORD complex64_t operator-(complex64_t a, complex64_t b) { return {a.real - b.real, a.imag - b.imag}; }
  friend QN_WORD complex64_t operator*(complex64_t a, complex64_t b)
  {
    return {a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real};
  }
  friend QN_WORD complex64_t operator/(complex64_t a, complex64_t b)
  {
    const float d = b.real * b.real + b.imag * b.imag;
    return {(a.real * b.real + a.imag * b.imag) / d, (a.imag * b.real - a.real * b.imag) / d};
  }
  friend QN_WORD bool operator==(complex64_t a, complex64_t b) { return a.real == b.real && a.imag == b.imag; }
  friend QN_WORD bool operator!=(complex64_t a, complex64_t b) { return !(a == b); }
  /* By the real part, then by the imaginary one. */
  friend QN_WORD bool operator<(complex64_t a, complex64_t b)
  {
    return a.real < b.real || (a.real == b.real && a.imag < b.imag);
  }
  friend QN_WORD bool operator>(complex64_t a, complex64_t b) { return b < a; }
  friend QN_WORD bool operator<=(complex64_t a, complex64_t b) { return !(b < a) && a == a && b == b; }
  friend QN_WORD bool operator>=(complex64_t a, complex64_t b) { return b <= a; }
#define QN_ASSIGN(op)                                                                                                  \
  friend QN_WORD complex64_t &operator op##=(complex64_t &a, complex64_t b) { return a = a op b; }
  QN_ASSIGN(+)
  QN_ASSIGN(-)
  QN_ASSIGN(*)
  QN_ASSIGN(/)
#undef QN_ASSIGN
};
} // namespace QN_WORDS
#endif
