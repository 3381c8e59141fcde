/* SPDX-License-Identifier: Apache-2.0 */
/* lopt.factors.cu - the two factors of a tensor on a device, in up to four launches. lopt_norm, where gradients' norms
 * are bounded, finds the number that each tensor's gradient is multiplied by; lopt_states adds the means of squares to
 * the states; lopt_means, where a row has several means a tensor, finds them; lopt_tables writes the roots, and the
 * factors' part of the first layer's sums. Where the table of `over_x` would be larger than its sources, only the layer
 * is written of which UPDATE makes it. A network whose weights are known behind STATS has the roots in a launch before
 * STATS, lopt_roots. Sums go in fixed orders, in double. */
#define QN_THREADS 256
#include "op/lopt/factors.h"

QN_FN double sum_over_x(const qn_lopt_device_item &it, qn_u64 place)
{
  return it.flags & QN_LOPT_X_CUT ? it.shared_sums[place] : sum_pieces(it, place);
}

QN_GROUP_KERNEL(lopt_norm, qn_lopt_device_args, a)
{
  QN_SHARED(double, scratch, 32);
  const qn_lopt_device_item &it = a.items[qn_block()];
  const bool cut = it.flags & QN_LOPT_CUT;
  double sum = 0;
  for (qn_u64 k = qn_thread(); !cut && k < it.over_y.n; k += QN_THREADS) sum += sum_over_y(it, k);
  sum = qn_group_sum(sum, scratch);
  if (cut) sum = it.shared_sums[it.flags & QN_LOPT_X_CUT ? it.over_x.n : 0];
  if (qn_thread() == 0) it.scalars->of_gradient = qn_lopt_bound(a.max_grad_norm, sum);
}

/* ---- states ---- */

struct factor_task {
  bool over_x, row;
  qn_u64 chunk, place;
};

QN_FN factor_task factor_task_of(const qn_lopt_device_item &it, qn_u64 task, qn_u32 thread)
{
  const qn_u64 of_over_x = ceiling(it.over_x.n, PLACES);
  const bool over_x = task < of_over_x;
  const qn_u64 chunk = over_x ? task : task - of_over_x;
  return {over_x, over_x == ((it.flags & QN_LOPT_ROW_OVER_X) != 0), chunk, chunk * PLACES + thread};
}

QN_GROUP_KERNEL(lopt_states, qn_lopt_device_args, a)
{
  QN_SHARED(double, scratch, 32);
  if (QN_LOPT_TENSOR_WEIGHTS && !a.head->go) return;
  const qn_u32 k = item_of(a, static_cast<qn_u32>(qn_block()));
  const qn_lopt_device_item &it = a.items[k];
  const factor_task t = factor_task_of(it, qn_block() - a.first[k], qn_thread());
  const qn_lopt_device_factor &factor = t.over_x ? it.over_x : it.over_y;
  double total[SQUARES] = {0, 0, 0, 0, 0, 0, 0, 0, 0};
  if (t.place < factor.n) {
    const double of = QN_LOPT_BOUNDED ? static_cast<double>(it.scalars->of_gradient) : 1.0;
    const double sum = (t.over_x ? sum_over_x(it, t.place) : sum_over_y(it, t.place)) * (of * of);
    const float mean = qn_lopt_mean_square(sum, static_cast<double>(factor.count));
    for (int d = 0; d < 3; d++) {
      float *state = factor.state + static_cast<qn_u64>(d) * factor.n + t.place;
      const float x = qn_lopt_mean(a.f[d], a.f_rest[d], *state, mean), inverse = qn_lopt_inverse(x);
      *state = x;
      total[d] = static_cast<double>(x) * static_cast<double>(x);
      total[3 + d] = static_cast<double>(inverse) * static_cast<double>(inverse);
      total[6 + d] = static_cast<double>(x);
    }
  }
  for (int s = 0; s < SQUARES; s++) {
    const double sum = qn_group_sum(total[s], scratch);
    if (qn_thread() == 0) factor.chunks[t.chunk * SQUARES + static_cast<qn_u64>(s)] = sum;
  }
}

/* ---- the row's means, a simdgroup each ---- */

QN_GROUP_KERNEL(lopt_means, qn_lopt_device_args, a)
{
  const qn_u64 task = qn_block() * (qn_block_threads() / 32) + qn_simd();
  if (task >= a.tasks) return;
  const qn_u32 k = item_of(a, static_cast<qn_u32>(task));
  const qn_u64 mean = task - a.first[k];
  const qn_lopt_device_item &it = a.items[k];
  const qn_lopt_device_factor &row = it.flags & QN_LOPT_ROW_OVER_X ? it.over_x : it.over_y;
  const qn_u64 first = mean / row.inner * (row.middle * row.inner) + mean % row.inner;
  for (qn_u64 d = 0; d < 3; d++) {
    double sum = 0;
    for (qn_u64 i = qn_lane(); i < row.middle; i += 32)
      sum += static_cast<double>(row.state[d * row.n + first + i * row.inner]);
    sum = qn_simd_sum(sum);
    if (qn_lane() == 0) it.means[d * row.means + mean] = sum / static_cast<double>(row.whole_middle);
  }
}

/* ---- tables ---- */

/* The mean that the row's states are divided by. */
QN_FN float row_mean(const qn_lopt_device_item &it, const qn_lopt_device_factor &row, qn_u64 place,
                     const float (&state)[3], const double *sums, int d)
{
  if (QN_LOPT_MEANS_OF_DECAYS) return qn_lopt_mean_of_decays(state[0], state[1], state[2]);
  if (!it.means) return static_cast<float>(sums[6 + d] / static_cast<double>(row.n));
  const qn_u64 mean = place / (row.middle * row.inner) * row.inner + place % row.inner;
  return static_cast<float>(it.means[static_cast<qn_u64>(d) * row.means + mean]);
}

