/* SPDX-License-Identifier: Apache-2.0 */
/* velo.list.cu - VeLO's phases over the whole list on a device: first the loss into its means, and, behind STATS, the
 * LSTM's inputs and the channels' scales, from the sums that STATS has left; Z; the LSTM; and what its controls make of
 * the banks, with those scales in the first layer. Where the loss is no number, `go` is 0 from the first on, and no
 * kernel writes what is the caller's. */
#define QN_THREADS 512
#include "op/velo/network.h"
#include "op/velo/scalar.math.h"

constexpr int LOSSES = QN_VELO_LOSSES, SUMMARIES = QN_VELO_SUMMARIES, UNITS = QN_VELO_UNITS, BANKS = QN_VELO_BANKS;
constexpr int SEEN = QN_VELO_INPUTS, ROW_OF_X = 32;

/* ---- the loss ---- */

/* The share of the k-th mean that `count` values fill. */
QN_FN double share(const qn_velo_device_args &a, int k, double count) { return 1 - exp_double(-count * a.rate[k]); }

/* A thread a mean; `now` and `later` are the means over their shares before and behind this loss. */
QN_FN void take_loss(const qn_velo_device_args &a, int k, double loss, double *now, double *later)
{
  const bool first = a.buffer[2 * LOSSES] <= 0;
  const double count = a.buffer[2 * LOSSES] + 1, of_count = share(a, k, count), rest = share(a, k, 1);
  now[k] = a.buffer[k] / of_count;
  qn_barrier();
  double most = now[0];
  for (int j = 1; j < LOSSES; j++) most = qn_double_most(most, now[j]);
  const double mean = qn_velo_loss_mean(a.buffer[k], rest, qn_velo_counted(loss, most, first));
  later[k] = mean / of_count;
  const double least = qn_velo_loss_least(a.buffer[LOSSES + k], later[k], first);
  qn_barrier();
  a.buffer[k] = mean;
  a.buffer[LOSSES + k] = least;
  if (k == 0) a.buffer[2 * LOSSES] = count;
  if (k < LOSSES - 1) a.losses[k] = qn_velo_loss_input(later[k], later[k + 1], least, count);
}

QN_GROUP_KERNEL(velo_loss, qn_velo_device_args, a)
{
  QN_SHARED(double, now, LOSSES);
  QN_SHARED(double, later, LOSSES);
  const qn_u32 thread = qn_thread();
  const float loss = *a.loss;
  const bool go = loss - loss == 0.0f;
  spread_firsts(a.items, a.n, a.firsts, thread, qn_block_threads());
  if (thread == 0) {
    const qn_lopt_live live = a.hyper ? *a.hyper : a.live;
    a.head->lr = live.lr;
    a.head->weight_decay = live.weight_decay;
    a.head->go = go;
    if (!go) a.buffer[2 * LOSSES + 1] += 1;
  }
  if (go) take_loss(a, static_cast<int>(thread < LOSSES ? thread : LOSSES - 1), static_cast<double>(loss), now, later);
}

/* ---- the LSTM's inputs ---- */

constexpr qn_u32 AT_ONCE = 8; /* reads that go out together */

/* p^2, m (3), m^2 (3), v, v^2: the place of each among a tensor's sums. */
QN_FN qn_u32 place_of(qn_u32 summary)
{
  return summary ? QN_VELO_OLD + summary - 1 : static_cast<qn_u32>(QN_VELO_P_SQUARES);
}

