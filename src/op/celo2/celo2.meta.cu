/* SPDX-License-Identifier: Apache-2.0 */
/* celo2.meta.cu - meta-training of CELO2's network on a device: the optimizer whose weights are a particle's own. All
 * threads of a block take a matrix after the other, and its move is made orthogonal in the slab, as a product of
 * `length` rows and `width` columns, width being the less, in rows of a multiple of 4. op/lopt/meta.loop.h has the
 * kernels. */
#define QN_THREADS 128
#define QN_BLOCKS 4
#include "op/celo2/network.h"
#include "op/celo2/scalar.math.h"
#include "op/lopt/lane_sums.h"
constexpr bool VECTOR_STATES = false;
#include "op/lopt/meta.sides.h"

constexpr qn_u32 LAYER = INPUTS * WIDTH, SQUARES = 32; /* one of a simdgroup's lanes each */

struct window_args {
  qn_meta_window of;
  qn_celo2_own own;
};

struct optimizer {
  alignas(16) float weights[META_WEIGHTS + 1];
  float layer[LAYER], of_m, of_v; /* of a matrix, with its channels' scales; corrections of vectors' means */
  side_sums side[QN_META_TENSORS][2];
  float partial[META_SIMDS][QN_META_TENSORS][SQUARES], scratch[32];
  double sums[32];
  qn_u32 label[QN_META_BATCH];
};

QN_FN void begin_optimizer(optimizer &o, const qn_meta_window &a, qn_u64 seed, float sign, qn_u32 thread)
{
  perturb(o.weights, a, seed, sign, thread);
}

/* ---- elements ---- */

/* All channels of an element, in the order of qn_celo2_input; its new m and v, or those that there are. */
struct element {
  float x[32], m[3], v;
};

template <bool is_new>
QN_FN void read_element(element &e, const optimizer &o, const qn_meta_window &w, const float *slab, qn_u32 k, qn_u32 at)
{
  const qn_meta_tensor &t = w.group.tensor[k];
  const qn_u32 output = output_of(t, at), input = at - output * t.inputs, row = row_side(t);
  const float g = taken(slab[t.g + at]);
  float own[ELEMENT_INPUTS], factor[3];
  e.v = is_new ? qn_lopt_mean(w.v, w.v_rest, slab[t.v + at], g * g) : slab[t.v + at];
  QN_UNROLL
  for (qn_u32 d = 0; d < 3; d++) {
    const float m = slab[t.m + d * t.padded + at];
    const float one = slab[t.state[0] + d * t.places + output], other = slab[t.state[1] + d * t.inputs + input];
    const float mean = o.side[k][row].state[d] * (row ? t.of_inputs : t.of_outputs);
    const float r = row ? other : one, c = row ? one : other;
    e.m[d] = is_new ? qn_lopt_mean(w.m[d], w.m_rest[d], m, g) : m;
    factor[d] = qn_lopt_root(qn_lopt_over_mean(r, mean)) * qn_lopt_root(c);
    e.x[ELEMENT_INPUTS + d] = r, e.x[ELEMENT_INPUTS + 3 + d] = inverse(r);
    e.x[ELEMENT_INPUTS + 6 + d] = c, e.x[ELEMENT_INPUTS + 9 + d] = inverse(c);
  }
  element_inputs(own, g, slab[t.p + at], e.m, e.v, factor, factor);
  QN_UNROLL
  for (int j = 0; j < ELEMENT_INPUTS; j++) e.x[j] = own[j];
  e.x[30] = e.x[31] = 0.0f;
}

/* New m and v, and the squares of all channels. */
QN_FN void update_means(optimizer &o, const qn_meta_window &w, float *slab, qn_u32 thread)
{
  for (qn_u32 k = 0; k < w.group.tensors; k++) {
    const qn_meta_tensor &t = w.group.tensor[k];
    float square[SQUARES] = {};
    for (qn_u32 at = thread; is_matrix(t) && at < t.n; at += META_THREADS) {
      element e;
      read_element<true>(e, o, w, slab, k, at);
      QN_UNROLL
      for (qn_u32 j = 0; j < SQUARES; j++) square[j] = qn_fma(e.x[j], e.x[j], square[j]);
      slab[t.v + at] = e.v;
      QN_UNROLL
      for (qn_u32 d = 0; d < 3; d++) slab[t.m + d * t.padded + at] = e.m[d];
    }
    const float sum = sum_by_lane(square);
    o.partial[qn_simd()][k][qn_lane()] = sum;
  }
}

