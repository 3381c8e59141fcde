/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu.math.h - gated activations: the arithmetic that forward and backward share, the forward's own, coefficients
 * and table of types. */
#ifndef QN_OP_SWIGLU_MATH_H
#define QN_OP_SWIGLU_MATH_H
#include "base/activation.h"
#include "base/dtype.h"
#include "op/swiglu/swiglu.args.h"

/* The numbers that are the same for all elements. */
#ifdef QN_ORACLE
typedef struct qn_swiglu_numbers {
  double gate_multiplier, down_multiplier, alpha, limit;
} qn_swiglu_numbers;
#else
typedef qn_swiglu_coef qn_swiglu_numbers;
#endif

/* How the storage rounds: an f32 value as the type holds it, widened again. The oracle rounds no normal number, but has
 * the type's range: what is infinite there is so here, and subnormal numbers have its steps, since a product with what
 * follows hangs on them. */
QN_FN qn_f32 qn_swiglu_round(int storage, qn_f32 x)
{
#ifdef QN_ORACLE
  if (storage == QN_SWIGLU_F64) return x;
  const double most = storage == QN_SWIGLU_F32 ? 0x1.ffffffp127 : storage == QN_SWIGLU_BF16 ? 0x1.ffp127 : 65520;
  const double step = storage == QN_SWIGLU_F32 ? 0x1p-149 : storage == QN_SWIGLU_BF16 ? 0x1p-133 : 0x1p-24;
  const double normal = storage == QN_SWIGLU_F16 ? 0x1p-14 : 0x1p-126, size = __builtin_fabs(x);
  if (size < normal) return __builtin_copysign(__builtin_nearbyint(size / step) * step, x);
  return size >= most ? __builtin_copysign(__builtin_inf(), x) : x;
#else
  if (storage == QN_SWIGLU_BF16) return qn_widen_bf16(qn_narrow_bf16(x));
  if (storage == QN_SWIGLU_F16) return qn_widen_f16(qn_narrow_f16(x));
  return x;
#endif
}

/* All values of a pack. */
QN_FN void qn_swiglu_round_pack(int storage, qn_f32 x[QN_PACK])
{
#if defined(QN_PTX) && QN_PACK > 1
  if (storage == QN_SWIGLU_BF16) {
    QN_UNROLL
    for (int v = 0; v < QN_PACK; v += 2) {
      const qn_u32 pair = qn_floats_bf16(x[v], x[v + 1]);
      x[v] = qn_bits_float(pair << 16);
      x[v + 1] = qn_bits_float(pair & 0xffff0000u);
    }
    return;
  }
#endif
  QN_UNROLL
  for (int v = 0; v < QN_PACK; v++) x[v] = qn_swiglu_round(storage, x[v]);
}

/* A result that stays in f32, or, in rows of f64, in that. */
QN_FN qn_f32 qn_swiglu_held(int storage, qn_f32 x)
{
  return qn_swiglu_round(storage == QN_SWIGLU_F64 ? QN_SWIGLU_F64 : QN_SWIGLU_F32, x);
}

/* Of what is multiplied with it: NaN need not come out of it. */
QN_FN qn_f32 qn_swiglu_factor(int storage, qn_f32 x)
{
  return qn_swiglu_held(storage, storage == QN_SWIGLU_F32 ? qn_sigmoid(x) : qn_sigmoid16_of_number(x));
}

QN_FN qn_f32 qn_swiglu_least(qn_f32 x, qn_scalar most)
{
  return qn_select(qn_less(qn_splat(most), x), qn_splat(most), x);
}

/* The activation of a: its value, its slope by x (0 where a limit holds x back). `slope` is read by the
 * backward alone, and dropped by the compiler elsewhere. */
typedef struct qn_swiglu_value {
  qn_f32 s, slope;
} qn_swiglu_value;

/* s = x g(x) with g a sigmoid of argument y: s' = g + s y' (1 - g). */
QN_FN qn_swiglu_value qn_swiglu_product(int storage, qn_f32 x, qn_f32 y, qn_f32 y_slope)
{
  qn_f32 sig = qn_swiglu_factor(storage, y);
  qn_swiglu_value v;
  v.s = qn_swiglu_held(storage, x * sig);
  v.slope = qn_swiglu_held(storage, qn_fma(qn_swiglu_held(storage, v.s * y_slope), 1.0f - sig, sig));
  return v;
}

