/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.sliced.cu - y = epilogue(x w^T) for small tiles of y: where m is small, or the whole problem is, and time goes
 * with the way to memory. A block has one tile, QN_GEMM_TILE_M rows by QN_GEMM_TILE_N columns; its simdgroups share out
 * k, 16 columns at a time. Each reads what it multiplies straight from memory into registers, QN_GEMM_AHEAD steps
 * ahead, with no barrier before the sums of all simdgroups meet in shared memory.
 *
 * The unit says also QN_GEMM_PRECISION, QN_GEMM_FLAGS, QN_GEMM_COLUMNS (of a group: a power of two from 4 to 128 that
 * the tile is a multiple of; no norm: 0). Tensors are f32, their rows aligned to 16 bytes; k is a multiple of 4, and so
 * is n unless y is sums. */
#define QN_THREADS 256
enum {
  TILE_M = QN_GEMM_TILE_M,
  TILE_N = QN_GEMM_TILE_N,
  AHEAD = QN_GEMM_AHEAD,
  BANDS = TILE_M / 16, /* of 16 rows of x */
  STRIPS = TILE_N / 8, /* of 8 rows of w */
  SIMDS = QN_THREADS / 32,
  PITCH = TILE_N + 8, /* of a row of sums: a simdgroup's stores of two values lie in different banks */
  QUADS = TILE_N / 4  /* of columns of the tile */
};
#include "op/gemm_norm/products.h"

/* The block's tile, and the lane's rows in it. */
struct place {
  const float *x, *w;            /* row `group` of the tile, column 4 t */
  qn_i64 x_rows, w_rows, k, row; /* that there are from that row on; columns; elements from a row to the next */
};

QN_FN qn_16bytes read(const float *from, bool there)
{
  const qn_16bytes zero = {{0, 0, 0, 0}};
  return there ? qn_load16(from) : zero;
}

QN_FN void load(operands &to, const place &p, qn_i64 step)
{
  const qn_i64 column = 16 * step;
  const bool in = column + 4 * static_cast<qn_i64>(qn_lane() & 3u) < p.k;
  QN_GEMM_EACH
  for (int s = 0; s < STRIPS; s++) to.w[s] = read(p.w + 8 * s * p.row + column, in && 8 * s < p.w_rows);
  QN_GEMM_EACH
  for (int b = 0; b < 2 * BANDS; b++) to.x[b / 2][b % 2] = read(p.x + 8 * b * p.row + column, in && 8 * b < p.x_rows);
}

QN_FN void multiply_all(float (&all)[BANDS][STRIPS][4], const place &p)
{
  float d[BANDS][STRIPS][4] = {};
  const qn_i64 first = qn_simd(), steps = (p.k + 15) / 16;
  operands next[AHEAD];
  QN_GEMM_EACH
  for (int i = 0; i < AHEAD; i++) load(next[i], p, first + i * SIMDS);
  for (qn_i64 step = first; step < steps; step += AHEAD * SIMDS) {
    QN_GEMM_EACH
    for (int i = 0; i < AHEAD; i++) {
      multiply(d, next[i]);
      if (step + AHEAD * SIMDS < steps) load(next[i], p, step + (i + AHEAD) * SIMDS);
    }
    if (SPLITS && step / (AHEAD * SIMDS) % (FOLD / AHEAD) == 0) fold(all, d);
  }
  fold(all, d);
}

QN_GROUP_KERNEL(gemm_sliced, qn_gemm_args, all)
{
  float *partial = static_cast<float *>(qn_shared_dynamic()); /* SIMDS * TILE_M rows of PITCH */
  const slice_place here = my_slice(all, qn_block(), TILE_M, TILE_N);
  const qn_gemm_args &a = here.a;
  const qn_i64 m0 = here.m0, n0 = here.n0;
  const qn_u32 group = qn_lane() >> 2, t = qn_lane() & 3u;
  const place p = {static_cast<const float *>(a.x) + (m0 + group) * a.row + 4 * t,
                   static_cast<const float *>(a.w) + (n0 + group) * a.row + 4 * t,
                   a.m - m0 - group,
                   a.n - n0 - group,
                   a.k,
                   a.row};
  float d[BANDS][STRIPS][4] = {};
  multiply_all(d, p);
  QN_GEMM_EACH
  for (int b = 0; b < BANDS; b++) QN_GEMM_EACH
  for (int s = 0; s < STRIPS; s++)
    for (int h = 0; h < 2; h++) {
      float *to = partial + (qn_simd() * TILE_M + 16 * b + 8 * h + group) * PITCH + 8 * s + 2 * t;
      qn_store8(to, {{qn_float_bits(d[b][s][2 * h]), qn_float_bits(d[b][s][2 * h + 1])}});
    }
  qn_barrier();
  QN_GEMM_EACH
  for (qn_u32 i = qn_thread(); i < TILE_M * QUADS; i += QN_THREADS) {
    float v[4] = {0, 0, 0, 0};
    QN_GEMM_EACH
    for (int s = 0; s < SIMDS; s++) {
      const qn_16bytes part = qn_load16(partial + (s * TILE_M + i / QUADS) * PITCH + 4 * (i % QUADS));
      QN_GEMM_EACH
      for (int k = 0; k < 4; k++) v[k] += qn_bits_float(part.word[k]);
    }
    finish(v, a, m0 + i / QUADS, n0 + 4 * (i % QUADS));
  }
}