QN_GROUP_KERNEL(velo_features, qn_velo_device_args, a)
{
  QN_SHARED(double, sums, QN_THREADS);
  QN_SHARED(double, mean, SUMMARIES);
  const qn_u64 k = qn_block();
  const qn_lopt_device_item &it = a.items[k];
  const qn_u32 lane = qn_lane(), simds = qn_block_threads() / 32, thread = qn_thread();
  const bool cut = it.flags & QN_LOPT_CUT;
  const double *partial = cut ? it.shared_stats : it.partial;
  double sum = 0;
  const qn_u64 rows = cut ? 1 : it.partials;
  qn_u64 row = qn_simd();
  for (; row + (AT_ONCE - 1) * simds < rows; row += AT_ONCE * simds) {
    double some[AT_ONCE];
    QN_UNROLL
    for (qn_u32 i = 0; i < AT_ONCE; i++) some[i] = partial[(row + i * simds) * QN_VELO_TOTALS + lane];
    QN_UNROLL
    for (qn_u32 i = 0; i < AT_ONCE; i++) sum += some[i];
  }
  for (; row < rows; row += simds) sum += partial[row * QN_VELO_TOTALS + lane];
  sums[thread] = sum;
  qn_barrier();
  for (qn_u32 s = 1; s < simds && thread < QN_VELO_TOTALS; s++) sums[thread] += sums[32 * s + thread];
  qn_barrier();
  if (thread < it.channels) a.scale[k * QN_VELO_OLD + thread] = qn_lopt_scale(sums[thread], it.whole);
  if (thread < SUMMARIES) mean[thread] = sums[place_of(thread)] / static_cast<double>(it.whole);
  qn_barrier();
  if (thread == 0) a.size[k] = mean[0];
  const double done = static_cast<double>(a.hyper ? a.hyper->step : a.live.step) / a.steps;
  const int rank = static_cast<int>(it.flags >> 28), input = static_cast<int>(thread);
  if (thread < ROW_OF_X)
    a.x[k * ROW_OF_X + thread] = thread < SEEN ? qn_velo_input(input, done, a.losses, rank, mean) : 0.0f;
  for (qn_u32 j = thread; j < UNITS; j += qn_block_threads())
    a.z[k * 2 * UNITS + UNITS + j] = a.hidden[it.place * UNITS + j];
}

/* ---- Z: a block has 32 units, a lane one, and its simdgroups turns at the tensors ---- */

constexpr qn_u32 MOST_SIMDS = 16;

QN_FN void read_unit(float (&w)[SEEN], const float *from)
{
  QN_UNROLL
  for (int j = 0; j < SEEN; j++) w[j] = from[j];
}

QN_FN float output(const float (&w)[SEEN], const float *x)
{
  float sum = 0, in[4];
  QN_UNROLL
  for (int j = 0; j < SEEN; j++) {
    if (j % 4 == 0) load4(in, x + j, 4, true);
    sum = qn_fma(w[j], in[j % 4], sum);
  }
  return sum;
}

QN_GROUP_KERNEL(velo_mix, qn_velo_device_args, a)
{
  QN_SHARED(float, all, MOST_SIMDS * 32);
  const qn_u64 unit = qn_block() * 32 + qn_lane();
  const qn_u32 simds = qn_block_threads() / 32;
  float w[SEEN], most = 0;
  read_unit(w, a.rnn + QN_VELO_MIX_W + unit * SEEN);
  for (qn_u64 k = qn_simd(); k < a.n; k += simds)
    most = qn_float_most(most, output(w, a.x + k * ROW_OF_X) + a.rnn[QN_VELO_MIX_B + unit]);
  all[qn_thread()] = most;
  qn_barrier();
  most = 0;
  for (qn_u32 s = 0; s < simds; s++) most = qn_float_most(most, all[32 * s + qn_lane()]);
  read_unit(w, a.rnn + QN_VELO_FINAL_W + unit * SEEN);
  for (qn_u64 k = qn_simd(); k < a.n; k += simds)
    a.z[k * 2 * UNITS + unit] = output(w, a.x + k * ROW_OF_X) + a.rnn[QN_VELO_FINAL_B + unit] + most;
}

/* ---- the LSTM: a block has 16 units of 64 tensors, a thread one unit of four ---- */

constexpr qn_u32 BLOCK_UNITS = 16, BLOCK_TENSORS = 64, DEPTH = 32, APART = 68, LSTM_SIMDS = 8;
constexpr qn_u32 ROWS_A_SIMD = 64 / LSTM_SIMDS;

/* Inputs [from, from + 32) of the block's weights by unit and gate, and of its tensors: a simdgroup's eight rows of
 * both, on their way while those before are used. */
struct brought {
  float w[ROWS_A_SIMD], z[ROWS_A_SIMD];
};

QN_FN void bring(brought &b, const qn_velo_device_args &a, qn_u64 unit, qn_u64 tensor, qn_u32 from)
{
  QN_UNROLL
  for (qn_u32 i = 0; i < ROWS_A_SIMD; i++) {
    const qn_u32 r = qn_simd() + i * LSTM_SIMDS;
    const qn_u64 k = tensor + r;
    b.w[i] = a.rnn[QN_VELO_LSTM_W + (r % 4 * UNITS + unit + r / 4) * 2 * UNITS + from + qn_lane()];
    b.z[i] = k < a.n ? a.z[k * 2 * UNITS + from + qn_lane()] : 0.0f;
  }
}

