/* SPDX-License-Identifier: Apache-2.0 */
/* phase.h - the parts that the kernels of learned optimizers share: which tensor a task is of, the network's weights,
 * a gradient as its op takes it. The unit says which network, by a header like small_fc.h, and
 * QN_LOPT_GRADIENT (a qn_lopt_gradient), QN_LOPT_BOUNDED where gradients' norms are bounded, and, where it matters,
 * QN_LOPT_COMPAT, QN_LOPT_JOINT_DECAY (as qn_lopt_moved_jointly) and QN_LOPT_MEANS_OF_DECAYS. */
#ifndef QN_OP_LOPT_PHASE_H
#define QN_OP_LOPT_PHASE_H
#include "base/collective.h"
#include "op/lopt/small_fc.h"

/* Places in the array of weights: of the first layer (WIDTH, INPUTS), WIDTH, the second, and of the last. */
constexpr int B1 = WIDTH * INPUTS, W2 = B1 + WIDTH, B2 = W2 + WIDTH * WIDTH, W3 = B2 + WIDTH, B3 = W3 + OUTPUTS * WIDTH;
/* Inputs of the first layer, in the order of scalar.math.h. */
constexpr int ROW = ELEMENT_INPUTS - 3, FACTOR_CHANNELS = QN_LOPT_FACTOR_CHANNELS, LAST = ROW + 12, TIME = ROW + 15;
constexpr int ALL_INPUTS = ELEMENT_INPUTS + FACTOR_CHANNELS;
/* Has `over_x` a table? Else UPDATE computes its part of the first layer (lopt.layout.c). */
constexpr bool HAS_TABLE = WIDTH <= FACTOR_CHANNELS;

QN_FN const float *weights_of(const qn_lopt_device_args &a, const qn_lopt_device_item &it)
{
  return QN_LOPT_TENSOR_WEIGHTS ? it.weights : a.weights;
}

/* Of hidden value h, with the time's part. */
QN_FN float bias_of(const qn_lopt_device_args &a, const qn_lopt_device_item &it, qn_u32 h)
{
  return QN_LOPT_TENSOR_WEIGHTS ? it.weights[B1 + h] : a.head->bias[h];
}

QN_FN double weight(const float *weights, int hidden, int input)
{
  return static_cast<double>(weights[hidden * INPUTS + input]);
}

QN_FN qn_u64 ceiling(qn_u64 n, qn_u64 of) { return n / of + (n % of != 0); }

/* Of n tensors the first tasks, by phase; by the threads of one block. */
QN_FN void spread_firsts(const qn_lopt_device_item *items, qn_u64 n, qn_u32 *to, qn_u32 thread, qn_u32 threads)
{
  for (qn_u64 i = thread; i < n * QN_LOPT_NUMBERED; i += threads) {
    const qn_u64 k = i / QN_LOPT_NUMBERED, phase = i % QN_LOPT_NUMBERED;
    to[phase * n + k] = items[k].first[phase];
  }
}

/* The tensor that has the task. */
QN_FN qn_u32 item_of(const qn_lopt_device_args &a, qn_u32 task)
{
  qn_u32 low = 0, high = a.n;
  while (high - low > 1) {
    const qn_u32 middle = (low + high) / 2;
    if (a.first[middle] <= task)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/* Numbers in a row of `partial`. */
QN_FN qn_u32 sums_of(const qn_lopt_device_item &it) { return TOTALS ? TOTALS : it.channels; }

/* A gradient as the op takes it. */
QN_FN float taken(float g) { return qn_lopt_taken(static_cast<qn_lopt_gradient>(QN_LOPT_GRADIENT), g); }

QN_FN float gradient(float g, float of_gradient)
{
  g = taken(g);
  return QN_LOPT_BOUNDED ? g * of_gradient : g;
}

/* Four floats that begin at `from`, which is aligned to 16 if it says so; zeros behind the first n. */
QN_FN void load4(float (&to)[4], const float *from, qn_u32 n, bool aligned)
{
  if (aligned && n == 4) {
    const qn_16bytes v = qn_load16(from);
    QN_UNROLL
    for (int k = 0; k < 4; k++) to[k] = qn_bits_float(v.word[k]);
  } else {
    QN_UNROLL
    for (qn_u32 k = 0; k < 4; k++) to[k] = k < n ? from[k] : 0.0f;
  }
}

QN_FN void store4(float *to, const float (&v)[4], qn_u32 n, bool aligned)
{
  if (aligned && n == 4) {
    qn_store16(to, {{qn_float_bits(v[0]), qn_float_bits(v[1]), qn_float_bits(v[2]), qn_float_bits(v[3])}});
  } else {
    QN_UNROLL
    for (qn_u32 k = 0; k < 4; k++)
      if (k < n) to[k] = v[k];
  }
}

/* 1 / sqrt(x) of a normal x, to 2 units in the last place. */
QN_FN float quick_rsqrt(float x)
{
#ifdef QN_PTX
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0f / __builtin_sqrtf(x);
#endif
}

/* 2^x to 2^-22 of it; a result below the normal numbers is 0. */
QN_FN float quick_exp2(float x)
{
#ifdef QN_PTX
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return qn_exp2(x);
#endif
}

/* Of zeros either will do. */
QN_FN float relu(float x) { return qn_float_no_less(x, 0.0f); }

/* ---- in double, where one thread needs a few ---- */

/* e^x for x <= 0, to a few units of double. */
QN_FN double exp_double(double x)
{
  if (x < -700) return 0;
  const double n = static_cast<double>(static_cast<qn_i64>(x * 1.4426950408889634 - 0.5));
  const double r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
  double sum = 1, two = 1;
  for (int k = 16; k > 0; k--) sum = 1 + r * sum / k;
  for (int k = 0; k < static_cast<int>(-n); k++) two *= 0.5;
  return sum * two;
}

/* tanh, to some 1e-16. */
QN_FN double tanh_double(double x)
{
  const double e = exp_double(-2 * (x < 0 ? -x : x)), y = (1 - e) / (1 + e);
  return x < 0 ? -y : y;
}
#endif
