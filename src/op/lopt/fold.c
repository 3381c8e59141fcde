/* SPDX-License-Identifier: Apache-2.0 */
/* fold.c - what a step makes of the network's weights before elements meet them: the time's inputs go into the first
 * bias, the channels' scales into the first layer. All of it is small, is computed in double, and is rounded once. */
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
  *call = (qn_lopt_call){.kind = step->kind,
                         .gradient = step->gradient,
                         .joint_decay = step->joint_decay,
                         .compat = step->compat,
                         .b_is_a = step->compat,
                         .b_term = step->kind->b_term,
                         .means_of_decays = step->means_of_decays,
                         .max_grad_norm = step->max_grad_norm};
  set_rates(&call->rates, step);
}

void qn_lopt_prepare(qn_lopt_call *call, const qn_lopt_step *step)
{
  const float *w = step->weights;
  qn_lopt_begin(call, step);
  for (int h = 0; h < QN_LOPT_HIDDEN; h++) {
    call->bias[h] = (double)w[QN_LOPT_B1 + h];
    for (int k = 0; k < QN_LOPT_TIMES; k++)
      call->bias[h] += (double)w[QN_LOPT_W1 + h * QN_LOPT_INPUTS + TIME_INPUTS + k] * tanh(qn_lopt_time(step->step, k));
    for (int k = 0; k < QN_LOPT_HIDDEN; k++) call->second[k][h] = w[QN_LOPT_W2 + h * QN_LOPT_HIDDEN + k];
    for (int k = 0; k < 2; k++) call->third[h][k] = w[QN_LOPT_W3 + k * QN_LOPT_HIDDEN + h];
  }
}

void qn_lopt_side_layer(const qn_lopt_kind *kind, const float *weights, bool row, const double scale[QN_LOPT_SIDES],
                        float *layer)
{
  for (unsigned k = 0; k < QN_LOPT_SIDES; k++)
    for (unsigned h = 0; h < kind->hidden; h++) {
      const int input = qn_lopt_side_input((int)kind->elements, row, (int)k);
      layer[k * kind->hidden + h] = (float)((double)weights[h * kind->inputs + (unsigned)input] * scale[k]);
    }
}

void qn_lopt_fold(const qn_lopt_kind *kind, qn_lopt_item *item)
{
  const unsigned all = kind->elements + QN_LOPT_SIDES, channels = item->view.factored ? kind->elements : all;
  for (unsigned k = 0; k < channels; k++) {
    double squares = 0;
    for (uint64_t chunk = 0; chunk < item->chunks; chunk++) squares += item->partial[chunk * all + k];
    const double scale = qn_lopt_scale(squares, item->view.whole_n);
    for (unsigned h = 0; h < kind->hidden; h++)
      item->layer[k * kind->hidden + h] = (float)(scale * qn_lopt_channel_weight(item->weights, (int)kind->inputs,
                                                                                 (int)kind->elements, (int)h, (int)k));
  }
}
