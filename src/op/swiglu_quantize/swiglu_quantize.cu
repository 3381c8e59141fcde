/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_quantize.cu - gated activations with an f8e4m3 result, for the GPU and for the emulator. Where scales are
 * given, a block takes a tile of QN_THREADS packs of a row. Where they are computed it takes a row, of which each
 * thread holds QN_SWIGLU_PACKS packs in registers between the largest magnitude and the result, so that a and b are
 * read once; of a row that no block holds (QN_SWIGLU_PACKS 0) all is read and computed twice. swiglu_quantize.device.c
 * defines QN_SWIGLU_STORAGE, QN_SWIGLU_GATE, QN_SWIGLU_HAS_DOWN, QN_SWIGLU_HAS_SCALE (a multiplier that is not 1),
 * QN_SWIGLU_COMPUTES and QN_SWIGLU_PACKS; a block has at most QN_THREADS, and a pack is 16 bytes of a. */
#define QN_PACK (QN_SWIGLU_STORAGE ? 8 : 4)
#if !QN_SWIGLU_COMPUTES
#define QN_THREADS 256
#elif QN_SWIGLU_PACKS == 4 || QN_SWIGLU_PACKS == 8
#define QN_THREADS 512
#else
#define QN_THREADS 1024
#endif
#include "base/collective.h"
#include "op/swiglu_quantize/swiglu_quantize.math.h"

#define IN_SHARED (QN_SWIGLU_PACKS == 16)
#define QN_SWIGLU_FLAGS                                                                                                \
  (QN_SWIGLU_GATE | (QN_SWIGLU_HAS_DOWN ? QN_SWIGLU_DOWN : 0) | (QN_SWIGLU_HAS_SCALE ? QN_SWIGLU_SCALED : 0))
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

/* ---- a pack: QN_PACK elements as the storage has them ---- */
QN_FN qn_u32 valid_of(const row_place &p, qn_u64 at) { return p.cols - at < QN_PACK ? qn_u32(p.cols - at) : QN_PACK; }

/* Elements that do not exist are zero, of which every gate makes zero. */
QN_FN qn_16bytes load(const char *from, bool vector, qn_u32 valid)
{
  if (vector) return qn_load16(from);
  qn_16bytes v = {{0, 0, 0, 0}};
  QN_UNROLL
  for (int k = 0; k < QN_PACK; k++) {
    if (qn_u32(k) >= valid) continue;
    if (element_bytes == 4)
      v.word[k % 4] = reinterpret_cast<const qn_u32 *>(from)[k];
    else
      v.word[k / 2 % 4] |= qn_u32(reinterpret_cast<const qn_u16 *>(from)[k]) << (k % 2 ? 16 : 0);
  }
  return v;
}

QN_FN void widen(const qn_16bytes &v, qn_f32 *x)
{
  QN_UNROLL
  for (int k = 0; k < QN_PACK; k++) {
    const qn_u32 word = v.word[element_bytes == 4 ? k % 4 : k / 2 % 4];
    if (QN_SWIGLU_STORAGE == QN_SWIGLU_F32)
      x[k] = qn_bits_float(word);
    else if (QN_SWIGLU_STORAGE == QN_SWIGLU_BF16)
      x[k] = qn_bits_float(k % 2 ? word & 0xffff0000u : word << 16);
    else
      x[k] = qn_f16_float(qn_u16(k % 2 ? word >> 16 : word));
  }
}

QN_FN qn_16bytes narrow(const qn_f32 *x)
{
  qn_16bytes v;
  QN_UNROLL
  for (int w = 0; w < 4; w++)
    if (QN_SWIGLU_STORAGE == QN_SWIGLU_F32)
      v.word[w] = qn_float_bits(x[w]);
    else if (QN_SWIGLU_STORAGE == QN_SWIGLU_BF16)
      v.word[w] = qn_floats_bf16(x[2 * w % QN_PACK], x[(2 * w + 1) % QN_PACK]);
    else
      v.word[w] = qn_float_f16(x[2 * w % QN_PACK]) | qn_u32(qn_float_f16(x[(2 * w + 1) % QN_PACK])) << 16;
  return v;
}

/* What swiglu would have stored. */
QN_FN qn_16bytes product(const qn_swiglu_coef &given, const qn_16bytes &of_a, const qn_16bytes &of_b)
{
  qn_f32 a[QN_PACK], b[QN_PACK], c[QN_PACK];
  qn_swiglu_coef coef = given;
  if (!(QN_SWIGLU_FLAGS & QN_SWIGLU_SCALED)) coef.gate_multiplier = 1.0f;
  widen(of_a, a);
  widen(of_b, b);
  qn_swiglu_pack(&coef, QN_SWIGLU_FLAGS, QN_SWIGLU_STORAGE, a, b, c);
  return narrow(c);
}

