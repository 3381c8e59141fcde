/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_atomic.h - CUDA's atomic functions: on a GPU the compiler's own, and atomicAdd, Max, Min of __half and
 * __nv_bfloat16; on the processor all of them for all numbers, seen by all threads of the pool. */
#ifndef QN_DIALECT_CUDA_ATOMIC_H
#define QN_DIALECT_CUDA_ATOMIC_H
#include "kernel/dialect/atomic.h"
#include "kernel/dialect/cuda.h"
#include "kernel/dialect/half.h"

namespace QN_WORDS {
#ifdef QN_CUDA_DIALECT
using ::atomicAdd;
using ::atomicMax;
using ::atomicMin;
#define QN_ATOMIC(name, word)                                                                                          \
  template <qn_format f> QN_WORD qn_short<f> name(qn_short<f> *at, qn_short<f> by) { return word(at, by); }
#else
#define QN_ATOMIC(name, word)                                                                                          \
  template <class T, class U> QN_WORD T name(T *at, U by) { return word(at, static_cast<T>(by)); }                     \
  template <class T, class U> QN_WORD T name##_block(T *at, U by) { return word(at, static_cast<T>(by)); }             \
  template <class T, class U> QN_WORD T name##_system(T *at, U by) { return word(at, static_cast<T>(by)); }
QN_ATOMIC(atomicSub, qn_atomically_sub)
QN_ATOMIC(atomicExch, qn_atomically_exchange)
QN_ATOMIC(atomicAnd, qn_atomically_and)
QN_ATOMIC(atomicOr, qn_atomically_or)
QN_ATOMIC(atomicXor, qn_atomically_xor)
struct qn_atomic_inc {
  template <class T> static QN_WORD T go(T old, T most) { return old >= most ? 0 : old + 1; }
};
struct qn_atomic_dec {
  template <class T> static QN_WORD T go(T old, T most) { return old == 0 || old > most ? most : old - 1; }
};
QN_ATOMIC(atomicInc, qn_change<qn_atomic_inc>)
QN_ATOMIC(atomicDec, qn_change<qn_atomic_dec>)
template <class T, class U, class V> QN_WORD T atomicCAS(T *at, U expected, V wanted)
{
  return qn_exchange_if(at, static_cast<T>(expected), static_cast<T>(wanted));
}
#endif
QN_ATOMIC(atomicAdd, qn_atomically_add)
QN_ATOMIC(atomicMin, qn_atomically_min)
QN_ATOMIC(atomicMax, qn_atomically_max)
#undef QN_ATOMIC
} // namespace QN_WORDS
#endif
