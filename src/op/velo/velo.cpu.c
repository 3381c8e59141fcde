/* SPDX-License-Identifier: Apache-2.0 */
/* velo.cpu.c - the tasks of a group of tensors of a step of VeLO on the processor, of which the network is its own;
 * built once a tier. */
#include "op/velo/velo.h"
#include "base/walk.h"

#ifndef QN_ORACLE /* its double form is the tests' own, written from the contract */
enum { ELEMENTS = QN_VELO_ELEMENTS, CHANNELS = QN_VELO_CHANNELS, WIDTH = QN_VELO_WIDTH };
#include "op/lopt/block.cpu.h"
#include "op/velo/velo.math.h"

qn_lopt_cpu_fn QN_CPU_NAME(velo);

/* What the side gives the first layer, [4][padded]; across has the bias. */
static void set_table(const qn_lopt_call *call, const qn_lopt_item *item, qn_lopt_side *s, bool row, bool along)
{
  float layer[QN_LOPT_SIDES * WIDTH];
  side_layer(call, item, s, row, layer);
  for (uint64_t h = 0; h < WIDTH; h++)
    for (uint64_t j = 0; j < s->padded; j += QN_LANES) {
      qn_f32 sum = qn_splat(along ? 0.0f : item->weights[QN_VELO_B1 + h]);
      for (uint64_t k = 0; k < QN_LOPT_SIDES; k++)
        sum = qn_fma(qn_splat(layer[k * WIDTH + h]), get(s->channel + k * s->padded + j), sum);
      put(s->table + h * s->padded + j, sum);
    }
}

static void set_inputs(const qn_lopt_call *call, const qn_lopt_item *item, block *k)
{
  set_element_factors(call, item, k);
  for (int u = 0; u < BLOCK; u += QN_LANES) {
    qn_f32 m[3], a[3], b[3], x[ELEMENTS];
    for (int d = 0; d < 3; d++) m[d] = get(k->m[d] + u), a[d] = get(k->a[d] + u), b[d] = get(k->b[d] + u);
    qn_velo_inputs(get(k->g + u), get(k->p + u), m, get(k->v + u), a, b, x);
    for (int j = 0; j < ELEMENTS; j++) put(k->x[j] + u, x[j]);
    for (int d = 0; d < 3 && item->f; d++) {
      put(k->x[ELEMENTS + d] + u, get(k->f[d] + u));
      put(k->x[ELEMENTS + 3 + d] + u, qn_lopt_inverse(get(k->f[d] + u)));
    }
  }
}

/* What the two vectors, or the bias alone, give the first layer. */
static void begin_layer(const qn_lopt_item *item, const block *k, float (*out)[BLOCK])
{
  for (uint64_t h = 0; h < WIDTH; h++) {
    const float *along = item->along.table + h * item->along.padded;
    const float *across = item->across.table + h * item->across.padded;
    if (!item->view.factored)
      for (int u = 0; u < BLOCK; u += QN_LANES) put(out[h] + u, qn_splat(item->weights[QN_VELO_B1 + h]));
    else if (k->straight)
      for (int u = 0; u < BLOCK; u += QN_LANES)
        put(out[h] + u, qn_splat(across[k->across[0]]) + get(along + k->along[0] + u));
    else
      for (int e = 0; e < BLOCK; e++) out[h][e] = across[k->across[e]] + along[k->along[e]];
  }
}

static void move(const qn_lopt_call *call, const qn_lopt_item *item, block *k)
{
  const int channels = item->view.factored ? ELEMENTS : CHANNELS;
  const float *w = item->weights;
  ALIGNED float begin[WIDTH][BLOCK];
  begin_layer(item, k, begin);
  for (int u = 0; u < BLOCK; u += QN_LANES) {
    qn_f32 first[WIDTH], direction, magnitude;
    QN_UNROLL
    for (int h = 0; h < WIDTH; h++) first[h] = get(begin[h] + u);
    for (int j = 0; j < channels; j++) {
      const qn_f32 x = get(k->x[j] + u);
      QN_UNROLL
      for (int h = 0; h < WIDTH; h++) first[h] = qn_fma(qn_splat(item->layer[j * WIDTH + h]), x, first[h]);
    }
    qn_velo_network(first, w + QN_VELO_W2, w + QN_VELO_B2, w + QN_VELO_W3, w + QN_VELO_B3, &direction, &magnitude);
    put(k->p + u, qn_lopt_moved(get(k->p + u), direction, magnitude, call->rates.exp_mult, item->step, item->decay));
  }
}

static void update(const qn_lopt_call *call, qn_lopt_item *item, uint64_t task)
{
  const uint64_t end = chunk_end(item, task);
  block k;
  for (k.first = task * QN_LOPT_CHUNK; k.first < end; k.first += BLOCK) {
    k.n = end - k.first < BLOCK ? end - k.first : BLOCK;
    load(call, item, &k);
    set_inputs(call, item, &k);
    move(call, item, &k);
    memcpy(item->p + k.first, k.p, k.n * sizeof(float));
  }
}

/* The LSTM's factor and the parameter's size, which were not known when the item was bound. */
static void fold(const qn_lopt_call *call, qn_lopt_item *item)
{
  const float lr_mult = item->weights[QN_VELO_LR_MULT];
  qn_lopt_fold(call->kind, item);
  item->step = (float)((double)item->step * (double)lr_mult * (double)item->weights[QN_VELO_SIZE]);
  if (call->compat) item->decay *= lr_mult;
}

void QN_CPU_NAME(velo)(const qn_lopt_call *call, qn_lopt_phase phase, qn_lopt_item *item, uint64_t task)
{
  if (phase == QN_LOPT_SUMS) sums(call, item, task);
  if (phase == QN_LOPT_STATES) states(call, item);
  if (phase == QN_LOPT_FACTORS) factors(call, item);
  if (phase == QN_LOPT_STATS) stats(call, item, task);
  if (phase == QN_LOPT_FOLD) fold(call, item);
  if (phase == QN_LOPT_UPDATE) update(call, item, task);
}
#endif