#if !QN_SWIGLU_COMPUTES || !QN_SWIGLU_PACKS || IN_SHARED
QN_FN qn_16bytes product_at(const qn_swiglu_quantize_args &args, const row_place &p, qn_u64 at)
{
  const qn_u32 valid = valid_of(p, at);
  const bool vector = p.aligned && valid == QN_PACK;
  return product(args.coef, load(p.a + at * element_bytes, vector, valid),
                 load(p.b + at * element_bytes, vector, valid));
}
#endif

QN_FN void store(const row_place &p, bool whole, qn_u64 at, const qn_16bytes &v, qn_f32 inverse)
{
  qn_f32 x[QN_PACK];
  qn_u32 word[QN_PACK / 4];
  widen(v, x);
  QN_UNROLL
  for (int k = 0; k < QN_PACK; k += 4)
    word[k / 4] = qn_floats_f8e4m3(x[k] * inverse, x[k + 1] * inverse) |
                  qn_u32(qn_floats_f8e4m3(x[k + 2] * inverse, x[k + 3] * inverse)) << 16;
  char *to = p.c + at;
  const qn_u32 valid = whole ? QN_PACK : valid_of(p, at);
  if (whole || (p.aligned && valid == QN_PACK)) {
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
/* ---- the largest magnitude, by bits: of numbers without a sign they have the numbers' order, and those of infinity
 * and NaN, which do not count, are the largest. ---- */
static constexpr qn_u32 infinite = QN_SWIGLU_STORAGE == QN_SWIGLU_F32    ? 0x7f800000u
                                   : QN_SWIGLU_STORAGE == QN_SWIGLU_BF16 ? 0x7f80u
                                                                         : 0x7c00u;

#if QN_SWIGLU_PACKS
/* Of `most`, for 16-bit storage one of each half, and a pack. */
QN_FN qn_u32 larger(qn_u32 most, const qn_16bytes &v)
{
  QN_UNROLL
  for (int w = 0; w < 4; w++)
    most = element_bytes == 4 ? qn_larger::of(most, v.word[w] & 0x7fffffffu)
                              : qn_larger_halves(most, v.word[w] & 0x7fff7fffu);
  return most;
}

QN_FN qn_u32 largest_half(qn_u32 most) { return element_bytes == 4 ? most : qn_larger::of(most & 0xffffu, most >> 16); }
#endif

QN_FN qn_u32 larger_finite(qn_u32 most, const qn_16bytes &v)
{
  QN_UNROLL
  for (int k = 0; k < QN_PACK; k++) {
    const qn_u32 word = v.word[element_bytes == 4 ? k % 4 : k / 2 % 4];
    const qn_u32 size = element_bytes == 4 ? word & 0x7fffffffu : (k % 2 ? word >> 16 : word) & 0x7fffu;
    if (size < infinite && most < size) most = size;
  }
  return most;
}

QN_FN float scale_of(qn_u32 most)
{
  return qn_swiglu_scale(QN_SWIGLU_STORAGE == QN_SWIGLU_F32    ? qn_bits_float(most)
                         : QN_SWIGLU_STORAGE == QN_SWIGLU_BF16 ? qn_bits_float(most << 16)
                                                               : qn_f16_float(qn_u16(most)));
}
#endif

#if QN_SWIGLU_COMPUTES && QN_SWIGLU_PACKS && !IN_SHARED
/* Packs whose loads are on their way together: as many as leave registers for those that are held. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
static constexpr int at_once = QN_SWIGLU_PACKS > 4 ? 1 : QN_SWIGLU_PACKS > 2 ? 2 : QN_SWIGLU_PACKS;
#else
static constexpr int at_once = QN_SWIGLU_PACKS > 4 ? 4 : QN_SWIGLU_PACKS;
#endif

/* Packs of this thread, `step` elements apart; those behind the row are zeros. Where every pack is a vector no
 * other way of loading stands between two loads. */
QN_FN void fetch(const row_place &p, bool whole, qn_u64 first, qn_u64 step, qn_16bytes *a, qn_16bytes *b)
{
  QN_UNROLL
  for (int j = 0; j < at_once; j++) a[j] = b[j] = {{0, 0, 0, 0}};
  QN_UNROLL
  for (int j = 0; j < at_once; j++) {
    const qn_u64 at = first + qn_u64(j) * step;
    if (at >= p.cols) continue;
    if (whole) {
      a[j] = qn_load16(p.a + at * element_bytes);
      b[j] = qn_load16(p.b + at * element_bytes);
      continue;
    }
    const qn_u32 valid = valid_of(p, at);
    const bool vector = p.aligned && valid == QN_PACK;
    a[j] = load(p.a + at * element_bytes, vector, valid);
    b[j] = load(p.b + at * element_bytes, vector, valid);
  }
}

QN_FN void hold(const qn_swiglu_quantize_args &args, const row_place &p, bool whole, qn_u64 first, qn_u64 step,
                qn_16bytes *held)
{
  QN_UNROLL
  for (int k = 0; k < QN_SWIGLU_PACKS; k += at_once) {
    qn_16bytes a[at_once], b[at_once];
    if (whole)
      fetch(p, true, first + qn_u64(k) * step, step, a, b);
    else
      fetch(p, false, first + qn_u64(k) * step, step, a, b);
    QN_UNROLL
    for (int j = 0; j < at_once; j++) held[k + j] = product(args.coef, a[j], b[j]);
  }
}

QN_FN void release(const row_place &p, bool whole, qn_u64 first, qn_u64 step, const qn_16bytes *held, qn_f32 inverse)
{
  QN_UNROLL
  for (int k = 0; k < QN_SWIGLU_PACKS; k++) {
    const qn_u64 at = first + qn_u64(k) * step;
    if (at < p.cols) store(p, whole, at, held[k], inverse);
  }
}

QN_GROUP_KERNEL(swiglu_quantize, qn_swiglu_quantize_args, args)
{
  QN_SHARED(qn_u32, scratch, 32);
  const row_place p = place_of(args, qn_block());
  const qn_u64 first = qn_u64(qn_thread()) * QN_PACK, step = qn_u64(qn_block_threads()) * QN_PACK;
  qn_16bytes held[QN_SWIGLU_PACKS];
  const bool whole = p.aligned && p.cols % QN_PACK == 0;
  hold(args, p, whole, first, step, held);
  qn_u32 most = 0;
  QN_UNROLL
  for (int k = 0; k < QN_SWIGLU_PACKS; k++) most = larger(most, held[k]);
  most = qn_group_max(largest_half(most), scratch);
  if (most >= infinite) { /* so it is for all threads */
    most = 0;
    QN_UNROLL
    for (int k = 0; k < QN_SWIGLU_PACKS; k++) most = larger_finite(most, held[k]);
    most = qn_group_max(most, scratch);
  }
  const float scale = scale_of(most), inverse = 1.0f / scale;
  if (qn_thread() == 0) args.scale[qn_block() * args.scale_step] = scale;
  if (whole)
    release(p, true, first, step, held, inverse);
  else
    release(p, false, first, step, held, inverse);
}
#elif QN_SWIGLU_COMPUTES && IN_SHARED
/* Each thread keeps its packs where no other looks, so that no barrier is needed for them. */
QN_GROUP_KERNEL(swiglu_quantize, qn_swiglu_quantize_args, args)
{
  QN_SHARED(qn_u32, scratch, 32);
  qn_16bytes *const held = static_cast<qn_16bytes *>(qn_shared_dynamic()) + qn_thread();
  const row_place p = place_of(args, qn_block());
  const qn_u64 first = qn_u64(qn_thread()) * QN_PACK, step = qn_u64(qn_block_threads()) * QN_PACK;
  qn_u32 most = 0, k = 0;
  for (qn_u64 at = first; at < args.cols; at += step, k += qn_block_threads()) {
    const qn_16bytes v = product_at(args, p, at);
    most = larger(most, v);
    held[k] = v;
  }
  most = qn_group_max(largest_half(most), scratch);
  if (most >= infinite) {
    most = k = 0;
    for (qn_u64 at = first; at < args.cols; at += step, k += qn_block_threads()) most = larger_finite(most, held[k]);
    most = qn_group_max(most, scratch);
  }
  const float scale = scale_of(most), inverse = 1.0f / scale;
  if (qn_thread() == 0) args.scale[qn_block() * args.scale_step] = scale;
  k = 0;
  for (qn_u64 at = first; at < args.cols; at += step, k += qn_block_threads()) store(p, false, at, held[k], inverse);
}
#elif QN_SWIGLU_COMPUTES
QN_GROUP_KERNEL(swiglu_quantize, qn_swiglu_quantize_args, args)
{
  QN_SHARED(qn_u32, scratch, 32);
  const row_place p = place_of(args, qn_block());
  const qn_u64 first = qn_u64(qn_thread()) * QN_PACK, step = qn_u64(qn_block_threads()) * QN_PACK;
  qn_u32 most = 0;
  for (qn_u64 at = first; at < args.cols; at += step) most = larger_finite(most, product_at(args, p, at));
  const float scale = scale_of(qn_group_max(most, scratch)), inverse = 1.0f / scale;
  if (qn_thread() == 0) args.scale[qn_block() * args.scale_step] = scale;
  for (qn_u64 at = first; at < args.cols; at += step) store(p, false, at, product_at(args, p, at), inverse);
}
#else
QN_KERNEL(swiglu_quantize, qn_swiglu_quantize_args, args)
{
  const qn_u64 tiles = (args.cols + QN_THREADS * QN_PACK - 1) / (QN_THREADS * QN_PACK);
  const qn_u64 row = qn_block() / tiles, at = (qn_block() % tiles * QN_THREADS + qn_thread()) * QN_PACK;
  if (at >= args.cols) return;
  const row_place p = place_of(args, row);
  store(p, false, at, product_at(args, p, at), 1.0f / args.scale[row * args.scale_step]);
}
#endif
