/* SPDX-License-Identifier: Apache-2.0 */
/* celo2.elements.cu - CELO2's kernels over the list on a device, behind those of op/lopt's factors. celo2_begin sets
 * each tensor's rates. celo2_whole takes small matrices, a simdgroup each, from the gradient to the parameter, and
 * chunks of vectors, whose step is AdamW's. Of large matrices celo2_stats adds the channels' squares, a block a chunk,
 * celo2_layer makes the first layer of them, and celo2_outputs writes the network's outputs, m and v. */
#include "op/celo2/network.h"
#include "op/celo2/scalar.math.h"
#define QN_LOPT_OWN_STATS
#include "op/lopt/lopt.elements.cu"

constexpr int LAYER = INPUTS * WIDTH;

QN_GROUP_KERNEL(celo2_begin, qn_celo2_args, a)
{
  const qn_lopt_live live = a.of.hyper ? *a.of.hyper : a.of.live;
  const qn_u32 thread = qn_thread();
  spread_firsts(a.of.items, a.of.n, a.of.firsts, thread, qn_block_threads());
  if (thread == 0) a.of.head->go = 1;
  for (qn_u64 k = thread; k < a.of.n; k += qn_block_threads()) {
    const qn_lopt_device_item &it = a.of.items[k];
    qn_lopt_scalars &f = *it.scalars;
    const bool factored = it.flags & QN_LOPT_FACTORED;
    f.of_gradient = 1.0f;
    f.lr = static_cast<float>(live.lr * it.lr_scale);
    f.decay = factored ? static_cast<float>(live.weight_decay) : a.own.adam_decay;
    if (factored) continue;
    f.lr = static_cast<float>(static_cast<double>(f.lr) * a.own.adam_lr_mult);
    f.scale[QN_CELO2_OF_M] = qn_celo2_correction(a.own.m_decay, live.step);
    f.scale[QN_CELO2_OF_V] = qn_celo2_correction(a.own.v_decay, live.step);
  }
}

/* ---- elements of matrices ---- */

/* An element, and of the row and the column the channels: three states and their inverse roots each. */
struct seen {
  element of;
  float factor[2][FACTOR_CHANNELS];
};

QN_FN void set_factor(float (&to)[FACTOR_CHANNELS], const float (&state)[3])
{
  QN_UNROLL
  for (int d = 0; d < 3; d++) to[d] = state[d], to[3 + d] = quick_rsqrt(qn_lopt_inverse_square(state[d]));
}

QN_FN void read_states(float (&to)[3], const qn_lopt_device_factor &f, qn_u64 at)
{
  QN_UNROLL
  for (int d = 0; d < 3; d++) to[d] = f.state[static_cast<qn_u64>(d) * f.n + at];
}

QN_FN void read(seen (&s)[1], const qn_lopt_device_args &a, const qn_lopt_device_item &it, qn_u64 i)
{
  const bool row_over_x = it.flags & QN_LOPT_ROW_OVER_X;
  const qn_lopt_device_factor &row = row_over_x ? it.over_x : it.over_y, &column = row_over_x ? it.over_y : it.over_x;
  float states[3];
  read_element(s[0].of, a, it, i);
  read_states(states, row, row_over_x ? s[0].of.over_x : s[0].of.over_y);
  set_factor(s[0].factor[0], states);
  read_states(states, column, row_over_x ? s[0].of.over_y : s[0].of.over_x);
  set_factor(s[0].factor[1], states);
}

/* Are its elements taken in fours, which have one row? */
QN_FN bool in_fours(const qn_lopt_device_item &it)
{
  return it.flags & QN_LOPT_STRAIGHT && it.length % 4 == 0 && it.matrix_rows * it.matrix_columns % 4 == 0;
}

