/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.split.cu - the smaller operand of a product, x, as words of the class, laid out as gemm.hopper.cu's tiles take
 * it. Columns lie in the order in which a lane that reads four of w's at once multiplies them, in parts of 16:
 *
 * - bf16x3: columns 4 t to 4 t + 3 at 2 t, 2 t + 1, 2 t + 8 and 2 t + 9; of two parts the high words, then what those
 *   leave;
 * - bf16: the same, without what is left;
 * - tf32x3: column 4 t + c at 4 c + t; of two parts the high words, then what those leave.
 *
 * Columns beyond k are zero. A lane takes four columns; four lanes then turn their words around, so that each stores
 * 16 bytes of one kind. */
#define QN_THREADS 256
#include "base/matrix.h"
#include "op/gemm_norm/args.h"

constexpr int BF16X3 = 2, TF32X3 = 3; /* as qn_gemm_precision numbers them; else bf16 */
constexpr int PRECISION = QN_GEMM_PRECISION, PART_WORDS = PRECISION == TF32X3 ? 32 : PRECISION == BF16X3 ? 16 : 8;

/* Of four lanes: word k of lane t for word t of lane k. */
QN_FN void turn(qn_u32 (&mine)[4], qn_u32 t)
{
  QN_UNROLL
  for (qn_u32 apart = 1; apart <= 2; apart *= 2) QN_UNROLL
  for (qn_u32 k = 0; k < 4; k++)
    if (!(k & apart)) {
      const bool upper = t & apart;
      const qn_u32 other = qn_shuffle_xor(upper ? mine[k] : mine[k | apart], apart);
      mine[k] = upper ? other : mine[k];
      mine[k | apart] = upper ? mine[k | apart] : other;
    }
}

QN_FN void store(qn_u32 *to, const qn_u32 (&v)[4]) { qn_store16(to, {{v[0], v[1], v[2], v[3]}}); }

QN_GROUP_KERNEL(gemm_split, qn_gemm_split_args, a)
{
  qn_await_kernel();
  qn_begin_next();
  const qn_u64 i = qn_block() * qn_block_threads() + qn_thread(), quads = static_cast<qn_u64>(a.parts) * 4;
  const qn_u64 row = i / quads;
  const qn_u32 t = qn_lane() & 3u, part = static_cast<qn_u32>(i % quads / 4), second = part & 1u;
  const qn_i64 column = 16 * static_cast<qn_i64>(part) + 4 * t;
  const bool in = row < static_cast<qn_u64>(a.rows);
  qn_u32 *const pair = a.to + (row * static_cast<qn_u64>(a.parts) + (part & ~1u)) * PART_WORDS;
  qn_16bytes v = {{0, 0, 0, 0}};
  qn_u32 mine[4], low[4];
  if (in && column < a.columns) v = qn_load16(a.x + row * static_cast<qn_u64>(a.columns) + column);
  if (PRECISION == TF32X3) {
    QN_UNROLL
    for (int k = 0; k < 4; k++) qn_split_tf32(qn_bits_float(v.word[k]), mine[k], low[k]);
    turn(low, t);
  } else { /* high of the first two, of the others, low of these */
    qn_split_bf16(qn_bits_float(v.word[0]), qn_bits_float(v.word[1]), mine[0], mine[2]);
    qn_split_bf16(qn_bits_float(v.word[2]), qn_bits_float(v.word[3]), mine[1], mine[3]);
  }
  turn(mine, t);
  if (!in) return;
  if (PRECISION == BF16X3) {
    store(pair + second * 8 + (t >> 1) * 16 + (t & 1u) * 4, mine);
  } else if (PRECISION == TF32X3) {
    store(pair + second * 16 + t * 4, mine);
    store(pair + 32 + second * 16 + t * 4, low);
  } else if (t < 2) {
    store(pair + second * 8 + t * 4, mine);
  }
}
