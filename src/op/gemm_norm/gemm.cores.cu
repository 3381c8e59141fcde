/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.cores.cu - y = epilogue(x w^T) in f32 on any GPU's ordinary cores: products and sums of f32, nothing rounded
 * before. A block has one tile of y, QN_GEMM_TILE_M rows by QN_GEMM_TILE_N columns; copies that overlap with work bring
 * chunks of QN_GEMM_CHUNK columns of k to shared memory, QN_GEMM_STAGES of them. The block's eight simdgroups stand
 * QN_GEMM_DOWN by QN_GEMM_ACROSS on the tile; what is left over of the eight shares out k, and their sums are added in
 * shared memory, where in the end a lane has four columns of a row and its neighbours the group.
 *
 * The unit says also QN_GEMM_FLAGS, QN_GEMM_COLUMNS (of a group: a power of two from 4 to 128 that the tile is a
 * multiple of; no norm: 0). Tensors are f32, their rows aligned to 16 bytes; k is a multiple of 4, and so is n
 * unless y is sums. */
#define QN_THREADS 256
#include "op/gemm_norm/finish.h"

enum {
  TILE_M = QN_GEMM_TILE_M,
  TILE_N = QN_GEMM_TILE_N,
  CHUNK = QN_GEMM_CHUNK,
  STAGES = QN_GEMM_STAGES,
  SLICES = QN_THREADS / 32 / (QN_GEMM_DOWN * QN_GEMM_ACROSS), /* of k */
  SPAN_M = TILE_M / QN_GEMM_DOWN,                             /* a simdgroup's */
  SPAN_N = TILE_N / QN_GEMM_ACROSS,
  ROWS = SPAN_M / 4, /* a lane's, 4 apart */
  STRIPS = SPAN_N / 8,
  PARTS = CHUNK / 4,                 /* of 16 bytes, of a row of a stage */
  PITCH = CHUNK + 4,                 /* an odd number of parts, so that eight rows lie in different banks */
  STAGE = (TILE_M + TILE_N) * PITCH, /* x's rows, then w's */
  SUMS_PITCH = TILE_N + 8,           /* 4 rows of 8 columns lie in different banks */
  QUADS = TILE_N / 4
};
static_assert(PARTS % SLICES == 0 && QN_THREADS % PARTS == 0 && TILE_M % (QN_THREADS / PARTS) == 0 &&
                  TILE_N % (QN_THREADS / PARTS) == 0,
              "each simdgroup has as much of a chunk to multiply, each thread as much to bring");

/* Where a thread stands: 4 by 8 lanes, so laid out that neighbours read the same row of w, and each second pair the
 * same of x: two half simdgroups are served at once each. */
struct place {
  qn_u32 row, column, slice; /* the lane's first, in the tile */
};

QN_FN place my_place()
{
  const qn_u32 lane = qn_lane(), simd = qn_simd(), on_tile = simd / SLICES;
  place p;
  p.row = on_tile / QN_GEMM_ACROSS * SPAN_M + (lane >> 4) * 2 + (lane & 1u);
  p.column = on_tile % QN_GEMM_ACROSS * SPAN_N + (lane >> 1 & 7u);
  p.slice = simd % SLICES;
  return p;
}

/* What a thread brings: a part of every RISEth row, first of x, then of w. Rows are as far apart in both. */
constexpr int RISE = QN_THREADS / PARTS;

struct source {
  const float *x, *w;    /* its first row's, in this chunk */
  qn_i64 left;           /* columns of k from there on */
  qn_u32 x_rows, w_rows; /* of these rows, and those behind, lie within */
  float *to;
};

QN_FN source my_source(float *shared, const qn_gemm_args &a, qn_i64 m0, qn_i64 n0)
{
  const qn_u32 thread = 32 * qn_simd() + qn_lane(), part = thread % PARTS, row = thread / PARTS;
  const qn_i64 x_rows = a.m - m0 - row, w_rows = a.n - n0 - row;
  source s;
  s.x = static_cast<const float *>(a.x) + (m0 + row) * a.row + 4 * part;
  s.w = static_cast<const float *>(a.w) + (n0 + row) * a.row + 4 * part;
  s.left = a.k - 4 * part;
  s.x_rows = static_cast<qn_u32>(x_rows < 0 ? 0 : x_rows < TILE_M ? x_rows : TILE_M);
  s.w_rows = static_cast<qn_u32>(w_rows < 0 ? 0 : w_rows < TILE_N ? w_rows : TILE_N);
  s.to = shared + row * PITCH + 4 * part;
  return s;
}

