/* SPDX-License-Identifier: Apache-2.0 */
/* lopt.sides.cu - the two vectors of a tensor on a device, in up to four launches: lopt_norm, where gradients' norms
 * are bounded, what each tensor's gradient is multiplied by; lopt_states, the means of squares into the states;
 * lopt_means, where the row's means are several a tensor; lopt_tables, the factors, and what the sides give the first
 * layer: of `along` whose table would be larger than what it is made of, only the layer of which UPDATE makes it. A
 * network that has its weights only behind STATS has the factors in a launch before it, lopt_factors. Sums go in fixed
 * orders, in double. */
#define QN_THREADS 256
#include "op/lopt/sides.h"

QN_FN double sum_along(const qn_lopt_device_item &it, qn_u64 place)
{
  return it.flags & QN_LOPT_X_CUT ? it.shared_sums[place] : sum_pieces(it, place);
}

QN_GROUP_KERNEL(lopt_norm, qn_lopt_device_args, a)
{
  QN_SHARED(double, scratch, 32);
  const qn_lopt_device_item &it = a.items[qn_block()];
  const bool cut = it.flags & QN_LOPT_CUT;
  double sum = 0;
  for (qn_u64 k = qn_thread(); !cut && k < it.across.n; k += QN_THREADS) sum += sum_across(it, k);
  sum = qn_group_sum(sum, scratch);
  if (cut) sum = it.shared_sums[it.flags & QN_LOPT_X_CUT ? it.along.n : 0];
  if (qn_thread() == 0) it.found->of_gradient = qn_lopt_bound(a.max_grad_norm, sum);
}

/* ---- states ---- */

struct side_task {
  bool along, row;
  qn_u64 chunk, place;
};

QN_FN side_task side_of(const qn_lopt_device_item &it, qn_u64 task, qn_u32 thread)
{
  const qn_u64 of_along = ceiling(it.along.n, PLACES);
  const bool along = task < of_along;
  const qn_u64 chunk = along ? task : task - of_along;
  return {along, along == ((it.flags & QN_LOPT_ROWS_ALONG) != 0), chunk, chunk * PLACES + thread};
}

QN_GROUP_KERNEL(lopt_states, qn_lopt_device_args, a)
{
  QN_SHARED(double, scratch, 32);
  if (QN_LOPT_OWN_WEIGHTS && !a.head->go) return;
  const qn_u32 k = item_of(a, static_cast<qn_u32>(qn_block()));
  const qn_lopt_device_item &it = a.items[k];
  const side_task t = side_of(it, qn_block() - a.first[k], qn_thread());
  const qn_lopt_device_side &side = t.along ? it.along : it.across;
  double total[SQUARES] = {0, 0, 0, 0, 0, 0, 0, 0, 0};
  if (t.place < side.n) {
    const double of = QN_LOPT_BOUNDED ? static_cast<double>(it.found->of_gradient) : 1.0;
    const double sum = (t.along ? sum_along(it, t.place) : sum_across(it, t.place)) * (of * of);
    const float mean = qn_lopt_mean_square(sum, static_cast<double>(side.count));
    for (int d = 0; d < 3; d++) {
      float *state = side.state + static_cast<qn_u64>(d) * side.n + t.place;
      const float x = qn_lopt_mean(a.f[d], a.f_rest[d], *state, mean), inverse = qn_lopt_inverse(x);
      *state = x;
      total[d] = static_cast<double>(x) * static_cast<double>(x);
      total[3 + d] = static_cast<double>(inverse) * static_cast<double>(inverse);
      total[6 + d] = static_cast<double>(x);
    }
  }
  for (int s = 0; s < SQUARES; s++) {
    const double sum = qn_group_sum(total[s], scratch);
    if (qn_thread() == 0) side.chunks[t.chunk * SQUARES + static_cast<qn_u64>(s)] = sum;
  }
}

/* ---- the row's means, a simdgroup each ---- */

QN_GROUP_KERNEL(lopt_means, qn_lopt_device_args, a)
{
  const qn_u64 task = qn_block() * (qn_block_threads() / 32) + qn_simd();
  if (task >= a.tasks) return;
  const qn_u32 k = item_of(a, static_cast<qn_u32>(task));
  const qn_u64 group = task - a.first[k];
  const qn_lopt_device_item &it = a.items[k];
  const qn_lopt_device_side &row = it.flags & QN_LOPT_ROWS_ALONG ? it.along : it.across;
  const qn_u64 first = group / row.inner * (row.middle * row.inner) + group % row.inner;
  for (qn_u64 d = 0; d < 3; d++) {
    double sum = 0;
    for (qn_u64 i = qn_lane(); i < row.middle; i += 32)
      sum += static_cast<double>(row.state[d * row.n + first + i * row.inner]);
    sum = qn_simd_sum(sum);
    if (qn_lane() == 0) it.means[d * row.groups + group] = sum / static_cast<double>(row.whole_middle);
  }
}

/* ---- tables ---- */

/* The mean that the row's states are divided by. */
QN_FN float row_mean(const qn_lopt_device_item &it, const qn_lopt_device_side &row, qn_u64 place,
                     const float (&state)[3], const double *sums, int d)
{
  if (QN_LOPT_MEANS_OF_DECAYS) return qn_lopt_mean_of_decays(state[0], state[1], state[2]);
  if (!it.means) return static_cast<float>(sums[6 + d] / static_cast<double>(row.n));
  const qn_u64 group = place / (row.middle * row.inner) * row.inner + place % row.inner;
  return static_cast<float>(it.means[static_cast<qn_u64>(d) * row.groups + group]);
}