QN_FN void put(float *w, float *z, const brought &b)
{
  QN_UNROLL
  for (qn_u32 i = 0; i < ROWS_A_SIMD; i++) {
    const qn_u32 at = qn_lane() * APART + qn_simd() + i * LSTM_SIMDS;
    w[at] = b.w[i], z[at] = b.z[i];
  }
}

QN_FN void add_depth(float (&sum)[4][4], const float *w, const float *z, qn_u32 unit, qn_u32 four)
{
  for (qn_u32 k = 0; k < DEPTH; k++) {
    float gate[4], in[4];
    load4(gate, w + k * APART + 4 * unit, 4, true);
    load4(in, z + k * APART + 4 * four, 4, true);
    QN_UNROLL
    for (int g = 0; g < 4; g++) QN_UNROLL
    for (int t = 0; t < 4; t++) sum[g][t] = qn_fma(gate[g], in[t], sum[g][t]);
  }
}

QN_FN void set_unit(const qn_velo_device_args &a, qn_u64 k, qn_u64 unit, float in, float value, float keep, float out)
{
  a.unit[k * UNITS + unit] = qn_velo_unit(in, value, keep, out, a.cell + a.items[k].place * UNITS + unit);
}

QN_GROUP_KERNEL(velo_lstm, qn_velo_device_args, a)
{
  QN_SHARED(float, w, DEPTH *APART);
  QN_SHARED(float, z, DEPTH *APART);
  if (!a.head->go) return;
  const qn_u64 unit = qn_block() % (UNITS / BLOCK_UNITS) * BLOCK_UNITS;
  const qn_u64 tensor = qn_block() / (UNITS / BLOCK_UNITS) * BLOCK_TENSORS;
  const qn_u32 own = qn_thread() % BLOCK_UNITS, four = qn_thread() / BLOCK_UNITS;
  float total[4][4], sum[4][4] = {};
  QN_UNROLL
  for (int g = 0; g < 4; g++) QN_UNROLL
  for (int t = 0; t < 4; t++) total[g][t] = a.rnn[QN_VELO_LSTM_B + static_cast<qn_u64>(g) * UNITS + unit + own];
  brought b;
  bring(b, a, unit, tensor, 0);
  for (qn_u32 from = 0; from < 2 * UNITS; from += DEPTH) {
    put(w, z, b);
    qn_barrier();
    if (from + DEPTH < 2 * UNITS) bring(b, a, unit, tensor, from + DEPTH);
    add_depth(sum, w, z, own, four);
    qn_barrier();
    if ((from / DEPTH) % 4 != 3) continue;
    QN_UNROLL
    for (int g = 0; g < 4; g++) QN_UNROLL
    for (int t = 0; t < 4; t++) total[g][t] += sum[g][t], sum[g][t] = 0;
  }
  for (qn_u32 t = 0; t < 4; t++) {
    const qn_u64 k = tensor + 4 * four + t;
    if (k < a.n) set_unit(a, k, unit + own, total[0][t], total[1][t], total[2][t], total[3][t]);
  }
}

/* ---- controls, and the tensor's own network ---- */

/* Outputs o and o + 1 of a layer, or, where the second is not, the first alone. */
QN_FN void heads_of(float (&y)[2], const float *w, const float *h, bool both)
{
  const qn_u32 second = both ? UNITS : 0;
  y[0] = y[1] = 0;
  QN_UNROLL
  for (qn_u32 j = 0; j < UNITS; j += 32) {
    const qn_u32 at = j + qn_lane();
    y[0] = qn_fma(w[at], h[at], y[0]);
    y[1] = qn_fma(w[at + second], h[at], y[1]);
  }
  y[0] = qn_simd_sum(y[0]), y[1] = qn_simd_sum(y[1]);
}

/* Number j of a tensor's network: the sum over a part of the banks. */
constexpr qn_u32 PARTS = 3, OF_PART = (BANKS + PARTS - 1) / PARTS, PART_THREADS = 160;