QN_FN void read(seen (&s)[4], const qn_lopt_device_args &a, const qn_lopt_device_item &it, qn_u64 i)
{
  const bool narrow = it.n >> 32 == 0, row_over_x = it.flags & QN_LOPT_ROW_OVER_X;
  const qn_u64 row = over(i, it.length, narrow), over_x = over(row, it.x, narrow) * it.length + (i - row * it.length);
  float g[4], p[4], v[4], m[3][4], x[3][4], y[3], root[4], of_y[FACTOR_CHANNELS];
  const bool aligned = it.flags & QN_LOPT_ALIGNED, aligned_states = reinterpret_cast<qn_u64>(it.over_x.state) % 16 == 0;
  load4(g, it.g + i, 4, aligned);
  load4(p, it.p + i, 4, aligned);
  load4(v, it.v + i, 4, aligned);
  QN_UNROLL
  for (qn_u64 d = 0; d < 3; d++) {
    load4(m[d], it.m + d * it.n + i, 4, aligned);
    load4(x[d], it.over_x.state + d * it.over_x.n + over_x, 4, aligned_states);
  }
  load4(root, it.over_y.root + 4 * row, 4, true);
  read_states(y, it.over_y, row);
  set_factor(of_y, y);
  QN_UNROLL
  for (qn_u32 k = 0; k < 4; k++) {
    element &e = s[k].of;
    float root_x[4], of_x[FACTOR_CHANNELS];
    const float states[3] = {x[0][k], x[1][k], x[2][k]};
    load4(root_x, it.over_x.root + 4 * (over_x + k), 4, true);
    set_factor(of_x, states);
    e.g = gradient(g[k], it.scalars->of_gradient), e.p = p[k];
    e.v = qn_lopt_mean(a.v, a.v_rest, v[k], e.g * e.g);
    QN_UNROLL
    for (int d = 0; d < 3; d++) {
      e.m[d] = qn_lopt_mean(a.m[d], a.m_rest[d], m[d][k], e.g);
      e.a[d] = e.b[d] = root_x[d] * root[d];
    }
    QN_UNROLL
    for (int c = 0; c < FACTOR_CHANNELS; c++) {
      s[k].factor[0][c] = row_over_x ? of_x[c] : of_y[c];
      s[k].factor[1][c] = row_over_x ? of_y[c] : of_x[c];
    }
  }
}

/* All channels, in the order of qn_celo2_input. */
QN_FN void set_channels(float (&x)[32], const seen &s)
{
  float own[ELEMENT_INPUTS];
  element_inputs(own, s.of.g, s.of.p, s.of.m, s.of.v, s.of.a, s.of.b);
  QN_UNROLL
  for (int k = 0; k < ELEMENT_INPUTS; k++) x[k] = own[k];
  QN_UNROLL
  for (int c = 0; c < FACTOR_CHANNELS; c++) {
    x[ELEMENT_INPUTS + c] = s.factor[0][c];
    x[ELEMENT_INPUTS + FACTOR_CHANNELS + c] = s.factor[1][c];
  }
  x[30] = x[31] = 0;
}

template <int n>
QN_FN void add_channels(float (&sum)[32], const qn_lopt_device_args &a, const qn_lopt_device_item &it, qn_u64 i)
{
  seen s[n];
  read(s, a, it, i);
  QN_UNROLL
  for (int e = 0; e < n; e++) {
    float x[32];
    set_channels(x, s[e]);
    QN_UNROLL
    for (int k = 0; k < INPUTS; k++) sum[k] = qn_fma(x[k], x[k], sum[k]);
  }
}

/* The first layer's weight k, by channel, with the channel's scale. */
QN_FN float layer_weight(const float *weights, qn_u32 k, double scale)
{
  const qn_u32 input = static_cast<qn_u32>(qn_celo2_input(static_cast<int>(k / WIDTH)));
  return static_cast<float>(scale * static_cast<double>(weights[QN_CELO2_W1 + input * WIDTH + k % WIDTH]));
}

QN_FN void write(float *to, const float (&v)[1], bool) { *to = v[0]; }
QN_FN void write(float *to, const float (&v)[4], bool aligned) { store4(to, v, 4, aligned); }

