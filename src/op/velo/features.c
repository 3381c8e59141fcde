/* SPDX-License-Identifier: Apache-2.0 */
/* features.c - what VeLO's LSTM is shown: the loss's running means and each tensor's summary. All of it is small, is
 * computed in double, and is rounded once. */
#include "op/velo/velo.h"
#include "base/most.h"
#include <math.h>
#include <string.h>

/* ---- the loss ---- */

double qn_velo_half_life(uint64_t num_steps, int k)
{
  return pow(10, 1 + (log10((double)num_steps) - 1) * k / (QN_VELO_LOSSES - 1));
}

/* What a mean of `count` values has of them: 1 - d^count. */
static double share(uint64_t num_steps, int k, double count)
{
  return -expm1(-count / qn_velo_half_life(num_steps, k));
}

static void set_losses(qn_velo_call *call)
{
  const double *mean = call->loss_buffer + QN_VELO_LOSS_MEANS, *least = call->loss_buffer + QN_VELO_LOSS_LEAST;
  const double count = call->loss_buffer[QN_VELO_LOSS_COUNT];
  double above[QN_VELO_LOSSES];
  memset(call->losses, 0, (QN_VELO_LOSSES - 1) * sizeof *call->losses);
  if (count <= 2) return;
  for (int k = 0; k < QN_VELO_LOSSES; k++) above[k] = mean[k] / share(call->num_steps, k, count);
  for (int k = 0; k + 1 < QN_VELO_LOSSES; k++) {
    const double base = qn_double_most(1e-8, above[k + 1] - least[k]);
    call->losses[k] = qn_double_most(-1, qn_double_least(1, (above[k] - least[k]) / base - 1));
  }
}

bool qn_velo_take_loss(qn_velo_call *call)
{
  double *mean = call->loss_buffer + QN_VELO_LOSS_MEANS, *least = call->loss_buffer + QN_VELO_LOSS_LEAST;
  double loss = (double)*call->loss, most = -HUGE_VAL;
  if (!isfinite(loss)) {
    call->loss_buffer[QN_VELO_LOSS_SKIPPED]++;
    return false;
  }
  const bool first = call->loss_buffer[QN_VELO_LOSS_COUNT] <= 0;
  const double count = ++call->loss_buffer[QN_VELO_LOSS_COUNT];
  for (int k = 0; k < QN_VELO_LOSSES; k++) most = qn_double_most(most, mean[k] / share(call->num_steps, k, count));
  loss = qn_double_least(loss, 2 * fabs(first ? loss : most));
  for (int k = 0; k < QN_VELO_LOSSES; k++) {
    const double rest = share(call->num_steps, k, 1);
    mean[k] = (1 - rest) * mean[k] + rest * loss;
    const double now = mean[k] / share(call->num_steps, k, count);
    least[k] = first ? qn_double_least(999999999999.0, now) : qn_double_least(least[k], now);
  }
  set_losses(call);
  return true;
}

/* ---- a tensor's summary ---- */

static double shown(double x) { return 0.5 * qn_double_most(-5, qn_double_least(5, log(1e-8 + fabs(10 * x)))); }

/* The means of p^2, m_k, m_k^2, v, v^2. */
static void set_means(const qn_velo_item *item, double mean[QN_VELO_SUMMARIES])
{
  memset(mean, 0, QN_VELO_SUMMARIES * sizeof *mean);
  for (uint64_t chunk = 0; chunk < item->chunks; chunk++)
    for (int k = 0; k < QN_VELO_SUMMARIES; k++) mean[k] += item->partial[chunk * QN_VELO_SUMMARIES + (unsigned)k];
  for (int k = 0; k < QN_VELO_SUMMARIES; k++) mean[k] /= (double)item->whole;
}

static void set_summary(qn_velo_item *item, double x[QN_VELO_INPUTS])
{
  double mean[QN_VELO_SUMMARIES];
  set_means(item, mean);
  item->param_mean = mean[0];
  const double scale = 1 / sqrt(qn_double_most(1e-9, mean[0])), v = mean[7], v_squares = mean[8];
  x[18] = shown(scale * v);
  for (int k = 0; k < 5; k++) x[19 + k] = k == item->rank;
  for (int k = 0; k < 3; k++) {
    const double m = mean[1 + k], m_squares = mean[4 + k];
    x[24 + k] = shown(scale * scale * qn_double_most(0, m_squares - m * m));
    x[27 + k] = shown(scale * scale * (v_squares - 2 * v * m + m * m));
  }
}

void qn_velo_features(const qn_velo_call *call, size_t k)
{
  static const double times[9] = {0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.1};
  const double done = (double)call->step / (double)call->num_steps;
  double x[QN_VELO_INPUTS] = {0};
  for (int j = 0; j < 9; j++) x[j] = tanh(10 * (done - times[j])), x[9 + j] = call->losses[j];
  if (call->item[k].whole) set_summary(&call->item[k], x);
  for (size_t j = 0; j < QN_VELO_INPUTS; j++) call->x[j * call->padded + k] = (float)x[j];
  float *hidden = call->z + QN_VELO_UNITS * call->padded + k;
  for (size_t j = 0; j < QN_VELO_UNITS; j++) hidden[j * call->padded] = call->hidden[k * QN_VELO_UNITS + j];
}
