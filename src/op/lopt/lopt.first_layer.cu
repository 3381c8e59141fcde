/* SPDX-License-Identifier: Apache-2.0 */
/* lopt.first_layer.cu - the network's weights as elements meet them, on a device. lopt_begin, once a step, adds the
 * time to the first bias, puts the tensors' first tasks side by side, writes the two layers as words of the matrix
 * units' products, and bounds the first layer's sums. lopt_start, once a tensor, sets the rates, and the power of two
 * that keeps hidden values within those words. lopt_first_layer makes the channels' scales of all chunks' squares, and,
 * where elements are taken one by one, the first layer with them. A network whose weights differ from tensor to tensor
 * has kernels of its own for these. */
#define QN_THREADS 1024
#include "op/lopt/network.h"

constexpr int THREADS = QN_THREADS;

/* A hidden value's bias with the time, and the bound of its sum of these; of the other inputs, which are at most
 * sqrt(n) each. */
QN_FN double set_bias(const qn_lopt_device_args &a, const qn_lopt_live &live, int h, double &of_root)
{
  double bias = static_cast<double>(a.weights[B1 + h]), most = qn_lopt_magnitude(bias);
  for (int k = 0; k < TIMES; k++) {
    const double w = weight(a.weights, h, TIME + k);
    bias += w * tanh_double(qn_lopt_time(live.step, k));
    most += qn_lopt_magnitude(w);
  }
  a.head->bias[h] = static_cast<float>(bias);
  of_root = 0;
  for (int k = 0; k < TIME; k++) of_root += qn_lopt_magnitude(weight(a.weights, h, k));
  if (of_root < 1) of_root = 1; /* the inputs themselves */
  return most;
}

QN_GROUP_KERNEL(lopt_begin, qn_lopt_device_args, a)
{
  QN_SHARED(double, scratch, 32);
  const qn_lopt_live live = a.hyper ? *a.hyper : a.live;
  const qn_u32 thread = qn_thread();
  double most = 0, of_root = 0;
  spread_firsts(a.items, a.n, a.firsts, thread, THREADS);
  if (thread < WIDTH) most = set_bias(a, live, static_cast<int>(thread), of_root);
  most = qn_group_max(most, scratch);
  of_root = qn_group_max(of_root, scratch);
  if (thread == 0) {
    a.head->lr = live.lr;
    a.head->weight_decay = live.weight_decay;
    a.head->most = most;
    a.head->most_of_root = of_root;
  }
  for (qn_u32 k = thread; k < QN_LOPT_FRAGMENTS * 32; k += THREADS)
    a.head->fragments[k] = fragment(a.weights, k / 32, k % 32);
}

QN_KERNEL(lopt_start, qn_lopt_device_args, a)
{
  const qn_u64 k = qn_block() * qn_block_threads() + qn_thread();
  if (k >= a.n) return;
  const qn_lopt_device_item &it = a.items[k];
  qn_lopt_scalars &f = *it.scalars;
  const double lr = a.head->lr * it.lr_scale, decay = a.head->weight_decay;
  float hidden_scale = 1;
  double most = a.head->most + a.head->most_of_root * qn_lopt_sqrt(static_cast<double>(it.whole));
  while (KEEPS_WITHIN > 0 && most > KEEPS_WITHIN && hidden_scale > 0x1p-60f) most *= 0.5, hidden_scale *= 0.5f;
  f.of_gradient = 1.0f;
  f.lr = static_cast<float>(lr);
  f.step = static_cast<float>(lr * a.step_mult);
  f.decay = static_cast<float>(QN_LOPT_JOINT_DECAY ? decay : decay * lr);
  f.hidden_scale = it.flags & QN_LOPT_TILED ? hidden_scale : 1.0f;
  f.output_scale = 1.0f / f.hidden_scale;
}

QN_GROUP_KERNEL(lopt_first_layer, qn_lopt_device_args, a)
{
  QN_SHARED(double, sums, 32 * ALL_INPUTS);
  QN_SHARED(double, scale, ALL_INPUTS);
  const qn_lopt_device_item &it = a.items[qn_block()];
  const qn_u32 lane = qn_lane(), simd = qn_simd(), channels = it.channels;
  const bool cut = it.flags & QN_LOPT_CUT;
  const double *partial = cut ? it.shared_stats : it.partial;
  const qn_u64 partials = cut ? 1 : it.partials;
  double sum = 0;
  if (lane < channels)
    for (qn_u64 k = simd; k < partials; k += 32) sum += partial[k * channels + lane];
  if (lane < channels) sums[simd * channels + lane] = sum;
  qn_barrier();
  if (qn_thread() < channels) {
    double total = 0;
    for (qn_u32 k = 0; k < 32; k++) total += sums[k * channels + lane];
    scale[lane] = qn_lopt_scale(total, it.whole);
    it.scalars->scale[lane] = static_cast<float>(scale[lane]);
  }
  qn_barrier();
  for (qn_u32 k = qn_thread(); it.layer && k < channels * WIDTH; k += THREADS)
    it.layer[k] = static_cast<float>(qn_lopt_channel_weight(a.weights, INPUTS, ELEMENT_INPUTS,
                                                            static_cast<int>(k % WIDTH), static_cast<int>(k / WIDTH)) *
                                     scale[k / WIDTH]);
}