/* The network's outputs of n elements; m and v of this step are written. */
template <int n>
QN_FN void outputs_of(float (&out)[n], const qn_lopt_device_args &a, const qn_lopt_device_item &it, qn_u64 i,
                      const float *layer, const float *weights)
{
  seen s[n];
  float x[n][32], h[n][WIDTH], v[n], m[3][n];
  read(s, a, it, i);
  QN_UNROLL
  for (int e = 0; e < n; e++) {
    set_channels(x[e], s[e]);
    QN_UNROLL
    for (int k = 0; k < WIDTH; k++) h[e][k] = weights[QN_CELO2_B1 + k];
    v[e] = s[e].of.v;
    QN_UNROLL
    for (int d = 0; d < 3; d++) m[d][e] = s[e].of.m[d];
  }
  QN_UNROLL
  for (int k = 0; k < INPUTS; k++) QN_UNROLL
  for (int j = 0; j < WIDTH; j++) QN_UNROLL
  for (int e = 0; e < n; e++) h[e][j] = qn_fma(layer[k * WIDTH + j], x[e][k], h[e][j]);
  const bool aligned = it.flags & QN_LOPT_ALIGNED;
  write(it.v + i, v, aligned);
  QN_UNROLL
  for (int d = 0; d < 3; d++) write(it.m + static_cast<qn_u64>(d) * it.n + i, m[d], aligned);
  qn_celo2_network(n, h, weights, a.exp_mult, out);
}

/* ---- large matrices ---- */

struct chunk {
  qn_u64 matrix, first, last;
};

QN_FN chunk chunk_of(const qn_lopt_device_item &it, qn_u64 task)
{
  const qn_u64 n = it.matrix_rows * it.matrix_columns, chunks = ceiling(n, A_TASK), at = task % chunks * A_TASK;
  const qn_u64 begin = task / chunks * n;
  return {task / chunks, begin + at, begin + (n - at < A_TASK ? n : at + A_TASK)};
}

QN_GROUP_KERNEL(celo2_stats, qn_celo2_args, a)
{
  QN_SHARED(float, sums, QN_THREADS);
  const qn_u32 k = item_of(a.of, static_cast<qn_u32>(qn_block())), thread = qn_thread();
  const qn_lopt_device_item &it = a.of.items[k];
  const qn_u64 task = qn_block() - a.of.first[k];
  const chunk c = chunk_of(it, task);
  float sum[32] = {};
  if (in_fours(it)) {
    for (qn_u64 i = c.first + 4 * thread; i < c.last; i += 4 * QN_THREADS) add_channels<4>(sum, a.of, it, i);
  } else {
    for (qn_u64 i = c.first + thread; i < c.last; i += QN_THREADS) add_channels<1>(sum, a.of, it, i);
  }
  sums[thread] = sum_by_lane(sum);
  qn_barrier();
  if (thread >= INPUTS) return;
  double total = 0;
  for (qn_u32 s = 0; s < QN_THREADS / 32; s++) total += static_cast<double>(sums[32 * s + thread]);
  it.partial[task * INPUTS + thread] = total;
}

QN_GROUP_KERNEL(celo2_layer, qn_celo2_args, a)
{
  QN_SHARED(double, sums, QN_THREADS);
  QN_SHARED(double, scale, 32);
  const qn_u32 k = item_of(a.of, static_cast<qn_u32>(qn_block())), thread = qn_thread();
  const qn_lopt_device_item &it = a.of.items[k];
  const qn_u64 matrix = qn_block() - a.of.first[k], n = it.matrix_rows * it.matrix_columns;
  const qn_u64 chunks = ceiling(n, A_TASK);
  const double *partial = it.partial + matrix * chunks * INPUTS;
  double sum = 0;
  if (qn_lane() < INPUTS)
    for (qn_u64 c = qn_simd(); c < chunks; c += QN_THREADS / 32) sum += partial[c * INPUTS + qn_lane()];
  sums[thread] = sum;
  qn_barrier();
  if (thread < 32) {
    double total = 0;
    for (qn_u32 s = 0; s < QN_THREADS / 32; s++) total += sums[32 * s + thread];
    scale[thread] = qn_celo2_scale(total, n);
  }
  qn_barrier();
  if (thread < LAYER) it.layer[matrix * LAYER + thread] = layer_weight(a.of.weights, thread, scale[thread / WIDTH]);
}

