/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.split.cu - the smaller operand of a product, x, as words of the class, laid out as gemm.hopper.cu's tiles take
 * it. Columns lie in the order in which a lane that reads four of w's at once multiplies them, in parts of 16:
 *
 * - bf16x3 and f16x3: columns 4 t to 4 t + 3 at 2 t, 2 t + 1, 2 t + 8 and 2 t + 9; of two parts the high words, then
 *   what those leave;
 * - bf16: the same, without what is left;
 * - tf32x3: column 4 t + c at 4 c + t; of two parts the high words, then what those leave.
 *
 * Columns beyond k are zero. A lane takes four columns; four lanes then turn their words around, so that each stores
 * 16 bytes of one kind. In f16x3 rows are scaled (scale.h): a simdgroup or a block, QN_GEMM_TEAM threads, takes a row
 * of x or w, finds its factor, and reads a row of x once more from the cache. */
#define QN_THREADS 256
#include "base/collective.h"
#include "base/matrix.h"
#include "op/gemm_norm/args.h"
#include "op/gemm_norm/scale.h"

constexpr int BF16X3 = 2, TF32X3 = 3, F16X3 = 5; /* as qn_gemm_precision numbers them; else bf16 */
constexpr int PRECISION = QN_GEMM_PRECISION;
constexpr bool PAIRS = PRECISION == BF16X3 || PRECISION == F16X3;
constexpr int PART_WORDS = PRECISION == TF32X3 ? 32 : PAIRS ? 16 : 8;

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

/* High words of the first two and of the others, low ones of these. */
QN_FN void split(const float (&v)[4], qn_u32 (&mine)[4])
{
  QN_UNROLL
  for (int k = 0; k < 2; k++)
    if (PRECISION == F16X3)
      qn_split_f16(v[2 * k], v[2 * k + 1], mine[k], mine[k + 2]);
    else
      qn_split_bf16(v[2 * k], v[2 * k + 1], mine[k], mine[k + 2]);
}

/* The lane's four columns, of a row if `in`, whose elements are multiplied by `scale`. All lanes call it. */
QN_FN void take_apart(const qn_gemm_split_args &a, qn_u64 row, qn_u64 quad, bool in, float scale)
{
  const qn_u32 t = static_cast<qn_u32>(quad) & 3u, part = static_cast<qn_u32>(quad / 4), second = part & 1u;
  const qn_i64 column = static_cast<qn_i64>(quad) * 4;
  qn_u32 *const pair = a.to + (row * static_cast<qn_u64>(a.parts) + (part & ~1u)) * PART_WORDS;
  qn_16bytes bits = {{0, 0, 0, 0}};
  qn_u32 mine[4], low[4];
  float v[4];
  if (in && column < a.columns) bits = qn_load16(a.x + row * static_cast<qn_u64>(a.columns) + column);
  QN_UNROLL
  for (int k = 0; k < 4; k++) v[k] = qn_bits_float(bits.word[k]) * (PRECISION == F16X3 ? scale : 1.0f);
  if (PRECISION == TF32X3) {
    QN_UNROLL
    for (int k = 0; k < 4; k++) qn_split_tf32(v[k], mine[k], low[k]);
    turn(low, t);
  } else {
    split(v, mine);
  }
  turn(mine, t);
  if (!in) return;
  if (PAIRS) {
    store(pair + second * 8 + (t >> 1) * 16 + (t & 1u) * 4, mine);
  } else if (PRECISION == TF32X3) {
    store(pair + second * 16 + t * 4, mine);
    store(pair + 32 + second * 16 + t * 4, low);
  } else if (t < 2) {
    store(pair + second * 8 + t * 4, mine);
  }
}

#if QN_GEMM_PRECISION == 5
enum { TEAM = QN_GEMM_TEAM, AHEAD = 4 };

/* The bits of the greatest magnitude among the lane's part of a row. */
QN_FN qn_u32 greatest(const float *row, qn_i64 first, qn_i64 columns)
{
  qn_u32 most = 0;
  for (qn_i64 at = first * 4; at < columns; at += AHEAD * TEAM * 4) {
    qn_16bytes v[AHEAD];
    QN_UNROLL
    for (int i = 0; i < AHEAD; i++) { /* the last four again, where there are no more */
      const qn_i64 next = at + i * TEAM * 4;
      v[i] = qn_load16(row + (next < columns ? next : columns - 4));
    }
    QN_UNROLL
    for (int i = 0; i < AHEAD; i++) QN_UNROLL
    for (int k = 0; k < 4; k++) most = qn_larger::of(most, v[i].word[k] & 0x7fffffffu);
  }
  return most;
}

QN_GROUP_KERNEL(gemm_split, qn_gemm_split_args, a)
{
  __shared__ qn_u32 scratch[32];
  qn_await_kernel();
  qn_begin_next();
  const qn_u64 thread = qn_block() * qn_block_threads() + qn_thread(), first = thread % TEAM;
  const qn_u64 rows = static_cast<qn_u64>(a.rows), all = rows + static_cast<qn_u64>(a.w_rows);
  const bool there = thread / TEAM < all;
  const qn_u64 of = there ? thread / TEAM : all - 1, quads = static_cast<qn_u64>(a.parts) * 4;
  const bool is_x = of < rows;
  const float *const from =
      is_x ? a.x + of * static_cast<qn_u64>(a.columns) : a.w + (of - rows) * static_cast<qn_u64>(a.columns);
  qn_u32 most = greatest(from, static_cast<qn_i64>(first), a.columns);
  most = TEAM > 32 ? qn_group_max(most, scratch) : qn_simd_reduce<qn_larger>(most, QN_LINE);
  const float factor = qn_gemm_row_factor(most);
  if (there && first == 0) (is_x ? a.x_factors : a.w_factors - rows)[of] = factor;
  if (!is_x) return;
  for (qn_u64 quad = first; quad - first < quads; quad += TEAM)
    take_apart(a, of, quad, quad < quads, qn_gemm_row_scale(factor));
}
#else
QN_GROUP_KERNEL(gemm_split, qn_gemm_split_args, a)
{
  qn_await_kernel();
  qn_begin_next();
  const qn_u64 i = qn_block() * qn_block_threads() + qn_thread(), quads = static_cast<qn_u64>(a.parts) * 4;
  const qn_u64 row = i / quads;
  take_apart(a, row, i - row * quads, row < static_cast<qn_u64>(a.rows), 1.0f);
}
#endif
