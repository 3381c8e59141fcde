/* SPDX-License-Identifier: Apache-2.0 */
/* lopt.elements.cu - the phases STATS and UPDATE on a device, an element a thread, by ordinary f32: of tensors whose
 * shape is not for tiles, of those that are not factored, and of all in the class fp32. QN_LOPT_PHASE is 0 or 1. */
#define QN_THREADS 256
#include "op/lopt/lane_sums.h"
#include "op/lopt/phase.h"

constexpr int CHANNELS = ALL_INPUTS, FACTORED = ELEMENT_INPUTS;

struct element {
  float g, p, v, m[3], f[3], a[3], b[3];
  qn_u64 over_x, over_y;
};

/* a / b, by the shorter of the machine's ways where both are below 2^32. */
QN_FN qn_u64 over(qn_u64 a, qn_u64 b, bool narrow)
{
  return narrow ? static_cast<qn_u32>(a) / static_cast<qn_u32>(b) : a / b;
}

/* Its places in the two factors, and the product of their roots. */
QN_FN void factor_element(element &e, const qn_lopt_device_item &it, qn_u64 i)
{
  const bool narrow = it.n >> 32 == 0;
  const qn_u64 row = over(i, it.length, narrow), j = i - row * it.length;
  e.over_x = over(row, it.x, narrow) * it.length + j;
  e.over_y = row;
  if (!(it.flags & QN_LOPT_STRAIGHT)) {
    const qn_u64 strip = over(j, it.strip, narrow), turns = over(j, it.c, narrow);
    e.over_y = (row * over(it.length, it.strip, narrow) + strip) * it.c + (j - turns * it.c);
  }
  for (int d = 0; d < 3; d++)
    e.a[d] = e.b[d] =
        it.over_x.root[4 * e.over_x + static_cast<qn_u64>(d)] * it.over_y.root[4 * e.over_y + static_cast<qn_u64>(d)];
}

/* Its values with this step's gradient in them. */
QN_FN void read_element(element &e, const qn_lopt_device_args &a, const qn_lopt_device_item &it, qn_u64 i)
{
  e.g = gradient(it.g[i], it.scalars->of_gradient);
  e.p = it.p[i];
  e.v = qn_lopt_mean(a.v, a.v_rest, it.v[i], e.g * e.g);
  for (int d = 0; d < 3; d++) {
    const qn_u64 at = static_cast<qn_u64>(d) * it.n + i;
    e.m[d] = qn_lopt_mean(a.m[d], a.m_rest[d], it.m[at], e.g);
    e.f[d] = 0;
    if (it.flags & QN_LOPT_FACTORED) continue;
    e.f[d] = qn_lopt_mean(a.f[d], a.f_rest[d], it.f[at], e.g * e.g + 1e-30f);
    e.a[d] = qn_lopt_factor_a(e.f[d]);
    e.b[d] = QN_LOPT_COMPAT ? e.a[d] : qn_lopt_factor_b(e.f[d], B_TERM);
  }
  if (it.flags & QN_LOPT_FACTORED) factor_element(e, it, i);
}

QN_FN void channels_of(float (&x)[CHANNELS], const element &e, bool factored)
{
  float first[FACTORED];
  element_inputs(first, e.g, e.p, e.m, e.v, e.a, e.b);
  QN_UNROLL
  for (int k = 0; k < FACTORED; k++) x[k] = first[k];
  QN_UNROLL
  for (int d = 0; d < 3; d++) {
    x[FACTORED + d] = factored ? 0.0f : e.f[d];
    x[FACTORED + 3 + d] = factored ? 0.0f : qn_lopt_inverse(e.f[d]);
  }
}

#if QN_LOPT_PHASE == 0
/* The squares of element i's channels. */
QN_FN void add_squares(float *sum, const qn_lopt_device_args &a, const qn_lopt_device_item &it, qn_u64 i)
{
  element e;
  float x[CHANNELS];
  read_element(e, a, it, i);
  channels_of(x, e, it.flags & QN_LOPT_FACTORED);
  QN_UNROLL
  for (int c = 0; c < CHANNELS; c++) sum[c] = qn_fma(x[c], x[c], sum[c]);
}
#endif

#if QN_LOPT_PHASE == 0 && !defined QN_LOPT_OWN_STATS
QN_GROUP_KERNEL(lopt_element_stats, qn_lopt_device_args, a)
{
  QN_SHARED(double, scratch, 32);
  const qn_u32 k = item_of(a, static_cast<qn_u32>(qn_block()));
  const qn_lopt_device_item &it = a.items[k];
  const qn_u64 task = qn_block() - a.first[k], first = task * A_TASK;
  const qn_u64 last = it.n - first < A_TASK ? it.n : first + A_TASK;
  float sum[CHANNELS] = {};
  for (qn_u64 i = first + qn_thread(); i < last; i += QN_THREADS) add_squares(sum, a, it, i);
  QN_UNROLL
  for (int c = 0; c < CHANNELS; c++) {
    const double total = qn_group_sum(static_cast<double>(sum[c]), scratch);
    if (qn_thread() == 0 && static_cast<qn_u32>(c) < it.channels)
      it.partial[task * it.channels + static_cast<qn_u32>(c)] = total;
  }
}
#elif QN_LOPT_PHASE == 1
/* The weights as the threads of a block read them. */
struct layers {
  const float *first, *second, *third, *bias, *second_bias, *third_bias;
};

QN_FN void add_input(float (&h)[WIDTH], float x, const float *weights)
{
  QN_UNROLL
  for (int i = 0; i < WIDTH; i++) h[i] = qn_fma(weights[i], x, h[i]);
}