QN_FN qn_swiglu_value qn_swiglu_activate(const qn_swiglu_numbers *c, qn_u32 gate, int storage, qn_f32 a)
{
  qn_f32 x = qn_swiglu_held(storage, a * qn_splat(c->gate_multiplier)), zero = qn_splat(0.0f);
  qn_swiglu_value v;
  if (gate == QN_SWIGLU_CLAMPED) {
    qn_f32 held = qn_swiglu_least(x, c->limit);
    v = qn_swiglu_product(storage, held, qn_swiglu_held(storage, qn_splat(c->alpha) * held), qn_splat(c->alpha));
    v.slope = qn_select(qn_less(qn_splat(c->limit), x), zero, v.slope);
  } else if (gate == QN_SWIGLU_GEGLU) {
    qn_f32 x2 = qn_swiglu_held(storage, x * x), y = qn_gelu_argument(x, x2);
    v = qn_swiglu_product(storage, x, y, qn_gelu_argument_slope(x2));
    /* Where x^2 is infinite the sigmoid is 0 or 1, and so is the slope. */
    qn_mask far = qn_less(qn_splat(0x1p20f), x2);
    qn_f32 step = qn_select(qn_less(x, zero), zero, qn_splat(1.0f));
    v.slope = qn_select(far, step, v.slope);
    v.s = qn_select(far, x * step, v.s);
  } else if (gate == QN_SWIGLU_REGLU) {
    v.s = qn_relu(x);
    v.slope = qn_select(qn_is_nan(x), x, qn_select(qn_at_most(x, zero), zero, qn_splat(1.0f)));
  } else if (gate == QN_SWIGLU_GLU) {
    v.s = qn_swiglu_held(storage, storage == QN_SWIGLU_F32 ? qn_sigmoid(x) : qn_sigmoid16(x));
    v.slope = qn_swiglu_held(storage, v.s * (1.0f - v.s));
  } else if (gate == QN_SWIGLU_GEGLU_ERF) {
    qn_gelu_parts gelu = storage == QN_SWIGLU_F32 ? qn_gelu_of(x) : qn_gelu16_of(x);
    v.s = qn_swiglu_held(storage, gelu.value);
    v.slope = qn_swiglu_held(storage, gelu.slope);
  } else {
    qn_f32 sig = qn_swiglu_factor(storage, x);
    v.s = qn_swiglu_held(storage, x * sig);
    v.slope = qn_swiglu_held(storage, qn_fma(v.s, 1.0f - sig, sig));
  }
  return v;
}

/* b as the product takes it. */
QN_FN qn_f32 qn_swiglu_up(const qn_swiglu_numbers *c, qn_u32 gate, qn_f32 b)
{
  if (gate != QN_SWIGLU_CLAMPED) return b;
  b = qn_swiglu_least(b, c->limit);
  return qn_select(qn_less(b, qn_splat(-c->limit)), qn_splat(-c->limit), b) + 1.0f;
}

QN_FN void qn_swiglu_pack(const qn_swiglu_numbers *c, qn_u32 flags, int storage, const qn_f32 a[QN_PACK],
                          const qn_f32 b[QN_PACK], qn_f32 to[QN_PACK])
{
  const qn_u32 gate = flags & QN_SWIGLU_GATE_MASK;
  QN_UNROLL
  for (int v = 0; v < QN_PACK; v++) to[v] = qn_swiglu_activate(c, gate, storage, a[v]).s;
  qn_swiglu_round_pack(storage, to);
  QN_UNROLL
  for (int v = 0; v < QN_PACK; v++) to[v] = to[v] * qn_swiglu_up(c, gate, b[v]); /* the store rounds */
  if (!(flags & QN_SWIGLU_DOWN)) return;
  qn_swiglu_round_pack(storage, to);
  QN_UNROLL
  for (int v = 0; v < QN_PACK; v++) to[v] = to[v] * qn_splat(c->down_multiplier);
}
#endif
