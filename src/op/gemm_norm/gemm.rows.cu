/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.rows.cu - y = epilogue(x w^T) for a few rows of x, on any GPU's ordinary cores: time goes with reading w, once.
 * A block has QN_GEMM_TILE_M rows of x by 8 of w. A simdgroup has four of those rows of w (rows.h); pairs of simdgroups
 * share out k.
 *
 * The unit says also QN_GEMM_SHORT, QN_GEMM_ALIGNED, QN_GEMM_RAW, QN_GEMM_FLAGS, QN_GEMM_COLUMNS (of a group: 4 or 8;
 * no norm: 0). */
#define QN_THREADS 256
#include "op/gemm_norm/finish.h"
#include "op/gemm_norm/rows.h"

enum {
  TILE_N = 8,
  ACROSS = TILE_N / EACH, /* simdgroups */
  DEEP = 8 / ACROSS,      /* of k */
  QUADS = TILE_N / 4
};

QN_GROUP_KERNEL(gemm_rows, qn_gemm_args, all)
{
  QN_SHARED(float, partial, DEEP *TILE_M *TILE_N);
  const slice_place here = my_slice(all, qn_block(), TILE_M, TILE_N);
  const qn_gemm_args &a = here.a;
  const qn_i64 size = QN_GEMM_SHORT ? 2 : 4, n = here.n0 + qn_simd() % ACROSS * EACH;
  const char *x = static_cast<const char *>(a.x) + here.m0 * a.row * size;
  const char *w = static_cast<const char *>(a.w) + n * a.row * size;
  float sum[SUMS] = {};
  for (qn_i64 step = qn_simd() / ACROSS; step * STEP < a.k; step += DEEP)
    multiply(sum, x, w, step, a, a.m - here.m0, a.n - n);
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
