/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.rows.cu - y = epilogue(x w^T) for a few rows of x, on any GPU's ordinary cores: time goes with reading w, once.
 * A block has QN_GEMM_TILE_M rows of x by 8 of w. A simdgroup has four of those rows of w: its lanes read
 * QN_GEMM_PACK neighbouring columns of k each (1: four or eight that are 32 apart, of rows that are not aligned), and
 * multiply them in f32, which serves every class. Pairs of simdgroups share out k. What lanes have of a sum is
 * added by halves: with each exchange a lane keeps half of the sums, until it has one.
 *
 * The unit says also QN_GEMM_SHORT, QN_GEMM_RAW, QN_GEMM_FLAGS, QN_GEMM_COLUMNS (of a group: 4 or 8; no
 * norm: 0). */
#define QN_THREADS 256
#include "op/gemm_norm/finish.h"

enum {
  TILE_M = QN_GEMM_TILE_M, /* 1, 2, 4, 8 */
  TILE_N = 8,
  EACH = 4,                      /* rows of w of a simdgroup */
  ACROSS = TILE_N / EACH,        /* simdgroups */
  DEEP = 8 / ACROSS,             /* of k */
  WORDS = QN_GEMM_SHORT ? 8 : 4, /* columns of k of a lane in a step */
  STEP = 32 * WORDS,
  SUMS = TILE_M * EACH,
  QUADS = TILE_N / 4
};
constexpr bool ALIGNED = QN_GEMM_PACK != 1;

struct columns {
  float v[WORDS];
};

QN_FN float element(const char *row, qn_i64 column)
{
  if (QN_GEMM_SHORT) return qn_bf16_float(reinterpret_cast<const qn_u16 *>(row)[column]);
  return reinterpret_cast<const float *>(row)[column];
}

/* A lane's columns of a step, zeros beyond k. */
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
    QN_GEMM_EACH
    for (int i = 0; i < WORDS; i++) {
      const qn_i64 column = STEP * step + 32 * i + qn_lane();
      to.v[i] = there && column < k ? element(row, column) : 0.0f;
    }
  }
  return to;
}

/* Over the lanes: sum i of all goes to the lanes whose upper bits are i. */
QN_FN float gather(float (&sum)[SUMS])
{
  int left = SUMS;
  QN_GEMM_EACH
  for (qn_u32 apart = 16; apart; apart /= 2) {
    const bool upper = qn_lane() & apart;
    if (left > 1) {
      left /= 2;
      QN_GEMM_EACH
      for (int i = 0; i < SUMS / 2; i++)
        if (i < left) {
          const float other = qn_shuffle_xor(upper ? sum[i] : sum[i + left], apart);
          sum[i] = (upper ? sum[i + left] : sum[i]) + other;
        }
    } else {
      sum[0] += qn_shuffle_xor(sum[0], apart);
    }
  }
  return sum[0];
}

QN_GROUP_KERNEL(gemm_rows, qn_gemm_args, all)
{
  QN_SHARED(float, partial, DEEP *TILE_M *TILE_N);
  const slice_place here = my_slice(all, qn_block(), TILE_M, TILE_N);
  const qn_gemm_args &a = here.a;
  const qn_i64 size = QN_GEMM_SHORT ? 2 : 4, n = here.n0 + qn_simd() % ACROSS * EACH;
  const char *x = static_cast<const char *>(a.x) + here.m0 * a.row * size;
  const char *w = static_cast<const char *>(a.w) + n * a.row * size;
  float sum[SUMS] = {};
  for (qn_i64 step = qn_simd() / ACROSS; step * STEP < a.k; step += DEEP) {
    columns of_w[EACH];
    QN_GEMM_EACH
    for (int j = 0; j < EACH; j++) of_w[j] = read(w + j * a.row * size, step, a.k, n + j < a.n);
    QN_GEMM_EACH
    for (int i = 0; i < TILE_M; i++) {
      const columns of_x = read(x + i * a.row * size, step, a.k, here.m0 + i < a.m);
      QN_GEMM_EACH
      for (int j = 0; j < EACH; j++) QN_GEMM_EACH
      for (int k = 0; k < WORDS; k++) sum[i * EACH + j] = qn_fma(of_x.v[k], of_w[j].v[k], sum[i * EACH + j]);
    }
  }
  const float mine = gather(sum);
  if (qn_lane() % (32 / SUMS) == 0) {
    const qn_u32 i = qn_lane() / (32 / SUMS);
    partial[(qn_simd() / ACROSS * TILE_M + i / EACH) * TILE_N + qn_simd() % ACROSS * EACH + i % EACH] = mine;
  }
  qn_barrier();
  if (qn_simd() * 32 >= TILE_M * QUADS) return;
  const qn_u32 i = qn_thread() % (TILE_M * QUADS); /* lanes beyond the tile do as others, and store nothing */
  float v[4] = {0, 0, 0, 0};
  QN_GEMM_EACH
  for (int s = 0; s < DEEP; s++) {
    const qn_16bytes part = qn_load16(partial + (s * TILE_M + i / QUADS) * TILE_N + 4 * (i % QUADS));
    QN_GEMM_EACH
    for (int k = 0; k < 4; k++) v[k] += qn_bits_float(part.word[k]);
  }
  finish(v, a, qn_thread() < TILE_M * QUADS ? here.m0 + i / QUADS : a.m, here.n0 + 4 * (i % QUADS));
}
