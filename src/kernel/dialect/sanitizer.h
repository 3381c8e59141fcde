/* SPDX-License-Identifier: Apache-2.0 */
/* sanitizer.h - the callbacks of a checked or limited build on the processor. The compiler's instrumentation
 * (-fsanitize=thread, =bounds, =alignment, =object-size, =integer-divide-by-zero, -fsanitize-coverage=trace-pc) calls
 * them at every access, call and branch; they are defined here, in the kernel's own object and hidden, so that no
 * sanitizer's runtime is linked or needed and none that the process has is disturbed. They report to quern_group
 * (base/group.h) and know nothing of arrays or threads. QN_SANITIZER_CHECK: accesses too; else branches alone. */
#ifndef QN_DIALECT_SANITIZER_H
#define QN_DIALECT_SANITIZER_H
#include "base/group.h"

#if defined(__clang__) && __clang_major__ >= 14
#define QN_SANITIZER_CALLBACK                                                                                          \
  __attribute__((disable_sanitizer_instrumentation, no_sanitize("coverage", "undefined"), visibility("hidden"),        \
                 noinline, used))
#elif !defined(__clang__) && __GNUC__ >= 12
#define QN_SANITIZER_CALLBACK                                                                                          \
  __attribute__((no_sanitize("thread", "undefined"), no_sanitize_coverage, visibility("hidden"), noinline, used))
#else
#error "checks and time limits need gcc 12 or clang 14"
#endif

extern "C" const qn_group_words *quern_group;
/* By this the loader knows a sanitized object and finds this thread's threadgroup arrays. */
static thread_local char quern_sanitizer_anchor;
extern "C" __attribute__((no_sanitize("thread"), visibility("default"))) void *quern_sanitized()
{
  return &quern_sanitizer_anchor;
}

