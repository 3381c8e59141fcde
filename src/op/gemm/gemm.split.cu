/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.split.cu - the smaller operand of a split product, x, in two bf16 words an element, as gemm.hopper.cu's tiles
 * take it: 32 columns of a row become 128 bytes, their high words and then what those leave. Columns lie in the order
 * in which a lane that reads four of w's at once multiplies them: of 16 columns, 4 t to 4 t + 3 stand at 2 t, 2 t + 1,
 * 2 t
 * + 8 and 2 t + 9. Columns beyond k are zero. A lane takes four
 * columns; four lanes then turn their words around, so that each stores 16 bytes of one kind. */
#define QN_THREADS 256
#include "base/matrix.h"
#include "op/gemm/split.h"

QN_GROUP_KERNEL(gemm_split, qn_gemm_split_args, a)
{
  const qn_u64 i = qn_block() * qn_block_threads() + qn_thread(), quads = static_cast<qn_u64>(a.parts) * 4;
  const qn_u64 row = i / quads;
  const qn_u32 t = qn_lane() & 3u, part = static_cast<qn_u32>(i % quads / 4);
  const qn_i64 column = 16 * static_cast<qn_i64>(part) + 4 * t;
  qn_16bytes v = {{0, 0, 0, 0}};
  qn_u32 mine[4]; /* high of the first two, of the others, low of these */
  if (row < static_cast<qn_u64>(a.rows) && column < a.columns)
    v = qn_load16(a.x + row * static_cast<qn_u64>(a.columns) + column);
  qn_split_bf16(qn_bits_float(v.word[0]), qn_bits_float(v.word[1]), mine[0], mine[2]);
  qn_split_bf16(qn_bits_float(v.word[2]), qn_bits_float(v.word[3]), mine[1], mine[3]);
  QN_UNROLL
  for (qn_u32 apart = 1; apart <= 2; apart *= 2) /* word k of lane t for word t of lane k */
    QN_UNROLL
  for (qn_u32 k = 0; k < 4; k++)
    if (!(k & apart)) {
      const bool upper = t & apart;
      const qn_u32 other = qn_shuffle_xor(upper ? mine[k] : mine[k | apart], apart);
      mine[k] = upper ? other : mine[k];
      mine[k | apart] = upper ? mine[k | apart] : other;
    }
  if (row < static_cast<qn_u64>(a.rows))
    qn_store16(a.to + (row * static_cast<qn_u64>(a.parts) + (part & ~1u)) * 16 + (part & 1u) * 8 + (t >> 1) * 16 +
                   (t & 1u) * 4,
               {{mine[0], mine[1], mine[2], mine[3]}});
}
