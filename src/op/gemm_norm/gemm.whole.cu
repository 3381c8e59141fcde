/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.whole.cu - y = epilogue(x w^T) of small products in one kernel, on any GPU's ordinary cores: a block has
 * QN_GEMM_TILE_M rows of x by all of w, and so whole rows of y, with any epilogue. Its simdgroups share
 * out the rows of w, QN_GEMM_STRIP at a time, and k by QN_GEMM_DEEP (rows.h). Sums meet in shared memory, as many
 * slices as k has there; then each thread does its place of the epilogue (epilogue.h).
 *
 * The unit says also QN_GEMM_SHORT, QN_GEMM_ALIGNED, QN_GEMM_FLAGS, and what epilogue.h asks for. */
#define QN_THREADS 256
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000 /* where the compiler would spill a few registers for a second */
#define QN_BLOCKS 1
#else
#define QN_BLOCKS 2
#endif
#include "op/gemm_norm/epilogue.h"
#include "op/gemm_norm/rows.h"

enum { DEEP = QN_GEMM_DEEP, ACROSS = QN_THREADS / 32 / DEEP /* simdgroups */ };

QN_GROUP_KERNEL(gemm_whole, qn_gemm_args, a)
{
  QN_SHARED(float, scratch, SCRATCH);
  float *z = static_cast<float *>(qn_shared_dynamic()); /* DEEP times TILE_M rows */
  qn_await_kernel();
  const qn_i64 size = QN_GEMM_SHORT ? 2 : 4, m0 = static_cast<qn_i64>(qn_block()) * TILE_M, left = a.m - m0;
  const qn_i64 pitch = (a.n + EACH - 1) / EACH * EACH;
  const char *x = static_cast<const char *>(a.x) + m0 * a.row * size, *w = static_cast<const char *>(a.w);
  const qn_u32 slice = qn_simd() / ACROSS, mine = qn_lane() / (32 / SUMS);
  for (qn_i64 n = qn_simd() % ACROSS * EACH; n < a.n; n += ACROSS * EACH) {
    float sum[SUMS] = {};
    for (qn_i64 step = slice; step * STEP < a.k; step += DEEP)
      multiply(sum, x, w + n * a.row * size, step, a, left, a.n - n);
    const float all = gather(sum);
    if (qn_lane() % (32 / SUMS) == 0) z[(slice * TILE_M + mine / EACH) * pitch + n + mine % EACH] = all;
  }
  qn_barrier();
  qn_gemm_z_args rows = {a, z, pitch, TILE_M * pitch, DEEP};
  rows.of.y = static_cast<char *>(a.y) + m0 * a.n * size;
  rows.of.m = left < TILE_M ? left : TILE_M;
  const qn_i64 parts = qn_gemm_norm_of(FLAGS) == QN_GEMM_NO_NORM ? (a.n + PACK - 1) / PACK : a.n / a.columns * TEAM;
  for (qn_i64 first = 0; first < rows.of.m * parts; first += QN_THREADS)
    finish_place(rows, static_cast<qn_u64>(first) + qn_thread(), scratch);
}
