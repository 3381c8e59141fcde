/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.h - the words in which device kernels are written, so that one source compiles with NVRTC for a GPU and as
 * C++17 by the system's compiler for the emulator. It includes nothing (that keeps a host compile at some 30 ms);
 * PTX stands only here, behind words with C twins that give the same bits (any NaN equals any NaN). Included from C it
 * gives the types and conversions, but no kernels. What one element computes is simd.h's business, not this file's.
 *
 *     struct scale_args { float *x; qn_u64 n; float by; };
 *     QN_KERNEL(scale, scale_args, a)
 *     {
 *       qn_u64 i = qn_block() * qn_block_threads() + qn_thread();
 *       if (i < a.n) a.x[i] *= a.by;
 *     }
 *
 * Launches are one-dimensional. A kernel has one argument, a struct by value. QN_KERNEL's have no barrier and no shared
 * memory: on the host their threads run one after the other. Threads that need each other are QN_GROUP_KERNEL's, with
 * the words of base/collective.h: shared memory, barriers, shuffles, votes, reductions; and of base/matrix.h: matrix
 * products of a simdgroup. */
#ifndef QN_BASE_KERNEL_H
#define QN_BASE_KERNEL_H

#if defined(__CUDACC_RTC__) || defined(__CUDACC__) || defined(__HIPCC__)
#define QN_CUDA_DIALECT 1
#endif
#if defined(QN_CUDA_DIALECT) && !defined(__HIPCC__)
#define QN_PTX 1 /* NVIDIA's instructions and intrinsics; without it C says the same to the last bit */
#endif

/* Metal's dialect (emitted sources, compiled by Apple): no double, no 64-bit type called long long, and every pointer
 * says where it points: QN_FAR is the memory of tensors. What no word stands at in a parameter is the thread's own. */
#ifdef QN_METAL_DIALECT
#define QN_FAR device
#define QN_NEAR thread /* said in macros, which the emitter does not read */
#else
#define QN_FAR
#define QN_NEAR
#endif

#ifdef QN_METAL_DIALECT
typedef uchar qn_u8;
typedef ushort qn_u16;
typedef uint qn_u32;
typedef ulong qn_u64;
typedef long qn_i64;
#elif !defined(__cplusplus)
#include <stdint.h>
typedef uint8_t qn_u8;
typedef uint16_t qn_u16;
typedef uint32_t qn_u32;
typedef uint64_t qn_u64;
typedef int64_t qn_i64;
#else
typedef unsigned char qn_u8;
typedef unsigned short qn_u16;
typedef unsigned int qn_u32;
typedef unsigned long long qn_u64;
typedef long long qn_i64;
#endif

#ifndef QN_DEVICE /* a function that kernels may call */
#ifdef QN_CUDA_DIALECT
#define QN_DEVICE __device__
#else
#define QN_DEVICE
#endif
#endif
#ifndef QN_FN /* the same, private to the source and inlined */
#ifdef QN_CUDA_DIALECT
#define QN_FN static __device__ __forceinline__
#else
#define QN_FN static inline
#endif
#endif

#ifdef QN_METAL_DIALECT
#define QN_UNROLL
#elif defined(QN_CUDA_DIALECT)
#define QN_UNROLL _Pragma("unroll")
#elif defined(__clang__)
#define QN_UNROLL _Pragma("clang loop unroll(full)")
#else
#define QN_UNROLL _Pragma("GCC unroll 16")
#endif
/* A loop that a GPU's compiler leaves one. */
#ifdef QN_CUDA_DIALECT
#define QN_ROLLED _Pragma("unroll 1")
#else
#define QN_ROLLED
#endif

#ifndef QN_THREADS /* a unit may define it; launches of its kernels use this many threads a block, or fewer */
#define QN_THREADS 256
#endif

/* ---- bits ---- */
QN_FN qn_u32 qn_float_bits(float x)
{
#ifdef QN_METAL_DIALECT
  return as_type<qn_u32>(x);
#elif defined(QN_CUDA_DIALECT)
  return __float_as_uint(x);
#else
  qn_u32 bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
#endif
}

QN_FN float qn_bits_float(qn_u32 bits)
{
#ifdef QN_METAL_DIALECT
  return as_type<float>(bits);
#elif defined(QN_CUDA_DIALECT)
  return __uint_as_float(bits);
#else
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
#endif
}

