/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_quantize.cu - gated activations with an f8e4m3 result, for the GPU and for the host backend. Where scales are
 * given, a block takes a tile of QN_THREADS packs of a row; where they are computed, a whole row, which it goes through
 * twice: for the largest magnitude, then, out of the caches, for the result. swiglu_quantize.c defines QN_THREADS,
 * QN_PACK (16 bytes of a), QN_SWIGLU_STORAGE, QN_SWIGLU_FLAGS and QN_SWIGLU_COMPUTES. */
#include "base/collective.h"
#include "op/swiglu_quantize/swiglu_quantize.math.h"

static constexpr int element_bytes = QN_SWIGLU_STORAGE == QN_SWIGLU_F32 ? 4 : 2;

/* Where a row's elements lie, and whether every pack of it may be taken as a vector. */
struct row_place {
  const char *a, *b;
  char *c;
  qn_u64 cols;
  bool aligned;
};

QN_FN row_place place_of(const qn_swiglu_quantize_args &args, qn_u64 row)
{
  row_place p = {args.a + row * args.a_stride, args.b + row * args.b_stride, args.c + row * args.c_stride, args.cols,
                 true};
  p.aligned = ((reinterpret_cast<qn_u64>(p.a) | reinterpret_cast<qn_u64>(p.b)) & 15) == 0 &&
              (reinterpret_cast<qn_u64>(p.c) & (QN_PACK - 1)) == 0;
  return p;
}

QN_FN qn_f32 widen(qn_u32 bits)
{
  return QN_SWIGLU_STORAGE == QN_SWIGLU_F32    ? qn_f32_of(bits)
         : QN_SWIGLU_STORAGE == QN_SWIGLU_BF16 ? qn_widen_bf16(bits & 0xffffu)
                                               : qn_widen_f16(bits & 0xffffu);
}

/* Elements that do not exist are zero. */
QN_FN void load(const char *from, bool vector, qn_u32 valid, qn_f32 *x)
{
  if (vector) {
    const qn_16bytes v = qn_load16(from);
    QN_UNROLL
    for (int k = 0; k < QN_PACK; k++)
      x[k] = widen(element_bytes == 4 ? v.word[k % 4] : v.word[k / 2 % 4] >> (k % 2 ? 16 : 0));
    return;
  }
  QN_UNROLL
  for (int k = 0; k < QN_PACK; k++) {
    qn_u32 bits = 0;
    if (qn_u32(k) < valid)
      bits = element_bytes == 4 ? reinterpret_cast<const qn_u32 *>(from)[k] : reinterpret_cast<const qn_u16 *>(from)[k];
    x[k] = widen(bits);
  }
}

/* The pack at column `at`; returns how many of its elements exist. */
QN_FN qn_u32 values(const qn_swiglu_quantize_args &args, const row_place &p, qn_u64 at, qn_f32 *x)
{
  const qn_u32 valid = p.cols - at < QN_PACK ? qn_u32(p.cols - at) : QN_PACK;
  const bool vector = p.aligned && valid == QN_PACK;
  qn_f32 a[QN_PACK], b[QN_PACK];
  load(p.a + at * element_bytes, vector, valid, a);
  load(p.b + at * element_bytes, vector, valid, b);
  qn_swiglu_coef coef = args.coef;
  if (!(QN_SWIGLU_FLAGS & QN_SWIGLU_SCALED)) coef.gate_multiplier = 1.0f;
  qn_swiglu_quantize_values(&coef, QN_SWIGLU_FLAGS, QN_SWIGLU_STORAGE, a, b, x);
  return valid;
}

QN_FN void quantize(const qn_swiglu_quantize_args &args, const row_place &p, qn_u64 at, qn_f32 inverse)
{
  qn_f32 x[QN_PACK];
  const qn_u32 valid = values(args, p, at, x);
  qn_u32 word[QN_PACK / 4];
  QN_UNROLL
  for (int k = 0; k < QN_PACK; k += 4)
    word[k / 4] = qn_floats_f8e4m3(x[k] * inverse, x[k + 1] * inverse) |
                  qn_u32(qn_floats_f8e4m3(x[k + 2] * inverse, x[k + 3] * inverse)) << 16;
  char *to = p.c + at;
  if (p.aligned && valid == QN_PACK) {
    if (QN_PACK == 8)
      qn_store8(to, {{word[0], word[QN_PACK / 4 - 1]}});
    else
      *reinterpret_cast<qn_u32 *>(to) = word[0];
    return;
  }
  QN_UNROLL
  for (int k = 0; k < QN_PACK; k++)
    if (qn_u32(k) < valid) to[k] = char(word[k / 4] >> 8 * (k % 4));
}

#if QN_SWIGLU_COMPUTES
QN_GROUP_KERNEL(swiglu_quantize, qn_swiglu_quantize_args, args)
{
  QN_SHARED(float, scratch, 32);
  const row_place p = place_of(args, qn_block());
  float most = 0.0f;
  for (qn_u64 at = qn_u64(qn_thread()) * QN_PACK; at < args.cols; at += QN_THREADS * QN_PACK) {
    qn_f32 x[QN_PACK];
    values(args, p, at, x);
    QN_UNROLL
    for (int k = 0; k < QN_PACK; k++) {
      const float size = qn_swiglu_finite_size(x[k]);
      most = most < size ? size : most;
    }
  }
  const float scale = qn_swiglu_scale(qn_group_max(most, scratch));
  if (qn_thread() == 0) args.scale[qn_block() * args.scale_step] = scale;
  for (qn_u64 at = qn_u64(qn_thread()) * QN_PACK; at < args.cols; at += QN_THREADS * QN_PACK)
    quantize(args, p, at, 1.0f / scale);
}
#else
QN_KERNEL(swiglu_quantize, qn_swiglu_quantize_args, args)
{
  const qn_u64 tiles = (args.cols + QN_THREADS * QN_PACK - 1) / (QN_THREADS * QN_PACK);
  const qn_u64 row = qn_block() / tiles, at = (qn_block() % tiles * QN_THREADS + qn_thread()) * QN_PACK;
  if (at >= args.cols) return;
  quantize(args, place_of(args, row), at, 1.0f / args.scale[row * args.scale_step]);
}
#endif
