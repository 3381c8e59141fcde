/* SPDX-License-Identifier: Apache-2.0 */
/* groups.h - of cooperative_groups what bodies use most: this_thread_block, tiled_partition of 1 to 32 lanes (compiled
 * sizes), coalesced_threads' size and rank are not among it. CUDA's own header costs more time than all else together.
 */
#ifndef QN_WORDS_GROUPS_H
#define QN_WORDS_GROUPS_H
#include "kernel/words/cuda_sync.h"

namespace QN_WORDS {
namespace cooperative_groups {
struct thread_block {
  QN_WORD void sync(int line = QN_LINE) const
  {
#ifdef QN_CUDA_DIALECT
    (void)line;
    __syncthreads();
#else
    __syncthreads(line);
#endif
  }
  QN_WORD unsigned thread_rank() const
  {
#ifdef QN_CUDA_DIALECT
    return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
#else
    return qn_thread_number();
#endif
  }
};
QN_WORD thread_block this_thread_block() { return {}; }

template <unsigned N> struct thread_block_tile {
  static_assert(N >= 1 && N <= 32 && (N & (N - 1)) == 0, "tiles have 1, 2, 4, 8, 16 or 32 lanes");
  QN_WORD unsigned thread_rank() const { return qn_lane() & (N - 1); }
  static constexpr QN_WORD unsigned size() { return N; }
  static constexpr QN_WORD unsigned num_threads() { return N; }
  QN_WORD unsigned qn_first() const { return qn_lane() & ~(N - 1); }
  QN_WORD unsigned qn_mask() const { return (N == 32 ? 0xffffffffu : (1u << (N & 31u)) - 1u) << qn_first(); }
  QN_WORD void sync() const { __syncwarp(qn_mask()); }
  template <class T> QN_WORD T shfl(T x, int source) const { return __shfl_sync(qn_mask(), x, source, N); }
  template <class T> QN_WORD T shfl_up(T x, unsigned by) const { return __shfl_up_sync(qn_mask(), x, by, N); }
  template <class T> QN_WORD T shfl_down(T x, unsigned by) const { return __shfl_down_sync(qn_mask(), x, by, N); }
  template <class T> QN_WORD T shfl_xor(T x, int with) const { return __shfl_xor_sync(qn_mask(), x, with, N); }
  QN_WORD unsigned ballot(int yes) const { return __ballot_sync(qn_mask(), yes) >> qn_first(); }
  QN_WORD int any(int yes) const { return __any_sync(qn_mask(), yes); }
  QN_WORD int all(int yes) const { return __all_sync(qn_mask(), yes); }
};
template <unsigned N, class G> QN_WORD thread_block_tile<N> tiled_partition(const G &) { return {}; }
template <class G> QN_WORD void sync(const G &group) { group.sync(); }
} // namespace cooperative_groups
} // namespace QN_WORDS
#endif
