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

/* All channels, in the order of qn_celo2_input. */
QN_FN void set_channels(float (&x)[32], const element &e, const qn_lopt_device_item &it)
{
  const bool row_over_x = it.flags & QN_LOPT_ROW_OVER_X;
  const qn_lopt_device_factor &row = row_over_x ? it.over_x : it.over_y, &column = row_over_x ? it.over_y : it.over_x;
  const qn_u64 of_row = row_over_x ? e.over_x : e.over_y, of_column = row_over_x ? e.over_y : e.over_x;
  float own[ELEMENT_INPUTS];
  element_inputs(own, e.g, e.p, e.m, e.v, e.a, e.b);
  QN_UNROLL
  for (int k = 0; k < ELEMENT_INPUTS; k++) x[k] = own[k];
  QN_UNROLL
  for (int d = 0; d < 3; d++) {
    const float r = row.state[static_cast<qn_u64>(d) * row.n + of_row];
    const float c = column.state[static_cast<qn_u64>(d) * column.n + of_column];
    x[ELEMENT_INPUTS + d] = r, x[ELEMENT_INPUTS + 3 + d] = qn_lopt_inverse(r);
    x[ELEMENT_INPUTS + 6 + d] = c, x[ELEMENT_INPUTS + 9 + d] = qn_lopt_inverse(c);
  }
  x[30] = x[31] = 0;
}

QN_FN void add_channels(float (&sum)[32], const qn_lopt_device_args &a, const qn_lopt_device_item &it, qn_u64 i)
{
  element e;
  float x[32];
  read_element(e, a, it, i);
  set_channels(x, e, it);
  QN_UNROLL
  for (int k = 0; k < INPUTS; k++) sum[k] = qn_fma(x[k], x[k], sum[k]);
}

/* The first layer's weight k, by channel, with the channel's scale. */
QN_FN float layer_weight(const float *weights, qn_u32 k, double scale)
{
  const qn_u32 input = static_cast<qn_u32>(qn_celo2_input(static_cast<int>(k / WIDTH)));
  return static_cast<float>(scale * static_cast<double>(weights[QN_CELO2_W1 + input * WIDTH + k % WIDTH]));
}

/* The network's output; m and v of this step are written. */
QN_FN float output_of(const qn_lopt_device_args &a, const qn_lopt_device_item &it, qn_u64 i, const float *layer)
{
  element e;
  float x[32], h[WIDTH];
  read_element(e, a, it, i);
  set_channels(x, e, it);
  QN_UNROLL
  for (int k = 0; k < WIDTH; k++) h[k] = a.weights[QN_CELO2_B1 + k];
  QN_UNROLL
  for (int k = 0; k < INPUTS; k++) QN_UNROLL
  for (int j = 0; j < WIDTH; j++) h[j] = qn_fma(layer[k * WIDTH + j], x[k], h[j]);
  it.v[i] = e.v;
  for (int d = 0; d < 3; d++) it.m[static_cast<qn_u64>(d) * it.n + i] = e.m[d];
  return qn_celo2_network(h, a.weights, a.exp_mult);
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
  for (qn_u64 i = c.first + thread; i < c.last; i += QN_THREADS) add_channels(sum, a.of, it, i);
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
  const qn_u32 k = item_of(a.of, static_cast<qn_u32>(qn_block())), thread = qn_thread();
  const qn_lopt_device_item &it = a.of.items[k];
  const chunk c = chunk_of(it, qn_block() - a.of.first[k]);
  if (thread < LAYER) layer[thread] = it.layer[c.matrix * LAYER + thread];
  qn_barrier();
  for (qn_u64 i = c.first + thread; i < c.last; i += QN_THREADS) it.moves[i] = output_of(a.of, it, i, layer);
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
  for (qn_u32 e = lane; e < n; e += 32) add_channels(sum, a.of, it, first + e);
  const double scale = qn_celo2_scale(static_cast<double>(sum_by_lane(sum)), n);
  for (qn_u32 h = 0; h < WIDTH && lane < INPUTS; h++)
    s.layer[lane * WIDTH + h] = layer_weight(a.of.weights, lane * WIDTH + h, scale);
  qn_simd_barrier();
  for (qn_u32 e = lane; e < n; e += 32)
    s.t[tall ? e : e % columns * rows + e / columns] = output_of(a.of, it, first + e, s.layer);
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