QN_FN double mixed_of(const qn_velo_device_args &a, const float *control, qn_u32 j, qn_u32 part)
{
  const qn_u32 begin[] = QN_VELO_BEGINS, first = part * OF_PART;
  const qn_u32 last = first + OF_PART < BANKS ? first + OF_PART : BANKS;
  qn_u32 of = 0;
  while (j >= begin[of + 1]) of++;
  const qn_u32 n = begin[of + 1] - begin[of];
  const float *bank = a.mlp + BANKS * begin[of] + (j - begin[of]);
  double sum = 0;
  qn_u32 k = first;
  for (; k + AT_ONCE <= last; k += AT_ONCE) {
    float some[AT_ONCE];
    QN_UNROLL
    for (qn_u32 i = 0; i < AT_ONCE; i++) some[i] = bank[(k + i) * n];
    QN_UNROLL
    for (qn_u32 i = 0; i < AT_ONCE; i++) sum += static_cast<double>(control[k + i]) * static_cast<double>(some[i]);
  }
  for (; k < last; k++) sum += static_cast<double>(control[k]) * static_cast<double>(bank[k * n]);
  return sum;
}

/* The rates of its elements' steps. */
QN_FN void set_found(const qn_velo_device_args &a, const qn_lopt_device_item &it, float lr_mult, float size)
{
  const double lr = a.head->lr * it.lr_scale;
  qn_lopt_scalars &f = *it.scalars;
  f.of_gradient = f.hidden_scale = f.output_scale = 1.0f;
  f.lr = static_cast<float>(lr);
  f.step = static_cast<float>(lr * a.step_mult * static_cast<double>(lr_mult) * static_cast<double>(size));
  f.decay = static_cast<float>(a.head->weight_decay * lr) * (QN_LOPT_COMPAT ? lr_mult : 1.0f);
}

QN_GROUP_KERNEL(velo_heads, qn_velo_device_args, a)
{
  QN_SHARED(float, h, UNITS);
  QN_SHARED(float, control, BANKS + 2);
  QN_SHARED(double, parts, PARTS *PART_THREADS);
  QN_SHARED(float, mixed, QN_VELO_BANK);
  if (!a.head->go) return;
  const qn_u64 k = qn_block();
  const qn_lopt_device_item &it = a.items[k];
  const qn_u32 thread = qn_thread();
  for (qn_u32 j = thread; j < UNITS; j += qn_block_threads()) {
    h[j] = a.unit[k * UNITS + j];
    a.hidden[it.place * UNITS + j] = h[j];
  }
  qn_barrier();
  for (qn_u32 o = 2 * qn_simd(); o <= BANKS; o += 2 * (qn_block_threads() / 32)) {
    const bool last = o == BANKS;
    const float *const bias = a.rnn + (last ? QN_VELO_STEP_B : QN_VELO_CONTROL_B + o);
    float y[2];
    heads_of(y, a.rnn + (last ? QN_VELO_STEP_W : QN_VELO_CONTROL_W + o * UNITS), h, !last);
    if (qn_lane() < (last ? 1 : 2)) control[o + qn_lane()] = (qn_lane() ? y[1] : y[0]) + bias[qn_lane()];
  }
  qn_barrier();
  for (qn_u32 i = thread; i < PARTS * PART_THREADS; i += qn_block_threads())
    parts[i] = i % PART_THREADS < QN_VELO_BANK ? mixed_of(a, control, i % PART_THREADS, i / PART_THREADS) : 0.0;
  qn_barrier();
  if (thread < QN_VELO_BANK) {
    double sum = 0;
    for (qn_u32 part = 0; part < PARTS; part++) sum += parts[part * PART_THREADS + thread];
    a.mixed[it.place * QN_VELO_OF_TENSOR + thread] = mixed[thread] = static_cast<float>(sum * QN_VELO_MIXING);
  }
  if (thread == QN_VELO_BANK) set_found(a, it, control[BANKS], qn_velo_size(a.size[k]));
  qn_barrier();
  for (qn_u32 j = thread; j < it.channels * WIDTH; j += qn_block_threads())
    it.layer[j] = static_cast<float>(qn_lopt_channel_weight(mixed, INPUTS, ELEMENT_INPUTS, static_cast<int>(j % WIDTH),
                                                            static_cast<int>(j / WIDTH)) *
                                     a.scale[k * QN_VELO_OLD + j / WIDTH]);
}
