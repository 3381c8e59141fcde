/* SPDX-License-Identifier: Apache-2.0 */
/* products.h - what the kernels of small products (mma.sync and its twin) share: what a lane reads, four columns of a
 * row at once, as words of a product in the unit's class; and the products of bands of x with strips of w. That the
 * four columns are not the four that a product has at that lane does not matter, as x and w are read alike. The source
 * says BANDS and STRIPS before. */
#ifndef QN_OP_GEMM_NORM_PRODUCTS_H
#define QN_OP_GEMM_NORM_PRODUCTS_H
#include "base/matrix.h"
#include "op/gemm_norm/finish.h"

constexpr int TF32 = 1, BF16X3 = 2, TF32X3 = 3, BF16 = 4; /* as qn_gemm_precision numbers them */
constexpr int PRECISION = QN_GEMM_PRECISION;
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
    for (int k = 0; k < 4; k++) qn_split_tf32(qn_bits_float(v.word[k]), to.high[k], to.low[k]);
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
constexpr int FOLD = 4;

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
#endif
