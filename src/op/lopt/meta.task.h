/* SPDX-License-Identifier: Apache-2.0 */
/* meta.task.h - what a particle learns: data that a random network labels, and the forward and backward pass of the
 * network in training. Values of a batch are in shared memory, a unit's side by side, with a place more that keeps the
 * units of one batch element in banks of their own. */
#ifndef QN_OP_LOPT_META_TASK_H
#define QN_OP_LOPT_META_TASK_H
#include "base/collective.h"
#include "base/maths.h"
#include "base/random.h"
#include "op/lopt/meta.h"
#include "op/lopt/phase.h"

constexpr qn_u32 META_THREADS = QN_META_THREADS, META_SIMDS = META_THREADS / 32;
constexpr float TWO_PI = 0x1.921fb6p2f;

/* What random words are for. */
enum meta_use { META_EPSILON, META_SETTINGS, META_START, META_TEACHER, META_INPUTS, META_LABELS, META_LENGTH };

/* The seed of an episode: SplitMix64's finaliser of both. */
QN_FN qn_u64 episode_seed(qn_u64 seed, qn_u64 episode)
{
  qn_u64 z = seed + 0x9e3779b97f4a7c15ull * (episode + 1);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

QN_FN void words4(qn_u64 seed, meta_use use, qn_u32 step, qn_u32 block, qn_u32 (&word)[4])
{
  qn_bits counter[4] = {block, static_cast<qn_u32>(use) << 28, step, 0};
  qn_philox(counter, static_cast<qn_u32>(seed), static_cast<qn_u32>(seed >> 32));
  QN_UNROLL
  for (int k = 0; k < 4; k++) word[k] = counter[k];
}

/* Between 0 and 1, neither of them. */
QN_FN float unit_of(qn_u32 word) { return (static_cast<float>(word >> 9) + 0.5f) * 0x1p-23f; }
QN_FN float between(float low, float high, qn_u32 word) { return low + (high - low) * unit_of(word); }
QN_FN float between_logs(float low, float high, qn_u32 word)
{
  return qn_exp(between(qn_log(low), qn_log(high), word));
}

/* A nearly normal number: a word's four bytes, added, have a deviation of 147.8 round 510. */
QN_FN float nearly_normal(qn_u32 word)
{
  const qn_u32 sum = (word & 255u) + (word >> 8 & 255u) + (word >> 16 & 255u) + (word >> 24);
  return (static_cast<float>(sum) - 510.0f) * (1.0f / 147.8f);
}

/* e^x, to 2^-20 of it. */
QN_FN float quick_exp(float x) { return quick_exp2(x * 0x1.715476p0f); }

/* Four normal numbers (Box and Muller, 1958). */
QN_FN void normals4(qn_u64 seed, meta_use use, qn_u32 step, qn_u32 block, float (&x)[4])
{
  qn_u32 word[4];
  words4(seed, use, step, block, word);
  QN_UNROLL
  for (int k = 0; k < 4; k += 2) {
    const float r2 = -2.0f * qn_log(unit_of(word[k])), angle = TWO_PI * unit_of(word[k + 1]);
    const float r = r2 * qn_rsqrt(r2);
    x[k] = r * qn_cos(angle), x[k + 1] = r * qn_sin(angle);
  }
}

/* A task's settings, drawn once an episode. */
struct meta_task {
  qn_u64 seed;
  float slope_of_spectrum, input_scale, sharpness, start_scale;
  int activation; /* 0: relu, 1: tanh, 2: gelu by tanh */
};

QN_FN meta_task task_of(qn_u64 seed)
{
  qn_u32 a[4], b[4];
  words4(seed, META_SETTINGS, 0, 0, a);
  words4(seed, META_SETTINGS, 0, 1, b);
  return {seed,
          between(0.0f, 1.0f, a[0]),
          between_logs(0.5f, 2.0f, a[1]),
          between_logs(1.0f, 16.0f, a[2]),
          between_logs(0.5f, 1.5f, a[3]),
          static_cast<int>(b[0] % 3)};
}

QN_FN float activated(int activation, float z, float &slope)
{
  if (activation == 0) {
    slope = z > 0 ? 1.0f : 0.0f;
    return z > 0 ? z : 0.0f;
  }
  if (activation == 1) {
    const float y = qn_tanh(z);
    slope = 1.0f - y * y;
    return y;
  }
  const float inner = 0.7978845608f * (z + 0.044715f * z * z * z), y = qn_tanh(inner);
  slope = 0.5f * (1.0f + y) + 0.5f * z * (1.0f - y * y) * 0.7978845608f * (1.0f + 3.0f * 0.044715f * z * z);
  return 0.5f * z * (1.0f + y);
}

/* The slab of a particle that begins: parameters as torch.nn.Linear draws them times start_scale, zeros, the teacher.
 */
QN_FN void begin_episode(const qn_meta_group &by, float *slab, const meta_task &task, qn_u32 thread)
{
  for (qn_u32 i = thread; i < by.floats; i += META_THREADS) slab[i] = 0.0f;
  qn_barrier();
  for (qn_u32 k = 0; k < by.tensors; k++) {
    const qn_meta_tensor &t = by.tensor[k];
    const float most = task.start_scale * qn_rsqrt(static_cast<float>(by.width[k / 2]));
    for (qn_u32 i = thread; 4 * i < t.n; i += META_THREADS) {
      qn_u32 word[4];
      words4(task.seed, META_START, k, i, word);
      for (qn_u32 j = 0; j < 4 && 4 * i + j < t.n; j++) slab[t.p + 4 * i + j] = between(-most, most, word[j]);
    }
  }
  for (qn_u32 i = thread; i < by.width[0]; i += META_THREADS) {
    const float of = static_cast<float>(by.width[0]) / static_cast<float>(i + 1);
    slab[by.spectrum + i] = task.input_scale * qn_exp(task.slope_of_spectrum * 0.5f * (qn_log(of) - 1.0f));
  }
  const qn_u32 inputs = by.width[0], classes = by.width[by.layers], n = QN_META_TEACHER * (inputs + classes);
  for (qn_u32 i = thread; 4 * i < n; i += META_THREADS) {
    float x[4];
    normals4(task.seed, META_TEACHER, 0, i, x);
    for (qn_u32 j = 0; j < 4 && 4 * i + j < n; j++)
      slab[by.teacher + 4 * i + j] =
          x[j] * qn_rsqrt(static_cast<float>(4 * i + j < QN_META_TEACHER * inputs ? inputs : QN_META_TEACHER));
  }
  qn_barrier();
}

/* to (outputs, batch) = weights (outputs, inputs) from (inputs, batch) + bias; four outputs a thread. Inputs are a
 * multiple of 4, and weights aligned to 16 bytes. `done` is called with each. */
template <class Done>
QN_FN void product(const float *weights, const float *bias, qn_u32 outputs, qn_u32 inputs, const float *from,
                   qn_u32 batch, qn_u32 thread, Done done)
{
  const qn_u32 tasks = (outputs + 3) / 4 * batch, stride = batch + 1;
  for (qn_u32 task = thread; task < tasks; task += META_THREADS) {
    const qn_u32 b = task % batch, first = task / batch * 4, last = outputs - 1;
    float sum[4];
    const float *row[4];
    QN_UNROLL
    for (qn_u32 j = 0; j < 4; j++) {
      const qn_u32 o = first + j < last ? first + j : last;
      sum[j] = bias ? bias[o] : 0.0f;
      row[j] = weights + o * inputs;
    }
    for (qn_u32 k = 0; k < inputs; k += 4) {
      float weight[4][4];
      QN_UNROLL
      for (int j = 0; j < 4; j++) load4(weight[j], row[j] + k, 4, true);
      QN_UNROLL
      for (qn_u32 i = 0; i < 4; i++) {
        const float x = from[(k + i) * stride + b];
        QN_UNROLL
        for (int j = 0; j < 4; j++) sum[j] = qn_fma(weight[j][i], x, sum[j]);
      }
    }
    QN_UNROLL
    for (qn_u32 j = 0; j < 4; j++)
      if (first + j < outputs) done((first + j) * stride + b, sum[j]);
  }
}

/* A batch: inputs, whose variance falls along the places, and labels, drawn from what the teacher makes of them. */
QN_FN void draw_batch(const qn_meta_group &by, const float *slab, const meta_task &task, qn_u32 step, float *shared,
                      qn_u32 *label, qn_u32 thread)
{
  const qn_u32 inputs = by.width[0], classes = by.width[by.layers], batch = by.batch, stride = batch + 1;
  float *const x = shared + by.value[0], *const hidden = shared + by.delta[0], *const logits = shared + by.delta[1];
  for (qn_u32 i = thread; 4 * i < inputs * batch; i += META_THREADS) {
    qn_u32 word[4];
    words4(task.seed, META_INPUTS, step, i, word);
    for (qn_u32 j = 0; j < 4 && 4 * i + j < inputs * batch; j++) {
      const qn_u32 unit = (4 * i + j) / batch;
      x[unit * stride + (4 * i + j) % batch] = nearly_normal(word[j]) * slab[by.spectrum + unit];
    }
  }
  qn_barrier();
  product(slab + by.teacher, nullptr, QN_META_TEACHER, inputs, x, batch, thread,
          [=](qn_u32 at, float z) { hidden[at] = qn_tanh(1.5f * z); });
  qn_barrier();
  product(slab + by.teacher + QN_META_TEACHER * inputs, nullptr, classes, QN_META_TEACHER, hidden, batch, thread,
          [=](qn_u32 at, float z) { logits[at] = z; });
  qn_barrier();
  for (qn_u32 i = thread; i < classes * batch; i += META_THREADS) { /* Gumbel's way to draw from a softmax */
    qn_u32 word[4];
    words4(task.seed, META_LABELS, step, i, word);
    logits[i / batch * stride + i % batch] =
        task.sharpness * logits[i / batch * stride + i % batch] - qn_log(-qn_log(unit_of(word[0])));
  }
  qn_barrier();
  for (qn_u32 b = thread; b < batch; b += META_THREADS) {
    qn_u32 best = 0;
    for (qn_u32 c = 1; c < classes; c++)
      if (logits[c * stride + b] > logits[best * stride + b]) best = c;
    label[b] = best;
  }
  qn_barrier();
}

/* Cross-entropy's gradient in the place of the logits' deltas; returns thread b's loss. */
QN_FN float loss_of(const qn_meta_group &by, float *shared, const qn_u32 *label, qn_u32 b)
{
  const qn_u32 classes = by.width[by.layers], stride = by.batch + 1;
  const float *const logits = shared + by.value[by.layers] + b;
  float *const delta = shared + by.delta[0] + b;
  float most = logits[0], sum = 0.0f, of_label = 0.0f;
  for (qn_u32 c = 1; c < classes; c++) most = logits[c * stride] > most ? logits[c * stride] : most;
  for (qn_u32 c = 0; c < classes; c++) {
    const float e = quick_exp(logits[c * stride] - most);
    delta[c * stride] = e;
    sum += e;
    if (c == label[b]) of_label = logits[c * stride] - most;
  }
  for (qn_u32 c = 0; c < classes; c++)
    delta[c * stride] = (delta[c * stride] / sum - (c == label[b] ? 1.0f : 0.0f)) / static_cast<float>(by.batch);
  return qn_log(sum) - of_label;
}

/* Of a weight its gradient, four outputs a thread; of its bias; and the deltas of the layer before. */
QN_FN void backward(const qn_meta_group &by, float *slab, float *shared, qn_u32 layer, qn_u32 thread)
{
  const qn_meta_tensor &w = by.tensor[2 * layer], &bias = by.tensor[2 * layer + 1];
  const qn_u32 outputs = w.outputs, inputs = w.inputs, batch = by.batch, stride = batch + 1;
  const qn_u32 side = (by.layers - 1 - layer) & 1u;
  const float *const delta = shared + by.delta[side], *const from = shared + by.value[layer];
  for (qn_u32 task = thread; task < (outputs + 3) / 4 * inputs; task += META_THREADS) {
    const qn_u32 i = task % inputs, first = task / inputs * 4, last = outputs - 1;
    float sum[4] = {};
    qn_u32 row[4];
    QN_UNROLL
    for (qn_u32 j = 0; j < 4; j++) row[j] = (first + j < last ? first + j : last) * stride;
    for (qn_u32 b = 0; b < batch; b++) {
      const float x = from[i * stride + b];
      QN_UNROLL
      for (int j = 0; j < 4; j++) sum[j] = qn_fma(delta[row[j] + b], x, sum[j]);
    }
    QN_UNROLL
    for (qn_u32 j = 0; j < 4; j++)
      if (first + j < outputs) slab[w.g + (first + j) * inputs + i] = sum[j];
  }
  for (qn_u32 o = thread; o < outputs; o += META_THREADS) {
    float sum = 0.0f;
    for (qn_u32 b = 0; b < batch; b++) sum += delta[o * stride + b];
    slab[bias.g + o] = sum;
  }
  if (!layer) return;
  float *const to = shared + by.delta[side ^ 1u];
  const float *const slope = shared + by.slope[layer];
  for (qn_u32 task = thread; task < inputs / 4 * batch; task += META_THREADS) {
    const qn_u32 b = task % batch, first = task / batch * 4;
    float sum[4] = {};
    for (qn_u32 o = 0; o < outputs; o++) {
      const float d = delta[o * stride + b];
      float weight[4];
      load4(weight, slab + w.p + o * inputs + first, 4, true);
      QN_UNROLL
      for (int j = 0; j < 4; j++) sum[j] = qn_fma(weight[j], d, sum[j]);
    }
    QN_UNROLL
    for (qn_u32 j = 0; j < 4; j++) to[(first + j) * stride + b] = sum[j] * slope[(first + j) * stride + b];
  }
}

/* All tensors' gradients on a new batch; the batch's loss, in every thread. */
QN_FN float train_pass(const qn_meta_group &by, float *slab, const meta_task &task, qn_u32 step, float *shared,
                       qn_u32 *label, float *scratch, qn_u32 thread)
{
  draw_batch(by, slab, task, step, shared, label, thread);
  for (qn_u32 l = 0; l < by.layers; l++) {
    const qn_meta_tensor &w = by.tensor[2 * l];
    float *const to = shared + by.value[l + 1], *const slope = shared + by.slope[l + 1 < by.layers ? l + 1 : 0];
    const bool last = l + 1 == by.layers;
    const int activation = task.activation;
    product(slab + w.p, slab + by.tensor[2 * l + 1].p, w.outputs, w.inputs, shared + by.value[l], by.batch, thread,
            [=](qn_u32 at, float z) {
              float s = 0.0f;
              to[at] = last ? z : activated(activation, z, s);
              if (!last) slope[at] = s;
            });
    qn_barrier();
  }
  float loss = 0.0f;
  for (qn_u32 b = thread; b < by.batch; b += META_THREADS) loss += loss_of(by, shared, label, b);
  loss = qn_group_sum(loss, scratch) / static_cast<float>(by.batch);
  qn_barrier();
  for (qn_u32 l = by.layers; l-- > 0;) {
    backward(by, slab, shared, l, thread);
    qn_barrier();
  }
  return loss;
}
#endif
