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

/* What a vector of elements gives the first layer. */
QN_FN void add_channels(const qn_lopt_item *item, float (*x)[BLOCK], int channels, int u, qn_f32 first[WIDTH])
{
  for (int j = 0; j < channels; j++) {
    const qn_f32 input = get(x[j] + u);
    QN_UNROLL
    for (int h = 0; h < WIDTH; h++) first[h] = qn_fma(qn_splat(item->layer[j * WIDTH + h]), input, first[h]);
  }
}

QN_FN qn_f32 moved(const qn_lopt_call *call, const qn_lopt_item *item, qn_f32 p, const qn_f32 first[WIDTH])
{
  const float *w = item->weights;
  qn_f32 direction, magnitude;
  qn_velo_network(first, w + QN_VELO_W2, w + QN_VELO_B2, w + QN_VELO_W3, w + QN_VELO_B3, &direction, &magnitude);
  return qn_lopt_moved(p, direction, magnitude, call->rates.exp_mult, item->step, item->decay);
}

static void move(const qn_lopt_call *call, const qn_lopt_item *item, block *k)
{
  ALIGNED float begin[WIDTH][BLOCK];
  begin_layer(item, k, begin);
  for (int u = 0; u < BLOCK; u += QN_LANES) {
    qn_f32 first[WIDTH];
    QN_UNROLL
    for (int h = 0; h < WIDTH; h++) first[h] = get(begin[h] + u);
    add_channels(item, k->x, item->view.factored ? ELEMENTS : CHANNELS, u, first);
    put(k->p + u, moved(call, item, get(k->p + u), first));
  }
}

/* ---- straight blocks: from the tensors' memory to registers and back, with the bits that other blocks have ---- */

/* Elements [first, first + 64), whose places along follow one another and have one across. */
typedef struct straight {
  const float *g, *along[3], *table[WIDTH];
  float *p, *m[3], *v;
  float across[3], begin[WIDTH];
} straight;

static straight straight_of(const qn_lopt_item *item, const block *k)
{
  const uint64_t i = k->first, along = k->along[0], across = k->across[0];
  straight s = {.g = item->g + i, .p = item->p + i, .v = item->v + i};
  for (uint64_t d = 0; d < 3; d++) {
    s.m[d] = item->m + d * item->view.n + i;
    s.along[d] = item->along.factor + d * item->along.padded + along;
    s.across[d] = item->across.factor[d * item->across.padded + across];
  }
  for (uint64_t h = 0; h < WIDTH; h++) {
    s.table[h] = item->along.table + h * item->along.padded + along;
    s.begin[h] = item->across.table[h * item->across.padded + across];
  }
  return s;
}

/* Their inputs from element u on, of states that were updated. */
QN_FN void straight_inputs(const straight *s, int u, const qn_f32 m[3], qn_f32 v, qn_f32 x[ELEMENTS])
{
  qn_f32 a[3];
  QN_UNROLL
  for (int d = 0; d < 3; d++) a[d] = get(s->along[d] + u) * qn_splat(s->across[d]);
  qn_velo_inputs(qn_lopt_taken(QN_LOPT_CLIPPED, get(s->g + u)), get(s->p + u), m, v, a, a, x);
}

static void straight_stats(const qn_lopt_call *call, const qn_lopt_item *item, const block *k, float (*slot)[SLOTS])
{
  const qn_lopt_rates *r = &call->rates;
  const straight at = straight_of(item, k), *s = &at;
  for (int from = 0; from < SLOTS; from += QN_LANES) {
    qn_f32 sum[ELEMENTS];
    QN_UNROLL
    for (int j = 0; j < ELEMENTS; j++) sum[j] = get(slot[j] + from);
    for (int u = from; u < BLOCK; u += SLOTS) {
      const qn_f32 g = qn_lopt_taken(QN_LOPT_CLIPPED, get(s->g + u));
      const qn_f32 v = qn_lopt_mean(r->v, r->v_rest, get(s->v + u), g * g);
      qn_f32 m[3], x[ELEMENTS];
      QN_UNROLL
      for (int d = 0; d < 3; d++) {
        m[d] = qn_lopt_mean(r->m[d], r->m_rest[d], get(s->m[d] + u), g);
        put(s->m[d] + u, m[d]);
      }
      put(s->v + u, v);
      straight_inputs(s, u, m, v, x);
      QN_UNROLL
      for (int j = 0; j < ELEMENTS; j++) sum[j] = qn_fma(x[j], x[j], sum[j]);
    }
    QN_UNROLL
    for (int j = 0; j < ELEMENTS; j++) put(slot[j] + from, sum[j]);
  }
}

/* One vector; the layer's weights by input. */
QN_FN void straight_move(const qn_lopt_call *call, const qn_lopt_item *item, const straight *s, int u)
{
  qn_f32 x[ELEMENTS], first[WIDTH];
  const qn_f32 m[3] = {get(s->m[0] + u), get(s->m[1] + u), get(s->m[2] + u)};
  straight_inputs(s, u, m, get(s->v + u), x);
  QN_UNROLL
  for (int h = 0; h < WIDTH; h++) first[h] = qn_splat(s->begin[h]) + get(s->table[h] + u);
  QN_UNROLL
  for (int j = 0; j < ELEMENTS; j++) {
    QN_UNROLL
    for (int h = 0; h < WIDTH; h++) first[h] = qn_fma(qn_splat(item->layer[j * WIDTH + h]), x[j], first[h]);
  }
  put(s->p + u, moved(call, item, get(s->p + u), first));
}

static void straight_update(const qn_lopt_call *call, const qn_lopt_item *item, const block *k)
{
  const straight s = straight_of(item, k);
  for (int u = 0; u < BLOCK; u += QN_LANES) straight_move(call, item, &s, u);
}

/* ---- the phase UPDATE ---- */

static void update(const qn_lopt_call *call, qn_lopt_item *item, uint64_t task)
{
  const uint64_t end = chunk_end(item, task);
  block k;
  for (uint64_t first = task * QN_LOPT_CHUNK; first < end; first += BLOCK) {
    begin_block(item, &k, first, end);
    if (k.straight) {
      straight_update(call, item, &k);
      continue;
    }
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
  if (phase == QN_LOPT_STATS) stats(call, item, task, straight_stats);
  if (phase == QN_LOPT_FOLD) fold(call, item);
  if (phase == QN_LOPT_UPDATE) update(call, item, task);
}
#endif
