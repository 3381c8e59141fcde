/* SPDX-License-Identifier: Apache-2.0 */
/* groups.h - cooperative_groups, also as cg: the grid without a sync, the block, tiles of 1 to 32 lanes, the lanes that
 * are here together, reductions and scans. CUDA's own header costs more time than all else together. The words that ask
 * where a thread is are macros, because the places (threadIdx ...) are seen where they are written and not here. */
#ifndef QN_DIALECT_GROUPS_H
#define QN_DIALECT_GROUPS_H
#include "kernel/dialect/cuda_sync.h"

namespace QN_WORDS {
namespace cooperative_groups {
#define this_grid() qn_grid_at(threadIdx, blockIdx, blockDim, gridDim)
#define this_thread_block() qn_block_at(threadIdx, blockIdx, blockDim)

struct grid_group {
  dim3 thread_, block_, threads_, blocks_;
  QN_WORD unsigned long long block_rank() const
  {
    return (static_cast<unsigned long long>(block_.z) * blocks_.y + block_.y) * blocks_.x + block_.x;
  }
  QN_WORD unsigned long long thread_rank() const
  {
    return block_rank() * (static_cast<unsigned long long>(threads_.x) * threads_.y * threads_.z) +
           (thread_.z * threads_.y + thread_.y) * threads_.x + thread_.x;
  }
  QN_WORD unsigned long long num_blocks() const
  {
    return static_cast<unsigned long long>(blocks_.x) * blocks_.y * blocks_.z;
  }
  QN_WORD unsigned long long num_threads() const
  {
    return num_blocks() * (static_cast<unsigned long long>(threads_.x) * threads_.y * threads_.z);
  }
  QN_WORD unsigned long long size() const { return num_threads(); }
  QN_WORD dim3 group_dim() const { return blocks_; }
  QN_WORD dim3 dim_blocks() const { return blocks_; }
  QN_WORD dim3 block_index() const { return block_; }
  QN_WORD bool is_valid() const { return false; } /* it cannot sync */
  template <class T = int> QN_WORD void sync() const
  {
    static_assert(!sizeof(T), "a grid cannot sync: its blocks do not all run at once; launch a second kernel instead");
  }
};
template <class I, class B> QN_WORD grid_group qn_grid_at(const I &thread, const B &block, dim3 threads, dim3 blocks)
{
  return {dim3(thread.x, thread.y, thread.z), dim3(block.x, block.y, block.z), threads, blocks};
}

struct thread_block {
  dim3 thread_, block_, threads_;
  QN_WORD void sync(int line = QN_LINE) const
  {
#ifdef QN_CUDA_DIALECT
    (void)line;
    __syncthreads();
#else
    __syncthreads(line);
#endif
  }
  QN_WORD unsigned thread_rank() const { return (thread_.z * threads_.y + thread_.y) * threads_.x + thread_.x; }
  QN_WORD unsigned num_threads() const { return threads_.x * threads_.y * threads_.z; }
  QN_WORD unsigned size() const { return num_threads(); }
  QN_WORD dim3 group_index() const { return block_; }
  QN_WORD dim3 thread_index() const { return thread_; }
  QN_WORD dim3 group_dim() const { return threads_; }
  QN_WORD dim3 dim_threads() const { return threads_; }
};
template <class I, class B> QN_WORD thread_block qn_block_at(const I &thread, const B &block, dim3 threads)
{
  return {dim3(thread.x, thread.y, thread.z), dim3(block.x, block.y, block.z), threads};
}

#ifdef QN_CUDA_DIALECT
#define QN_AT_LINE
#else
#define QN_AT_LINE , line
#endif

/* A part of a warp. rank_, of_: of this thread in the group that was parted, and that group's threads. */
template <unsigned N> struct qn_tile {
  static_assert(N >= 1 && N <= 32 && (N & (N - 1)) == 0, "tiles have 1, 2, 4, 8, 16 or 32 lanes");
  static constexpr unsigned qn_width = N;
  unsigned rank_, of_;
  QN_WORD unsigned thread_rank() const { return qn_lane() & (N - 1); }
  static constexpr QN_WORD unsigned size() { return N; }
  static constexpr QN_WORD unsigned num_threads() { return N; }
  QN_WORD unsigned meta_group_rank() const { return rank_ / N; }
  QN_WORD unsigned meta_group_size() const { return (of_ + N - 1) / N; }
  QN_WORD unsigned qn_first() const { return qn_lane() & ~(N - 1); }
  QN_WORD unsigned qn_mask() const { return (N == 32 ? 0xffffffffu : (1u << (N & 31u)) - 1u) << qn_first(); }
  QN_WORD void sync(int line = QN_LINE) const { (void)line, __syncwarp(qn_mask() QN_AT_LINE); }
  template <class T> QN_WORD T shfl(T x, int source, int line = QN_LINE) const
  {
    return (void)line, __shfl_sync(qn_mask(), x, source, N QN_AT_LINE);
  }
  template <class T> QN_WORD T shfl_up(T x, unsigned by, int line = QN_LINE) const
  {
    return (void)line, __shfl_up_sync(qn_mask(), x, by, N QN_AT_LINE);
  }
  template <class T> QN_WORD T shfl_down(T x, unsigned by, int line = QN_LINE) const
  {
    return (void)line, __shfl_down_sync(qn_mask(), x, by, N QN_AT_LINE);
  }
  template <class T> QN_WORD T shfl_xor(T x, int with, int line = QN_LINE) const
  {
    return (void)line, __shfl_xor_sync(qn_mask(), x, with, N QN_AT_LINE);
  }
  QN_WORD unsigned ballot(int yes, int line = QN_LINE) const
  {
    return (void)line, __ballot_sync(qn_mask(), yes QN_AT_LINE) >> qn_first();
  }
  QN_WORD int any(int yes, int line = QN_LINE) const { return (void)line, __any_sync(qn_mask(), yes QN_AT_LINE); }
  QN_WORD int all(int yes, int line = QN_LINE) const { return (void)line, __all_sync(qn_mask(), yes QN_AT_LINE); }
  template <class T> QN_WORD unsigned match_any(T x, int line = QN_LINE) const
  {
    return (void)line, __match_any_sync(qn_mask(), x QN_AT_LINE) >> qn_first();
  }
  template <class T> QN_WORD unsigned match_all(T x, int &all, int line = QN_LINE) const
  {
    return (void)line, __match_all_sync(qn_mask(), x, &all QN_AT_LINE) >> qn_first();
  }
};
template <unsigned N, class parent = void> struct thread_block_tile : qn_tile<N> {
  QN_WORD thread_block_tile(const qn_tile<N> &tile) : qn_tile<N>(tile) {}
};
template <unsigned N, class G> QN_WORD thread_block_tile<N, G> tiled_partition(const G &group)
{
  return qn_tile<N>{group.thread_rank(), group.size()};
}
QN_WORD thread_block_tile<1> this_thread() { return qn_tile<1>{0, 1}; }

/* Lanes of a warp by their numbers among themselves. */
struct coalesced_group {
  static constexpr unsigned qn_width = 32;
  unsigned mask_;
  QN_WORD unsigned qn_mask() const { return mask_; }
  QN_WORD unsigned thread_rank() const { return qn_bit_count(mask_ & ((1u << qn_lane()) - 1u)); }
  QN_WORD unsigned num_threads() const { return qn_bit_count(mask_); }
  QN_WORD unsigned size() const { return num_threads(); }
  QN_WORD unsigned meta_group_rank() const { return 0; }
  QN_WORD unsigned meta_group_size() const { return 1; }
  QN_WORD int qn_lane_of(unsigned rank) const
  {
    unsigned left = mask_;
    for (; rank; rank--) left &= left - 1u;
    return static_cast<int>(left ? qn_lowest(left) : qn_lane());
  }
  QN_WORD unsigned qn_packed(unsigned votes) const
  {
    unsigned packed = 0, place = 0;
    for (unsigned left = mask_; left; left &= left - 1u) packed |= (votes >> qn_lowest(left) & 1u) << place++;
    return packed;
  }
  QN_WORD void sync(int line = QN_LINE) const { (void)line, __syncwarp(mask_ QN_AT_LINE); }
  template <class T> QN_WORD T shfl(T x, unsigned rank, int line = QN_LINE) const
  {
    return (void)line, __shfl_sync(mask_, x, qn_lane_of(rank), 32 QN_AT_LINE);
  }
  template <class T> QN_WORD T shfl_up(T x, unsigned by, int line = QN_LINE) const
  {
    const unsigned rank = thread_rank();
    return shfl(x, rank < by ? rank : rank - by, line);
  }
  template <class T> QN_WORD T shfl_down(T x, unsigned by, int line = QN_LINE) const
  {
    const unsigned rank = thread_rank();
    return shfl(x, rank + by < size() ? rank + by : rank, line);
  }
  QN_WORD unsigned ballot(int yes, int line = QN_LINE) const
  {
    return (void)line, qn_packed(__ballot_sync(mask_, yes QN_AT_LINE));
  }
  QN_WORD int any(int yes, int line = QN_LINE) const { return (void)line, __any_sync(mask_, yes QN_AT_LINE); }
  QN_WORD int all(int yes, int line = QN_LINE) const { return (void)line, __all_sync(mask_, yes QN_AT_LINE); }
};
QN_WORD coalesced_group coalesced_threads(int line = QN_LINE) { return {qn_here(line)}; }

/* Any of these; its size is known when it runs. */
struct thread_group {
  unsigned mask_, rank_, threads_; /* a mask of 0: the block */
  QN_WORD thread_group(const thread_block &block) : mask_(0), rank_(block.thread_rank()), threads_(block.size()) {}
  template <unsigned N>
  QN_WORD thread_group(const qn_tile<N> &tile) : mask_(tile.qn_mask()), rank_(tile.thread_rank()), threads_(N)
  {
  }
  QN_WORD thread_group(const coalesced_group &lanes)
      : mask_(lanes.mask_), rank_(lanes.thread_rank()), threads_(lanes.size())
  {
  }
  QN_WORD thread_group(unsigned mask, unsigned rank, unsigned threads) : mask_(mask), rank_(rank), threads_(threads) {}
  QN_WORD unsigned thread_rank() const { return rank_; }
  QN_WORD unsigned num_threads() const { return threads_; }
  QN_WORD unsigned size() const { return threads_; }
  QN_WORD void sync(int line = QN_LINE) const
  {
    (void)line;
#ifdef QN_CUDA_DIALECT
    if (mask_)
      __syncwarp(mask_);
    else
      __syncthreads();
#else
    if (mask_)
      __syncwarp(mask_, line);
    else
      __syncthreads(line);
#endif
  }
};
template <class G> QN_WORD thread_group tiled_partition(const G &, unsigned n)
{
  const unsigned first = qn_lane() & ~(n - 1);
  return thread_group((n >= 32 ? 0xffffffffu : (1u << n) - 1u) << first, qn_lane() & (n - 1), n);
}

template <class G> QN_WORD void sync(const G &group, int line = QN_LINE) { group.sync(line); }
template <class G> QN_WORD auto thread_rank(const G &group) -> decltype(group.thread_rank())
{
  return group.thread_rank();
}
template <class G> QN_WORD auto group_size(const G &group) -> decltype(group.size()) { return group.size(); }

/* ---- reductions and scans ---- */
#define QN_GROUP_WORD(name, expression)                                                                                \
  template <class T> struct name {                                                                                     \
    QN_WORD T operator()(const T &a, const T &b) const { return expression; }                                          \
  };
QN_GROUP_WORD(plus, a + b)
QN_GROUP_WORD(less, b < a ? b : a)
QN_GROUP_WORD(greater, a < b ? b : a)
QN_GROUP_WORD(bit_and, a &b)
QN_GROUP_WORD(bit_or, a | b)
QN_GROUP_WORD(bit_xor, a ^ b)
#undef QN_GROUP_WORD

/* By pairs of lanes, then by pairs of these, as qn_reduce. */
template <class G, class T, class O> QN_WORD T reduce(const G &group, T x, const O &operation, int line = QN_LINE)
{
  qn_meeting<T> meeting(x, group.qn_mask(), line);
#ifdef QN_CUDA_DIALECT
  const unsigned lane = meeting.lane, mask = meeting.mask;
  for (unsigned distance = 1; distance < G::qn_width; distance *= 2) {
    const unsigned first = (lane ^ distance) & ~(distance - 1);
    const unsigned there = (mask >> first) & ((1u << distance) - 1u);
    const T other = meeting.shuffle(x, there ? first + qn_lowest(there) : lane);
    if (there) x = lane & distance ? operation(other, x) : operation(x, other);
  }
  return x;
#else
  T *all = meeting.all;
  unsigned there = meeting.mask;
  for (unsigned distance = 1; distance < G::qn_width; distance *= 2)
    for (unsigned k = 0; k < 32; k += 2 * distance) {
      if (!(there >> (k + distance) & 1u)) continue;
      all[k] = there >> k & 1u ? operation(all[k], all[k + distance]) : all[k + distance];
      there |= 1u << k;
    }
  return all[meeting.lane & ~(G::qn_width - 1u)];
#endif
}

/* Of the lanes up to this one, or (exclusive) to the one before: in the order of qn_scan. */
template <class G, class T, class O>
QN_WORD T qn_group_scan(const G &group, T x, const O &operation, bool exclusive, int line)
{
  const unsigned rank = group.thread_rank();
  for (unsigned distance = 1; distance < group.size(); distance *= 2) {
    const T other = group.shfl_up(x, distance, line);
    if (rank >= distance) x = operation(other, x);
  }
  if (!exclusive) return x;
  const T before = group.shfl_up(x, 1, line);
  return rank ? before : T(0);
}
template <class G, class T, class O>
QN_WORD T inclusive_scan(const G &group, T x, const O &operation, int line = QN_LINE)
{
  return qn_group_scan(group, x, operation, false, line);
}
template <class G, class T, class O>
QN_WORD T exclusive_scan(const G &group, T x, const O &operation, int line = QN_LINE)
{
  return qn_group_scan(group, x, operation, true, line);
}
template <class G, class T> QN_WORD T inclusive_scan(const G &group, T x)
{
  return qn_group_scan(group, x, plus<T>(), false, QN_LINE);
}
template <class G, class T> QN_WORD T exclusive_scan(const G &group, T x)
{
  return qn_group_scan(group, x, plus<T>(), true, QN_LINE);
}
#undef QN_AT_LINE
} // namespace cooperative_groups
namespace cg = cooperative_groups;
} // namespace QN_WORDS
#endif
