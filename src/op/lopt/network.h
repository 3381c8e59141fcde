/* SPDX-License-Identifier: Apache-2.0 */
/* network.h - the two layers of 32 as small products of a simdgroup (base/matrix.h), in the unit's class of precision
 * (QN_LOPT_PRECISION, as quern/lopt.h numbers them). Elements are the products' rows, so that what a lane holds of the
 * first layer's results is what it holds of the second's inputs.
 *
 * Lane 4 g + t has, of the elements g and g + 8 of a product, four inputs: t < 3: m, m s, g A, m A of decay t; t = 3:
 * p, v, g, s. Of the hidden values it has 8 t to 8 t + 7: column c of a layer's product n is 8 (c / 2) + 2 n + c % 2.
 * Which weights a lane multiplies by follows from that, and is made once a step (lopt.first_layer.cu). */
#ifndef QN_OP_LOPT_NETWORK_H
#define QN_OP_LOPT_NETWORK_H
#include "base/matrix.h"
#include "op/lopt/phase.h"

constexpr int TF32 = 1, BF16X3 = 2, F16X3 = 3, F16 = 4, PRECISION = QN_LOPT_PRECISION;
constexpr bool SPLITS = PRECISION == BF16X3 || PRECISION == F16X3, SHORT = SPLITS || PRECISION == F16;
/* f16 ends at 65504; 0: the class' words have f32's range. */
constexpr double KEEPS_WITHIN = PRECISION == F16X3 || PRECISION == F16 ? 32768 : 0;
constexpr int FRAGMENTS = QN_LOPT_FRAGMENTS, SECOND = 16; /* of these, the second layer's first */

/* The c-th of lane t's inputs: among the 39, and among a tile's 16 channels. */
QN_FN int input_of(int t, int c) { return t < 3 ? (c < 3 ? 2 + 4 * c : LAST) + t : c < 2 ? 1 + 4 * c : 9 * (c - 2); }
QN_FN int channel_of(int t, int c) { return t < 3 && c == 3 ? ROW + t : input_of(t, c); }
QN_FN int hidden_of(int n, int column) { return 8 * (column / 2) + 2 * n + column % 2; }

QN_FN void split(float x, float y, qn_u32 &high, qn_u32 &low)
{
  if (PRECISION == BF16X3)
    qn_split_bf16(x, y, high, low);
  else
    qn_split_f16(x, y, high, low);
}

/* The same of max(x, 0), NaN staying NaN, where the conversions know that word: cut towards zero what is left of x is
 * not below zero, so that of x below zero neither word is anything. */
QN_FN void split_relu(float x, float y, qn_u32 &high, qn_u32 &low)
{
#ifdef QN_MATRIX_PTX
  float hx, hy;
  if (PRECISION == BF16X3) {
    asm("cvt.rz.relu.bf16x2.f32 %0, %1, %2;" : "=r"(high) : "f"(y), "f"(x));
    hx = qn_bits_float(high << 16), hy = qn_bits_float(high & 0xffff0000u);
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(low) : "f"(y - hy), "f"(x - hx));
  } else if (SPLITS) {
    asm("cvt.rz.relu.f16x2.f32 %0, %1, %2;" : "=r"(high) : "f"(y), "f"(x));
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}" : "=f"(hx), "=f"(hy) : "r"(high));
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(low) : "f"(y - hy), "f"(x - hx));
  } else {
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(high) : "f"(y), "f"(x));
  }
#else
  split(qn_lopt_relu(x), qn_lopt_relu(y), high, low);
#endif
}

/* Word `word` of a lane: weights of the first layer, then of the second. Of 16 bits, for each product the two words,
 * and what they leave; else, for each step of 8, each product's two. */
QN_FN float weight_at(const float *weights, bool second, int output, int step, int t, int half)
{
  if (second) return weights[W2 + output * WIDTH + hidden_of(step, 2 * t + half)];
  return weights[output * INPUTS + input_of(t, 2 * step + half)];
}

QN_FN qn_u32 fragment(const float *weights, qn_u32 word, qn_u32 lane)
{
  const int g = static_cast<int>(lane / 4), t = static_cast<int>(lane % 4), w = static_cast<int>(word);
  const bool second = w >= SECOND;
  const int at = second ? w - SECOND : w;
  if (SHORT) { /* step: of 16 columns k, word: of 8 of them */
    const int n = at / 4 % 4, half = at % 2, step = 2 * (at / 16) + half;
    qn_u32 high, low = 0;
    const int output = hidden_of(n, g);
    split(weight_at(weights, second, output, step, t, 0), weight_at(weights, second, output, step, t, 1), high, low);
    return at % 4 < 2 ? high : low;
  }
  const int step = at / 8, n = at / 2 % 4;
  return qn_float_tf32(weight_at(weights, second, hidden_of(n, g), step, t, at % 2));
}

