/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_sync.h - CUDA's words of a block and of a warp. On a GPU the compiler's own, and the same for types of 16 bits;
 * on the processor an exchange with the executor. A mask's lanes that have returned are not waited for. */
#ifndef QN_DIALECT_CUDA_SYNC_H
#define QN_DIALECT_CUDA_SYNC_H
#include "kernel/dialect/cuda.h"
#include "kernel/dialect/lanes.h"

namespace QN_WORDS {
struct qn_lanes_least {
  template <class T> static QN_WORD T go(T a, T b) { return b < a ? b : a; }
};
struct qn_lanes_most {
  template <class T> static QN_WORD T go(T a, T b) { return a < b ? b : a; }
};
#ifdef __HIPCC__ /* hip.h has them */
#elif defined(QN_CUDA_DIALECT)
using ::__shfl_down_sync;
using ::__shfl_sync;
using ::__shfl_up_sync;
using ::__shfl_xor_sync;
#define QN_SHUFFLE(name, type)                                                                                         \
  template <qn_format f> QN_WORD qn_short<f> name(unsigned mask, qn_short<f> x, type by, int width = 32)               \
  {                                                                                                                    \
    return qn_short<f>::qn_of_bits(static_cast<qn_u16>(::name(mask, static_cast<unsigned>(x.bits_), by, width)));      \
  }                                                                                                                    \
  template <template <class> class pair, qn_format f>                                                                  \
  QN_WORD pair<qn_short<f>> name(unsigned mask, pair<qn_short<f>> x, type by, int width = 32)                          \
  {                                                                                                                    \
    return qn_bits_as<pair<qn_short<f>>>(::name(mask, qn_bits_as<unsigned>(x), by, width));                            \
  }
QN_SHUFFLE(__shfl_sync, int)
QN_SHUFFLE(__shfl_up_sync, unsigned)
QN_SHUFFLE(__shfl_down_sync, unsigned)
QN_SHUFFLE(__shfl_xor_sync, int)
#undef QN_SHUFFLE
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 800
#define QN_REDUCE(name, operation)                                                                                     \
  template <class T> QN_WORD T __reduce_##name##_sync(unsigned mask, T x)                                              \
  {                                                                                                                    \
    return qn_reduce<operation, 32>(x, mask, 0);                                                                       \
  }
#define QN_REDUCE_HERE 1
#endif
#else

/* ---- the block ---- */
QN_WORD void __syncthreads(int line = QN_LINE) { quern_group->barrier(0, line); }
/* Threads of a group take turns on one thread of the system; what they count in is that one's. */
inline int qn_block_sum(int x, int line)
{
  static thread_local int sum;
  quern_group->barrier(0, line); /* all have read the sum before */
  __atomic_store_n(&sum, 0, __ATOMIC_RELAXED);
  quern_group->barrier(0, line);
  __atomic_fetch_add(&sum, x, __ATOMIC_RELAXED);
  quern_group->barrier(0, line);
  return __atomic_load_n(&sum, __ATOMIC_RELAXED);
}
QN_WORD int __syncthreads_count(int yes, int line = QN_LINE) { return qn_block_sum(yes ? 1 : 0, line); }
QN_WORD int __syncthreads_or(int yes, int line = QN_LINE) { return qn_block_sum(yes ? 1 : 0, line) != 0; }
QN_WORD int __syncthreads_and(int yes, int line = QN_LINE) { return qn_block_sum(yes ? 0 : 1, line) == 0; }
QN_WORD void __syncwarp(unsigned mask = 0xffffffffu, int line = QN_LINE) { qn_ballot(true, mask, line); }
QN_WORD void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
QN_WORD void __threadfence_block() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }
QN_WORD void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

/* ---- the warp ---- */
template <class T> QN_WORD T __shfl_sync(unsigned mask, T x, int source, int width = 32, int line = QN_LINE)
{
  const qn_meeting<T> meeting(x, mask, line);
  const unsigned most = static_cast<unsigned>(width - 1);
  return meeting.from((meeting.lane & ~most) | (static_cast<unsigned>(source) & most), true);
}
template <class T> QN_WORD T __shfl_up_sync(unsigned mask, T x, unsigned by, int width = 32, int line = QN_LINE)
{
  const qn_meeting<T> meeting(x, mask, line);
  return meeting.from((meeting.lane & static_cast<unsigned>(width - 1)) < by ? meeting.lane : meeting.lane - by);
}
template <class T> QN_WORD T __shfl_down_sync(unsigned mask, T x, unsigned by, int width = 32, int line = QN_LINE)
{
  const qn_meeting<T> meeting(x, mask, line);
  const unsigned most = static_cast<unsigned>(width - 1);
  return meeting.from((meeting.lane & most) + by > most ? meeting.lane : meeting.lane + by);
}
template <class T> QN_WORD T __shfl_xor_sync(unsigned mask, T x, int with, int width = 32, int line = QN_LINE)
{
  const qn_meeting<T> meeting(x, mask, line);
  const unsigned other = (meeting.lane ^ static_cast<unsigned>(with)) & 31u;
  return meeting.from(other > (meeting.lane | static_cast<unsigned>(width - 1)) ? meeting.lane : other);
}
QN_WORD unsigned __ballot_sync(unsigned mask, int yes, int line = QN_LINE) { return qn_ballot(yes != 0, mask, line); }
QN_WORD int __any_sync(unsigned mask, int yes, int line = QN_LINE) { return qn_ballot(yes != 0, mask, line) != 0; }
QN_WORD int __all_sync(unsigned mask, int yes, int line = QN_LINE) { return qn_ballot(yes == 0, mask, line) == 0; }
QN_WORD unsigned __activemask(int line = QN_LINE) { return qn_here(line); }
template <class T> QN_WORD unsigned __match_any_sync(unsigned mask, T x, int line = QN_LINE)
{
  const qn_meeting<T> meeting(x, mask, line);
  unsigned same = 0;
  for (unsigned k = 0; k < 32; k++)
    if (meeting.mask >> k & 1u) same |= static_cast<unsigned>(!__builtin_memcmp(&meeting.all[k], &x, sizeof x)) << k;
  return same;
}
template <class T> QN_WORD unsigned __match_all_sync(unsigned mask, T x, int *all, int line = QN_LINE)
{
  const qn_meeting<T> meeting(x, mask, line);
  unsigned same = 0;
  for (unsigned k = 0; k < 32; k++)
    if (meeting.mask >> k & 1u) same |= static_cast<unsigned>(!__builtin_memcmp(&meeting.all[k], &x, sizeof x)) << k;
  *all = same == meeting.mask;
  return *all ? meeting.mask : 0;
}
#define QN_REDUCE(name, operation)                                                                                     \
  template <class T> QN_WORD T __reduce_##name##_sync(unsigned mask, T x, int line = QN_LINE)                          \
  {                                                                                                                    \
    return qn_reduce<operation, 32>(x, mask, line);                                                                    \
  }
#define QN_REDUCE_HERE 1
#endif
#ifdef QN_REDUCE_HERE
QN_REDUCE(add, qn_lanes_add)
QN_REDUCE(min, qn_lanes_least)
QN_REDUCE(max, qn_lanes_most)
QN_REDUCE(and, qn_lanes_and)
QN_REDUCE(or, qn_lanes_or)
QN_REDUCE(xor, qn_lanes_xor)
#undef QN_REDUCE
#endif
} // namespace QN_WORDS
#endif