template <int rows> QN_FN void bring_rows(float *to, const float *from, qn_i64 row, qn_u32 there)
{
  QN_GEMM_EACH
  for (qn_u32 i = 0; i < rows; i += RISE, from += RISE * row)
    if (i < there)
      qn_copy_begin(to + i * PITCH, from);
    else
      qn_store16(to + i * PITCH, {{0, 0, 0, 0}});
}

QN_FN void bring(source &s, qn_u32 stage, qn_i64 row)
{
  const bool in = s.left > 0;
  bring_rows<TILE_M>(s.to + stage * STAGE, s.x, row, in ? s.x_rows : 0);
  bring_rows<TILE_N>(s.to + stage * STAGE + TILE_M * PITCH, s.w, row, in ? s.w_rows : 0);
  s.x += CHUNK, s.w += CHUNK, s.left -= CHUNK;
}

QN_FN void multiply_chunk(float (&sum)[ROWS][STRIPS], const float *stage, const place &p)
{
  const float *x = stage + p.row * PITCH, *w = stage + (TILE_M + p.column) * PITCH;
  QN_GEMM_EACH
  for (qn_u32 part = 0; part < PARTS / SLICES; part++) {
    const qn_u32 at = 4 * (part * SLICES + p.slice);
    qn_16bytes of_x[ROWS];
    QN_GEMM_EACH
    for (int r = 0; r < ROWS; r++) of_x[r] = qn_load16(x + 4 * r * PITCH + at);
    QN_GEMM_EACH
    for (int s = 0; s < STRIPS; s++) {
      const qn_16bytes of_w = qn_load16(w + 8 * s * PITCH + at);
      QN_GEMM_EACH
      for (int k = 0; k < 4; k++) QN_GEMM_EACH
      for (int r = 0; r < ROWS; r++)
        sum[r][s] = qn_fma(qn_bits_float(of_x[r].word[k]), qn_bits_float(of_w.word[k]), sum[r][s]);
    }
  }
}

QN_FN void multiply_all(float (&sum)[ROWS][STRIPS], float *shared, const qn_gemm_args &a, qn_i64 m0, qn_i64 n0)
{
  const qn_i64 chunks = (a.k + CHUNK - 1) / CHUNK;
  const place p = my_place();
  source from = my_source(shared, a, m0, n0);
  qn_u32 now = 0, free = STAGES - 1;
  for (qn_u32 s = 0; s < STAGES - 1; s++) {
    if (s < chunks) bring(from, s, a.row);
    qn_copy_close();
  }
  for (qn_i64 chunk = 0; chunk < chunks; chunk++) {
    qn_copy_wait<STAGES - 2>();
    qn_barrier();
    if (chunk + STAGES - 1 < chunks) bring(from, free, a.row);
    qn_copy_close();
    multiply_chunk(sum, shared + now * STAGE, p);
    now = now + 1 == STAGES ? 0 : now + 1;
    free = free + 1 == STAGES ? 0 : free + 1;
  }
  qn_copy_wait<0>();
  qn_barrier();
}

QN_GROUP_KERNEL(gemm_cores, qn_gemm_args, all)
{
  float *shared = static_cast<float *>(qn_shared_dynamic()); /* the stages; then SLICES tiles of sums */
  const slice_place here = my_slice(all, qn_block(), TILE_M, TILE_N);
  const qn_gemm_args &a = here.a;
  const qn_i64 m0 = here.m0, n0 = here.n0;
  const place p = my_place();
  float sum[ROWS][STRIPS] = {};
  multiply_all(sum, shared, a, m0, n0);
  QN_GEMM_EACH
  for (int r = 0; r < ROWS; r++) QN_GEMM_EACH
  for (int s = 0; s < STRIPS; s++)
    shared[(p.slice * TILE_M + p.row + 4 * r) * SUMS_PITCH + p.column + 8 * s] = sum[r][s];
  qn_barrier();
  for (qn_u32 i = qn_thread(); i < TILE_M * QUADS; i += QN_THREADS) {
    float v[4] = {0, 0, 0, 0};
    QN_GEMM_EACH
    for (int s = 0; s < SLICES; s++) {
      const qn_16bytes part = qn_load16(shared + (s * TILE_M + i / QUADS) * SUMS_PITCH + 4 * (i % QUADS));
      QN_GEMM_EACH
      for (int k = 0; k < 4; k++) v[k] += qn_bits_float(part.word[k]);
    }
    finish(v, a, m0 + i / QUADS, n0 + 4 * (i % QUADS));
  }
}
