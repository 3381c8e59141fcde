/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.align.cu - x and w in rows of 16-byte parts, zeros behind column k: for kernels that read 16 bytes at once, of
 * tensors whose rows are not so aligned. A thread writes a part. */
#include "base/collective.h"
#include "op/gemm_norm/args.h"

#if QN_GEMM_SHORT
typedef qn_u16 word;
#else
typedef qn_u32 word;
#endif
enum { EACH = 16 / sizeof(word) };

QN_KERNEL(gemm_align, qn_gemm_align_args, a)
{
  qn_begin_next();
  const qn_u64 at = qn_block() * qn_block_threads() + qn_thread(), parts = static_cast<qn_u64>(a.row) / EACH;
  const bool few = at < 1ull << 32 && parts < 1ull << 32; /* a division of 64 bits takes longer than the rest */
  const qn_u64 of = few ? static_cast<qn_u32>(at) / static_cast<qn_u32>(parts) : at / parts;
  const qn_i64 row = static_cast<qn_i64>(of), column = static_cast<qn_i64>(at - of * parts) * EACH;
  if (row >= a.m + a.n) return;
  const word *from =
      row < a.m ? static_cast<const word *>(a.x) + row * a.k : static_cast<const word *>(a.w) + (row - a.m) * a.k;
  word to[EACH];
  QN_UNROLL
  for (int i = 0; i < EACH; i++) to[i] = column + i < a.k ? from[column + i] : static_cast<word>(0);
  qn_16bytes v;
  QN_UNROLL
  for (int i = 0; i < 4; i++)
    v.word[i] =
        EACH == 4 ? to[i] : static_cast<qn_u32>(to[2 * i % EACH]) | static_cast<qn_u32>(to[(2 * i + 1) % EACH]) << 16;
  qn_store16(static_cast<word *>(a.to) + row * a.row + column, v);
}
