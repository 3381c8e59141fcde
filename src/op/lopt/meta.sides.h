/* SPDX-License-Identifier: Apache-2.0 */
/* meta.sides.h - what optimizers in training have in common, whatever their network (phase.h): weights of a particle's
 * own, and the means of squares over the sides of a matrix. The unit says with VECTOR_STATES whether vectors have such
 * means too. */
#ifndef QN_OP_LOPT_META_SIDES_H
#define QN_OP_LOPT_META_SIDES_H
#include "op/lopt/meta.task.h"

static_assert(META_THREADS == QN_THREADS, "one number of threads");
constexpr qn_u32 META_WEIGHTS = B3 + OUTPUTS;

/* Sums of a side of a tensor over its places: of each decay its state, the square of it, and of its inverse root. */
struct side_sums {
  float state[3], square[3], inverse[3];
};

QN_FN bool is_matrix(const qn_meta_tensor &t) { return t.inputs != 0; }
/* The contract's row lacks the larger dimension, of equal ones the later; which side is it? A vector has one side. */
QN_FN qn_u32 row_side(const qn_meta_tensor &t) { return is_matrix(t) && t.outputs > t.inputs ? 1 : 0; }
QN_FN qn_u32 places(const qn_meta_tensor &t, qn_u32 side) { return side ? t.inputs : t.outputs; }
QN_FN qn_u32 apart(const qn_meta_tensor &t, qn_u32 side) { return side ? t.inputs : t.places; } /* decays */
QN_FN float inverse(float state) { return quick_rsqrt(qn_lopt_inverse_square(state)); }

/* theta and what its pair's epsilon adds or takes away; behind it a barrier. */
QN_FN void perturb(float *weights, const qn_meta_window &a, qn_u64 seed, float sign, qn_u32 thread)
{
  for (qn_u32 i = thread; 4 * i < META_WEIGHTS; i += META_THREADS) {
    float x[4];
    normals4(seed, META_EPSILON, 0, i, x);
    for (qn_u32 j = 0; j < 4 && 4 * i + j < META_WEIGHTS; j++)
      weights[4 * i + j] = a.theta[4 * i + j] + sign * a.sigma * x[j];
  }
  qn_barrier();
}

/* ---- the means of squares: a matrix's two sides, a vector's one ---- */
QN_FN void new_states(const qn_meta_window &a, float *slab, const qn_meta_tensor &t, qn_u32 side, qn_u32 place,
                      float mean)
{
  float *const state = slab + t.state[side] + place;
  QN_UNROLL
  for (qn_u32 d = 0; d < 3; d++)
    state[d * apart(t, side)] = qn_lopt_mean(a.f[d], a.f_rest[d], state[d * apart(t, side)], mean);
}

/* Of a gradient as the op takes it. */
QN_FN float add_square(float sum, float g)
{
  g = taken(g);
  return qn_fma(g, g, sum);
}

QN_FN void update_states(const qn_meta_window &a, float *slab, qn_u32 thread)
{
  for (qn_u32 k = 0; k < a.group.tensors; k++) {
    const qn_meta_tensor &t = a.group.tensor[k];
    const float *const g = slab + t.g;
    if (!is_matrix(t)) {
      for (qn_u32 o = thread; VECTOR_STATES && o < t.outputs; o += META_THREADS)
        new_states(a, slab, t, 0, o, add_square(0.0f, g[o]) + 1e-30f);
      continue;
    }
    for (qn_u32 o = qn_simd(); o < t.outputs; o += META_SIMDS) {
      float sum = 0.0f;
      for (qn_u32 i = qn_lane(); i < t.inputs; i += 32) sum = add_square(sum, g[o * t.inputs + i]);
      sum = qn_simd_sum(sum);
      if (qn_lane() == 0) new_states(a, slab, t, 0, o, sum / static_cast<float>(t.inputs) + 1e-30f);
    }
    for (qn_u32 i = thread; i < t.inputs; i += META_THREADS) {
      float sum = 0.0f;
      for (qn_u32 o = 0; o < t.outputs; o++) sum = add_square(sum, g[o * t.inputs + i]);
      new_states(a, slab, t, 1, i, sum / static_cast<float>(t.outputs) + 1e-30f);
    }
  }
}

QN_FN void sum_sides(side_sums (*sums)[2], const qn_meta_group &by, const float *slab)
{
  for (qn_u32 task = qn_simd(); task < by.tensors * 6; task += META_SIMDS) {
    const qn_u32 k = task / 6, side = task / 3 % 2, d = task % 3;
    const qn_meta_tensor &t = by.tensor[k];
    const float *const state = slab + t.state[side] + d * apart(t, side);
    float sum = 0.0f, square = 0.0f, of_inverse = 0.0f;
    for (qn_u32 i = qn_lane(); i < places(t, side); i += 32) {
      const float x = state[i], y = inverse(x);
      sum += x, square = qn_fma(x, x, square), of_inverse = qn_fma(y, y, of_inverse);
    }
    sum = qn_simd_sum(sum), square = qn_simd_sum(square), of_inverse = qn_simd_sum(of_inverse);
    side_sums &to = sums[k][side];
    if (qn_lane() == 0) to.state[d] = sum, to.square[d] = square, to.inverse[d] = of_inverse;
  }
}

/* Rounding down, exact for elements below 2^16 and up to 2^8 inputs. */
QN_FN qn_u32 output_of(const qn_meta_tensor &t, qn_u32 at)
{
  return static_cast<qn_u32>((static_cast<float>(at) + 0.5f) * t.of_inputs);
}

QN_FN void read4(float (&to)[4], const float *from) { load4(to, from, 4, true); }
#endif
