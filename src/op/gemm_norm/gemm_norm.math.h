/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_norm.math.h - what is done to the elements of a matrix product before they are stored, written here and nowhere
 * else: biases, clamp, activation, then a norm over groups of consecutive columns of a row. The processor's tiers, host
 * C++ and CUDA instantiate it; the oracle does in double. Which lanes hold which columns, and how sums over a group are
 * taken, is the kernel's business.
 *
 * A norm takes two passes over the group's elements, which a kernel still holds: their mean first, then the mean of the
 * squares of what is left. E[x^2] - E[x]^2 loses all digits of a group whose spread is small against its mean. */
#ifndef QN_OP_GEMM_NORM_MATH_H
#define QN_OP_GEMM_NORM_MATH_H
#include "base/activation.h"
#include "op/gemm_norm/flags.h"

QN_FN qn_f32 qn_gemm_activate(int activation, qn_f32 v)
{
  switch (activation) {
  case QN_GEMM_RELU: return qn_relu(v);
  case QN_GEMM_GELU: return qn_gelu_erf(v);
  case QN_GEMM_GELU_TANH: return qn_gelu_tanh(v);
  case QN_GEMM_SILU: return qn_silu(v);
  case QN_GEMM_MISH: return qn_mish(v);
  case QN_GEMM_SIGMOID: return qn_activation_sigmoid(v);
  case QN_GEMM_TANH: return qn_activation_tanh(v);
  default: return v;
  }
}

/* An element of the product up to the norm: biases (what is not given is not read: pass 0), clamp, activation. NaN
 * passes the clamp. flags is a constant where this is inlined, or the switch costs what it says. */
QN_FN qn_f32 qn_gemm_element(qn_u32 flags, qn_f32 z, qn_f32 bias, qn_f32 bias2, float lo, float hi)
{
  if (flags & QN_GEMM_BIAS) z = z + bias;
  if (flags & QN_GEMM_BIAS2) z = z + bias2;
  if (flags & QN_GEMM_CLAMPS) {
    z = qn_select(qn_less(z, qn_splat(lo)), qn_splat(lo), z);
    z = qn_select(qn_less(qn_splat(hi), z), qn_splat(hi), z);
  }
  return qn_gemm_activate((int)(flags & QN_GEMM_ACTIVATION_MASK), z);
}

/* What a group is multiplied by: 1 / sqrt(mean of squares + eps), of the elements less their mean where it is taken
 * away. `columns` are the group's. */
QN_FN qn_f32 qn_gemm_scale(qn_f32 squares, float columns, float eps)
{
  return qn_splat(1.0f) / qn_sqrt(squares / qn_splat(columns) + qn_splat(eps));
}

#ifdef __cplusplus
/* Both passes over a group of a device kernel, which gives their sums to each of the group's lanes: of its elements,
 * and of the squares of what `mean` leaves of them. Returns what the group is multiplied by. */
template <class Sum, class Squares>
QN_FN float qn_gemm_passes(qn_u32 flags, float columns, float eps, float &mean, Sum sum, Squares squares)
{
  mean = qn_gemm_centres(flags) ? sum() / columns : 0.0f;
  return qn_gemm_scale(squares(), columns, eps);
}

/* One element of y, of the unit's type. */
#ifdef QN_GEMM_SHORT
QN_FN void qn_gemm_store(void *y, qn_i64 at, float v)
{
  if (QN_GEMM_SHORT)
    static_cast<qn_u16 *>(y)[at] = qn_float_bf16(v);
  else
    static_cast<float *>(y)[at] = v;
}
#endif
#endif

/* The element that is stored. mean is 0 where the norm takes none away; gamma and beta are not read where flags lack
 * them. */
QN_FN qn_f32 qn_gemm_normed(qn_u32 flags, qn_f32 v, qn_f32 mean, qn_f32 scale, qn_f32 gamma, qn_f32 beta)
{
  v = (v - mean) * scale;
  if ((flags & QN_GEMM_GAMMA) && (flags & QN_GEMM_BETA)) return qn_fma(v, gamma, beta);
  if (flags & QN_GEMM_GAMMA) return v * gamma;
  return flags & QN_GEMM_BETA ? v + beta : v;
}
#endif
