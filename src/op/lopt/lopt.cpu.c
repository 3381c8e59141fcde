/* SPDX-License-Identifier: Apache-2.0 */
/* lopt.cpu.c - the tasks of a step of small_fc on the processor; built once a tier. */
#include "op/lopt/lopt.h"
#include "base/for_packs.h"

#ifndef QN_ORACLE /* its double form is the tests' own, written from the contract */
enum { ELEMENTS = QN_LOPT_ELEMENTS, CHANNELS = QN_LOPT_CHANNELS, HIDDEN = QN_LOPT_HIDDEN };
#include "op/lopt/block.cpu.h"

qn_lopt_cpu_fn QN_CPU_NAME(lopt);

/* The factor's part of the first layer's sums: 32 values a place. */
static void set_table(const qn_lopt_call *call, const qn_lopt_item *item, qn_lopt_factor *s, bool row, bool over_x)
{
  ALIGNED float layer[QN_LOPT_FACTOR_CHANNELS][HIDDEN], bias[HIDDEN];
  factor_layer(call, item, s, row, layer[0]);
  for (int h = 0; h < HIDDEN; h++) bias[h] = (float)call->bias[h];
  if (over_x) set_planes(s, layer[0], HIDDEN, NULL);
  for (uint64_t j = 0; !over_x && j < s->n; j++)
    for (uint64_t h = 0; h < HIDDEN; h += QN_LANES) {
      qn_f32 sum = get(bias + h);
      for (uint64_t k = 0; k < QN_LOPT_FACTOR_CHANNELS; k++)
        sum = qn_fma(get(layer[k] + h), qn_splat(s->channel[k * s->padded + j]), sum);
      put(s->table + j * HIDDEN + h, sum);
    }
}

QN_FN void element_inputs(qn_f32 g, qn_f32 p, const qn_f32 m[3], qn_f32 v, const qn_f32 a[3], const qn_f32 b[3],
                          qn_f32 x[ELEMENTS])
{
  qn_lopt_inputs(g, p, m, v, qn_rsqrt(qn_lopt_s_square(v)), a, b, x);
}

/* ---- the phase UPDATE ---- */

/* Sums that the registers have room for: ROWS outputs by ACROSS vectors of elements. */
#if QN_LANES == 8
enum { ACROSS = 2 };
#else
enum { ACROSS = 4 };
#endif

/* out[h] += sum over k of w[k][h] in[k], in the order of k, for `rows` outputs from h on, of `outputs`; then, where the
 * layer is a hidden one, max(x, 0). All but the pointers and h are constants, as this is inlined. */
QN_FN void add_layer(const float *w, int inputs, int outputs, int h, int rows, float (*in)[BLOCK], float (*out)[BLOCK])
{
  const int sums = rows * ACROSS;
  for (int u = 0; u < BLOCK; u += ACROSS * QN_LANES) {
    qn_f32 sum[4 * ACROSS];
    QN_UNROLL
    for (int s = 0; s < sums; s++) sum[s] = get(out[h + s / ACROSS] + u + s % ACROSS * QN_LANES);
    for (int k = 0; k < inputs; k++) {
      const float *x = in[k] + u, *of = w + k * outputs + h;
      QN_UNROLL
      for (int s = 0; s < sums; s++) sum[s] = qn_fma(qn_splat(of[s / ACROSS]), get(x + s % ACROSS * QN_LANES), sum[s]);
    }
    QN_UNROLL
    for (int s = 0; s < sums; s++) {
      const qn_f32 y = outputs == HIDDEN ? qn_lopt_relu(sum[s]) : sum[s];
      put(out[h + s / ACROSS] + u + s % ACROSS * QN_LANES, y);
    }
  }
}

static void hidden_layer(const float *w, int inputs, float (*in)[BLOCK], float (*out)[BLOCK])
{
  for (int h = 0; h < HIDDEN; h += 4) add_layer(w, inputs, HIDDEN, h, 4, in, out);
}

/* The part of `over_y` in the first layer at c places in turn, as often as a block from any of them on needs it: kept
 * from block to block, as short kernels of convolutions have the same places for thousands of elements. */
enum { MOST_IN_TURN = 16 };
typedef struct turns {
  uint64_t first; /* place */
  bool set;
  float row[HIDDEN][BLOCK + MOST_IN_TURN];
} turns;