/* ---- what C says in several operations, and a GPU in one ---- */
/* x, or low where x is below it, high where x is above it; NaN stays NaN. The bound is not zero. */
QN_FN float qn_float_no_less(float x, float low)
{
#if defined(QN_PTX) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(low));
  return y;
#else
  return x < low ? low : x;
#endif
}

QN_FN float qn_float_no_more(float x, float high)
{
#if defined(QN_PTX) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(high));
  return y;
#else
  return x > high ? high : x;
#endif
}

/* 1 / x, correctly rounded, for x from 1 to below 2^126, or NaN. There the seed and one step of Newton's give it, as
 * they do inside the division itself, without its test for other x and the call behind that. tests/maths_device.c tries
 * all. */
QN_FN float qn_float_reciprocal(float x)
{
#ifdef QN_PTX
  float seed;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(seed) : "f"(x));
  return __fmaf_rn(seed, __fmaf_rn(-x, seed, 1.0f), seed);
#else
  return 1.0f / x;
#endif
}

/* ---- 16-bit storage: to nearest even, subnormals kept, overflow to infinity ---- */
QN_FN float qn_bf16_float(qn_u16 h) { return qn_bits_float((qn_u32)h << 16); }

QN_FN qn_u16 qn_float_bf16(float x)
{
#if defined(QN_PTX) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  qn_u16 h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
#else
  qn_u32 bits = qn_float_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return (qn_u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#endif
}

/* Two of them, the first low: one instruction there, where each alone waits for the unit that does roots. */
QN_FN qn_u32 qn_floats_bf16(float low, float high)
{
#if defined(QN_PTX) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  qn_u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return qn_float_bf16(low) | (qn_u32)qn_float_bf16(high) << 16;
#endif
}

QN_FN float qn_f16_float(qn_u16 h)
{
#ifdef QN_PTX
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
#else
  qn_u32 sign = (qn_u32)(h & 0x8000u) << 16, rest = h & 0x7fffu;
  if (rest >= 0x7c00u) return qn_bits_float(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  if (rest >= 0x400u) return qn_bits_float(sign | (rest + 0x1c000u) << 13);
  return qn_bits_float(sign | qn_float_bits((float)rest * 0x1p-24f));
#endif
}

QN_FN qn_u16 qn_float_f16(float x)
{
#ifdef QN_PTX
  qn_u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
#else
  qn_u32 bits = qn_float_bits(x), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return 0x7fffu;
  if (rest >= 0x477ff000u) return (qn_u16)(sign | 0x7c00u); /* 65520 is half-way to the first that is too large */
  if (rest < 0x38800000u)                                   /* below 2^-14: one unit of 0.5 is f16's smallest step */
    return (qn_u16)(sign | (qn_float_bits(qn_bits_float(rest) + 0.5f) - 0x3f000000u));
  return (qn_u16)(sign | (rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13);
#endif
}

/* ---- 8-bit storage, OCP's E4M3: to nearest even, what is beyond 448 becomes 448, infinities too; NaN stays NaN ----
 */
QN_FN qn_u8 qn_float_f8e4m3(float x)
{
  qn_u32 bits = qn_float_bits(x), sign = bits >> 24 & 0x80u, rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return 0x7fu;
  if (rest >= 0x43e00000u) return (qn_u8)(sign | 0x7eu);
  if (rest < 0x3c800000u) /* below 2^-6: one unit of 2^14 is the smallest step, 2^-9 */
    return (qn_u8)(sign | (qn_float_bits(qn_bits_float(rest) + 16384.0f) - 0x46800000u));
  return (qn_u8)(sign | (rest - 0x3c000000u + 0x7ffffu + (rest >> 20 & 1u)) >> 20);
}

/* Two of them, the first in the low byte. */
QN_FN qn_u16 qn_floats_f8e4m3(float low, float high)
{
#if defined(QN_PTX) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  qn_u16 both;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
  return both;
#else
  return (qn_u16)(qn_float_f8e4m3(low) | qn_float_f8e4m3(high) << 8);
#endif
}

/* The low halves of two words in one, the first low. */
QN_FN qn_u32 qn_join_halves(qn_u32 low, qn_u32 high)
{
#ifdef QN_CUDA_DIALECT
  return __byte_perm(low, high, 0x5410);
#else
  return (low & 0xffffu) | high << 16;
#endif
}

QN_FN qn_u32 qn_join_high_halves(qn_u32 low, qn_u32 high)
{
#ifdef QN_CUDA_DIALECT
  return __byte_perm(low, high, 0x7632);
#else
  return low >> 16 | (high & 0xffff0000u);
#endif
}

/* Of both halves of two words the larger, without signs. */
QN_FN qn_u32 qn_larger_halves(qn_u32 a, qn_u32 b)
{
#if defined(QN_PTX) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  qn_u32 both;
  asm("max.u16x2 %0, %1, %2;" : "=r"(both) : "r"(a), "r"(b));
  return both;
#else
  const qn_u32 low_a = a & 0xffffu, low_b = b & 0xffffu, high_a = a & 0xffff0000u, high_b = b & 0xffff0000u;
  return (low_a < low_b ? low_b : low_a) | (high_a < high_b ? high_b : high_a);
#endif
}

#ifdef __cplusplus
/* ---- vector access: the address is aligned to the size. NVIDIA's GPUs fault where it is not; on the host the launch
 * fails then, by a function that the loader writes into the kernel's object. ---- */
#if !defined(QN_CUDA_DIALECT) && !defined(QN_METAL_DIALECT)
extern "C" {
__attribute__((weak)) void (*quern_misaligned)(const void *address, qn_u32 bytes);
}
QN_FN void qn_require_aligned(const void *at, qn_u32 bytes)
{
  if (reinterpret_cast<decltype(sizeof 0)>(at) % bytes) quern_misaligned(at, bytes);
}
#endif
struct alignas(8) qn_8bytes {
  qn_u32 word[2];
};
struct alignas(16) qn_16bytes {
  qn_u32 word[4];
};

QN_FN qn_8bytes qn_load8(const QN_FAR void *from)
{
#ifdef QN_METAL_DIALECT
  const device qn_8bytes *v = static_cast<const device qn_8bytes *>(from);
  return {{v->word[0], v->word[1]}};
#elif defined(QN_CUDA_DIALECT)
  uint2 v = *static_cast<const uint2 *>(from);
  return {{v.x, v.y}};
#else
  qn_8bytes v;
  qn_require_aligned(from, 8);
  __builtin_memcpy(&v, from, sizeof v);
  return v;
#endif
}

QN_FN void qn_store8(QN_FAR void *to, qn_8bytes v)
{
#ifdef QN_METAL_DIALECT
  device qn_8bytes *at = static_cast<device qn_8bytes *>(to);
  at->word[0] = v.word[0], at->word[1] = v.word[1];
#elif defined(QN_CUDA_DIALECT)
  *static_cast<uint2 *>(to) = make_uint2(v.word[0], v.word[1]);
#else
  qn_require_aligned(to, 8);
  __builtin_memcpy(to, &v, sizeof v);
#endif
}

QN_FN qn_16bytes qn_load16(const QN_FAR void *from)
{
#ifdef QN_METAL_DIALECT
  const device qn_16bytes *v = static_cast<const device qn_16bytes *>(from);
  return {{v->word[0], v->word[1], v->word[2], v->word[3]}};
#elif defined(QN_CUDA_DIALECT)
  uint4 v = *static_cast<const uint4 *>(from);
  return {{v.x, v.y, v.z, v.w}};
#else
  qn_16bytes v;
  qn_require_aligned(from, 16);
  __builtin_memcpy(&v, from, sizeof v);
  return v;
#endif
}

QN_FN void qn_store16(QN_FAR void *to, qn_16bytes v)
{
#ifdef QN_METAL_DIALECT
  device qn_16bytes *at = static_cast<device qn_16bytes *>(to);
  at->word[0] = v.word[0], at->word[1] = v.word[1], at->word[2] = v.word[2], at->word[3] = v.word[3];
#elif defined(QN_CUDA_DIALECT)
  *static_cast<uint4 *>(to) = make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]);
#else
  qn_require_aligned(to, 16);
  __builtin_memcpy(to, &v, sizeof v);
#endif
}

#ifndef QN_METAL_DIALECT /* it has no atomics of 64 bits that all of its GPUs know */
/* ---- counting: *where += count, exact in any order. The lanes of a warp that arrive together with one address make
 * one atomic operation; count is below 2^27, so that their sum fits. ---- */
QN_FN void qn_tally_add(qn_u64 *where, qn_u32 count)
{
#ifdef __HIPCC__
  atomicAdd(where, static_cast<qn_u64>(count));
#elif defined(QN_CUDA_DIALECT)
  unsigned peers = __match_any_sync(__activemask(), reinterpret_cast<qn_u64>(where));
  unsigned sum = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  sum = __reduce_add_sync(peers, count);
#else
  for (unsigned left = peers; left != 0; left &= left - 1) sum += __shfl_sync(peers, count, __ffs(left) - 1);
#endif
  if ((threadIdx.x & 31u) == static_cast<unsigned>(__ffs(peers) - 1) && sum != 0) atomicAdd(where, sum);
#else
  __atomic_fetch_add(where, count, __ATOMIC_RELAXED);
#endif
}
#endif

/* ---- the kernel and its place in the launch. The four words stand only in a kernel's own body; functions that it
 * calls get them as arguments. Block numbers have 64 bits, so that indices made of them do. ---- */
#ifdef QN_CUDA_DIALECT
#if __CUDACC_VER_MAJOR__ > 11 || (__CUDACC_VER_MAJOR__ == 11 && __CUDACC_VER_MINOR__ >= 7)
#define QN_GRID_CONSTANT __grid_constant__ /* parameters are read in place, with no copy where one is indexed */
#else
#define QN_GRID_CONSTANT
#endif
#define qn_block() (static_cast<qn_u64>(blockIdx.x))
#define qn_blocks() (static_cast<qn_u64>(gridDim.x))
#define qn_thread() (static_cast<qn_u32>(threadIdx.x))
#define qn_block_threads() (static_cast<qn_u32>(blockDim.x))
#ifdef QN_BLOCKS /* blocks of a multiprocessor, for which the compiler bounds registers */
#define QN_BOUNDS __launch_bounds__(QN_THREADS, QN_BLOCKS)
#else
#define QN_BOUNDS __launch_bounds__(QN_THREADS)
#endif
#define QN_KERNEL(name, type, arg) extern "C" __global__ void QN_BOUNDS name(const QN_GRID_CONSTANT type arg)
#else
struct qn_place {
  qn_u64 block, blocks;
  qn_u32 index, threads;
};
#define qn_block() (qn_here.block)
#define qn_blocks() (qn_here.blocks)
#define qn_thread() (qn_here.index)
#define qn_block_threads() (qn_here.threads)
#ifdef QN_METAL_DIALECT
/* The argument is copied out of constant memory, so that all functions take the thread's own. */
#define QN_KERNEL(name, type, arg)                                                                                     \
  static void name##_thread(thread const type &arg, const qn_place qn_here);                                           \
  [[kernel]] void name(constant type &given [[buffer(0)]], uint block [[threadgroup_position_in_grid]],                \
                       uint blocks [[threadgroups_per_grid]], uint index [[thread_position_in_threadgroup]],           \
                       uint threads [[threads_per_threadgroup]])                                                       \
  {                                                                                                                    \
    const type arg = given;                                                                                            \
    name##_thread(arg, qn_place{block, blocks, index, threads});                                                       \
  }                                                                                                                    \
  static void name##_thread(thread const type &arg, const qn_place qn_here)
#else
/* Exported: the loop over blocks [first, last) of `blocks`, and the argument's size, so that a launch whose struct has
 * drifted from the kernel's is refused. The body is one thread. */
#define QN_KERNEL(name, type, arg)                                                                                     \
  static void name##_thread(const type &arg, const qn_place qn_here);                                                  \
  extern "C" decltype(sizeof 0) name##_argument_bytes() { return sizeof(type); }                                       \
  extern "C" void name(const void *argument, qn_u64 first, qn_u64 last, qn_u64 blocks, qn_u32 threads)                 \
  {                                                                                                                    \
    for (qn_u64 block = first; block < last; block++)                                                                  \
      for (qn_u32 thread = 0; thread < threads; thread++)                                                              \
        name##_thread(*static_cast<const type *>(argument), qn_place{block, blocks, thread, threads});                 \
  }                                                                                                                    \
  static inline void name##_thread(const type &arg, const qn_place qn_here)
#endif
#endif
#endif
#endif
