/* SPDX-License-Identifier: Apache-2.0 */
/* atomic.h - Metal's atomics, in device and threadgroup memory, on numbers of 1 to 8 bytes, half and bfloat among them;
 * and MLX's mlx_atomic functions. Every order is taken as relaxed or stronger; where a processor or GPU has no
 * operation of its own, it is a loop round compare-and-exchange, for 16 and 8 bits on the word that holds them. */
#ifndef QN_DIALECT_ATOMIC_H
#define QN_DIALECT_ATOMIC_H
#include "kernel/dialect/metal_types.h"

namespace QN_WORDS {
enum memory_order {
  memory_order_relaxed,
  memory_order_acquire,
  memory_order_release,
  memory_order_acq_rel,
  memory_order_seq_cst
};
enum thread_scope { thread_scope_thread, thread_scope_simdgroup, thread_scope_threadgroup, thread_scope_device };

template <class T> struct atomic {
  T value_;
};
template <class T> using _atomic = atomic<T>;
template <class T> using mlx_atomic = atomic<T>;
typedef atomic<int> atomic_int;
typedef atomic<unsigned> atomic_uint;
typedef atomic<float> atomic_float;
typedef atomic<bool> atomic_bool;
typedef atomic<unsigned long> atomic_ulong;

/* ---- the one operation that all others can be made of; gives what was there ---- */
#ifdef QN_CUDA_DIALECT
template <int bytes> struct qn_word_of {
  typedef unsigned type;
};
template <> struct qn_word_of<8> {
  typedef unsigned long long type;
};
template <class T> QN_WORD T qn_exchange_if(T *at, T expected, T wanted)
{
  if constexpr (sizeof(T) >= 4) {
    typedef typename qn_word_of<sizeof(T)>::type word;
    return qn_bits_as<T>(atomicCAS(reinterpret_cast<word *>(at), qn_bits_as<word>(expected), qn_bits_as<word>(wanted)));
  } else {
    const unsigned long long address = reinterpret_cast<unsigned long long>(at);
    unsigned *whole = reinterpret_cast<unsigned *>(address & ~3ull);
    const unsigned shift = static_cast<unsigned>(address & 3ull) * 8u, mask = (sizeof(T) == 2 ? 0xffffu : 0xffu)
                                                                              << shift;
    unsigned low = 0, high = 0, old = *static_cast<volatile unsigned *>(whole);
    memcpy(&low, &expected, sizeof(T));
    memcpy(&high, &wanted, sizeof(T));
    while ((old & mask) == low << shift) {
      const unsigned seen = atomicCAS(whole, old, (old & ~mask) | high << shift);
      if (seen == old) return expected;
      old = seen;
    }
    const unsigned part = (old & mask) >> shift;
    T there;
    memcpy(&there, &part, sizeof(T));
    return there;
  }
}
template <class T> QN_WORD T qn_look(const T *at) { return *const_cast<const volatile T *>(at); }
template <qn_format f> QN_WORD qn_short<f> qn_look(const qn_short<f> *at)
{
  return qn_short<f>::qn_of_bits(*reinterpret_cast<const volatile qn_u16 *>(at));
}
template <class T> QN_WORD void qn_put_down(T *at, T x) { *const_cast<volatile T *>(at) = x; }
template <qn_format f> QN_WORD void qn_put_down(qn_short<f> *at, qn_short<f> x)
{
  *reinterpret_cast<volatile qn_u16 *>(at) = x.bits_;
}
#else
template <class T> QN_WORD T qn_exchange_if(T *at, T expected, T wanted)
{
  __atomic_compare_exchange(at, &expected, &wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
  return expected;
}
template <class T> QN_WORD T qn_look(const T *at)
{
  T x;
  __atomic_load(const_cast<T *>(at), &x, __ATOMIC_SEQ_CST);
  return x;
}
template <class T> QN_WORD void qn_put_down(T *at, T x) { __atomic_store(at, &x, __ATOMIC_SEQ_CST); }
#endif

template <class T> QN_WORD bool qn_same_bits(const T &a, const T &b)
{
  unsigned long long x = 0, y = 0;
#ifdef QN_CUDA_DIALECT
  memcpy(&x, &a, sizeof a), memcpy(&y, &b, sizeof b);
#else
  __builtin_memcpy(static_cast<void *>(&x), &a, sizeof a), __builtin_memcpy(static_cast<void *>(&y), &b, sizeof b);
#endif
  return x == y;
}
template <class operation, class T> QN_WORD T qn_change(T *at, T by)
{
  for (T old = qn_look(at);;) {
    const T seen = qn_exchange_if(at, old, operation::go(old, by));
    if (qn_same_bits(seen, old)) return old;
    old = seen;
  }
}

/* ---- operations, and what the hardware has of them ---- */
#define QN_ATOMIC(name, expression)                                                                                    \
  struct qn_atomic_##name {                                                                                            \
    template <class T> static QN_WORD T go(T a, T b) { return static_cast<T>(expression); }                            \
  };                                                                                                                   \
  template <class T> QN_WORD T qn_atomically_##name(T *at, T by) { return qn_change<qn_atomic_##name>(at, by); }
QN_ATOMIC(add, a + b)
QN_ATOMIC(sub, a - b)
QN_ATOMIC(mul, a *b)
QN_ATOMIC(min, b < a || a != a ? b : a)
QN_ATOMIC(max, a < b || a != a ? b : a)
QN_ATOMIC(and, a &b)
QN_ATOMIC(or, a | b)
QN_ATOMIC(xor, a ^ b)
#ifdef QN_CUDA_DIALECT
QN_ATOMIC(exchange, b)
#else
template <class T> QN_WORD T qn_atomically_exchange(T *at, T by)
{
  T old;
  __atomic_exchange(at, &by, &old, __ATOMIC_SEQ_CST);
  return old;
}
#endif
#undef QN_ATOMIC
#ifdef QN_CUDA_DIALECT
#define QN_OWN(name, type, call)                                                                                       \
  QN_WORD type qn_atomically_##name(type *at, type by) { return call(at, by); }
QN_OWN(add, float, ::atomicAdd)
QN_OWN(add, double, ::atomicAdd)
QN_OWN(exchange, float, ::atomicExch)
#define QN_OWN_WHOLE(type)                                                                                             \
  QN_OWN(min, type, ::atomicMin)                                                                                       \
  QN_OWN(max, type, ::atomicMax)                                                                                       \
  QN_OWN(and, type, ::atomicAnd)                                                                                       \
  QN_OWN(or, type, ::atomicOr)                                                                                         \
  QN_OWN(xor, type, ::atomicXor)                                                                                       \
  QN_OWN(add, type, ::atomicAdd)                                                                                       \
  QN_OWN(exchange, type, ::atomicExch)
QN_OWN_WHOLE(int)
QN_OWN_WHOLE(unsigned)
#undef QN_OWN
#define QN_OWN(name, type, call)                                                                                       \
  QN_WORD type qn_atomically_##name(type *at, type by)                                                                 \
  {                                                                                                                    \
    return static_cast<type>(call(reinterpret_cast<unsigned long long *>(at), static_cast<unsigned long long>(by)));   \
  }
#define QN_OWN_LONG(type)                                                                                              \
  QN_OWN(and, type, ::atomicAnd)                                                                                       \
  QN_OWN(or, type, ::atomicOr)                                                                                         \
  QN_OWN(xor, type, ::atomicXor)                                                                                       \
  QN_OWN(add, type, ::atomicAdd)                                                                                       \
  QN_OWN(exchange, type, ::atomicExch)
QN_OWN_LONG(unsigned long)
QN_OWN_LONG(long)
QN_OWN_LONG(unsigned long long)
QN_OWN_LONG(long long)
QN_OWN(min, unsigned long, ::atomicMin)
QN_OWN(max, unsigned long, ::atomicMax)
QN_OWN(min, unsigned long long, ::atomicMin)
QN_OWN(max, unsigned long long, ::atomicMax)
#undef QN_OWN_LONG
#else
#define QN_OWN(name, call)                                                                                             \
  template <class T>                                                                                                   \
  QN_WORD typename qn_if<qn_kind<T>::value == 1 && (sizeof(T) > 1), T>::type qn_atomically_whole_##name(T *at, T by)   \
  {                                                                                                                    \
    return call(at, by, __ATOMIC_SEQ_CST);                                                                             \
  }                                                                                                                    \
  QN_WORD int qn_atomically_##name(int *at, int by) { return qn_atomically_whole_##name(at, by); }                     \
  QN_WORD unsigned qn_atomically_##name(unsigned *at, unsigned by) { return qn_atomically_whole_##name(at, by); }      \
  QN_WORD long qn_atomically_##name(long *at, long by) { return qn_atomically_whole_##name(at, by); }                  \
  QN_WORD unsigned long qn_atomically_##name(unsigned long *at, unsigned long by)                                      \
  {                                                                                                                    \
    return qn_atomically_whole_##name(at, by);                                                                         \
  }
QN_OWN(add, __atomic_fetch_add)
QN_OWN(sub, __atomic_fetch_sub)
QN_OWN(and, __atomic_fetch_and)
QN_OWN(or, __atomic_fetch_or)
QN_OWN(xor, __atomic_fetch_xor)
#endif
#undef QN_OWN

/* ---- Metal's names, and MLX's ---- */
template <class T> QN_WORD T atomic_load_explicit(const volatile atomic<T> *a, memory_order)
{
  return qn_look(const_cast<const T *>(&a->value_));
}
template <class T, class U> QN_WORD void atomic_store_explicit(volatile atomic<T> *a, U x, memory_order)
{
  qn_put_down(const_cast<T *>(&a->value_), static_cast<T>(x));
}
/* Expected values are compared bit for bit; it never fails of itself. */
template <class T, class U>
QN_WORD bool atomic_compare_exchange_weak_explicit(volatile atomic<T> *a, T *expected, U x, memory_order, memory_order)
{
  const T seen = qn_exchange_if(const_cast<T *>(&a->value_), *expected, static_cast<T>(x));
  const bool same = qn_same_bits(seen, *expected);
  if (!same) *expected = seen;
  return same;
}
template <class T> QN_WORD T mlx_atomic_load_explicit(const atomic<T> *a, size_t at) { return qn_look(&a[at].value_); }
template <class T, class U> QN_WORD void mlx_atomic_store_explicit(atomic<T> *a, U x, size_t at)
{
  qn_put_down(&a[at].value_, static_cast<T>(x));
}
template <class T, class U>
QN_WORD bool mlx_atomic_compare_exchange_weak_explicit(atomic<T> *a, T *expected, U x, size_t at)
{
  return atomic_compare_exchange_weak_explicit(a + at, expected, x, memory_order_relaxed, memory_order_relaxed);
}
#define QN_EXPLICIT(name, prefix)                                                                                      \
  template <class T, class U> QN_WORD T atomic_##prefix##name##_explicit(volatile atomic<T> *a, U x, memory_order)     \
  {                                                                                                                    \
    return qn_atomically_##name(const_cast<T *>(&a->value_), static_cast<T>(x));                                       \
  }                                                                                                                    \
  template <class T, class U> QN_WORD T mlx_atomic_##prefix##name##_explicit(atomic<T> *a, U x, size_t at)             \
  {                                                                                                                    \
    return qn_atomically_##name(&a[at].value_, static_cast<T>(x));                                                     \
  }
QN_EXPLICIT(add, fetch_)
QN_EXPLICIT(sub, fetch_)
QN_EXPLICIT(mul, fetch_)
QN_EXPLICIT(min, fetch_)
QN_EXPLICIT(max, fetch_)
QN_EXPLICIT(and, fetch_)
QN_EXPLICIT(or, fetch_)
QN_EXPLICIT(xor, fetch_)
QN_EXPLICIT(exchange, )
#undef QN_EXPLICIT

/* Flags and order are taken at their strongest; so is the scope, but where accesses are sanitized. */
template <class T> QN_WORD bool qn_is_near(T) { return false; }
QN_WORD bool qn_is_near(thread_scope scope) { return scope != thread_scope_device; }
template <class... T> QN_WORD void atomic_thread_fence(T... how)
{
#ifdef QN_CUDA_DIALECT
  ((void)how, ...);
  __threadfence();
#else
  if ((qn_is_near(how) || ... || false))
    __atomic_thread_fence(__ATOMIC_ACQ_REL);
  else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}
} // namespace QN_WORDS
#endif
