/* SPDX-License-Identifier: Apache-2.0 */
/* warpgroup.h - the two layers of network.h by the products of compute capability 9.0 that four simdgroups take
 * together (wgmma, base/hopper.h): a row of each one's tile is 16 rows of such a product, the weights lie in shared
 * memory, and what a lane holds is what it holds there. Weights are matrices of 32 outputs by 32 bytes of inputs, in
 * blocks of eight outputs by 16 bytes, which is how network.h's words follow each other. */
#ifndef QN_OP_LOPT_WARPGROUP_H
#define QN_OP_LOPT_WARPGROUP_H
#include "base/hopper.h"
#include "op/lopt/network.h"

constexpr qn_u32 MATRIX = 256, MATRICES = 6; /* words of each */

/* Word `word` of the 48 in the matrices: of split classes high words and low ones are apart. */
QN_FN qn_u32 matrix_place(qn_u32 word)
{
  if (!SHORT) return word;
  return (word / 16 * 2 + word / 2 % 2) * 8 + word % 16 / 4 * 2 + word % 2;
}

/* To the nearest of tf32, of two the even one; of max(x, 0). */
QN_FN qn_u32 to_tf32(float x)
{
  qn_u32 bits;
  asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

QN_FN qn_u32 relu_tf32(float x)
{
  qn_u32 bits;
  asm("cvt.rn.relu.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

QN_FN void write_matrices(qn_u32 *to, const qn_lopt_head *head, qn_u32 thread, qn_u32 threads)
{
  for (qn_u32 k = thread; k < FRAGMENTS * 32; k += threads) to[matrix_place(k / 32) * 32 + k % 32] = head->fragments[k];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* A matrix as the products are told of it: 128 bytes to the next block of inputs, 256 to that of outputs. */
QN_FN qn_u64 matrix_at(qn_u32 address)
{
  return static_cast<qn_u64>((address & 0x3ffffu) >> 4) | 8ull << 16 | 16ull << 32;
}

#define QN_LOPT_WGMMA(shape, add, last)                                                                                \
  asm volatile("wgmma.mma_async.sync.aligned." shape                                                                   \
               " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, " add ", 1, 1" last  \
               ";"                                                                                                     \
               : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),             \
                 "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),             \
                 "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3])                                            \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

/* d += a b, or d = a b. */
template <bool add> QN_FN void add_product(float (&d)[4][4], const qn_u32 (&a)[4], qn_u64 b)
{
  if (PRECISION == BF16X3 && add)
    QN_LOPT_WGMMA("m64n32k16.f32.bf16.bf16", "1", ", 0");
  else if (PRECISION == BF16X3)
    QN_LOPT_WGMMA("m64n32k16.f32.bf16.bf16", "0", ", 0");
  else if (SHORT && add)
    QN_LOPT_WGMMA("m64n32k16.f32.f16.f16", "1", ", 0");
  else if (SHORT)
    QN_LOPT_WGMMA("m64n32k16.f32.f16.f16", "0", ", 0");
  else if (add)
    QN_LOPT_WGMMA("m64n32k8.f32.tf32.tf32", "1", "");
  else
    QN_LOPT_WGMMA("m64n32k8.f32.tf32.tf32", "0", "");
}

/* Sums are not looked at before the products into them are done. */
QN_FN void hold(float (&d)[4][4])
{
  QN_UNROLL
  for (int n = 0; n < 4; n++) QN_UNROLL
  for (int k = 0; k < 4; k++) asm volatile("" : "+f"(d[n][k])::"memory");
}

/* d += 16 inputs of a lane's layer, whose matrices begin at b, or d is what these give. */
template <bool add> QN_FN void add_step(float (&d)[4][4], const operand &o, qn_u64 b)
{
  const qn_u64 other = b + MATRIX * 4 / 16;
  if (SPLITS) {
    add_product<add>(d, o.low, b);
    add_product<true>(d, o.high, other);
    add_product<true>(d, o.high, b);
  } else {
    add_product<add>(d, o.high, b);
    if (!SHORT) add_product<true>(d, o.low, other);
  }
}

/* Of tf32 the two steps of eight stand for high and low. */
QN_FN operand inputs_as(const float (&above)[4], const float (&below)[4])
{
  if (SHORT) return operand_of(above, below);
  operand o;
  QN_UNROLL
  for (int k = 0; k < 2; k++) {
    o.high[2 * k] = to_tf32(above[k]), o.high[2 * k + 1] = to_tf32(below[k]);
    o.low[2 * k] = to_tf32(above[2 + k]), o.low[2 * k + 1] = to_tf32(below[2 + k]);
  }
  return o;
}

QN_FN operand sums_as(const float (&first)[4], const float (&second)[4])
{
  if (SHORT) return operand_of_sums(first, second);
  operand o;
  QN_UNROLL
  for (int k = 0; k < 2; k++) {
    o.high[2 * k] = relu_tf32(first[k]), o.high[2 * k + 1] = relu_tf32(first[2 + k]);
    o.low[2 * k] = relu_tf32(second[k]), o.low[2 * k + 1] = relu_tf32(second[2 + k]);
  }
  return o;
}
#endif
