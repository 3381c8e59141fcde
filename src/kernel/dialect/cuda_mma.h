/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_mma.h - small matrix products of a warp, and copies to shared memory that overlap with work: CUDA's words of
 * pipelines and __float_to_tf32, and PTX's mma.sync by name. On the processor, and on GPUs before sm_80, the same
 * layouts by exchange among lanes, and copies at once.
 *
 * mma_m16n8k8_tf32(d, a, b) is d = a b + d. With group = lane / 4 and t = lane % 4 each lane holds
 *   a, 16 by 8   a[0] (group, t), a[1] (group + 8, t), a[2] (group, t + 4), a[3] (group + 8, t + 4)
 *   b, 8 by 8    b[0] (t, group), b[1] (t + 4, group)
 *   d, 16 by 8   d[0] (group, 2t), d[1] (group, 2t + 1), d[2] and d[3] in row group + 8
 * The processor adds one product after the other in float. A tensor core adds several at once, in an order that no
 * document says: bits agree only where every partial sum is exact. */
#ifndef QN_DIALECT_CUDA_MMA_H
#define QN_DIALECT_CUDA_MMA_H
#include "kernel/dialect/cuda_sync.h"
#if defined(QN_CUDA_DIALECT) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define QN_MMA_PTX 1
#endif

namespace QN_WORDS {
/* The nearest float whose last 13 bits are zero, halves away from zero. */
QN_WORD float __float_to_tf32(float x)
{
#ifdef QN_MMA_PTX
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return qn_bits_float(bits);
#else
  const unsigned bits = qn_float_bits(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return x;
  return qn_bits_float((bits + 0x1000u) & ~0x1fffu);
#endif
}

struct qn_mma_operands {
  float a[4], b[2];
};
QN_WORD void mma_m16n8k8_tf32(float (&d)[4], const float (&a)[4], const float (&b)[2], int line = QN_LINE)
{
#ifdef QN_MMA_PTX
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
               "{%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(qn_float_bits(a[0])), "r"(qn_float_bits(a[1])), "r"(qn_float_bits(a[2])), "r"(qn_float_bits(a[3])),
                 "r"(qn_float_bits(b[0])), "r"(qn_float_bits(b[1])));
  (void)line;
#else
  const qn_meeting<qn_mma_operands> all({{a[0], a[1], a[2], a[3]}, {b[0], b[1]}}, 0xffffffffu, line);
  const unsigned row = all.lane & ~3u, column = 8u * (all.lane & 3u);
  for (unsigned k = 0; k < 8; k++) {
    const qn_mma_operands left = all.from(row + k % 4), first = all.from(column + k % 4),
                          second = all.from(column + 4 + k % 4);
    const unsigned half = k / 4;
    const float b0 = first.b[half], b1 = second.b[half];
    d[0] = d[0] + left.a[2 * half] * b0;
    d[1] = d[1] + left.a[2 * half] * b1;
    d[2] = d[2] + left.a[2 * half + 1] * b0;
    d[3] = d[3] + left.a[2 * half + 1] * b1;
  }
#endif
}

/* 4, 8 or 16 bytes, both aligned to as many, of which the last `zfill` are not read and become zero. */
QN_WORD void __pipeline_memcpy_async(void *to_shared, const void *from, unsigned bytes, unsigned zfill = 0)
{
#ifdef QN_MMA_PTX
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(to_shared)), read = bytes - zfill;
  if (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(read) : "memory");
  else if (bytes == 8)
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(read) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(read) : "memory");
#else
  for (unsigned k = 0; k < bytes; k++) /* of any type */
    static_cast<unsigned char *>(to_shared)[k] = k + zfill < bytes ? static_cast<const unsigned char *>(from)[k] : 0;
#endif
}
/* What was begun so far is a batch. */
QN_WORD void __pipeline_commit()
{
#ifdef QN_MMA_PTX
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/* Waits for all of the thread's batches but the latest n, which is a constant; a barrier shows them to others. */
#ifdef QN_MMA_PTX
#define __pipeline_wait_prior(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")
#else
#define __pipeline_wait_prior(n) static_cast<void>(n)
#endif
} // namespace QN_WORDS
#endif
