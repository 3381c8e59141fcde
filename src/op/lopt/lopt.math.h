/* SPDX-License-Identifier: Apache-2.0 */
/* lopt.math.h - the arithmetic on one element, written here and nowhere else: accumulators, factors, the inputs of the
 * network that differ from element to element, and the update. The network between is a matrix product, of which each
 * backend has its own form; sums are the engine's.
 *
 * The inputs, with s = 1/sqrt(v + 1e-6): g, p, m (3), v, m s (3), s, g A (3), m B (3). Where nothing is factored, also
 * f (3) and 1/sqrt(f + 1e-8) (3), which stand for the contract's row and column at once. */
#ifndef QN_OP_LOPT_LOPT_MATH_H
#define QN_OP_LOPT_LOPT_MATH_H
#include "base/maths.h"
#include "op/lopt/device.h"
#include "op/lopt/scalar.math.h"

/* torch.nan_to_num: NaN is 0, the infinities are the largest numbers. */
QN_FN qn_f32 qn_lopt_number(qn_f32 g)
{
  g = qn_no_more(qn_no_less(g, -0x1.fffffep127f), 0x1.fffffep127f);
  return qn_select(qn_is_nan(g), qn_splat(0.0f), g);
}

/* A gradient as its op takes it. */
QN_FN qn_f32 qn_lopt_taken(qn_lopt_gradient as, qn_f32 g)
{
  if (as == QN_LOPT_NUMBERS) return qn_lopt_number(g);
  return as == QN_LOPT_CLIPPED ? qn_no_more(qn_no_less(g, -QN_LOPT_CLIP), QN_LOPT_CLIP) : g;
}

/* A running mean. */
QN_FN qn_f32 qn_lopt_mean(float decay, float rest, qn_f32 mean, qn_f32 value)
{
  return qn_fma(qn_splat(decay), mean, qn_splat(rest) * value);
}

/* S: 1/sqrt(max(x, 1e-9)); NaN stays NaN. */
QN_FN qn_f32 qn_lopt_root(qn_f32 x) { return qn_rsqrt(qn_no_less(x, 1e-9f)); }

/* The factors of an element of a tensor that is not factored, A and B. */
QN_FN qn_f32 qn_lopt_factor_a(qn_f32 f) { return qn_lopt_root(f + 1e-9f); }
QN_FN qn_f32 qn_lopt_factor_b(qn_f32 f, float term) { return qn_rsqrt(f + term); }

/* Of a state of the row over the mean of its like, and of a state of the column, the root is a factor. */
QN_FN qn_f32 qn_lopt_over_mean(qn_f32 state, qn_f32 mean) { return state / (mean + 1e-9f); }

/* s, and the network's second input of a row's or column's state, are the inverse roots of these;
 * kernels have a quicker root than the processor. */
QN_FN qn_f32 qn_lopt_s_square(qn_f32 v) { return v + 1e-6f; }
QN_FN qn_f32 qn_lopt_inverse_square(qn_f32 state) { return state + 1e-8f; }
QN_FN qn_f32 qn_lopt_inverse(qn_f32 state) { return qn_rsqrt(qn_lopt_inverse_square(state)); }

/* Of one decay: m, m s, g A, m B. */
QN_FN void qn_lopt_decay_inputs(qn_f32 g, qn_f32 m, qn_f32 s, qn_f32 a, qn_f32 b, qn_f32 x[4])
{
  x[0] = m, x[1] = m * s, x[2] = g * a, x[3] = m * b;
}

QN_FN void qn_lopt_inputs(qn_f32 g, qn_f32 p, const qn_f32 m[3], qn_f32 v, qn_f32 s, const qn_f32 a[3],
                          const qn_f32 b[3], qn_f32 x[16])
{
  x[0] = g, x[1] = p, x[5] = v, x[9] = s;
  QN_UNROLL
  for (int k = 0; k < 3; k++) {
    qn_f32 of[4];
    qn_lopt_decay_inputs(g, m[k], s, a[k], b[k], of);
    x[2 + k] = of[0], x[6 + k] = of[1], x[10 + k] = of[2], x[13 + k] = of[3];
  }
}

/* max(x, 0); NaN stays NaN. */
QN_FN qn_f32 qn_lopt_relu(qn_f32 x) { return qn_select(qn_less(x, qn_splat(0.0f)), qn_splat(0.0f), x); }

/* Moves p by a direction, which e to the magnitude makes longer: by step = lr step_mult, with decay = weight_decay lr.
 */
QN_FN qn_f32 qn_lopt_moved_by(qn_f32 p, qn_f32 direction, float step, float decay)
{
  p = qn_fma(qn_splat(-step), direction, p);
  return qn_fma(qn_splat(-decay), p, p);
}

QN_FN qn_f32 qn_lopt_moved(qn_f32 p, qn_f32 direction, qn_f32 magnitude, float exp_mult, float step, float decay)
{
  return qn_lopt_moved_by(p, direction * qn_exp(magnitude * qn_splat(exp_mult)), step, decay);
}

/* The decay is weight_decay alone, of the parameter before the step, and lr multiplies both. */
QN_FN qn_f32 qn_lopt_moved_jointly_by(qn_f32 p, qn_f32 direction, float lr, float decay)
{
  return qn_fma(qn_splat(-lr), qn_fma(qn_splat(decay), p, direction), p);
}

QN_FN qn_f32 qn_lopt_moved_jointly(qn_f32 p, qn_f32 direction, qn_f32 magnitude, float exp_mult, float lr, float decay)
{
  return qn_lopt_moved_jointly_by(p, direction * qn_exp(magnitude * qn_splat(exp_mult)), lr, decay);
}
#endif
