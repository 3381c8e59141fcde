/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.mma.cu - y = epilogue(x w^T) in tiles of 128 by 128 by small products (mma.sync), for GPUs without the
 * instructions of gemm.hopper.cu and as its check on the host. Copies that overlap with work bring chunks of 32 columns
 * of k to shared memory, QN_GEMM_STAGES of them; eight simdgroups have 64 rows by 32 columns of the tile each. f32
 * becomes the class's words on the way from shared memory to the products. Then the tile goes through shared memory, so
 * that a simdgroup has 128 columns of a row and with them whole groups.
 *
 * The unit says also QN_GEMM_PRECISION, QN_GEMM_FLAGS, QN_GEMM_COLUMNS (of a group: a power of two from 4 to 128; no
 * norm: 0). Tensors are f32, their rows aligned to 16 bytes; k is a multiple of 4, and so is n
 * unless y is sums. */
#define QN_THREADS 256
enum {
  TILE = 128, /* rows of x, and of w */
  CHUNK = 32, /* columns of k: 128 bytes of a row */
  STAGES = QN_GEMM_STAGES,
  BANDS = 4,
  STRIPS = 4,
  ROWS = 2 * TILE, /* of a stage: x's, then w's */
  PITCH = TILE + 8,
  QUADS = TILE / 4
};
#include "op/gemm_norm/products.h"

/* Parts of 16 bytes of a row of a stage: those of odd rows lie turned by half, so that lanes which read four parts of
 * two rows meet in no bank. */
QN_FN float *part_at(float *stage, qn_u32 row, qn_u32 part)
{
  return stage + row * CHUNK + 4 * (part ^ (row & 1u) << 2);
}

/* A thread brings one part of every 32nd row. */
QN_FN void bring(float *stage, const qn_gemm_args &a, qn_i64 m0, qn_i64 n0, qn_i64 chunk)
{
  const qn_u32 thread = 32 * qn_simd() + qn_lane(), part = thread % 8;
  const qn_i64 column = CHUNK * chunk + 4 * part;
  for (qn_u32 row = thread / 8; row < ROWS; row += QN_THREADS / 8) {
    const bool of_x = row < TILE;
    const qn_i64 from = of_x ? m0 + row : n0 + row - TILE;
    const float *matrix = static_cast<const float *>(of_x ? a.x : a.w);
    if (column < a.k && from < (of_x ? a.m : a.n))
      qn_copy_begin(part_at(stage, row, part), matrix + from * a.row + column);
    else
      qn_store16(part_at(stage, row, part), {{0, 0, 0, 0}});
  }
}

QN_FN void multiply_chunk(float (&d)[BANDS][STRIPS][4], float *stage)
{
  const qn_u32 x = qn_simd() / 4 * 64 + (qn_lane() >> 2), w = TILE + qn_simd() % 4 * 32 + (qn_lane() >> 2);
  QN_GEMM_EACH
  for (qn_u32 step = 0; step < CHUNK / 16; step++) {
    const qn_u32 part = 4 * step + (qn_lane() & 3u);
    operands now;
    QN_GEMM_EACH
    for (int s = 0; s < STRIPS; s++) now.w[s] = qn_load16(part_at(stage, w + 8 * s, part));
    QN_GEMM_EACH
    for (int b = 0; b < 2 * BANDS; b++) now.x[b / 2][b % 2] = qn_load16(part_at(stage, x + 8 * b, part));
    multiply(d, now);
  }
}

QN_FN void multiply_all(float (&all)[BANDS][STRIPS][4], float *shared, const qn_gemm_args &a, qn_i64 m0, qn_i64 n0)
{
  const qn_i64 chunks = (a.k + CHUNK - 1) / CHUNK;
  float d[BANDS][STRIPS][4] = {};
  for (int s = 0; s < STAGES - 1; s++) {
    if (s < chunks) bring(shared + s * ROWS * CHUNK, a, m0, n0, s);
    qn_copy_close();
  }
  for (qn_i64 chunk = 0; chunk < chunks; chunk++) {
    const qn_i64 next = chunk + STAGES - 1;
    qn_copy_wait<STAGES - 2>();
    qn_barrier();
    if (next < chunks) bring(shared + next % STAGES * (ROWS * CHUNK), a, m0, n0, next);
    qn_copy_close();
    multiply_chunk(d, shared + chunk % STAGES * (ROWS * CHUNK));
    if (SPLITS && chunk % (FOLD * 16 / CHUNK) == 0) fold(all, d);
  }
  fold(all, d);
  qn_copy_wait<0>();
  qn_barrier();
}

QN_GROUP_KERNEL(gemm_mma, qn_gemm_args, all)
{
  float *shared = static_cast<float *>(qn_shared_dynamic());
  const slice_place here = my_slice(all, qn_block(), TILE, TILE);
  const qn_gemm_args &a = here.a;
  const qn_i64 m0 = here.m0, n0 = here.n0;
  const qn_u32 row = qn_simd() / 4 * 64 + (qn_lane() >> 2), column = qn_simd() % 4 * 32 + 2 * (qn_lane() & 3u);
  float d[BANDS][STRIPS][4] = {};
  multiply_all(d, shared, a, m0, n0);
  QN_GEMM_EACH
  for (int b = 0; b < BANDS; b++) QN_GEMM_EACH
  for (int s = 0; s < STRIPS; s++)
    for (int h = 0; h < 2; h++)
      qn_store8(shared + (row + 16 * b + 8 * h) * PITCH + column + 8 * s,
                {{qn_float_bits(d[b][s][2 * h]), qn_float_bits(d[b][s][2 * h + 1])}});
  qn_barrier();
  for (qn_u32 i = qn_thread(); i < TILE * QUADS; i += QN_THREADS) {
    const qn_16bytes from = qn_load16(shared + i / QUADS * PITCH + 4 * (i % QUADS));
    float v[4];
    QN_GEMM_EACH
    for (int k = 0; k < 4; k++) v[k] = qn_bits_float(from.word[k]);
    finish(v, a, m0 + i / QUADS, n0 + 4 * (i % QUADS));
  }
}
