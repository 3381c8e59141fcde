/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.h - what every body in CUDA's dialect finds: on the processor the qualifiers and vector types (12 bytes for a
 * float3, as on a GPU), and on both dynamic shared memory. Functions are cuda_math.h's, __half and __nv_bfloat16
 * cuda_half.h's, words of a block and a warp cuda_sync.h's, atomics cuda_atomic.h's. */
#ifndef QN_DIALECT_CUDA_H
#define QN_DIALECT_CUDA_H
#include "kernel/dialect/metal_types.h"

#ifdef QN_CUDA_DIALECT
#define QN_SHARED_TAIL(name, align, ...) extern __shared__ align __VA_ARGS__ name[]
#define QN_SHARED_TAIL_OUTSIDE(name, align, ...) extern __shared__ align __VA_ARGS__ name[]
#ifndef assert
#define assert(condition) ((condition) ? static_cast<void>(0) : __trap())
#endif
#else
#include "base/group.h"
extern "C" const qn_group_words *quern_group;
#define __device__
#define __host__
#define __global__
#define __forceinline__ __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __grid_constant__
#define __constant__ static
#define __shared__ static thread_local /* a group runs on one thread of the system */
#define QN_SHARED_TAIL(name, align, ...) __VA_ARGS__ *const name = static_cast<__VA_ARGS__ *>(quern_group->shared())
#define QN_SHARED_TAIL_OUTSIDE(name, align, ...) static const qn_shared_tail<__VA_ARGS__> name
#define assert(condition) ((condition) ? static_cast<void>(0) : __builtin_trap())

namespace QN_WORDS {
template <class T> struct qn_shared_tail {
  constexpr qn_shared_tail() {}
  operator T *() const { return static_cast<T *>(quern_group->shared()); }
  template <class U> explicit operator U *() const { return static_cast<U *>(quern_group->shared()); }
};

#define QN_CUDA_VECTORS(name, type, align2, align4)                                                                    \
  struct name##1 { type x; };                                                                                          \
  struct alignas(align2) name##2 { type x, y; };                                                                       \
  struct name##3 { type x, y, z; };                                                                                    \
  struct alignas(align4) name##4 { type x, y, z, w; };                                                                 \
  QN_WORD name##1 make_##name##1(type x) { return {x}; }                                                               \
  QN_WORD name##2 make_##name##2(type x, type y) { return {x, y}; }                                                    \
  QN_WORD name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                                         \
  QN_WORD name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
QN_CUDA_VECTORS(char, signed char, 2, 4)
QN_CUDA_VECTORS(uchar, unsigned char, 2, 4)
QN_CUDA_VECTORS(short, short, 4, 8)
QN_CUDA_VECTORS(ushort, unsigned short, 4, 8)
QN_CUDA_VECTORS(int, int, 8, 16)
QN_CUDA_VECTORS(uint, unsigned, 8, 16)
QN_CUDA_VECTORS(long, long, 16, 16)
QN_CUDA_VECTORS(ulong, unsigned long, 16, 16)
QN_CUDA_VECTORS(longlong, long long, 16, 16)
QN_CUDA_VECTORS(ulonglong, unsigned long long, 16, 16)
QN_CUDA_VECTORS(float, float, 8, 16)
QN_CUDA_VECTORS(double, double, 16, 16)
#undef QN_CUDA_VECTORS

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
static constexpr int warpSize = 32;

QN_WORD int __float_as_int(float x) { return static_cast<int>(qn_float_bits(x)); }
QN_WORD unsigned __float_as_uint(float x) { return qn_float_bits(x); }
QN_WORD float __int_as_float(int x) { return qn_bits_float(static_cast<qn_u32>(x)); }
QN_WORD float __uint_as_float(unsigned x) { return qn_bits_float(x); }
QN_WORD long long __double_as_longlong(double x) { return static_cast<long long>(qn_double_bits(x)); }
QN_WORD double __longlong_as_double(long long x) { return qn_bits_double(static_cast<unsigned long long>(x)); }
template <class T> QN_WORD T __ldg(const T *at) { return *at; }
template <class T> QN_WORD T __ldcg(const T *at) { return *at; }
template <class T> QN_WORD T __ldcs(const T *at) { return *at; }
template <class T> QN_WORD T __ldca(const T *at) { return *at; }
template <class T> QN_WORD void __stcs(T *at, T x) { *at = x; }
template <class T> QN_WORD void __stcg(T *at, T x) { *at = x; }
template <class T> QN_WORD void __stwt(T *at, T x) { *at = x; }

/* ---- whole numbers ---- */
QN_WORD int __popc(unsigned x) { return __builtin_popcount(x); }
QN_WORD int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
QN_WORD int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
QN_WORD int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
QN_WORD int __ffs(int x) { return __builtin_ffs(x); }
QN_WORD int __ffsll(long long x) { return __builtin_ffsll(x); }
QN_WORD unsigned __brev(unsigned x)
{
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
QN_WORD unsigned long long __brevll(unsigned long long x)
{
  return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 |
         __brev(static_cast<unsigned>(x >> 32));
}
QN_WORD unsigned __byte_perm(unsigned low, unsigned high, unsigned select)
{
  const unsigned long long all = static_cast<unsigned long long>(high) << 32 | low;
  unsigned y = 0;
  for (int k = 0; k < 4; k++) y |= static_cast<unsigned>(all >> (8 * (select >> (4 * k) & 7u)) & 0xffu) << (8 * k);
  return y;
}
QN_WORD int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
QN_WORD unsigned __umulhi(unsigned a, unsigned b)
{
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
QN_WORD unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
QN_WORD long long __mul64hi(long long a, long long b)
{
  return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}
QN_WORD unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by)
{
  return static_cast<unsigned>(((static_cast<unsigned long long>(high) << 32 | low) << (by & 31u)) >> 32);
}
QN_WORD unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by)
{
  return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> (by & 31u));
}
/* Ticks of the processor's own counter. */
QN_WORD long long clock64()
{
#if defined(__x86_64__)
  return static_cast<long long>(__builtin_ia32_rdtsc());
#elif defined(__clang__)
  return static_cast<long long>(__builtin_readcyclecounter());
#elif defined(__aarch64__)
  long long ticks;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  return 0;
#endif
}
QN_WORD int clock() { return static_cast<int>(clock64()); }
QN_WORD void __nanosleep(unsigned) {}
} // namespace QN_WORDS
#endif
#endif