static void take_turns(const qn_lopt_item *item, const block *k, turns *t)
{
  const uint64_t c = item->view.c, first = k->over_y[0] - k->phase;
  if (t->set && t->first == first) return;
  t->set = true, t->first = first;
  for (uint64_t h = 0; h < HIDDEN; h++) {
    const float *over_y = item->over_y.table + first * HIDDEN + h;
    for (uint64_t e = 0; e < c; e++) t->row[h][e] = over_y[e * HIDDEN];
    for (uint64_t e = c; e < BLOCK + c; e++) t->row[h][e] = t->row[h][e - c];
  }
}

/* The first layer's sums begin with the two factors' parts, or with the bias alone. */
static void begin_layer(const qn_lopt_call *call, const qn_lopt_item *item, const block *k, turns *t,
                        float (*out)[BLOCK])
{
  const bool in_turn = item->view.factored && k->in_turn && item->view.c <= MOST_IN_TURN;
  if (in_turn) take_turns(item, k, t);
  for (uint64_t h = 0; h < HIDDEN; h++) {
    const float *over_x = item->over_x.table + h * item->over_x.padded, *over_y = item->over_y.table + h;
    if (!item->view.factored)
      spread(out[h], (float)call->bias[h]);
    else if (k->straight)
      for (int u = 0; u < BLOCK; u += QN_LANES)
        put(out[h] + u, qn_splat(over_y[k->over_y[0] * HIDDEN]) + get(over_x + k->over_x[0] + u));
    else if (in_turn)
      for (int u = 0; u < BLOCK; u += QN_LANES)
        put(out[h] + u, get(t->row[h] + k->phase + u) + get(over_x + k->over_x[0] + u));
    else
      for (int e = 0; e < BLOCK; e++) out[h][e] = over_y[k->over_y[e] * HIDDEN] + over_x[k->over_x[e]];
  }
}

static void network(const qn_lopt_call *call, const qn_lopt_item *item, block *k, turns *t, float (*out)[BLOCK])
{
  ALIGNED float first[HIDDEN][BLOCK], second[HIDDEN][BLOCK];
  begin_layer(call, item, k, t, first);
  hidden_layer(item->layer, item->view.factored ? ELEMENTS : CHANNELS, k->x, first);
  for (int h = 0; h < HIDDEN; h++) spread(second[h], item->weights[QN_LOPT_B2 + h]);
  hidden_layer(call->second[0], HIDDEN, first, second);
  for (int h = 0; h < 2; h++) spread(out[h], item->weights[QN_LOPT_B3 + h]);
  add_layer(call->third[0], HIDDEN, 2, 0, 2, second, out);
}

static void update(const qn_lopt_call *call, qn_lopt_item *item, uint64_t task)
{
  const uint64_t end = chunk_end(item, task);
  const float exp_mult = call->rates.exp_mult;
  turns in_turn;
  block k;
  in_turn.set = false;
  for (uint64_t first = task * QN_LOPT_CHUNK; first < end; first += BLOCK) {
    ALIGNED float out[2][BLOCK];
    begin_block(&k, first, end);
    load(call, item, &k);
    set_inputs(call, item, &k);
    network(call, item, &k, &in_turn, out);
    for (int u = 0; u < BLOCK; u += QN_LANES) {
      const qn_f32 p = get(k.p + u), direction = get(out[0] + u), magnitude = get(out[1] + u);
      put(k.p + u, call->joint_decay ? qn_lopt_moved_jointly(p, direction, magnitude, exp_mult, item->lr, item->decay)
                                     : qn_lopt_moved(p, direction, magnitude, exp_mult, item->step, item->decay));
    }
    memcpy(item->p + k.first, k.p, k.n * sizeof(float));
  }
}

void QN_CPU_NAME(lopt)(const qn_lopt_call *call, qn_lopt_phase phase, qn_lopt_item *item, uint64_t task)
{
  if (phase == QN_LOPT_SUMS) sums(call, item, task);
  if (phase == QN_LOPT_STATES) states(call, item);
  if (phase == QN_LOPT_TABLES) tables(call, item);
  if (phase == QN_LOPT_STATS) stats(call, item, task, NULL, NULL);
  if (phase == QN_LOPT_FIRST_LAYER) qn_lopt_first_layer(call->network, item);
  if (phase == QN_LOPT_UPDATE) update(call, item, task);
}
#endif
