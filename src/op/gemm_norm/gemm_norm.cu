/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_norm.cu - z = x w^T in f32 on any GPU's ordinary cores, and without a GPU on the emulator: the variant that
 * is always there. A block makes 64 by 64 of z, a thread 4 by 4, over tiles of 16 of k in shared memory; sums run along
 * k. Operands are rounded as the precision class says; the x3 classes are plain f32 here. The epilogue is
 * op/gemm_norm/gemm.epilogue.cu's. */
#include "base/collective.h"
#include "base/simd.h"
#include "op/gemm_norm/args.h"

enum { TILE = 64, DEPTH = 16, PITCH = TILE + 4, EACH = 4 };

/* As QN_GEMM_PRECISION numbers them: 1 tf32 (11 bits, halves away from zero), 4 bf16 (8 bits, to nearest even). */
QN_FN float rounded(float x)
{
  const qn_u32 bits = qn_float_bits(x);
  if (QN_GEMM_PRECISION == 4) return qn_bf16_float(qn_float_bf16(x));
  if (QN_GEMM_PRECISION == 1 && (bits & 0x7f800000u) != 0x7f800000u) return qn_bits_float((bits + 0x1000u) & ~0x1fffu);
  return x;
}

QN_FN float element(const void *from, qn_i64 at)
{
#if QN_GEMM_SHORT
  return qn_bf16_float(static_cast<const qn_u16 *>(from)[at]);
#else
  return rounded(static_cast<const float *>(from)[at]);
#endif
}

/* Rows [first, first + TILE) and DEPTH of k of a matrix, turned; zeros beyond its edges. */
QN_FN void load(float *to, const void *from, qn_i64 first, qn_i64 rows, qn_i64 k, qn_i64 depth, qn_u32 thread)
{
  const qn_i64 column = k + (thread & 15);
  QN_UNROLL
  for (int i = 0; i < EACH; i++) {
    const qn_u32 row = (thread >> 4) + 16 * static_cast<qn_u32>(i);
    const bool there = first + row < rows && column < depth;
    to[(thread & 15) * PITCH + row] = there ? element(from, (first + row) * depth + column) : 0.0f;
  }
}

QN_GROUP_KERNEL(gemm_norm, qn_gemm_args, g)
{
  QN_SHARED(float, x, DEPTH *PITCH);
  QN_SHARED(float, w, DEPTH *PITCH);
  qn_await_kernel();
  qn_begin_next();
  const qn_u64 down = static_cast<qn_u64>(g.m + TILE - 1) / TILE;
  const qn_i64 row = static_cast<qn_i64>(qn_block() % down) * TILE,
               column = static_cast<qn_i64>(qn_block() / down) * TILE;
  const qn_u32 thread = qn_thread(), i = EACH * (thread >> 4), j = EACH * (thread & 15);
  float sum[EACH][EACH] = {};
  for (qn_i64 k = 0; k < g.k; k += DEPTH) {
    load(x, g.x, row, g.m, k, g.k, thread);
    load(w, g.w, column, g.n, k, g.k, thread);
    qn_barrier();
    for (int d = 0; d < DEPTH; d++) QN_UNROLL
    for (qn_u32 r = 0; r < EACH; r++) QN_UNROLL
    for (qn_u32 c = 0; c < EACH; c++) sum[r][c] = qn_fma(x[d * PITCH + i + r], w[d * PITCH + j + c], sum[r][c]);
    qn_barrier();
  }
  QN_UNROLL
  for (qn_u32 r = 0; r < EACH; r++) QN_UNROLL
  for (qn_u32 c = 0; c < EACH; c++)
    if (row + i + r < g.m && column + j + c < g.n)
      static_cast<float *>(g.y)[(row + i + r) * g.pitch + column + j + c] = sum[r][c];
}