QN_FN void set_layer(optimizer &o, const qn_meta_tensor &t, qn_u32 k, qn_u32 thread)
{
  for (qn_u32 i = thread; i < LAYER; i += META_THREADS) {
    const qn_u32 channel = i / WIDTH;
    const qn_u32 input = static_cast<qn_u32>(qn_celo2_input(static_cast<int>(channel)));
    double sum = 0;
    for (qn_u32 s = 0; s < META_SIMDS; s++) sum += static_cast<double>(o.partial[s][k][channel]);
    const double weight = static_cast<double>(o.weights[QN_CELO2_W1 + input * WIDTH + i % WIDTH]);
    o.layer[i] = static_cast<float>(qn_celo2_scale(sum, t.n) * weight);
  }
}

/* ---- a move ---- */

/* Of a matrix as (length, width), where it lies, and where the next one goes. */
struct move {
  float *at, *next, *gram, *of_gram;
  qn_u32 length, width, row; /* row: floats */
  bool tall;                 /* the tensor's own layout; else its transpose */
};

QN_FN qn_u32 place_in(const move &x, qn_u32 output, qn_u32 input)
{
  return x.tall ? output * x.row + input : input * x.row + output;
}

QN_FN move move_of(const qn_meta_group &by, float *slab, const qn_meta_tensor &t)
{
  const bool tall = t.outputs >= t.inputs;
  const qn_u32 width = tall ? t.inputs : t.outputs;
  return {slab + by.move[0],   slab + by.move[1],
          slab + by.gram[0],   slab + by.gram[1],
          t.n / width,         width,
          (width + 3) / 4 * 4, tall};
}

/* The network's outputs; zeros behind the columns. */
QN_FN void write_outputs(const optimizer &o, const qn_meta_window &w, const float *slab, const move &x, qn_u32 k,
                         qn_u32 thread)
{
  const qn_meta_tensor &t = w.group.tensor[k];
  for (qn_u32 at = thread; at < t.n; at += META_THREADS) {
    element e;
    float h[1][WIDTH], made;
    read_element<false>(e, o, w, slab, k, at);
    QN_UNROLL
    for (int j = 0; j < WIDTH; j++) h[0][j] = o.weights[QN_CELO2_B1 + j];
    QN_UNROLL
    for (int c = 0; c < INPUTS; c++) QN_UNROLL
    for (int j = 0; j < WIDTH; j++) h[0][j] = qn_fma(o.layer[c * WIDTH + j], e.x[c], h[0][j]);
    qn_celo2_network(1, h, o.weights, w.exp_mult, &made);
    const qn_u32 output = output_of(t, at);
    x.at[place_in(x, output, at - output * t.inputs)] = made;
  }
  for (qn_u32 i = thread; i < x.length; i += META_THREADS)
    for (qn_u32 j = x.width; j < x.row; j++) x.at[i * x.row + j] = 0.0f;
}

/* A sum over the places of a matrix. */
QN_FN double squares_of(optimizer &o, const move &x, qn_u32 thread)
{
  double sum = 0;
  for (qn_u32 i = thread; i < x.length * x.row; i += META_THREADS)
    sum += static_cast<double>(x.at[i]) * static_cast<double>(x.at[i]);
  return qn_group_sum(sum, o.sums);
}

/* to = second a + third a^T a of four by four places a thread, where a (length, width) begins at `from`; without an
 * `add`, a^T a alone. */
QN_FN void products_of_columns(float *to, const float *from, qn_u32 length, qn_u32 row, const float *add, qn_u32 thread)
{
  const qn_u32 across = row / 4;
  for (qn_u32 task = thread; task < across * across; task += META_THREADS) {
    const qn_u32 i = task / across * 4, j = task % across * 4;
    float sum[4][4] = {};
    for (qn_u32 k = 0; k < length; k++) {
      float x[4], y[4];
      read4(x, from + k * row + i);
      read4(y, from + k * row + j);
      QN_UNROLL
      for (int r = 0; r < 4; r++) QN_UNROLL
      for (int c = 0; c < 4; c++) sum[r][c] = qn_fma(x[r], y[c], sum[r][c]);
    }
    QN_UNROLL
    for (qn_u32 r = 0; r < 4; r++) {
      float was[4] = {};
      if (add) read4(was, add + (i + r) * row + j);
      QN_UNROLL
      for (int c = 0; c < 4; c++)
        if (add) sum[r][c] = QN_CELO2_SECOND * was[c] + QN_CELO2_THIRD * sum[r][c];
      store4(to + (i + r) * row + j, sum[r], 4, true);
    }
  }
}

