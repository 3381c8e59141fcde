/* SPDX-License-Identifier: Apache-2.0 */
/* products.h - what the kernels of small products (mma.sync and its twin) share: what a lane reads, four columns of a
 * row at once, as words of a product in the unit's class; the products of bands of x with strips of w; and the epilogue
 * of four columns of a row of y, whose neighbours are with the lane's neighbours. That the four columns are not the
 * four that a product has at that lane does not matter, as x and w are read alike. The source says BANDS and STRIPS
 * before.
 */
#ifndef QN_OP_GEMM_PRODUCTS_H
#define QN_OP_GEMM_PRODUCTS_H
#include "base/matrix.h"
#include "op/gemm/args.h"
#include "op/gemm/epilogue.math.h"
#include "op/gemm/split.h"

/* A loop over registers must be laid out on a GPU; on the host that would only take the compiler seconds. */
#ifdef QN_CUDA_DIALECT
#define QN_GEMM_EACH QN_UNROLL
#else
#define QN_GEMM_EACH
#endif

constexpr int TF32 = 1, BF16X3 = 2, TF32X3 = 3, BF16 = 4; /* as qn_gemm_precision numbers them */
constexpr int PRECISION = QN_GEMM_PRECISION, COLUMNS = QN_GEMM_COLUMNS;
constexpr qn_u32 FLAGS = QN_GEMM_FLAGS;
constexpr bool OF_BF16 = PRECISION == BF16X3 || PRECISION == BF16;
constexpr bool SPLITS = PRECISION == BF16X3 || PRECISION == TF32X3;

/* What a lane multiplies in one step: four columns of rows `group` and `group` + 8 of each band, and of row `group` of
 * each strip. */
struct operands {
  qn_16bytes x[BANDS][2], w[STRIPS];
};

/* Four columns as words of a product: of 16-bit ones, one product of 16 columns; of 32-bit ones, two of 8. */
struct words {
  qn_u32 high[4], low[4];
};

QN_FN words words_of(const qn_16bytes &v)
{
  words to = {{0, 0, 0, 0}, {0, 0, 0, 0}};
  if (OF_BF16) {
    qn_split_bf16(qn_bits_float(v.word[0]), qn_bits_float(v.word[1]), to.high[0], to.low[0]);
    qn_split_bf16(qn_bits_float(v.word[2]), qn_bits_float(v.word[3]), to.high[1], to.low[1]);
  } else {
    QN_GEMM_EACH
    for (int k = 0; k < 4; k++) {
      to.high[k] = qn_float_tf32(qn_bits_float(v.word[k]));
      to.low[k] = qn_float_tf32(qn_bits_float(v.word[k]) - qn_bits_float(to.high[k]));
    }
  }
  return to;
}

QN_FN void product(float (&d)[4], const qn_u32 (&above)[4], const qn_u32 (&below)[4], const qn_u32 (&w)[4])
{
  const qn_u32 a[4] = {above[0], below[0], above[1], below[1]}, b[2] = {w[0], w[1]};
  if (OF_BF16) {
    qn_mma_bf16(d, a, b);
  } else {
    const qn_u32 a2[4] = {above[2], below[2], above[3], below[3]}, b2[2] = {w[2], w[3]};
    qn_mma_tf32(d, a, b);
    qn_mma_tf32(d, a2, b2);
  }
}

QN_FN void multiply(float (&d)[BANDS][STRIPS][4], const operands &from)
{
  words w[STRIPS];
  QN_GEMM_EACH
  for (int s = 0; s < STRIPS; s++) w[s] = words_of(from.w[s]);
  QN_GEMM_EACH
  for (int b = 0; b < BANDS; b++) {
    const words above = words_of(from.x[b][0]), below = words_of(from.x[b][1]);
    if (SPLITS) {
      QN_GEMM_EACH
      for (int s = 0; s < STRIPS; s++) product(d[b][s], above.low, below.low, w[s].high);
      QN_GEMM_EACH
      for (int s = 0; s < STRIPS; s++) product(d[b][s], above.high, below.high, w[s].low);
    }
    QN_GEMM_EACH
    for (int s = 0; s < STRIPS; s++) product(d[b][s], above.high, below.high, w[s].high);
  }
}

/* A tensor core cuts each sum where an ordinary core rounds it, always towards zero, and over a long k that shows more
 * than what two words leave out. So ordinary ones add up the sums of every FOLD products of 16 columns. */
constexpr int FOLD = 32;

QN_FN void fold(float (&all)[BANDS][STRIPS][4], float (&d)[BANDS][STRIPS][4])
{
  QN_GEMM_EACH
  for (int b = 0; b < BANDS; b++) QN_GEMM_EACH
  for (int s = 0; s < STRIPS; s++) QN_GEMM_EACH
  for (int i = 0; i < 4; i++) {
    all[b][s][i] += d[b][s][i];
    d[b][s][i] = 0;
  }
}

/* ---- the epilogue ---- */
/* Over the lanes that have a group's columns, four each: neighbours. */
QN_FN float sum_group(float sum)
{
  QN_GEMM_EACH
  for (int apart = 1; apart < COLUMNS / 4; apart *= 2) sum += qn_shuffle_xor(sum, static_cast<qn_u32>(apart));
  return sum;
}

/* Four columns from n on, in a row of y, or of none: all lanes come here. */
QN_FN void finish(float (&v)[4], const qn_gemm_args &a, qn_i64 m, qn_i64 n)
{
  float sum = 0, mean = 0, squares = 0, scale = 1;
  const bool in = m < a.m && n < a.n;
  QN_GEMM_EACH
  for (int i = 0; i < 4; i++) {
    const float bias = (FLAGS & QN_GEMM_BIAS) && n < a.n ? a.bias[n + i] : 0;
    const float bias2 = (FLAGS & QN_GEMM_BIAS2) && n < a.n ? a.bias2[n + i] : 0;
    v[i] = qn_gemm_element(FLAGS, v[i], bias, bias2, a.lo, a.hi);
  }
  if (COLUMNS != 0) {
    const float columns = COLUMNS;
    if (qn_gemm_centres(FLAGS)) {
      sum = v[0] + v[1] + (v[2] + v[3]);
      mean = sum_group(sum) * (1.0f / columns);
    }
    QN_GEMM_EACH
    for (int i = 0; i < 4; i++) squares += (v[i] - mean) * (v[i] - mean);
    scale = qn_gemm_scale(sum_group(squares), columns, a.eps);
    QN_GEMM_EACH
    for (int i = 0; i < 4; i++) {
      const float gamma = (FLAGS & QN_GEMM_GAMMA) && n < a.n ? a.gamma[n + i] : 1;
      const float beta = (FLAGS & QN_GEMM_BETA) && n < a.n ? a.beta[n + i] : 0;
      v[i] = qn_gemm_normed(FLAGS, v[i], mean, scale, gamma, beta);
    }
  }
  if (in)
    qn_store16(static_cast<float *>(a.y) + m * a.n + n,
               {{qn_float_bits(v[0]), qn_float_bits(v[1]), qn_float_bits(v[2]), qn_float_bits(v[3])}});
}
#endif
