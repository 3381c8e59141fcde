/* SPDX-License-Identifier: Apache-2.0 */
/* simd.h - Metal's barriers and the words of a simdgroup and a quadgroup. Lanes that have returned, or that are in
 * another branch, take no part; what a shuffle gives of such a lane is unspecified, as in Metal. */
#ifndef QN_DIALECT_SIMD_H
#define QN_DIALECT_SIMD_H
#include "kernel/dialect/lanes.h"
#include "kernel/dialect/metal_types.h"
#include "kernel/dialect/vec.h"

namespace QN_WORDS {
enum class mem_flags {
  mem_none = 0,
  mem_device = 1,
  mem_threadgroup = 2,
  mem_texture = 4,
  mem_threadgroup_imageblock = 8,
  mem_object_data = 16
};
constexpr QN_WORD mem_flags operator|(mem_flags a, mem_flags b)
{
  return static_cast<mem_flags>(static_cast<int>(a) | static_cast<int>(b));
}

/* All threads of the group that have not returned. */
QN_WORD void threadgroup_barrier(mem_flags, int line = QN_LINE)
{
#ifdef QN_CUDA_DIALECT
  (void)line;
  __syncthreads();
#else
  quern_group->barrier(0, line);
#endif
}
QN_WORD void simdgroup_barrier(mem_flags, int line = QN_LINE)
{
#ifdef QN_CUDA_DIALECT
  (void)line;
  __syncwarp(__activemask());
#else
  quern_group->barrier(1, line);
#endif
}

/* Of two numbers one of which is NaN, the other. */
#define QN_LESSER(name, test)                                                                                          \
  struct qn_lanes_##name {                                                                                             \
    template <class T> static QN_WORD qn_if_number<T, T> go(T a, T b) { return test || a != a ? b : a; }               \
    template <class T, int N> static QN_WORD vec<T, N> go(vec<T, N> a, vec<T, N> b)                                    \
    {                                                                                                                  \
      for (int k = 0; k < N; k++) a.at_[k] = go(a.at_[k], b.at_[k]);                                                   \
      return a;                                                                                                        \
    }                                                                                                                  \
  };
QN_LESSER(min, b < a)
QN_LESSER(max, a < b)
#undef QN_LESSER

#define QN_REDUCE(name, operation)                                                                                     \
  template <class T> QN_WORD T simd_##name(T x, int line = QN_LINE) { return qn_reduce<operation, 32>(x, 0, line); }   \
  template <class T> QN_WORD T quad_##name(T x, int line = QN_LINE) { return qn_reduce<operation, 4>(x, 0, line); }
QN_REDUCE(sum, qn_lanes_add)
QN_REDUCE(product, qn_lanes_multiply)
QN_REDUCE(min, qn_lanes_min)
QN_REDUCE(max, qn_lanes_max)
QN_REDUCE(and, qn_lanes_and)
QN_REDUCE(or, qn_lanes_or)
QN_REDUCE(xor, qn_lanes_xor)
#undef QN_REDUCE

/* ---- one lane's value ---- */
/* From lane `source` of those `width` lanes that this one is in; outside of them its own. */
template <class T> QN_WORD T qn_from(T x, int source, int width, int line, bool chosen)
{
  const qn_meeting<T> meeting(x, 0, line);
  const unsigned first = meeting.lane & ~static_cast<unsigned>(width - 1);
  return meeting.from(source >= 0 && source < width ? first + static_cast<unsigned>(source) : meeting.lane, chosen);
}
template <class T> QN_WORD T qn_turned(T x, unsigned by, int width, int line)
{
  const qn_meeting<T> meeting(x, 0, line);
  const unsigned most = static_cast<unsigned>(width - 1);
  return meeting.from((meeting.lane & ~most) | ((meeting.lane + by) & most));
}
/* Data moved up or down by `by` lanes within each `modulo` lanes; what comes in is from the other end of `fill`. */
template <class T> QN_WORD T qn_filled(T x, T fill, int by, unsigned modulo, int line)
{
  const qn_meeting<T> data(x, 0, line), filling(fill, 0, line);
  const int place = static_cast<int>(data.lane % modulo) + by, most = static_cast<int>(modulo);
  const unsigned first = data.lane - data.lane % modulo;
  const T moved = data.from(first + static_cast<unsigned>(place < 0       ? place + most
                                                          : place >= most ? place - most
                                                                          : place));
  const T other = filling.from(first + static_cast<unsigned>(place < 0       ? place + most
                                                             : place >= most ? place - most
                                                                             : place));
  return place < 0 || place >= most ? other : moved;
}

