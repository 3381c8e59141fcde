/* SPDX-License-Identifier: Apache-2.0 */
/* hip.h - CUDA's words for the lanes of a warp on AMD's GPUs, for emitted HIP C: always 32 lanes, as everywhere in a
 * kernel from a body. Where the hardware's waves have 64, a warp is one half of a wave, which is what numbers of
 * threads in a group say too; a mask is that half's. They are macros, since newer HIP headers have functions of these
 * names whose masks have 64 bits. Masks of lanes that should take part are not needed by the hardware and are not
 * looked at.
 */
#ifndef QN_DIALECT_HIP_H
#define QN_DIALECT_HIP_H
#ifdef __HIPCC__
#include "base/kernel.h"

QN_FN unsigned qn_hip_lane() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u)); }
QN_FN unsigned qn_hip_ballot(bool yes)
{
  return static_cast<unsigned>(static_cast<qn_u64>(__ballot(yes)) >> (qn_hip_lane() & 32u));
}

/* x of lane `source` (0 to 31) of this warp. */
template <class T> QN_FN T qn_hip_from(const T &x, unsigned source)
{
  constexpr unsigned words = (sizeof(T) + 3) / 4;
  const unsigned lane = (qn_hip_lane() & 32u) + source;
  int word[words] = {};
  T y;
  __builtin_memcpy(word, &x, sizeof x);
  QN_UNROLL
  for (unsigned k = 0; k < words; k++) word[k] = __builtin_amdgcn_ds_bpermute(static_cast<int>(4u * lane), word[k]);
  __builtin_memcpy(&y, word, sizeof y);
  return y;
}

/* Within segments of `width` lanes; what would come from outside of one is the lane's own. */
template <class T> QN_FN T qn_hip_shuffle(const T &x, int lane, int width = 32)
{
  const unsigned self = qn_hip_lane() & 31u, most = static_cast<unsigned>(width - 1);
  return qn_hip_from(x, (self & ~most) + (static_cast<unsigned>(lane) & most));
}
template <class T> QN_FN T qn_hip_shuffle_up(const T &x, unsigned by, int width = 32)
{
  const unsigned self = qn_hip_lane() & 31u, most = static_cast<unsigned>(width - 1);
  return qn_hip_from(x, (self & most) < by ? self : self - by);
}
template <class T> QN_FN T qn_hip_shuffle_down(const T &x, unsigned by, int width = 32)
{
  const unsigned self = qn_hip_lane() & 31u, most = static_cast<unsigned>(width - 1);
  return qn_hip_from(x, (self & most) + by > most ? self : self + by);
}
template <class T> QN_FN T qn_hip_shuffle_xor(const T &x, int with, int width = 32)
{
  const unsigned self = qn_hip_lane() & 31u, other = (self ^ static_cast<unsigned>(with)) & 31u;
  return qn_hip_from(x, other > (self | static_cast<unsigned>(width - 1)) ? self : other);
}
QN_FN void qn_hip_meet()
{
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
}

/* The lanes that have this lane's x, of those here together. */
template <class T> QN_FN unsigned qn_hip_match(const T &x)
{
  unsigned same = 0;
  for (unsigned left = qn_hip_ballot(true); left; left &= left - 1u) {
    const unsigned lane = static_cast<unsigned>(__ffs(static_cast<int>(left)) - 1);
    const T other = qn_hip_from(x, lane);
    if (other == x) same |= 1u << lane;
  }
  return same;
}

template <class T> QN_FN unsigned qn_hip_match_all(unsigned mask, const T &x, int *all)
{
  const unsigned here = qn_hip_ballot(true) & mask;
  *all = (qn_hip_match(x) & mask) == here;
  return *all ? here : 0u;
}

/* Over the mask's lanes that are here, in their order. */
template <class operation, class T> QN_FN T qn_hip_reduce(unsigned mask, T x, operation of)
{
  bool any = false;
  T sum = x;
  for (unsigned left = mask & qn_hip_ballot(true); left; left &= left - 1u) {
    const T other = qn_hip_from(x, static_cast<unsigned>(__ffs(static_cast<int>(left)) - 1));
    sum = any ? of(sum, other) : other;
    any = true;
  }
  return sum;
}

#define __activemask() qn_hip_ballot(true)
#define __ballot_sync(mask, yes) (qn_hip_ballot(yes) & (mask))
#define __any_sync(mask, yes) ((qn_hip_ballot(yes) & (mask)) != 0u)
#define __all_sync(mask, yes) ((qn_hip_ballot(!(yes)) & (mask)) == 0u)
#define __syncwarp(...) qn_hip_meet()
#define __shfl_sync(mask, ...) qn_hip_shuffle(__VA_ARGS__)
#define __shfl_up_sync(mask, ...) qn_hip_shuffle_up(__VA_ARGS__)
#define __shfl_down_sync(mask, ...) qn_hip_shuffle_down(__VA_ARGS__)
#define __shfl_xor_sync(mask, ...) qn_hip_shuffle_xor(__VA_ARGS__)
#define __match_any_sync(mask, x) (qn_hip_match(x) & (mask))
#define __match_all_sync(mask, x, all) qn_hip_match_all(mask, x, all)
#define __reduce_add_sync(mask, x) qn_hip_reduce(mask, x, [](auto a, auto b) { return a + b; })
#define __reduce_min_sync(mask, x) qn_hip_reduce(mask, x, [](auto a, auto b) { return b < a ? b : a; })
#define __reduce_max_sync(mask, x) qn_hip_reduce(mask, x, [](auto a, auto b) { return a < b ? b : a; })
#define __reduce_and_sync(mask, x) qn_hip_reduce(mask, x, [](auto a, auto b) { return a & b; })
#define __reduce_or_sync(mask, x) qn_hip_reduce(mask, x, [](auto a, auto b) { return a | b; })
#define __reduce_xor_sync(mask, x) qn_hip_reduce(mask, x, [](auto a, auto b) { return a ^ b; })
#endif
#endif
