/* SPDX-License-Identifier: Apache-2.0 */
/* rows.h - products of QN_GEMM_TILE_M rows of x with QN_GEMM_STRIP rows of w by a simdgroup, on any GPU's ordinary
 * cores: its lanes read neighbouring columns of k, four or eight each (QN_GEMM_ALIGNED 0: as many that are 32 apart, of
 * rows that are not aligned), and multiply them in f32, which serves every class. What lanes have of a sum is added by
 * halves: with each exchange a lane keeps half of the sums, until it has one. */
#ifndef QN_OP_GEMM_NORM_ROWS_H
#define QN_OP_GEMM_NORM_ROWS_H
#include "base/collective.h"
#include "op/gemm_norm/args.h"

enum {
  TILE_M = QN_GEMM_TILE_M,       /* 1, 2, 4, 8 */
  EACH = QN_GEMM_STRIP,          /* rows of w of a simdgroup */
  WORDS = QN_GEMM_SHORT ? 8 : 4, /* columns of k of a lane in a step */
  STEP = 32 * WORDS,
  SUMS = TILE_M * EACH
};
constexpr bool ALIGNED = QN_GEMM_ALIGNED;

struct columns {
  float v[WORDS];
};

/* A lane's columns of a step, zeros beyond k. Where rows are not aligned, a lane beyond k reads the last column:
 * compilers let a load behind a condition wait for the one before it. */
QN_FN columns read(const char *row, qn_i64 step, qn_i64 k, bool there)
{
  columns to;
  if (ALIGNED) {
    const qn_i64 column = STEP * step + WORDS * qn_lane();
    qn_16bytes v = {{0, 0, 0, 0}};
    if (there && column < k) v = qn_load16(row + column * (QN_GEMM_SHORT ? 2 : 4));
    QN_GEMM_EACH
    for (int i = 0; i < WORDS; i++)
      to.v[i] = !QN_GEMM_SHORT ? qn_bits_float(v.word[i % 4])
                : i % 2        ? qn_bits_float(v.word[i / 2] & 0xffff0000u)
                               : qn_bits_float(v.word[i / 2] << 16);
  } else {
    const qn_i64 left = there ? k - STEP * step : 0;
    const char *const from = row + STEP * step * (QN_GEMM_SHORT ? 2 : 4);
    const int last = left < STEP ? static_cast<int>(left) - 1 : STEP - 1, lane = static_cast<int>(qn_lane());
    qn_u32 bits[WORDS];
    QN_GEMM_EACH
    for (int i = 0; i < WORDS; i++) {
      const int column = 32 * i + lane, at = column < last ? column : last;
      bits[i] = at < 0          ? 0
                : QN_GEMM_SHORT ? reinterpret_cast<const qn_u16 *>(from)[at]
                                : reinterpret_cast<const qn_u32 *>(from)[at];
    }
    QN_GEMM_EACH
    for (int i = 0; i < WORDS; i++)
      to.v[i] = 32 * i + lane <= last ? qn_bits_float(QN_GEMM_SHORT ? bits[i] << 16 : bits[i]) : 0.0f;
  }
  return to;
}

/* Adds a step's products to the sums of rows of x, of which `rows` are there, and of w, of which `of_w` are. */
QN_FN void multiply(float (&sum)[SUMS], const char *x, const char *w, qn_i64 step, const qn_gemm_args &a, qn_i64 rows,
                    qn_i64 of_w)
{
  const qn_i64 pitch = a.row * (QN_GEMM_SHORT ? 2 : 4);
  columns from_w[EACH];
  QN_GEMM_EACH
  for (int j = 0; j < EACH; j++) from_w[j] = read(w + j * pitch, step, a.k, j < of_w);
  QN_GEMM_EACH
  for (int i = 0; i < TILE_M; i++) {
    const columns from_x = read(x + i * pitch, step, a.k, i < rows);
    QN_GEMM_EACH
    for (int j = 0; j < EACH; j++) QN_GEMM_EACH
    for (int k = 0; k < WORDS; k++) sum[i * EACH + j] = qn_fma(from_x.v[k], from_w[j].v[k], sum[i * EACH + j]);
  }
}

/* Over the lanes: sum i of all goes to the lanes whose upper bits are i. A lane still has LEFT sums. Which half it
 * gives away is chosen by bits: of a choice between two elements compilers make an index, and keep the array in memory.
 */
template <int LEFT = SUMS, qn_u32 APART = 16> QN_FN float gather(float (&sum)[SUMS])
{
  if constexpr (LEFT > 1) {
    const qn_u32 upper = qn_lane() & APART ? ~0u : 0;
    QN_GEMM_EACH
    for (int i = 0; i < LEFT / 2; i++) {
      const qn_u32 low = qn_float_bits(sum[i]), high = qn_float_bits(sum[i + LEFT / 2]);
      const float other = qn_shuffle_xor(qn_bits_float((low & upper) | (high & ~upper)), APART);
      sum[i] = qn_bits_float((high & upper) | (low & ~upper)) + other;
    }
  } else {
    sum[0] += qn_shuffle_xor(sum[0], APART);
  }
  if constexpr (APART > 1)
    return gather<LEFT / 2 + LEFT % 2, APART / 2>(sum);
  else
    return sum[0];
}
#endif