extern "C" {
/* quern_group is NULL while the object is loaded, when its constructors run. */
QN_SANITIZER_CALLBACK void __sanitizer_cov_trace_pc()
{
  if (quern_group) quern_group->tick(__builtin_return_address(0));
}
#ifndef __clang__
/* gcc reports no branch of a loop with nothing in it; the counters of -fprofile-arcs put something there. */
QN_SANITIZER_CALLBACK void __gcov_init(void *) {}
QN_SANITIZER_CALLBACK void __gcov_exit() {}
QN_SANITIZER_CALLBACK void __gcov_merge_add(void *, unsigned) {}
#endif

#ifdef QN_SANITIZER_CHECK
#define QN_SANITIZER_REPORT(address, bytes, kind)                                                                      \
  do {                                                                                                                 \
    if (quern_group)                                                                                                   \
      quern_group->access(const_cast<const void *>(static_cast<const volatile void *>(address)),                       \
                          static_cast<qn_u32>(bytes), kind, __builtin_return_address(0));                              \
  } while (0)

QN_SANITIZER_CALLBACK void qn_sanitizer_lane(unsigned source, int kind) { QN_SANITIZER_REPORT(nullptr, source, kind); }

QN_SANITIZER_CALLBACK void __tsan_init() {}
QN_SANITIZER_CALLBACK void __tsan_func_entry(void *from)
{
  const qn_entered told = {from, __builtin_frame_address(1)};
  QN_SANITIZER_REPORT(&told, 0, QN_ACCESS_ENTER);
}
QN_SANITIZER_CALLBACK void __tsan_func_exit() { QN_SANITIZER_REPORT(nullptr, 0, QN_ACCESS_EXIT); }

#define QN_SANITIZER_SIZE(n)                                                                                           \
  QN_SANITIZER_CALLBACK void __tsan_read##n(void *a) { QN_SANITIZER_REPORT(a, n, QN_ACCESS_READ); }                    \
  QN_SANITIZER_CALLBACK void __tsan_write##n(void *a) { QN_SANITIZER_REPORT(a, n, QN_ACCESS_WRITE); }                  \
  QN_SANITIZER_CALLBACK void __tsan_volatile_read##n(void *a) { QN_SANITIZER_REPORT(a, n, QN_ACCESS_READ); }           \
  QN_SANITIZER_CALLBACK void __tsan_volatile_write##n(void *a) { QN_SANITIZER_REPORT(a, n, QN_ACCESS_WRITE); }         \
  QN_SANITIZER_CALLBACK void __tsan_read_write##n(void *a) { QN_SANITIZER_REPORT(a, n, QN_ACCESS_WRITE); }             \
  QN_SANITIZER_CALLBACK void __tsan_unaligned_read##n(void *a) { QN_SANITIZER_REPORT(a, n, QN_ACCESS_READ); }          \
  QN_SANITIZER_CALLBACK void __tsan_unaligned_write##n(void *a) { QN_SANITIZER_REPORT(a, n, QN_ACCESS_WRITE); }        \
  QN_SANITIZER_CALLBACK void __tsan_unaligned_volatile_read##n(void *a) { QN_SANITIZER_REPORT(a, n, QN_ACCESS_READ); } \
  QN_SANITIZER_CALLBACK void __tsan_unaligned_volatile_write##n(void *a)                                               \
  {                                                                                                                    \
    QN_SANITIZER_REPORT(a, n, QN_ACCESS_WRITE);                                                                        \
  }                                                                                                                    \
  QN_SANITIZER_CALLBACK void __tsan_unaligned_read_write##n(void *a) { QN_SANITIZER_REPORT(a, n, QN_ACCESS_WRITE); }
QN_SANITIZER_SIZE(1)
QN_SANITIZER_SIZE(2)
QN_SANITIZER_SIZE(4)
QN_SANITIZER_SIZE(8)
QN_SANITIZER_SIZE(16)
#ifdef __clang__
/* clang's other instrumentation leaves out arrays whose address does not leave the function. */
#define QN_SANITIZER_OWN(n)                                                                                            \
  QN_SANITIZER_CALLBACK void __sanitizer_cov_load##n(void *a) { QN_SANITIZER_REPORT(a, n, QN_ACCESS_OWN_READ); }       \
  QN_SANITIZER_CALLBACK void __sanitizer_cov_store##n(void *a) { QN_SANITIZER_REPORT(a, n, QN_ACCESS_OWN_WRITE); }
QN_SANITIZER_OWN(1)
QN_SANITIZER_OWN(2)
QN_SANITIZER_OWN(4)
QN_SANITIZER_OWN(8)
QN_SANITIZER_OWN(16)
#endif
QN_SANITIZER_CALLBACK void __tsan_read_range(void *a, qn_u64 bytes) { QN_SANITIZER_REPORT(a, bytes, QN_ACCESS_READ); }
QN_SANITIZER_CALLBACK void __tsan_write_range(void *a, qn_u64 bytes) { QN_SANITIZER_REPORT(a, bytes, QN_ACCESS_WRITE); }
QN_SANITIZER_CALLBACK void __tsan_vptr_update(void **a, void *) { QN_SANITIZER_REPORT(a, 8, QN_ACCESS_WRITE); }
QN_SANITIZER_CALLBACK void __tsan_vptr_read(void **a) { QN_SANITIZER_REPORT(a, 8, QN_ACCESS_READ); }

/* Atomics are done here, after the report: always in one order for all, which is as strong as any that is asked for. */
#define QN_SANITIZER_RMW(bits, type, name, builtin)                                                                    \
  QN_SANITIZER_CALLBACK type __tsan_atomic##bits##_##name(volatile type *a, type v, int)                               \
  {                                                                                                                    \
    QN_SANITIZER_REPORT(a, sizeof *a, QN_ACCESS_ATOMIC);                                                               \
    return builtin(a, v, __ATOMIC_SEQ_CST);                                                                            \
  }
#define QN_SANITIZER_ATOMIC(bits, type)                                                                                \
  QN_SANITIZER_CALLBACK type __tsan_atomic##bits##_load(const volatile type *a, int)                                   \
  {                                                                                                                    \
    QN_SANITIZER_REPORT(a, sizeof *a, QN_ACCESS_ATOMIC_READ);                                                          \
    return __atomic_load_n(a, __ATOMIC_SEQ_CST);                                                                       \
  }                                                                                                                    \
  QN_SANITIZER_CALLBACK void __tsan_atomic##bits##_store(volatile type *a, type v, int)                                \
  {                                                                                                                    \
    QN_SANITIZER_REPORT(a, sizeof *a, QN_ACCESS_ATOMIC_WRITE);                                                         \
    __atomic_store_n(a, v, __ATOMIC_SEQ_CST);                                                                          \
  }                                                                                                                    \
  QN_SANITIZER_CALLBACK type __tsan_atomic##bits##_exchange(volatile type *a, type v, int)                             \
  {                                                                                                                    \
    QN_SANITIZER_REPORT(a, sizeof *a, QN_ACCESS_EXCHANGE);                                                             \
    return __atomic_exchange_n(a, v, __ATOMIC_SEQ_CST);                                                                \
  }                                                                                                                    \
  QN_SANITIZER_RMW(bits, type, fetch_add, __atomic_fetch_add)                                                          \
  QN_SANITIZER_RMW(bits, type, fetch_sub, __atomic_fetch_sub)                                                          \
  QN_SANITIZER_RMW(bits, type, fetch_and, __atomic_fetch_and)                                                          \
  QN_SANITIZER_RMW(bits, type, fetch_or, __atomic_fetch_or)                                                            \
  QN_SANITIZER_RMW(bits, type, fetch_xor, __atomic_fetch_xor)                                                          \
  QN_SANITIZER_RMW(bits, type, fetch_nand, __atomic_fetch_nand)                                                        \
  QN_SANITIZER_CALLBACK int __tsan_atomic##bits##_compare_exchange_strong(volatile type *a, type *want, type v, int,   \
                                                                          int)                                         \
  {                                                                                                                    \
    QN_SANITIZER_REPORT(a, sizeof *a, QN_ACCESS_ATOMIC);                                                               \
    return __atomic_compare_exchange_n(a, want, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                         \
  }                                                                                                                    \
  QN_SANITIZER_CALLBACK int __tsan_atomic##bits##_compare_exchange_weak(volatile type *a, type *want, type v, int,     \
                                                                        int)                                           \
  {                                                                                                                    \
    QN_SANITIZER_REPORT(a, sizeof *a, QN_ACCESS_ATOMIC);                                                               \
    return __atomic_compare_exchange_n(a, want, v, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                          \
  }                                                                                                                    \
  QN_SANITIZER_CALLBACK type __tsan_atomic##bits##_compare_exchange_val(volatile type *a, type want, type v, int, int) \
  {                                                                                                                    \
    QN_SANITIZER_REPORT(a, sizeof *a, QN_ACCESS_ATOMIC);                                                               \
    __atomic_compare_exchange_n(a, &want, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                               \
    return want;                                                                                                       \
  }
QN_SANITIZER_ATOMIC(8, qn_u8)
QN_SANITIZER_ATOMIC(16, qn_u16)
QN_SANITIZER_ATOMIC(32, qn_u32)
QN_SANITIZER_ATOMIC(64, qn_u64)
/* A fence for the group alone orders less (atomic.h, cuda_sync.h). */
QN_SANITIZER_CALLBACK void __tsan_atomic_thread_fence(int order)
{
  QN_SANITIZER_REPORT(nullptr, order == __ATOMIC_SEQ_CST, QN_ACCESS_FENCE);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
QN_SANITIZER_CALLBACK void __tsan_atomic_signal_fence(int) {}

/* Copies that the compiler leaves to the library. Through volatile, or the loops would be made calls of themselves. */
static inline __attribute__((always_inline)) void qn_sanitizer_bytes(void *to, const void *from, qn_u64 n, bool back)
{
  volatile char *t = static_cast<volatile char *>(to);
  const char *f = static_cast<const char *>(from);
  for (qn_u64 k = 0; k < n; k++) t[back ? n - 1 - k : k] = f[back ? n - 1 - k : k];
}
#define QN_SANITIZER_COPY(name, back)                                                                                  \
  QN_SANITIZER_CALLBACK void *qn_sanitizer##name(void *to, const void *from, decltype(sizeof 0) n) __asm__(#name);     \
  void *qn_sanitizer##name(void *to, const void *from, decltype(sizeof 0) n)                                           \
  {                                                                                                                    \
    if (n) QN_SANITIZER_REPORT(from, n, QN_ACCESS_READ);                                                               \
    if (n) QN_SANITIZER_REPORT(to, n, QN_ACCESS_WRITE);                                                                \
    qn_sanitizer_bytes(to, from, n, back);                                                                             \
    return to;                                                                                                         \
  }
#define QN_SANITIZER_SET(name)                                                                                         \
  QN_SANITIZER_CALLBACK void *qn_sanitizer##name(void *to, int value, decltype(sizeof 0) n) __asm__(#name);            \
  void *qn_sanitizer##name(void *to, int value, decltype(sizeof 0) n)                                                  \
  {                                                                                                                    \
    if (n) QN_SANITIZER_REPORT(to, n, QN_ACCESS_WRITE);                                                                \
    for (decltype(sizeof 0) k = 0; k < n; k++)                                                                         \
      static_cast<volatile unsigned char *>(to)[k] = static_cast<unsigned char>(value);                                \
    return to;                                                                                                         \
  }
QN_SANITIZER_COPY(memcpy, false)
QN_SANITIZER_COPY(memmove, to > from)
QN_SANITIZER_COPY(__tsan_memcpy, false)
QN_SANITIZER_COPY(__tsan_memmove, to > from)
QN_SANITIZER_SET(memset)
QN_SANITIZER_SET(__tsan_memset)

/* The thread does not come back from these. `what` begins with file, line and column, and then a pointer to the type.
 */
QN_SANITIZER_CALLBACK void __ubsan_handle_out_of_bounds(void *what, void *index)
{
  QN_SANITIZER_REPORT(what, reinterpret_cast<qn_u64>(index), QN_ACCESS_INDEX);
}
QN_SANITIZER_CALLBACK void __ubsan_handle_type_mismatch_v1(void *what, void *at)
{
  const qn_misplaced told = {what, at};
  QN_SANITIZER_REPORT(&told, 0, QN_ACCESS_MISPLACED);
}
QN_SANITIZER_CALLBACK void __ubsan_handle_divrem_overflow(void *what, void *, void *)
{
  QN_SANITIZER_REPORT(what, 0, QN_ACCESS_DIVISION);
}
#endif
}
#endif