QN_GROUP_KERNEL(celo2_outputs, qn_celo2_args, a)
{
  QN_SHARED(float, layer, LAYER);
  QN_SHARED(float, weights, QN_CELO2_WEIGHTS);
  const qn_u32 k = item_of(a.of, static_cast<qn_u32>(qn_block())), thread = qn_thread();
  const qn_lopt_device_item &it = a.of.items[k];
  const chunk c = chunk_of(it, qn_block() - a.of.first[k]);
  if (thread < LAYER) layer[thread] = it.layer[c.matrix * LAYER + thread];
  for (qn_u32 i = thread; i < QN_CELO2_WEIGHTS; i += QN_THREADS) weights[i] = a.of.weights[i];
  qn_barrier();
  if (in_fours(it)) {
    for (qn_u64 i = c.first + 4 * thread; i < c.last; i += 4 * QN_THREADS) {
      float out[4];
      outputs_of(out, a.of, it, i, layer, weights);
      write(it.moves + i, out, true);
    }
  } else {
    for (qn_u64 i = c.first + thread; i < c.last; i += QN_THREADS) {
      float out[1];
      outputs_of(out, a.of, it, i, layer, weights);
      it.moves[i] = out[0];
    }
  }
}

/* ---- small matrices ---- */

constexpr qn_u32 SMALL = QN_CELO2_SMALL;

/* A simdgroup's shared memory. */
struct small {
  float *layer, *t, *next, *a, *of_a;
};
constexpr qn_u32 OF_SMALL = LAYER + 4 * SMALL;

QN_FN double squares_of(const float *t, qn_u32 n)
{
  double sum = 0;
  for (qn_u32 i = qn_lane(); i < n; i += 32) sum += static_cast<double>(t[i]) * static_cast<double>(t[i]);
  return qn_simd_sum(sum);
}

/* Of t (length, width) A = t^T t, then SECOND A + THIRD A A, then FIRST t + t of that. */
QN_FN void advance(const small &s, qn_u32 length, qn_u32 width)
{
  for (qn_u32 e = qn_lane(); e < width * width; e += 32) {
    float sum = 0;
    for (qn_u32 k = 0; k < length; k++) sum = qn_fma(s.t[k * width + e / width], s.t[k * width + e % width], sum);
    s.a[e] = sum;
  }
  qn_simd_barrier();
  for (qn_u32 e = qn_lane(); e < width * width; e += 32) {
    float sum = 0;
    for (qn_u32 k = 0; k < width; k++) sum = qn_fma(s.a[e / width * width + k], s.a[k * width + e % width], sum);
    s.of_a[e] = QN_CELO2_SECOND * s.a[e] + QN_CELO2_THIRD * sum;
  }
  qn_simd_barrier();
  for (qn_u32 e = qn_lane(); e < length * width; e += 32) {
    float sum = QN_CELO2_FIRST * s.t[e];
    for (qn_u32 k = 0; k < width; k++) sum = qn_fma(s.t[e / width * width + k], s.of_a[k * width + e % width], sum);
    s.next[e] = sum;
  }
  qn_simd_barrier();
  for (qn_u32 e = qn_lane(); e < length * width; e += 32) s.t[e] = s.next[e];
  qn_simd_barrier();
}

QN_FN void make_orthogonal(const small &s, qn_u32 length, qn_u32 width)
{
  const float scale = qn_celo2_into_ball(squares_of(s.t, length * width));
  for (qn_u32 e = qn_lane(); e < length * width; e += 32) s.t[e] *= scale;
  qn_simd_barrier();
  for (int round = 0; round < QN_CELO2_ROUNDS; round++) advance(s, length, width);
}

