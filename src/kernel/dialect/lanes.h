/* SPDX-License-Identifier: Apache-2.0 */
/* lanes.h - what simd.h and cuda.h say the words of a simdgroup (a warp) with: values of other lanes, reductions and
 * scans among the lanes of a mask. A lane that is not in the mask takes no part; a reduction goes by pairs of lanes,
 * then by pairs of these, always in one order, so that every lane, processor and GPU have the same bits. A mask of 0
 * is: the lanes that are here together. On the processor each word is one exchange with the executor (base/group.h). */
#ifndef QN_DIALECT_LANES_H
#define QN_DIALECT_LANES_H
#include "kernel/dialect/common.h"
#ifndef QN_CUDA_DIALECT
#include "base/group.h"
extern "C" const qn_group_words *quern_group;
#endif

#ifdef QN_CUDA_DIALECT
#define QN_LINE 0
#else
#define QN_LINE __builtin_LINE() /* of whoever calls a word */
/* calls.c puts them round calls, and round arguments of calls: these come first. */
#define QN_CALL QN_WORDS::qn_call(static_cast<unsigned>(__builtin_LINE()), __COUNTER__)
#define QN_ARGUMENT QN_WORDS::qn_call(0, __COUNTER__)
#endif

namespace QN_WORDS {
#ifndef QN_CUDA_DIALECT
/* A call lasts while this does: `qn_call(...).of((f(x), qn_void()))` is f(x), of whatever type, void too. */
struct qn_void {};
template <class T> QN_WORD T &&operator,(T &&x, qn_void) { return static_cast<T &&>(x); }
struct qn_call : qn_call_site {
  void **top;
  QN_WORD qn_call(unsigned line, unsigned count) : top(quern_group->slot() + 1)
  {
    up = static_cast<const qn_call_site *>(*top);
    place = static_cast<qn_u64>(line) << 32 | count;
    key = ((up ? up->key : 0) ^ place) * 0x9e3779b97f4a7c15u;
    *top = static_cast<qn_call_site *>(this);
  }
  QN_WORD void of(qn_void) const { *top = const_cast<qn_call_site *>(up); }
  template <class T> QN_WORD T of(T &&x) const
  {
    *top = const_cast<qn_call_site *>(up);
    return static_cast<T &&>(x);
  }
};
#endif

QN_WORD unsigned qn_lowest(unsigned bits) /* the number of the lowest set bit; some are set */
{
#ifdef QN_CUDA_DIALECT
  return static_cast<unsigned>(__ffs(static_cast<int>(bits)) - 1);
#else
  return static_cast<unsigned>(__builtin_ctz(bits));
#endif
}
QN_WORD unsigned qn_bit_count(unsigned bits)
{
#ifdef QN_CUDA_DIALECT
  return static_cast<unsigned>(__popc(bits));
#else
  return static_cast<unsigned>(__builtin_popcount(bits));
#endif
}

#ifdef QN_CUDA_DIALECT
QN_WORD unsigned qn_lane()
{
#ifdef __HIPCC__
  return qn_hip_lane() & 31u;
#else
  unsigned lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
#endif
}

/* One meeting of the lanes of a mask. */
template <class T> struct qn_meeting {
  T mine;
  unsigned mask, lane;
  QN_WORD qn_meeting(const T &x, unsigned of, int) : mine(x), mask(of ? of : __activemask()), lane(qn_lane()) {}
  QN_WORD T from(unsigned source, bool = false) const { return shuffle(mine, source); }
  QN_WORD T shuffle(const T &x, unsigned source) const
  {
    unsigned word[(sizeof(T) + 3) / 4] = {};
    T y;
    memcpy(word, &x, sizeof x);
    for (unsigned k = 0; k < sizeof word / sizeof *word; k++)
      word[k] = __shfl_sync(mask, word[k], static_cast<int>(source));
    memcpy(&y, word, sizeof y);
    return y;
  }
};

/* Each lane of a half of 2 * distance lanes has the half's result; the other half's is any of its lanes'. */
template <class operation, unsigned width, class T> QN_WORD T qn_reduce(T x, unsigned of, int line)
{
  const qn_meeting<T> meeting(x, of, line);
  const unsigned lane = meeting.lane, mask = meeting.mask;
  for (unsigned distance = 1; distance < width; distance *= 2) {
    const unsigned first = (lane ^ distance) & ~(distance - 1);
    const unsigned there = (mask >> first) & ((1u << distance) - 1u);
    const T other = meeting.shuffle(x, mask == 0xffffffffu ? lane ^ distance : there ? first + qn_lowest(there) : lane);
    if (there) x = lane & distance ? operation::go(other, x) : operation::go(x, other);
  }
  return x;
}

/* Of the lanes of the mask in their order, up to this one, or (exclusive) to the one before. */
template <class operation, class T> QN_WORD T qn_scan(T x, T none, bool exclusive, int line)
{
  const qn_meeting<T> meeting(x, 0, line);
  const unsigned mask = meeting.mask, place = qn_bit_count(mask & ((1u << meeting.lane) - 1u));
  for (unsigned distance = 1; distance < 32; distance *= 2) {
    unsigned source = meeting.lane - distance;
    if (mask != 0xffffffffu) {
      unsigned left = mask;
      for (unsigned k = distance; k < place; k++) left &= left - 1u;
      source = qn_lowest(left);
    }
    const T other = meeting.shuffle(x, place < distance ? meeting.lane : source);
    if (place >= distance) x = operation::go(other, x);
  }
  if (!exclusive) return x;
  const unsigned below = mask & ((1u << meeting.lane) - 1u);
  const T other =
      meeting.shuffle(x, below ? 31u - static_cast<unsigned>(__clz(static_cast<int>(below))) : meeting.lane);
  return below ? other : none;
}

QN_WORD unsigned qn_ballot(bool yes, unsigned of, int) { return __ballot_sync(of ? of : __activemask(), yes); }
#else

QN_WORD unsigned qn_thread_number() { return *static_cast<const qn_u32 *>(*quern_group->slot()); }
QN_WORD unsigned qn_lane() { return qn_thread_number() & 31u; }

template <class T> struct qn_meeting {
  T mine;
  unsigned mask, lane;
  T all[32];
  QN_WORD qn_meeting(const T &x, unsigned of, int line) : mine(x), lane(qn_lane())
  {
    for (unsigned at = 0; at < sizeof(T); at += 16) {
      const unsigned char *values;
      const unsigned n = sizeof(T) - at < 16 ? sizeof(T) - at : 16;
      mask = quern_group->exchange(reinterpret_cast<const unsigned char *>(&x) + at, n, of, line, &values);
      for (int k = 0; k < 32; k++)
        __builtin_memcpy(reinterpret_cast<unsigned char *>(&all[k]) + at, values + 16 * k, n);
    }
  }
  /* chosen: by its number, and not by its distance */
  QN_WORD T from(unsigned source, bool chosen = false) const
  {
#ifdef QN_CHECKED
    qn_sanitizer_lane(source & 31u, !(mask >> (source & 31u) & 1u) ? QN_ACCESS_NO_LANE
                                    : chosen                       ? QN_ACCESS_ONE_LANE
                                                                   : QN_ACCESS_LANE);
#else
    (void)chosen;
#endif
    return all[source & 31u];
  }
};

/* Each `width` values become their reduction, in the place of the first. */
template <class operation, unsigned width, class T> QN_WORD void qn_reduce_values(T *all, unsigned mask)
{
  if (mask == 0xffffffffu) {
    for (unsigned distance = 1; distance < width; distance *= 2)
      for (unsigned k = 0; k < 32; k += 2 * distance) all[k] = operation::go(all[k], all[k + distance]);
    return;
  }
  for (unsigned distance = 1; distance < width; distance *= 2)
    for (unsigned k = 0; k < 32; k += 2 * distance) {
      const bool low = mask >> k & 1u, high = mask >> (k + distance) & 1u;
      if (high) all[k] = low ? operation::go(all[k], all[k + distance]) : all[k + distance];
      if (high) mask |= 1u << k;
    }
}

/* The same where the executor has the values, once for all lanes. */
template <class operation, unsigned width, class T> static void qn_reduce_lanes(unsigned char *values, unsigned mask)
{
  T all[32];
  for (int k = 0; k < 32; k++) __builtin_memcpy(reinterpret_cast<unsigned char *>(&all[k]), values + 16 * k, sizeof(T));
  qn_reduce_values<operation, width>(all, mask);
  for (int k = 0; k < 32; k += width)
    __builtin_memcpy(values + 16 * k, reinterpret_cast<const unsigned char *>(&all[k]), sizeof(T));
}

template <class operation, unsigned width, class T> QN_WORD T qn_reduce(T x, unsigned of, int line)
{
  const unsigned first = qn_lane() & ~(width - 1u);
  if constexpr (sizeof(T) > 16) { /* comes in several exchanges */
    qn_meeting<T> meeting(x, of, line);
    qn_reduce_values<operation, width>(meeting.all, meeting.mask);
    return meeting.all[first];
  } else {
    const unsigned char *values;
    quern_group->combine(&x, sizeof(T), of, line, qn_reduce_lanes<operation, width, T>, &values);
    __builtin_memcpy(reinterpret_cast<unsigned char *>(&x), values + 16 * first, sizeof(T));
    return x;
  }
}

template <class operation, class T> QN_WORD T qn_scan(T x, T none, bool exclusive, int line)
{
  qn_meeting<T> meeting(x, 0, line);
  T *all = meeting.all;
  int n = 0, place = 0;
  for (unsigned k = 0; k < 32; k++)
    if (meeting.mask >> k & 1u) {
      if (k == meeting.lane) place = n;
      all[n++] = all[k];
    }
  for (int distance = 1; distance < 32; distance *= 2)
    for (int k = n - 1; k >= distance; k--) all[k] = operation::go(all[k - distance], all[k]);
  return exclusive ? place ? all[place - 1] : none : all[place];
}

QN_WORD unsigned qn_ballot(bool yes, unsigned of, int line)
{
  const unsigned char mine = yes, *all;
  const unsigned mask = quern_group->exchange(&mine, 1, of, line, &all);
  unsigned votes = 0;
  for (unsigned k = 0; k < 32; k++) votes |= static_cast<unsigned>(all[16 * k] & (mask >> k & 1u)) << k;
  return votes;
}
#endif

/* Which lanes are here together. */
QN_WORD unsigned qn_here(int line)
{
#ifdef QN_CUDA_DIALECT
  (void)line;
  return __activemask();
#else
  return qn_ballot(true, 0, line);
#endif
}

/* The binary operations of reductions. */
struct qn_lanes_add {
  template <class T> static QN_WORD T go(T a, T b) { return static_cast<T>(a + b); }
};
struct qn_lanes_multiply {
  template <class T> static QN_WORD T go(T a, T b) { return static_cast<T>(a * b); }
};
struct qn_lanes_and {
  template <class T> static QN_WORD T go(T a, T b) { return static_cast<T>(a & b); }
};
struct qn_lanes_or {
  template <class T> static QN_WORD T go(T a, T b) { return static_cast<T>(a | b); }
};
struct qn_lanes_xor {
  template <class T> static QN_WORD T go(T a, T b) { return static_cast<T>(a ^ b); }
};
} // namespace QN_WORDS
#endif