/* next = FIRST at + at of_gram. */
QN_FN void advance(const move &x, qn_u32 thread)
{
  const qn_u32 across = x.row / 4;
  for (qn_u32 task = thread; task < (x.length + 3) / 4 * across; task += META_THREADS) {
    const qn_u32 i = task / across * 4, j = task % across * 4, last = x.length - 1;
    float sum[4][4];
    const float *row[4];
    QN_UNROLL
    for (qn_u32 r = 0; r < 4; r++) {
      row[r] = x.at + (i + r < last ? i + r : last) * x.row;
      read4(sum[r], row[r] + j);
      QN_UNROLL
      for (int c = 0; c < 4; c++) sum[r][c] *= QN_CELO2_FIRST;
    }
    for (qn_u32 k = 0; k < x.width; k++) {
      float y[4];
      read4(y, x.of_gram + k * x.row + j);
      QN_UNROLL
      for (int r = 0; r < 4; r++) QN_UNROLL
      for (int c = 0; c < 4; c++) sum[r][c] = qn_fma(row[r][k], y[c], sum[r][c]);
    }
    QN_UNROLL
    for (qn_u32 r = 0; r < 4; r++)
      if (i + r < x.length) store4(x.next + (i + r) * x.row + j, sum[r], 4, true);
  }
}

QN_FN void make_orthogonal(optimizer &o, move &x, qn_u32 thread)
{
  const float scale = qn_celo2_into_ball(squares_of(o, x, thread));
  for (qn_u32 i = thread; i < x.length * x.row; i += META_THREADS) x.at[i] *= scale;
  qn_barrier();
  for (int round = 0; round < QN_CELO2_ROUNDS; round++) {
    products_of_columns(x.gram, x.at, x.length, x.row, nullptr, thread);
    qn_barrier();
    products_of_columns(x.of_gram, x.gram, x.width, x.row, x.gram, thread);
    qn_barrier();
    advance(x, thread);
    qn_barrier();
    float *const was = x.at;
    x.at = x.next, x.next = was;
  }
}

QN_FN void move_matrix(optimizer &o, const window_args &a, float *slab, qn_u32 k, qn_u32 thread)
{
  const qn_meta_window &w = a.of;
  const qn_meta_tensor &t = w.group.tensor[k];
  move x = move_of(w.group, slab, t);
  set_layer(o, t, k, thread);
  qn_barrier();
  write_outputs(o, w, slab, x, k, thread);
  qn_barrier();
  if (a.own.orthogonalize) make_orthogonal(o, x, thread);
  const float factor = static_cast<float>(a.own.rms_mult * qn_celo2_scale(squares_of(o, x, thread), t.n));
  for (qn_u32 at = thread; at < t.n; at += META_THREADS) {
    const qn_u32 output = output_of(t, at);
    float &p = slab[t.p + at];
    p = qn_lopt_moved_jointly_by(p, x.at[place_in(x, output, at - output * t.inputs)] * factor, w.step * t.lr_scale,
                                 w.decay);
  }
  qn_barrier();
}

/* ---- a step ---- */

QN_FN void move_vector(const optimizer &o, const window_args &a, float *slab, const qn_meta_tensor &t, qn_u32 thread)
{
  const float lr = static_cast<float>(static_cast<double>(a.of.step) * a.own.adam_lr_mult);
  for (qn_u32 i = thread; i < t.n; i += META_THREADS) {
    float &p = slab[t.p + i], &m = slab[t.m + i], &v = slab[t.v + i];
    const float g = taken(slab[t.g + i]);
    m = qn_lopt_mean(a.own.m, a.own.m_rest, m, g), v = qn_lopt_mean(a.own.v, a.own.v_rest, v, g * g);
    p = qn_celo2_adam(p, m, v, o.of_m, o.of_v, a.own.adam_eps, lr, a.own.adam_decay);
  }
}

QN_FN void take_step(optimizer &o, const window_args &a, float *slab, qn_u32 step, qn_u32 thread)
{
  const qn_meta_group &by = a.of.group;
  if (thread == META_THREADS - 1) o.of_m = qn_celo2_correction(a.own.m_decay, step);
  if (thread == META_THREADS - 2) o.of_v = qn_celo2_correction(a.own.v_decay, step);
  update_states(a.of, slab, thread);
  qn_barrier();
  sum_sides(o.side, by, slab);
  qn_barrier();
  update_means(o, a.of, slab, thread);
  qn_barrier();
  for (qn_u32 k = 0; k < by.tensors; k++) {
    if (is_matrix(by.tensor[k]))
      move_matrix(o, a, slab, k, thread);
    else
      move_vector(o, a, slab, by.tensor[k], thread);
  }
  qn_barrier();
}
#include "op/lopt/meta.loop.h"
