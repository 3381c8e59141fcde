/* SPDX-License-Identifier: Apache-2.0 */
/* finish.h - the epilogue where a lane has four columns of a row of y, and its neighbours theirs: of the kernels whose
 * sums meet in shared memory. Groups are 4 to 128 columns, a power of two; the unit says QN_GEMM_FLAGS,
 * QN_GEMM_COLUMNS (of a group; no norm: 0) and QN_GEMM_LOOSE (rows of y or vectors are not aligned for fours). */
#ifndef QN_OP_GEMM_NORM_FINISH_H
#define QN_OP_GEMM_NORM_FINISH_H
#include "base/dtype.h"
#include "base/matrix.h"
#include "op/gemm_norm/args.h"
#include "op/gemm_norm/gemm_norm.math.h"

/* The first word of a kernel. The tile of block `of`, and its slice of k: the args as if the product were that slice
 * alone. Tiles of m are the fastest, slices the slowest. */
struct slice_place {
  qn_gemm_args a;
  qn_i64 m0, n0;
};

QN_FN slice_place my_slice(qn_gemm_args a, qn_u64 of, qn_i64 tile_m, qn_i64 tile_n)
{
  qn_await_kernel();
  qn_begin_next();
  const qn_i64 m_tiles = (a.m + tile_m - 1) / tile_m, tiles = m_tiles * ((a.n + tile_n - 1) / tile_n);
  const qn_i64 block = static_cast<qn_i64>(of), s = block / tiles, tile = block % tiles;
  const qn_i64 first = s * a.slice_k, left = a.k - first, size = QN_GEMM_SHORT ? 2 : 4;
  a.x = static_cast<const char *>(a.x) + first * size;
  a.w = static_cast<const char *>(a.w) + first * size;
  a.k = left < a.slice_k ? left : a.slice_k;
  if (QN_GEMM_RAW) a.y = static_cast<float *>(a.y) + s * a.slice;
  return slice_place{a, tile % m_tiles * tile_m, tile / m_tiles * tile_n};
}

constexpr int COLUMNS = QN_GEMM_COLUMNS;
constexpr qn_u32 FLAGS = QN_GEMM_FLAGS;

/* Over the lanes that have a group's columns, four each: neighbours. */
QN_FN float sum_group(float sum)
{
  QN_GEMM_EACH
  for (int apart = 1; apart < COLUMNS / 4; apart *= 2) sum += qn_shuffle_xor(sum, static_cast<qn_u32>(apart));
  return sum;
}

struct four {
  float v[4];
};

/* Of a vector of the epilogue with so many elements, if there is one. No load is behind a condition: compilers let such
 * a load wait for the one before it. */
QN_FN four fetch(const float *from, qn_u32 flag, qn_i64 n, qn_i64 there)
{
  qn_16bytes bits = {{0, 0, 0, 0}};
  if (FLAGS & flag) {
    if (!QN_GEMM_LOOSE) bits = qn_load16(from + n);
    QN_GEMM_EACH
    for (int i = 0; QN_GEMM_LOOSE && i < 4; i++) bits.word[i] = qn_float_bits(from[n + i < there ? n + i : there - 1]);
  }
  return {{qn_bits_float(bits.word[0]), qn_bits_float(bits.word[1]), qn_bits_float(bits.word[2]),
           qn_bits_float(bits.word[3])}};
}

/* Four columns from n on, in a row of y, or of none: all lanes come here. */
QN_FN void finish(float (&v)[4], const qn_gemm_args &a, qn_i64 m, qn_i64 n)
{
  const bool in = m < a.m && n < a.n;
  const qn_i64 at = n < a.n ? n : 0;
  const four bias = fetch(a.bias, QN_GEMM_BIAS, at, a.n), bias2 = fetch(a.bias2, QN_GEMM_BIAS2, at, a.n),
             gamma = fetch(a.gamma, QN_GEMM_GAMMA, at, a.n), beta = fetch(a.beta, QN_GEMM_BETA, at, a.n);
  QN_GEMM_EACH
  for (int i = 0; i < 4; i++) v[i] = qn_gemm_element(FLAGS, v[i], bias.v[i], bias2.v[i], a.lo, a.hi);
  if (COLUMNS != 0) {
    float mean;
    const auto squares = [&] {
      float sum = 0;
      QN_GEMM_EACH
      for (int i = 0; i < 4; i++) sum += (v[i] - mean) * (v[i] - mean);
      return sum_group(sum);
    };
    const float scale = qn_gemm_passes(
        FLAGS, COLUMNS, a.eps, mean, [&] { return sum_group(v[0] + v[1] + (v[2] + v[3])); }, squares);
    QN_GEMM_EACH
    for (int i = 0; i < 4; i++) v[i] = qn_gemm_normed(FLAGS, v[i], mean, scale, gamma.v[i], beta.v[i]);
  }
  if (!in) return;
  if (QN_GEMM_LOOSE) {
    QN_GEMM_EACH
    for (int i = 0; i < 4; i++)
      if (n + i < a.n) qn_gemm_store(a.y, m * a.pitch + n + i, v[i]);
  } else if (QN_GEMM_SHORT && !QN_GEMM_RAW) {
    qn_8bytes to;
    qn_u32 rest[2];
    qn_split_bf16(v[0], v[1], to.word[0], rest[0]);
    qn_split_bf16(v[2], v[3], to.word[1], rest[1]);
    qn_store8(static_cast<qn_u16 *>(a.y) + m * a.pitch + n, to);
  } else {
    qn_store16(static_cast<float *>(a.y) + m * a.pitch + n,
               {{qn_float_bits(v[0]), qn_float_bits(v[1]), qn_float_bits(v[2]), qn_float_bits(v[3])}});
  }
}
#endif