#define QN_SHUFFLES(prefix, width)                                                                                     \
  template <class T> QN_WORD T prefix##_shuffle(T x, ushort lane, int line = QN_LINE)                                  \
  {                                                                                                                    \
    return qn_from(x, lane, width, line, true);                                                                        \
  }                                                                                                                    \
  template <class T> QN_WORD T prefix##_broadcast(T x, ushort lane, int line = QN_LINE)                                \
  {                                                                                                                    \
    return qn_from(x, lane, width, line, true);                                                                        \
  }                                                                                                                    \
  template <class T> QN_WORD T prefix##_shuffle_xor(T x, ushort with, int line = QN_LINE)                              \
  {                                                                                                                    \
    return qn_from(x, static_cast<int>((qn_lane() & (width - 1u)) ^ with), width, line, false);                        \
  }                                                                                                                    \
  template <class T> QN_WORD T prefix##_shuffle_up(T x, ushort by, int line = QN_LINE)                                 \
  {                                                                                                                    \
    return qn_from(x, static_cast<int>(qn_lane() & (width - 1u)) - by, width, line, false);                            \
  }                                                                                                                    \
  template <class T> QN_WORD T prefix##_shuffle_down(T x, ushort by, int line = QN_LINE)                               \
  {                                                                                                                    \
    return qn_from(x, static_cast<int>(qn_lane() & (width - 1u)) + by, width, line, false);                            \
  }                                                                                                                    \
  template <class T> QN_WORD T prefix##_shuffle_rotate_up(T x, ushort by, int line = QN_LINE)                          \
  {                                                                                                                    \
    return qn_turned(x, 0u - by, width, line);                                                                         \
  }                                                                                                                    \
  template <class T> QN_WORD T prefix##_shuffle_rotate_down(T x, ushort by, int line = QN_LINE)                        \
  {                                                                                                                    \
    return qn_turned(x, by, width, line);                                                                              \
  }                                                                                                                    \
  template <class T>                                                                                                   \
  QN_WORD T prefix##_shuffle_and_fill_up(T x, T fill, ushort by, ushort modulo = width, int line = QN_LINE)            \
  {                                                                                                                    \
    return qn_filled(x, fill, -static_cast<int>(by), modulo, line);                                                    \
  }                                                                                                                    \
  template <class T>                                                                                                   \
  QN_WORD T prefix##_shuffle_and_fill_down(T x, T fill, ushort by, ushort modulo = width, int line = QN_LINE)          \
  {                                                                                                                    \
    return qn_filled(x, fill, by, modulo, line);                                                                       \
  }
QN_SHUFFLES(simd, 32)
QN_SHUFFLES(quad, 4)
#undef QN_SHUFFLES

template <class T> QN_WORD T simd_broadcast_first(T x, int line = QN_LINE)
{
  const qn_meeting<T> meeting(x, 0, line);
  return meeting.from(qn_lowest(meeting.mask), true);
}
template <class T> QN_WORD T quad_broadcast_first(T x, int line = QN_LINE)
{
  const qn_meeting<T> meeting(x, 0, line);
  const unsigned first = meeting.lane & ~3u;
  return meeting.from(first + qn_lowest(meeting.mask >> first), true);
}