QN_FN void take_matrix(const qn_celo2_args &a, const qn_lopt_device_item &it, qn_u64 matrix, const small &s)
{
  const qn_u32 rows = static_cast<qn_u32>(it.matrix_rows), columns = static_cast<qn_u32>(it.matrix_columns);
  const qn_u32 n = rows * columns, lane = qn_lane(), width = rows < columns ? rows : columns;
  const bool tall = rows >= columns;
  const qn_u64 first = matrix * n;
  float sum[32] = {};
  for (qn_u32 e = lane; e < n; e += 32) add_channels<1>(sum, a.of, it, first + e);
  const double scale = qn_celo2_scale(static_cast<double>(sum_by_lane(sum)), n);
  for (qn_u32 h = 0; h < WIDTH && lane < INPUTS; h++)
    s.layer[lane * WIDTH + h] = layer_weight(a.of.weights, lane * WIDTH + h, scale);
  qn_simd_barrier();
  for (qn_u32 e = lane; e < n; e += 32) {
    float out[1];
    outputs_of(out, a.of, it, first + e, s.layer, a.of.weights);
    s.t[tall ? e : e % columns * rows + e / columns] = out[0];
  }
  qn_simd_barrier();
  if (a.own.orthogonalize) make_orthogonal(s, n / width, width);
  const float factor = static_cast<float>(a.own.rms_mult * qn_celo2_scale(squares_of(s.t, n), n));
  for (qn_u32 e = lane; e < n; e += 32) {
    const float move = s.t[tall ? e : e % columns * rows + e / columns] * factor;
    it.p[first + e] = qn_lopt_moved_jointly_by(it.p[first + e], move, it.scalars->lr, it.scalars->decay);
  }
  qn_simd_barrier(); /* before the next one's writes */
}

/* ---- vectors ---- */

QN_FN void take_vector(const qn_celo2_args &a, const qn_lopt_device_item &it, qn_u64 task, qn_u32 thread)
{
  const qn_u64 first = task * A_TASK, last = it.n - first < A_TASK ? it.n : first + A_TASK;
  const qn_lopt_scalars &f = *it.scalars;
  for (qn_u64 i = first + thread; i < last; i += 32 * QN_CELO2_SIMDS) {
    const float g = taken(it.g[i]), m = qn_lopt_mean(a.own.m, a.own.m_rest, it.m[i], g);
    const float v = qn_lopt_mean(a.own.v, a.own.v_rest, it.v[i], g * g);
    it.p[i] =
        qn_celo2_adam(it.p[i], m, v, f.scale[QN_CELO2_OF_M], f.scale[QN_CELO2_OF_V], a.own.adam_eps, f.lr, f.decay);
    it.m[i] = m, it.v[i] = v;
  }
}

QN_GROUP_KERNEL(celo2_whole, qn_celo2_args, a)
{
  QN_SHARED(float, shared, QN_CELO2_SIMDS *OF_SMALL);
  const qn_u32 k = item_of(a.of, static_cast<qn_u32>(qn_block()));
  const qn_lopt_device_item &it = a.of.items[k];
  const qn_u64 task = qn_block() - a.of.first[k];
  if (!(it.flags & QN_LOPT_FACTORED)) {
    take_vector(a, it, task, qn_thread());
    return;
  }
  float *const own = shared + qn_simd() * OF_SMALL;
  const small s = {own, own + LAYER, own + LAYER + SMALL, own + LAYER + 2 * SMALL, own + LAYER + 3 * SMALL};
  const qn_u64 together = qn_celo2_device_together(it.matrix_rows * it.matrix_columns), end = (task + 1) * together;
  for (qn_u64 j = task * together + qn_simd(); j < end && j < it.matrices; j += QN_CELO2_SIMDS)
    take_matrix(a, it, j, s);
}