/* The place's six channels. */
QN_FN void set_channels(const qn_lopt_device_side &side, const side_task &t, float (*channel)[PLACES], qn_u32 thread)
{
  for (int d = 0; d < 3; d++) {
    const float state = side.state[static_cast<qn_u64>(d) * side.n + t.place];
    channel[d][thread] = state;
    channel[3 + d][thread] = qn_lopt_inverse(state);
  }
}

/* And its factors. */
QN_FN void set_factors(const qn_lopt_device_item &it, const qn_lopt_device_side &side, const side_task &t,
                       const double *sums)
{
  float state[3];
  for (int d = 0; d < 3; d++) state[d] = side.state[static_cast<qn_u64>(d) * side.n + t.place];
  for (int d = 0; d < 3; d++) {
    const float x = t.row ? qn_lopt_over_mean(state[d], row_mean(it, side, t.place, state, sums, d)) : state[d];
    side.factor[4 * t.place + static_cast<qn_u64>(d)] = qn_lopt_root(x);
  }
  side.factor[4 * t.place + 3] = 1.0f;
}

/* What a place gives four hidden values. */
QN_FN void set_table(const qn_lopt_device_side &side, qn_u64 place, qn_u32 at, qn_u32 h, const float *start,
                     const float (*layer)[WIDTH], const float (*channel)[PLACES], float power)
{
  float sum[4];
  for (qn_u32 k = 0; k < 4; k++) {
    sum[k] = start[h + k];
    for (int s = 0; s < SIDE; s++) sum[k] = qn_fma(layer[s][h + k], channel[s][at], sum[k]);
    sum[k] *= power;
  }
  store4(side.table + place * WIDTH + h, sum, 4, true);
}

constexpr int FOURS = WIDTH / 4;

/* The squares' sums over a side, and the states'. */
QN_FN void add_side(const qn_lopt_device_item &it, const side_task &t, double *sums, qn_u32 thread)
{
  const bool along_is_whole = t.along && it.flags & QN_LOPT_X_CUT;
  if (it.flags & QN_LOPT_CUT && !along_is_whole) {
    if (thread < SQUARES) sums[thread] = it.shared_states[(t.along ? SQUARES : 0) + thread];
  } else {
    add_chunks(t.along ? it.along : it.across, sums);
  }
  qn_barrier();
}

#if QN_LOPT_OWN_WEIGHTS
QN_GROUP_KERNEL(lopt_factors, qn_lopt_device_args, a)
{
  QN_SHARED(double, sums, SQUARES);
  const qn_u32 k = item_of(a, static_cast<qn_u32>(qn_block()));
  const qn_lopt_device_item &it = a.items[k];
  const side_task t = side_of(it, qn_block() - a.first[k], qn_thread());
  const qn_lopt_device_side &side = t.along ? it.along : it.across;
  add_side(it, t, sums, qn_thread());
  if (t.place < side.n) set_factors(it, side, t, sums);
}
#endif

QN_GROUP_KERNEL(lopt_tables, qn_lopt_device_args, a)
{
  QN_SHARED(double, sums, SQUARES);
  QN_SHARED(float, layer, SIDE *WIDTH);
  QN_SHARED(float, start, WIDTH);
  QN_SHARED(float, channel, SIDE *PLACES);
  const qn_u32 k = item_of(a, static_cast<qn_u32>(qn_block())), thread = qn_thread();
  const qn_lopt_device_item &it = a.items[k];
  const side_task t = side_of(it, qn_block() - a.first[k], thread);
  const qn_lopt_device_side &side = t.along ? it.along : it.across;
  const auto layers = reinterpret_cast<float(*)[WIDTH]>(layer);
  const auto channels = reinterpret_cast<float(*)[PLACES]>(channel);
  add_side(it, t, sums, thread);
  if (thread < SIDE * WIDTH) {
    const int s = static_cast<int>(thread / WIDTH), h = static_cast<int>(thread % WIDTH);
    const int input = qn_lopt_side_input(ELEMENT_INPUTS, t.row, s);
    layer[thread] = static_cast<float>(weight(weights_of(a, it), h, input) * qn_lopt_scale(sums[s], side.whole));
  } else if (thread < (SIDE + 1) * WIDTH) {
    start[thread % WIDTH] = t.along ? 0.0f : bias_of(a, it, thread % WIDTH);
  }
  const float power = QN_LOPT_OWN_WEIGHTS ? 1.0f : it.found->power;
  const qn_u64 first = t.place - thread; /* of the chunk; t.chunk, kept until here, is spilled for sm_120 */
  if (t.place < side.n && !QN_LOPT_OWN_WEIGHTS) set_factors(it, side, t, sums);
  if (!HAS_TABLE && t.along) {
    if (first == 0 && thread < SIDE * WIDTH) side.layer[thread] = layer[thread] * power; /* its own */
    return;
  }
  if (t.place < side.n) set_channels(side, t, channels, thread);
  qn_barrier();
  for (qn_u32 at = thread / FOURS; at < PLACES && first + at < side.n; at += QN_THREADS / FOURS)
    set_table(side, first + at, at, thread % FOURS * 4, start, layers, channels, power);
}
