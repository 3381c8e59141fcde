/* SPDX-License-Identifier: Apache-2.0 */
/* fold.c - what a step makes of the network's weights before elements meet them: the time's inputs go into the first
 * bias, the channels' scales into the first layer. All of it is small, is computed in double, and is rounded once. */
#include "op/lopt/lopt.h"
#include <math.h>

static const double times[QN_LOPT_TIMES] = {1, 3, 10, 30, 100, 300, 1000, 3000, 10000, 30000, 100000};

enum {
  ROW_INPUTS = 13,
  COLUMN_INPUTS = 16,
  ROW_INVERSES = 19,
  COLUMN_INVERSES = 22,
  LAST_INPUTS = 25,
  TIME_INPUTS = 28
};

static double weight(const qn_lopt_call *call, int hidden, int input)
{
  return (double)call->weights[QN_LOPT_W1 + hidden * QN_LOPT_INPUTS + input];
}

static void set_rates(qn_lopt_rates *r, const qn_lopt_step *step)
{
  for (int k = 0; k < 3; k++) {
    r->m[k] = (float)step->m[k], r->m_rest[k] = (float)(1 - step->m[k]);
    r->f[k] = (float)step->f[k], r->f_rest[k] = (float)(1 - step->f[k]);
  }
  r->v = (float)step->v, r->v_rest = (float)(1 - step->v);
  r->exp_mult = (float)step->exp_mult;
}

void qn_lopt_prepare(qn_lopt_call *call, const qn_lopt_step *step)
{
  const float *w = step->weights;
  *call = (qn_lopt_call){.elo = step->elo, .compat = step->compat, .max_grad_norm = step->max_grad_norm, .weights = w};
  set_rates(&call->rates, step);
  for (int h = 0; h < QN_LOPT_HIDDEN; h++) {
    call->bias[h] = (double)w[QN_LOPT_B1 + h];
    for (int k = 0; k < QN_LOPT_TIMES; k++)
      call->bias[h] += weight(call, h, TIME_INPUTS + k) * tanh((double)step->step / times[k] - 1);
    for (int k = 0; k < QN_LOPT_HIDDEN; k++) call->second[k][h] = w[QN_LOPT_W2 + h * QN_LOPT_HIDDEN + k];
    for (int k = 0; k < 2; k++) call->third[h][k] = w[QN_LOPT_W3 + k * QN_LOPT_HIDDEN + h];
  }
}

double qn_lopt_scale(double squares, uint64_t n) { return 1 / sqrt(1e-5 + squares / (double)n); }

void qn_lopt_side_layer(const qn_lopt_call *call, bool row, const double scale[QN_LOPT_SIDES],
                        float layer[QN_LOPT_SIDES][QN_LOPT_HIDDEN])
{
  const int states = row ? ROW_INPUTS : COLUMN_INPUTS, inverses = row ? ROW_INVERSES : COLUMN_INVERSES;
  for (int k = 0; k < QN_LOPT_SIDES; k++)
    for (int h = 0; h < QN_LOPT_HIDDEN; h++)
      layer[k][h] = (float)(weight(call, h, k < 3 ? states + k : inverses + k - 3) * scale[k]);
}

/* Of channel k, the inputs that it is; where nothing is factored a state is both row and column. */
static double weight_of_channel(const qn_lopt_call *call, int hidden, int k)
{
  if (k < ROW_INPUTS) return weight(call, hidden, k);
  if (k < QN_LOPT_ELEMENTS) return weight(call, hidden, LAST_INPUTS + k - ROW_INPUTS);
  k -= QN_LOPT_ELEMENTS;
  const int first = k < 3 ? ROW_INPUTS + k : ROW_INVERSES + k - 3, second = first + 3;
  return weight(call, hidden, first) + weight(call, hidden, second);
}

void qn_lopt_fold(const qn_lopt_call *call, qn_lopt_item *item)
{
  const int channels = item->view.factored ? QN_LOPT_ELEMENTS : QN_LOPT_CHANNELS;
  const uint64_t chunks = qn_lopt_ceiling(item->view.n, QN_LOPT_CHUNK);
  for (int k = 0; k < channels; k++) {
    double squares = 0;
    for (uint64_t chunk = 0; chunk < chunks; chunk++) squares += item->partial[chunk * QN_LOPT_CHANNELS + (unsigned)k];
    const double scale = qn_lopt_scale(squares, item->view.n);
    for (int h = 0; h < QN_LOPT_HIDDEN; h++)
      item->layer[k * QN_LOPT_HIDDEN + h] = (float)(weight_of_channel(call, h, k) * scale);
  }
}
