/* SPDX-License-Identifier: Apache-2.0 */
/* features.c - what VeLO's LSTM is shown: the loss's running means and each tensor's summary. All of it is small, is
 * computed in double, and is rounded once. */
#include "op/velo/scalar.math.h"
#include "op/velo/velo.h"
#include <math.h>

double qn_velo_half_life(uint64_t num_steps, int k)
{
  return pow(10, 1 + (log10((double)num_steps) - 1) * k / (QN_VELO_LOSSES - 1));
}

/* The share of a mean that `count` values fill: 1 - d^count. */
static double share(uint64_t num_steps, int k, double count)
{
  return -expm1(-count / qn_velo_half_life(num_steps, k));
}

bool qn_velo_take_loss(qn_velo_call *call)
{
  double *mean = call->loss_buffer + QN_VELO_LOSS_MEANS, *least = call->loss_buffer + QN_VELO_LOSS_LEAST;
  double loss = (double)*call->loss, most = -HUGE_VAL, now[QN_VELO_LOSSES];
  if (!isfinite(loss)) {
    call->loss_buffer[QN_VELO_LOSS_SKIPPED]++;
    return false;
  }
  const bool first = call->loss_buffer[QN_VELO_LOSS_COUNT] <= 0;
  const double count = ++call->loss_buffer[QN_VELO_LOSS_COUNT];
  for (int k = 0; k < QN_VELO_LOSSES; k++) most = qn_double_most(most, mean[k] / share(call->num_steps, k, count));
  loss = qn_velo_counted(loss, most, first);
  for (int k = 0; k < QN_VELO_LOSSES; k++) {
    mean[k] = qn_velo_loss_mean(mean[k], share(call->num_steps, k, 1), loss);
    now[k] = mean[k] / share(call->num_steps, k, count);
    least[k] = qn_velo_loss_least(least[k], now[k], first);
  }
  for (int k = 0; k + 1 < QN_VELO_LOSSES; k++)
    call->losses[k] = qn_velo_loss_input(now[k], now[k + 1], least[k], count);
  return true;
}

/* Into zeros. */
static void set_means(const qn_velo_item *item, double mean[QN_VELO_SUMMARIES])
{
  for (uint64_t chunk = 0; chunk < item->chunks; chunk++)
    for (int k = 0; k < QN_VELO_SUMMARIES; k++) mean[k] += item->partial[chunk * QN_VELO_SUMMARIES + (unsigned)k];
  for (int k = 0; k < QN_VELO_SUMMARIES; k++) mean[k] /= (double)item->whole;
}

/* The own inputs of a tensor without elements stay 0. */
void qn_velo_features(const qn_velo_call *call, size_t k)
{
  const double done = (double)call->step / (double)call->num_steps;
  qn_velo_item *item = &call->item[k];
  double mean[QN_VELO_SUMMARIES] = {0};
  if (item->whole) set_means(item, mean), item->param_mean = mean[0];
  for (int j = 0; j < QN_VELO_INPUTS; j++)
    call->x[(uint64_t)j * call->padded + k] =
        item->whole || j < QN_VELO_OF_LIST ? qn_velo_input(j, done, call->losses, item->rank, mean) : 0;
  float *hidden = call->z + QN_VELO_UNITS * call->padded + k;
  for (size_t j = 0; j < QN_VELO_UNITS; j++) hidden[j * call->padded] = call->hidden[k * QN_VELO_UNITS + j];
}
