/* SPDX-License-Identifier: Apache-2.0 */
/* first_layer.c - the network's weights as elements meet them: the first bias with the time's inputs, the first layer
 * with the channels' scales. All of it is small, is computed in double, and is rounded once. */
#include "op/lopt/lopt.h"
#include "op/lopt/scalar.math.h"
#include <math.h>

/* Of small_fc's inputs, the times. */
enum { TIME_INPUTS = QN_LOPT_INPUTS - QN_LOPT_TIMES };

static void set_rates(qn_lopt_rates *r, const qn_lopt_step *step)
{
  for (int k = 0; k < 3; k++) {
    r->m[k] = (float)step->m[k], r->m_rest[k] = (float)(1 - step->m[k]);
    r->f[k] = (float)step->f[k], r->f_rest[k] = (float)(1 - step->f[k]);
  }
  r->v = (float)step->v, r->v_rest = (float)(1 - step->v);
  r->exp_mult = (float)step->exp_mult;
}

void qn_lopt_begin(qn_lopt_call *call, const qn_lopt_step *step)
{
  *call = (qn_lopt_call){.network = step->network,
                         .gradient = step->gradient,
                         .joint_decay = step->joint_decay,
                         .compat = step->compat,
                         .b_is_a = step->compat,
                         .b_term = step->network->b_term,
                         .means_of_decays = step->means_of_decays,
                         .max_grad_norm = step->max_grad_norm,
                         .weights = step->weights,
                         .own = step->own};
  set_rates(&call->rates, step);
}

void qn_lopt_prepare(qn_lopt_call *call, const qn_lopt_step *step)
{
  const float *w = step->weights;
  for (int h = 0; h < QN_LOPT_HIDDEN; h++) {
    call->bias[h] = (double)w[QN_LOPT_B1 + h];
    for (int k = 0; k < QN_LOPT_TIMES; k++)
      call->bias[h] += (double)w[QN_LOPT_W1 + h * QN_LOPT_INPUTS + TIME_INPUTS + k] * tanh(qn_lopt_time(step->step, k));
    for (int k = 0; k < QN_LOPT_HIDDEN; k++) call->second[k][h] = w[QN_LOPT_W2 + h * QN_LOPT_HIDDEN + k];
    for (int k = 0; k < 2; k++) call->third[h][k] = w[QN_LOPT_W3 + k * QN_LOPT_HIDDEN + h];
  }
}

void qn_lopt_factor_layer(const qn_lopt_network *network, const float *weights, bool row,
                          const double scale[QN_LOPT_FACTOR_CHANNELS], float *layer)
{
  for (unsigned k = 0; k < QN_LOPT_FACTOR_CHANNELS; k++)
    for (unsigned h = 0; h < network->hidden; h++) {
      const int input = qn_lopt_factor_input((int)network->elements, row, (int)k);
      layer[k * network->hidden + h] = (float)((double)weights[h * network->inputs + (unsigned)input] * scale[k]);
    }
}

void qn_lopt_first_layer(const qn_lopt_network *network, qn_lopt_item *item)
{
  const unsigned all = network->elements + QN_LOPT_FACTOR_CHANNELS,
                 channels = item->view.factored ? network->elements : all;
  for (unsigned k = 0; k < channels; k++) {
    double squares = 0;
    for (uint64_t chunk = 0; chunk < item->chunks; chunk++) squares += item->partial[chunk * all + k];
    const double scale = qn_lopt_scale(squares, item->view.whole_n);
    for (unsigned h = 0; h < network->hidden; h++)
      item->layer[k * network->hidden + h] =
          (float)(scale *
                  qn_lopt_channel_weight(item->weights, (int)network->inputs, (int)network->elements, (int)h, (int)k));
  }
}
