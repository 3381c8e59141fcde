/* SPDX-License-Identifier: Apache-2.0 */
/* collective.h - the words by which threads of a device kernel work together: shared memory, barriers, shuffles,
 * reductions; base/matrix.h has small matrix products and what feeds them. Like base/kernel.h one text for NVRTC and,
 * as C++17, for the emulator, where such a kernel's threads are fibers (device/emulator/group.c); PTX stands behind
 * words with C twins.
 *
 *     struct sums_args { const float *x; float *sums; };
 *     QN_GROUP_KERNEL(sums, sums_args, a)
 *     {
 *       QN_SHARED(float, scratch, 32);
 *       float sum = qn_group_sum(a.x[qn_block() * qn_block_threads() + qn_thread()], scratch);
 *       if (qn_thread() == 0) a.sums[qn_block()] = sum;
 *     }
 *
 * The contract. Launches are one-dimensional with a multiple of 32 threads a block, at most QN_THREADS. 32 threads are
 * a simdgroup (a warp). Words with `simd` in their description are for all 32 lanes of it at once, words of the group
 * for all threads of the block: each thread comes to the same one. A thread may return early only if its whole
 * simdgroup does and no word of the group is behind it, except barriers, which do not count threads that have returned.
 * Between a write to shared memory and another thread's read of it stands a barrier: the group's, or the simdgroup's
 * for its own lanes. No thread waits for another in any other way.
 *
 * The bits. All words here give the same bits on a GPU and on the host (any NaN equals any NaN).
 *
 * Left out are wgmma and bulk tensor copies (cp.async.bulk.tensor): they have no meaning for 32 lanes at a time, and a
 * twin would be another kernel. base/hopper.h has words for them without one. */
#ifndef QN_BASE_COLLECTIVE_H
#define QN_BASE_COLLECTIVE_H
#include "base/kernel.h"
#ifndef QN_CUDA_DIALECT
#include "base/group.h"
#endif

#ifdef __cplusplus
#ifdef QN_CUDA_DIALECT
#define QN_LINE 0
#else
#define QN_LINE                                                                                                        \
  __builtin_LINE() /* as a default argument: the line of the call, for the sentence when threads are stuck */
#endif

/* ---- the kernel, its place, its memory ---- */
#ifdef QN_CUDA_DIALECT
#define QN_GROUP_KERNEL(name, type, arg) QN_KERNEL(name, type, arg)
/* n elements of the block's shared memory, aligned to 16 bytes, not initialised. At block scope. */
#define QN_SHARED(type, name, n) __shared__ __align__(16) type name[n]
#else
extern "C" {
const qn_group_words *quern_group; /* set when this object is loaded */
}
/* Exported: one thread, as a fiber, and the argument's size. The fiber's slot holds its place, for words in functions.
 */
#define QN_GROUP_KERNEL(name, type, arg)                                                                               \
  static void name##_body(const type &arg, const qn_place qn_here);                                                    \
  extern "C" decltype(sizeof 0) name##_argument_bytes() { return sizeof(type); }                                       \
  extern "C" void name##_thread(const void *argument, qn_u64 block, qn_u64 blocks, qn_u32 thread, qn_u32 threads)      \
  {                                                                                                                    \
    qn_place here = {block, blocks, thread, threads};                                                                  \
    *quern_group->slot() = &here;                                                                                      \
    name##_body(*static_cast<const type *>(argument), here);                                                           \
  }                                                                                                                    \
  static void name##_body(const type &arg, const qn_place qn_here)
#define QN_SHARED(type, name, n) alignas(16) static thread_local type name[n] /* a block runs on one thread */

QN_FN const qn_place &qn_my_place() { return *static_cast<const qn_place *>(*quern_group->slot()); }
#endif

/* The lane in its simdgroup, the simdgroup in its block, how many the block has. Unlike qn_thread() they also stand in
 * functions. */
QN_FN qn_u32 qn_lane()
{
#ifdef QN_CUDA_DIALECT
  return threadIdx.x & 31u;
#else
  return qn_my_place().index & 31u;
#endif
}

QN_FN qn_u32 qn_simd()
{
#ifdef QN_CUDA_DIALECT
  return threadIdx.x >> 5;
#else
  return qn_my_place().index >> 5;
#endif
}

QN_FN qn_u32 qn_simds()
{
#ifdef QN_CUDA_DIALECT
  return blockDim.x >> 5;
#else
  return qn_my_place().threads >> 5;
#endif
}

/* The shared memory whose size the launch says (qn_launch.shared_bytes), aligned to 128 bytes. */
QN_FN void *qn_shared_dynamic()
{
#ifdef QN_CUDA_DIALECT
  extern __shared__ __align__(128) unsigned char qn_dynamic[];
  return qn_dynamic;
#else
  return quern_group->shared();
#endif
}

/* ---- waiting ---- */
/* All threads of the block that have not returned; what they wrote to memory before is seen after. */
QN_FN void qn_barrier(int line = QN_LINE)
{
#ifdef QN_CUDA_DIALECT
  (void)line;
  __syncthreads();
#else
  quern_group->barrier(0, line);
#endif
}