/* ---- votes ---- */
class simd_vote {
  qn_u64 votes_;

public:
  typedef qn_u64 vote_t;
  explicit constexpr QN_WORD simd_vote(qn_u64 votes = 0) : votes_(votes) {}
  explicit constexpr QN_WORD operator qn_u64() const { return votes_; }
  explicit constexpr QN_WORD operator unsigned long() const { return static_cast<unsigned long>(votes_); }
  explicit constexpr QN_WORD operator unsigned() const { return static_cast<unsigned>(votes_); }
  constexpr QN_WORD bool all() const { return votes_ == 0xffffffffull; }
  constexpr QN_WORD bool any() const { return votes_ != 0; }
};
QN_WORD simd_vote simd_ballot(bool yes, int line = QN_LINE) { return simd_vote(qn_ballot(yes, 0, line)); }
QN_WORD simd_vote simd_active_threads_mask(int line = QN_LINE) { return simd_vote(qn_here(line)); }
QN_WORD bool simd_any(bool yes, int line = QN_LINE) { return qn_ballot(yes, 0, line) != 0; }
QN_WORD bool simd_all(bool yes, int line = QN_LINE) { return qn_ballot(!yes, 0, line) == 0; }
QN_WORD bool simd_is_first(int line = QN_LINE) { return qn_lowest(qn_here(line)) == qn_lane(); }
QN_WORD bool simd_is_helper_thread() { return false; }
QN_WORD bool quad_any(bool yes, int line = QN_LINE)
{
  return (qn_ballot(yes, 0, line) >> (qn_lane() & 28u) & 15u) != 0;
}
QN_WORD bool quad_all(bool yes, int line = QN_LINE)
{
  return (qn_ballot(!yes, 0, line) >> (qn_lane() & 28u) & 15u) == 0;
}
QN_WORD bool quad_is_first(int line = QN_LINE)
{
  const unsigned first = qn_lane() & 28u;
  return first + qn_lowest(qn_here(line) >> first) == qn_lane();
}
QN_WORD bool quad_is_helper_thread() { return false; }

/* ---- scans, and a quadgroup's votes ---- */
template <class operation, class T> QN_WORD T qn_quad_scan(T x, T none, bool exclusive, int line)
{
  const qn_meeting<T> meeting(x, 0, line);
  const unsigned first = meeting.lane & 28u, last = meeting.lane - exclusive + 1u; /* before it: these count */
  bool some = false;
  T sum = none;
  for (unsigned lane = first; lane < first + 4u; lane++) {
    const T other = meeting.from(lane);
    if (lane >= last || !(meeting.mask >> lane & 1u)) continue;
    sum = some ? operation::go(sum, other) : other;
    some = true;
  }
  return sum;
}
#define QN_SCAN(prefix, scan, name, operation, none)                                                                   \
  template <class T> QN_WORD T prefix##_prefix_inclusive_##name(T x, int line = QN_LINE)                               \
  {                                                                                                                    \
    return scan<operation>(x, T(none), false, line);                                                                   \
  }                                                                                                                    \
  template <class T> QN_WORD T prefix##_prefix_exclusive_##name(T x, int line = QN_LINE)                               \
  {                                                                                                                    \
    return scan<operation>(x, T(none), true, line);                                                                    \
  }
QN_SCAN(simd, qn_scan, sum, qn_lanes_add, 0)
QN_SCAN(simd, qn_scan, product, qn_lanes_multiply, 1)
QN_SCAN(quad, qn_quad_scan, sum, qn_lanes_add, 0)
QN_SCAN(quad, qn_quad_scan, product, qn_lanes_multiply, 1)
#undef QN_SCAN

class quad_vote {
  unsigned votes_;

public:
  typedef unsigned vote_t;
  explicit constexpr QN_WORD quad_vote(unsigned votes = 0) : votes_(votes) {}
  explicit constexpr QN_WORD operator unsigned() const { return votes_; }
  constexpr QN_WORD bool all() const { return votes_ == 15u; }
  constexpr QN_WORD bool any() const { return votes_ != 0; }
};
QN_WORD quad_vote quad_ballot(bool yes, int line = QN_LINE)
{
  return quad_vote(qn_ballot(yes, 0, line) >> (qn_lane() & 28u) & 15u);
}
QN_WORD quad_vote quad_active_threads_mask(int line = QN_LINE)
{
  return quad_vote(qn_here(line) >> (qn_lane() & 28u) & 15u);
}
} // namespace QN_WORDS
#endif