/* The place's six channels. */
QN_FN void set_channels(const qn_lopt_device_factor &factor, const factor_task &t, float (*channel)[PLACES],
                        qn_u32 thread)
{
  for (int d = 0; d < 3; d++) {
    const float state = factor.state[static_cast<qn_u64>(d) * factor.n + t.place];
    channel[d][thread] = state;
    channel[3 + d][thread] = qn_lopt_inverse(state);
  }
}

/* And its roots. */
QN_FN void set_roots(const qn_lopt_device_item &it, const qn_lopt_device_factor &factor, const factor_task &t,
                     const double *sums)
{
  float state[3];
  for (int d = 0; d < 3; d++) state[d] = factor.state[static_cast<qn_u64>(d) * factor.n + t.place];
  for (int d = 0; d < 3; d++) {
    const float x = t.row ? qn_lopt_over_mean(state[d], row_mean(it, factor, t.place, state, sums, d)) : state[d];
    factor.root[4 * t.place + static_cast<qn_u64>(d)] = qn_lopt_root(x);
  }
  factor.root[4 * t.place + 3] = 1.0f;
}

/* A place's part of four hidden values. */
QN_FN void set_table(const qn_lopt_device_factor &factor, qn_u64 place, qn_u32 at, qn_u32 h, const float *start,
                     const float (*layer)[WIDTH], const float (*channel)[PLACES], float hidden_scale)
{
  float sum[4];
  for (qn_u32 k = 0; k < 4; k++) {
    sum[k] = start[h + k];
    for (int s = 0; s < FACTOR_CHANNELS; s++) sum[k] = qn_fma(layer[s][h + k], channel[s][at], sum[k]);
    sum[k] *= hidden_scale;
  }
  store4(factor.table + place * WIDTH + h, sum, 4, true);
}

constexpr int FOURS = WIDTH / 4;

/* Sums over a factor: of the squares, and of the states. */
QN_FN void add_factor(const qn_lopt_device_item &it, const factor_task &t, double *sums, qn_u32 thread)
{
  const bool over_x_is_whole = t.over_x && it.flags & QN_LOPT_X_CUT;
  if (it.flags & QN_LOPT_CUT && !over_x_is_whole) {
    if (thread < SQUARES) sums[thread] = it.shared_states[(t.over_x ? SQUARES : 0) + thread];
  } else {
    add_chunks(t.over_x ? it.over_x : it.over_y, sums);
  }
  qn_barrier();
}

#if QN_LOPT_TENSOR_WEIGHTS
QN_GROUP_KERNEL(lopt_roots, qn_lopt_device_args, a)
{
  QN_SHARED(double, sums, SQUARES);
  const qn_u32 k = item_of(a, static_cast<qn_u32>(qn_block()));
  const qn_lopt_device_item &it = a.items[k];
  const factor_task t = factor_task_of(it, qn_block() - a.first[k], qn_thread());
  const qn_lopt_device_factor &factor = t.over_x ? it.over_x : it.over_y;
  add_factor(it, t, sums, qn_thread());
  if (t.place < factor.n) set_roots(it, factor, t, sums);
}
#endif

QN_GROUP_KERNEL(lopt_tables, qn_lopt_device_args, a)
{
  QN_SHARED(double, sums, SQUARES);
  QN_SHARED(float, layer, FACTOR_CHANNELS *WIDTH);
  QN_SHARED(float, start, WIDTH);
  QN_SHARED(float, channel, FACTOR_CHANNELS *PLACES);
  const qn_u32 k = item_of(a, static_cast<qn_u32>(qn_block())), thread = qn_thread();
  const qn_lopt_device_item &it = a.items[k];
  const factor_task t = factor_task_of(it, qn_block() - a.first[k], thread);
  const qn_lopt_device_factor &factor = t.over_x ? it.over_x : it.over_y;
  const auto layers = reinterpret_cast<float(*)[WIDTH]>(layer);
  const auto channels = reinterpret_cast<float(*)[PLACES]>(channel);
  add_factor(it, t, sums, thread);
  if (thread < FACTOR_CHANNELS * WIDTH) {
    const int s = static_cast<int>(thread / WIDTH), h = static_cast<int>(thread % WIDTH);
    const int input = qn_lopt_factor_input(ELEMENT_INPUTS, t.row, s);
    layer[thread] = static_cast<float>(weight(weights_of(a, it), h, input) * qn_lopt_scale(sums[s], factor.whole));
  } else if (thread < (FACTOR_CHANNELS + 1) * WIDTH) {
    start[thread % WIDTH] = t.over_x ? 0.0f : bias_of(a, it, thread % WIDTH);
  }
  const float hidden_scale = QN_LOPT_TENSOR_WEIGHTS ? 1.0f : it.scalars->hidden_scale;
  const qn_u64 first = t.place - thread; /* of the chunk; t.chunk, kept until here, is spilled for sm_120 */
  if (t.place < factor.n && !QN_LOPT_TENSOR_WEIGHTS) set_roots(it, factor, t, sums);
  if (!HAS_TABLE && t.over_x) {
    if (first == 0 && thread < FACTOR_CHANNELS * WIDTH) factor.layer[thread] = layer[thread] * hidden_scale;
    return;
  }
  if (t.place < factor.n) set_channels(factor, t, channels, thread);
  qn_barrier();
  for (qn_u32 at = thread / FOURS; at < PLACES && first + at < factor.n; at += QN_THREADS / FOURS)
    set_table(factor, first + at, at, thread % FOURS * 4, start, layers, channels, hidden_scale);
}
