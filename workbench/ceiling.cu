/* SPDX-License-Identifier: Apache-2.0 */
/* ceiling.cu - the plainest streams and arithmetic loops, as ceilings for kernels. One unit is compiled for each mix
 * (READS, UPDATES, WRITES streams; BYTES of each a thread, all loaded before any is stored) or rate (RATE_...).
 * Matrix units have no twin on the processor, so their PTX stands here and not among the words of base/kernel.h. */
#include "base/simd.h"

#ifdef BYTES
struct stream_args {
  unsigned char *stream[8]; /* reads, then updates, then writes */
  qn_u64 pieces;            /* of each */
};

#if BYTES == 16
typedef qn_16bytes piece;
QN_FN piece load(const unsigned char *from) { return qn_load16(from); }
QN_FN void store(unsigned char *to, piece x) { qn_store16(to, x); }
#else
typedef qn_8bytes piece;
QN_FN piece load(const unsigned char *from) { return qn_load8(from); }
QN_FN void store(unsigned char *to, piece x) { qn_store8(to, x); }
#endif

QN_FN void mix_in(piece &sum, const piece &x)
{
  QN_UNROLL
  for (int k = 0; k < BYTES / 4; k++) sum.word[k] ^= x.word[k];
}

QN_KERNEL(ceiling_stream, stream_args, a)
{
  const qn_u64 at = qn_block() * qn_block_threads() + qn_thread();
  piece x[READS + UPDATES + 1] = {}, sum = {};
  if (at >= a.pieces) return;
  QN_UNROLL
  for (int k = 0; k < READS + UPDATES; k++) x[k] = load(a.stream[k] + at * BYTES);
  QN_UNROLL
  for (int k = 0; k < READS; k++) mix_in(sum, x[k]);
  QN_UNROLL
  for (int k = READS; k < READS + UPDATES; k++) {
    mix_in(x[k], sum);
    store(a.stream[k] + at * BYTES, x[k]);
  }
  QN_UNROLL
  for (int k = READS + UPDATES; k < READS + UPDATES + WRITES; k++) store(a.stream[k] + at * BYTES, sum);
  if (UPDATES + WRITES == 0 && sum.word[0] == 0x5eedu && sum.word[1] == 0x5eedu) store(a.stream[0], sum);
}
#endif

#ifdef RATE
struct rate_args {
  float *out; /* written only where a sum has a value that it never has */
  qn_u64 rounds;
};
enum { CHAINS = 8 };

#ifdef RATE_FMA_F32
QN_KERNEL(ceiling_rate, rate_args, a)
{
  float chain[CHAINS], sum = 0;
  QN_UNROLL
  for (int k = 0; k < CHAINS; k++) chain[k] = (float)(qn_thread() + k);
  for (qn_u64 round = 0; round < a.rounds; round++) {
    QN_UNROLL
    for (int k = 0; k < CHAINS; k++) chain[k] = qn_fma(chain[k], 0.99999f, 0.00001f);
  }
  QN_UNROLL
  for (int k = 0; k < CHAINS; k++) sum += chain[k];
  if (sum == -1.0f) *a.out = sum;
}
#else
/* One tile product of a warp: 16 x 8 sums of float, over 16 products of bf16 or 8 of tf32. */
QN_FN void multiply(float (&d)[4], const qn_u32 (&a)[4], const qn_u32 (&b)[2])
{
#ifdef RATE_MMA_BF16
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

QN_KERNEL(ceiling_rate, rate_args, a)
{
  const qn_u32 seed = 0x3c003c00u + qn_thread(), left[4] = {seed, seed + 1, seed + 2, seed + 3},
               right[2] = {seed + 4, seed + 5};
  float tile[CHAINS][4] = {}, sum = 0;
  for (qn_u64 round = 0; round < a.rounds; round++) {
    QN_UNROLL
    for (int k = 0; k < CHAINS; k++) multiply(tile[k], left, right);
  }
  QN_UNROLL
  for (int k = 0; k < CHAINS; k++) sum += tile[k][0] + tile[k][1] + tile[k][2] + tile[k][3];
  if (sum == -1.0f) *a.out = sum;
}
#endif
#endif