/* A lane's weights of both layers. */
struct fragments {
  qn_u32 word[FRAGMENTS];
};

QN_FN void read_fragments(fragments &f, const qn_lopt_head *head)
{
  QN_UNROLL
  for (qn_u32 k = 0; k < FRAGMENTS; k++) f.word[k] = head->fragments[32 * k + qn_lane()];
}

/* ---- of two elements of a lane, above and below, its values as words of a product ---- */
struct operand {
  qn_u32 high[4], low[4];
};

/* One step of 16 columns k, of a layer's inputs, or of the sums of the one before. */
QN_FN operand operand_of(const float (&above)[4], const float (&below)[4])
{
  operand o;
  split(above[0], above[1], o.high[0], o.low[0]);
  split(below[0], below[1], o.high[1], o.low[1]);
  split(above[2], above[3], o.high[2], o.low[2]);
  split(below[2], below[3], o.high[3], o.low[3]);
  return o;
}

QN_FN operand operand_of_sums(const float (&first)[4], const float (&second)[4])
{
  operand o;
  split_relu(first[0], first[1], o.high[0], o.low[0]);
  split_relu(first[2], first[3], o.high[1], o.low[1]);
  split_relu(second[0], second[1], o.high[2], o.low[2]);
  split_relu(second[2], second[3], o.high[3], o.low[3]);
  return o;
}

QN_FN void product_of_short(float (&d)[4], const qn_u32 (&a)[4], qn_u32 b0, qn_u32 b1)
{
  const qn_u32 b[2] = {b0, b1};
  if (PRECISION == BF16X3)
    qn_mma_bf16(d, a, b);
  else
    qn_mma_f16(d, a, b);
}

/* d += a step of 16 columns, whose weights begin at f.word[first]. */
QN_FN void add_short(float (&d)[4][4], const operand &o, const fragments &f, int first)
{
  if (SPLITS) {
    QN_UNROLL
    for (int n = 0; n < 4; n++) product_of_short(d[n], o.low, f.word[first + 4 * n], f.word[first + 4 * n + 1]);
    QN_UNROLL
    for (int n = 0; n < 4; n++) product_of_short(d[n], o.high, f.word[first + 4 * n + 2], f.word[first + 4 * n + 3]);
  }
  QN_UNROLL
  for (int n = 0; n < 4; n++) product_of_short(d[n], o.high, f.word[first + 4 * n], f.word[first + 4 * n + 1]);
}

/* d += a step of 8 columns: of each element two values. */
QN_FN void add_long(float (&d)[4][4], float above0, float above1, float below0, float below1, const fragments &f,
                    int first)
{
  const qn_u32 a[4] = {qn_float_tf32(above0), qn_float_tf32(below0), qn_float_tf32(above1), qn_float_tf32(below1)};
  QN_UNROLL
  for (int n = 0; n < 4; n++) {
    const qn_u32 b[2] = {f.word[first + 2 * n], f.word[first + 2 * n + 1]};
    qn_mma_tf32(d[n], a, b);
  }
}

/* The first layer: d holds what does not come from the inputs x, of the elements above and below. */
QN_FN void first_layer(float (&d)[4][4], const float (&above)[4], const float (&below)[4], const fragments &f)
{
  if (SHORT) {
    add_short(d, operand_of(above, below), f, 0);
  } else {
    add_long(d, above[0], above[1], below[0], below[1], f, 0);
    add_long(d, above[2], above[3], below[2], below[3], f, 8);
  }
}

/* The second: of the first's sums. */
QN_FN void second_layer(float (&d)[4][4], const float (&h)[4][4], const fragments &f)
{
  QN_UNROLL
  for (int step = 0; step < 2; step++) {
    if (SHORT) {
      add_short(d, operand_of_sums(h[2 * step], h[2 * step + 1]), f, SECOND + 16 * step);
      continue;
    }
    QN_UNROLL
    for (int k = 2 * step; k < 2 * step + 2; k++)
      add_long(d, relu(h[k][0]), relu(h[k][1]), relu(h[k][2]), relu(h[k][3]), f, SECOND + 8 * k);
  }
}

/* Of four lanes' shares of four elements' outputs, the sums of lane t's element t. */
QN_FN void gather_last(float (&out)[2], const float (&share)[4][2], qn_u32 lane)
{
  const bool odd = lane & 1u, upper = lane & 2u;
  QN_UNROLL
  for (int o = 0; o < 2; o++) {
    float half[2];
    QN_UNROLL
    for (int j = 0; j < 2; j++) {
      const float first = share[2 * j][o], second = share[2 * j + 1][o];
      half[j] = (odd ? second : first) + qn_shuffle_xor(odd ? first : second, 1);
    }
    out[o] = (upper ? half[1] : half[0]) + qn_shuffle_xor(upper ? half[0] : half[1], 2);
  }
}
#endif