QN_FN void run_network(float (&out)[2], const float (&x)[CHANNELS], float (&h)[WIDTH], int channels, const layers &l)
{
  if (HAS_TABLE) { /* so narrow a layer that all its weights' reads may stand side by side */
    QN_UNROLL
    for (int k = 0; k < FACTORED; k++) add_input(h, x[k], l.first + k * WIDTH);
    if (channels > FACTORED) {
      QN_UNROLL
      for (int k = FACTORED; k < CHANNELS; k++) add_input(h, x[k], l.first + k * WIDTH);
    }
  } else {
    for (int k = 0; k < channels; k++) {
      float value = 0;
      QN_UNROLL
      for (int c = 0; c < CHANNELS; c++) value = c == k ? x[c] : value;
      add_input(h, value, l.first + k * WIDTH);
    }
  }
  QN_UNROLL
  for (int i = 0; i < WIDTH; i++) h[i] = qn_lopt_relu(h[i]);
  out[0] = l.third_bias[0], out[1] = l.third_bias[1];
  for (int o = 0; o < WIDTH; o++) {
    float sum = l.second_bias[o];
    QN_UNROLL
    for (int k = 0; k < WIDTH; k++) sum = qn_fma(l.second[o * WIDTH + k], h[k], sum);
    sum = qn_lopt_relu(sum);
    for (int k = 0; k < 2; k++) out[k] = qn_fma(sum, l.third[k * WIDTH + o], out[k]);
  }
}

QN_FN void write_element(const element &e, const qn_lopt_device_args &a, const qn_lopt_device_item &it, qn_u64 i,
                         const float (&out)[2])
{
  const qn_lopt_scalars &f = *it.scalars;
  it.p[i] = QN_LOPT_JOINT_DECAY ? qn_lopt_moved_jointly(e.p, out[0], out[1], a.exp_mult, f.lr, f.decay)
                                : qn_lopt_moved(e.p, out[0], out[1], a.exp_mult, f.step, f.decay);
  it.v[i] = e.v;
  for (int d = 0; d < 3; d++) {
    it.m[static_cast<qn_u64>(d) * it.n + i] = e.m[d];
    if (!(it.flags & QN_LOPT_FACTORED)) it.f[static_cast<qn_u64>(d) * it.n + i] = e.f[d];
  }
}

/* The first layer's sums begin with the tables of the factors that have one, or with the bias alone. */
QN_FN void begin_layer(float (&h)[WIDTH], const element &e, const qn_lopt_device_item &it, const float *bias)
{
  const bool factored = it.flags & QN_LOPT_FACTORED;
  QN_UNROLL
  for (int k = 0; k < WIDTH; k += 4) {
    float over_x[4] = {0, 0, 0, 0}, over_y[4] = {0, 0, 0, 0};
    if (factored && HAS_TABLE) load4(over_x, it.over_x.table + e.over_x * WIDTH + k, 4, true);
    if (factored) load4(over_y, it.over_y.table + e.over_y * WIDTH + k, 4, true);
    QN_UNROLL
    for (int i = 0; i < 4; i++) h[k + i] = factored ? over_x[i] + over_y[i] : bias[k + i];
  }
}

/* Channels that a thread gives the first layer. Where `over_x` has no table, its own stand in the place of f's. */
QN_FN int given_channels(const qn_lopt_device_item &it)
{
  return HAS_TABLE && it.flags & QN_LOPT_FACTORED ? FACTORED : CHANNELS;
}

QN_FN void read_over_x(element &e, const qn_lopt_device_item &it)
{
  if (HAS_TABLE || !(it.flags & QN_LOPT_FACTORED)) return;
  QN_UNROLL
  for (qn_u64 d = 0; d < 3; d++) e.f[d] = it.over_x.state[d * it.over_x.n + e.over_x];
}

QN_GROUP_KERNEL(lopt_element_update, qn_lopt_device_args, a)
{
  QN_SHARED(float, first, CHANNELS *WIDTH);
  QN_SHARED(float, rest, B3 + OUTPUTS - W2);
  QN_SHARED(float, bias, WIDTH);
  if (QN_LOPT_TENSOR_WEIGHTS && !a.head->go) return;
  const qn_u32 k = item_of(a, static_cast<qn_u32>(qn_block())), thread = qn_thread();
  const qn_lopt_device_item &it = a.items[k];
  const qn_u64 begin = (qn_block() - a.first[k]) * A_TASK;
  const qn_u64 last = it.n - begin < A_TASK ? it.n : begin + A_TASK;
  for (qn_u32 i = thread; i < it.channels * WIDTH; i += QN_THREADS) first[i] = it.layer[i];
  for (qn_u32 i = thread; i < B3 + OUTPUTS - W2; i += QN_THREADS) rest[i] = weights_of(a, it)[W2 + i];
  if (it.over_x.layer && thread < FACTOR_CHANNELS * WIDTH) first[FACTORED * WIDTH + thread] = it.over_x.layer[thread];
  if (thread < WIDTH) bias[thread] = bias_of(a, it, thread);
  qn_barrier();
  const int channels = given_channels(it);
  const layers l = {first, rest, rest + (W3 - W2), bias, rest + (B2 - W2), rest + (B3 - W2)};
  for (qn_u64 i = begin + thread; i < last; i += QN_THREADS) {
    element e;
    float x[CHANNELS], h[WIDTH], out[2];
    read_element(e, a, it, i);
    read_over_x(e, it);
    channels_of(x, e, channels == FACTORED);
    begin_layer(h, e, it, bias);
    run_network(out, x, h, channels, l);
    write_element(e, a, it, i, out);
  }
}
#endif