/* The same for the lanes of a simdgroup. */
QN_FN void qn_simd_barrier(int line = QN_LINE)
{
#ifdef QN_CUDA_DIALECT
  (void)line;
  __syncwarp();
#else
  quern_group->barrier(1, line);
#endif
}

/* Of kernels whose launch says `early`: waits until the kernel before it on the stream has ended and what it wrote is
 * seen. Each thread comes here before it reads or writes memory. Elsewhere nothing. */
QN_FN void qn_await_kernel()
{
#if defined(QN_CUDA_DIALECT) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Lets such a kernel behind this one begin once all blocks came here. */
QN_FN void qn_begin_next()
{
#if defined(QN_CUDA_DIALECT) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* ---- simd: another lane's value. T has up to 16 bytes and is copied as such. ---- */
#define QN_ALL_LANES 0xffffffffu

/* Every word that moves values is made of this one: lane `from` & 31. */
template <class T> QN_FN T qn_shuffle(T x, qn_u32 from, int line = QN_LINE)
{
  static_assert(sizeof(T) <= 16, "a value of at most 16 bytes");
#ifdef QN_CUDA_DIALECT
  union {
    unsigned word[(sizeof(T) + 3) / 4];
    unsigned char byte[sizeof(T)];
  } u = {};
  memcpy(u.byte, &x, sizeof x);
  QN_UNROLL
  for (unsigned k = 0; k < sizeof u.word / 4; k++)
    u.word[k] = __shfl_sync(QN_ALL_LANES, u.word[k], static_cast<int>(from));
  memcpy(&x, u.byte, sizeof x);
  (void)line;
#else
  const unsigned char *all;
  quern_group->exchange(&x, sizeof x, QN_ALL_LANES, line, &all);
  __builtin_memcpy(&x, all + 16 * (from & 31u), sizeof x);
#endif
  return x;
}

template <class T> QN_FN T qn_shuffle_xor(T x, qn_u32 k, int line = QN_LINE)
{
  return qn_shuffle(x, qn_lane() ^ k, line);
}

/* ---- reductions of float, double and whole numbers; everybody gets the result. The tree is the contract: lanes 16
 * apart first, then 8, 4, 2 and 1 apart; then the simdgroups' results in the same way, zeros behind the last. A NaN
 * makes the result NaN; of two zeros the positive one is larger. ---- */
struct qn_plus {
  template <class T> QN_FN T of(T a, T b) { return a + b; }
};
struct qn_larger {
  template <class T> QN_FN T of(T a, T b) { return a > b ? a : b; }
  QN_FN float of(float a, float b)
  {
    if (a == b) return qn_bits_float(qn_float_bits(a) & qn_float_bits(b));
    return a > b || a != a ? a : b;
  }
  QN_FN double of(double a, double b)
  {
    if (a == b) return 1.0 / a < 0 ? b : a;
    return a > b || a != a ? a : b;
  }
};
#ifndef QN_CUDA_DIALECT
/* Once for all lanes: the tree, whose result stands in the first one's place. */
template <class Op, class T> static void qn_combine_lanes(unsigned char *all, qn_u32)
{
  T x[32];
  for (int k = 0; k < 32; k++) __builtin_memcpy(&x[k], all + 16 * k, sizeof x[k]);
  for (int apart = 16; apart; apart /= 2)
    for (int k = 0; k < apart; k++) x[k] = Op::of(x[k], x[k + apart]);
  __builtin_memcpy(all, x, sizeof *x);
}
#endif

template <class Op, class T> QN_FN T qn_simd_reduce(T x, int line)
{
#ifdef QN_CUDA_DIALECT
  QN_UNROLL
  for (qn_u32 apart = 16; apart; apart /= 2) x = Op::of(x, qn_shuffle_xor(x, apart, line));
#else
  const unsigned char *all;
  quern_group->combine(&x, sizeof x, QN_ALL_LANES, line, qn_combine_lanes<Op, T>, &all);
  __builtin_memcpy(&x, all, sizeof x);
#endif
  return x;
}

template <class T> QN_FN T qn_simd_sum(T x, int line = QN_LINE) { return qn_simd_reduce<qn_plus>(x, line); }

/* scratch: 32 elements of shared memory, which may be used for the next one at once. `zeros` stand behind the last
 * simdgroup's result, or the first one again. */
template <class Op, bool zeros, class T> QN_FN T qn_group_reduce(T x, T *scratch, int line)
{
  const qn_u32 lane = qn_lane(), simds = qn_simds();
  x = qn_simd_reduce<Op>(x, line);
  if (lane == 0) scratch[qn_simd()] = x;
  qn_barrier(line);
  x = qn_simd_reduce<Op>(zeros && lane >= simds ? T(0) : scratch[lane < simds ? lane : 0], line);
  qn_barrier(line);
  return x;
}
template <class T> QN_FN T qn_group_sum(T x, T *scratch, int line = QN_LINE)
{
  return qn_group_reduce<qn_plus, true>(x, scratch, line);
}
template <class T> QN_FN T qn_group_max(T x, T *scratch, int line = QN_LINE)
{
  return qn_group_reduce<qn_larger, false>(x, scratch, line);
}
#endif
#endif
