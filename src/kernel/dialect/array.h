/* SPDX-License-Identifier: Apache-2.0 */
/* array.h - metal::array: a C array that can be given and returned. */
#ifndef QN_DIALECT_ARRAY_H
#define QN_DIALECT_ARRAY_H
#include "kernel/dialect/common.h"

namespace QN_WORDS {
template <class T, decltype(sizeof 0) N> struct array {
  T at_[N ? N : 1];
  static constexpr QN_WORD decltype(sizeof 0) size() { return N; }
  static constexpr QN_WORD decltype(sizeof 0) max_size() { return N; }
  static constexpr QN_WORD bool empty() { return N == 0; }
  constexpr QN_WORD T &operator[](decltype(sizeof 0) k) { return at_[k]; }
  constexpr QN_WORD const T &operator[](decltype(sizeof 0) k) const { return at_[k]; }
  constexpr QN_WORD T &at(decltype(sizeof 0) k) { return at_[k]; }
  constexpr QN_WORD const T &at(decltype(sizeof 0) k) const { return at_[k]; }
  constexpr QN_WORD T &front() { return at_[0]; }
  constexpr QN_WORD T &back() { return at_[N - 1]; }
  constexpr QN_WORD T *data() { return at_; }
  constexpr QN_WORD const T *data() const { return at_; }
  constexpr QN_WORD T *begin() { return at_; }
  constexpr QN_WORD const T *begin() const { return at_; }
  constexpr QN_WORD T *end() { return at_ + N; }
  constexpr QN_WORD const T *end() const { return at_ + N; }
  QN_WORD void fill(const T &x)
  {
    for (decltype(sizeof 0) k = 0; k < N; k++) at_[k] = x;
  }
};
template <class T, class... U> array(T, U...) -> array<T, 1 + sizeof...(U)>;
template <class T, class... U> constexpr QN_WORD array<T, 1 + sizeof...(U)> make_array(T x, U... y)
{
  return {{x, static_cast<T>(y)...}};
}
} // namespace QN_WORDS
#endif
