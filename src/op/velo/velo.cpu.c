/* SPDX-License-Identifier: Apache-2.0 */
/* velo.cpu.c - the tasks of a batch of tensors of a step of VeLO on the processor, of which the network is its own;
 * built once a tier. */
#include "op/velo/velo.h"
#include "base/for_packs.h"

#ifndef QN_ORACLE /* its double form is the tests' own, written from the contract */
enum { ELEMENTS = QN_VELO_ELEMENTS, CHANNELS = QN_VELO_CHANNELS, WIDTH = QN_VELO_WIDTH };
#include "op/lopt/block.cpu.h"
#include "op/velo/velo.math.h"

qn_lopt_cpu_fn QN_CPU_NAME(velo);

/* The factor's part of the first layer's sums, [4][padded]; over_y's has the bias. */
static void set_table(const qn_lopt_call *call, const qn_lopt_item *item, qn_lopt_factor *s, bool row, bool over_x)
{
  float layer[QN_LOPT_FACTOR_CHANNELS * WIDTH];
  factor_layer(call, item, s, row, layer);
  set_planes(s, layer, WIDTH, over_x ? NULL : item->weights + QN_VELO_B1);
}

QN_FN void element_inputs(qn_f32 g, qn_f32 p, const qn_f32 m[3], qn_f32 v, const qn_f32 a[3], const qn_f32 b[3],
                          qn_f32 x[ELEMENTS])
{
  qn_velo_inputs(g, p, m, v, qn_rsqrt(qn_lopt_s_square(v)), a, b, x);
}

/* The first layer's sums begin with the two factors' parts, or with the bias alone. */
static void begin_layer(const qn_lopt_item *item, const block *k, float (*out)[BLOCK])
{
  for (uint64_t h = 0; h < WIDTH; h++) {
    const float *over_x = item->over_x.table + h * item->over_x.padded;
    const float *over_y = item->over_y.table + h * item->over_y.padded;
    if (!item->view.factored)
      spread(out[h], item->weights[QN_VELO_B1 + h]);
    else if (k->straight)
      for (int u = 0; u < BLOCK; u += QN_LANES)
        put(out[h] + u, qn_splat(over_y[k->over_y[0]]) + get(over_x + k->over_x[0] + u));
    else
      for (int e = 0; e < BLOCK; e++) out[h][e] = over_y[k->over_y[e]] + over_x[k->over_x[e]];
  }
}

/* The part of a vector of elements in the first layer's sums. */
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

/* ---- blocks from the tensors' memory to registers and back, with the bits that other blocks have ---- */

/* Where a block of 64 lies in the two factors, if its elements do so by sixteens: in over_x, places that follow one
 * another; in over_y, one place, or, where a strip's c places come over and over, a place of `around`, which has them
 * so.
 */
typedef struct places {
  uint64_t over_x[4], over_y[4], strip;       /* whose `around` it is */
  ALIGNED float around[3 + WIDTH][2 * BLOCK]; /* roots, tables */
} places;

/* The strip's places in over_y, over and over. */
static void go_around(const qn_lopt_item *item, uint64_t strip, places *at)
{
  const uint64_t c = item->view.c, padded = item->over_y.padded;
  if (at->strip == strip) return;
  at->strip = strip;
  for (uint64_t j = 0; j < 3 + WIDTH; j++) {
    const float *from = j < 3 ? item->over_y.root + j * padded : item->over_y.table + (j - 3) * padded;
    memcpy(at->around[j], from + strip * c, c * sizeof(float));
    for (uint64_t k = c; k < 2 * BLOCK; k++) at->around[j][k] = at->around[j][k - c];
  }
}

static bool place_block(const qn_lopt_item *item, const block *k, places *at)
{
  const qn_lopt_view *v = &item->view;
  const uint64_t length = v->y * v->c;
  if (!v->factored || k->n < BLOCK || v->c > BLOCK) return false;
  uint64_t strip = k->first / length, in = k->first % length;
  if (in + BLOCK > length && (v->c > 1 || length % 16)) return false;
  if (v->c > 1) go_around(item, strip, at);
  for (int q = 0; q < 4; q++, in += 16) {
    if (in == length) in = 0, strip++;
    at->over_x[q] = (strip / v->b / v->x * v->b + strip % v->b) * length + in;
    at->over_y[q] = v->c > 1 ? in % v->c : strip;
  }
  return true;
}

/* Of the two factors' plane j what element u takes. */
QN_FN qn_f32 over_x_of(const float *plane, const places *at, int u) { return get(plane + at->over_x[u / 16] + u % 16); }
QN_FN qn_f32 over_y_of(const float *plane, const places *at, int j, int u, bool around)
{
  const uint64_t place = at->over_y[u / 16];
  return around ? get(at->around[j] + place + u % 16) : qn_splat(plane[place]);
}

/* The inputs from element i, which is the block's u-th, on, of states that were updated. */
QN_FN void inputs_at(const qn_lopt_item *item, const places *at, uint64_t i, int u, bool around, const qn_f32 m[3],
                     qn_f32 v, qn_f32 x[ELEMENTS])
{
  qn_f32 a[3];
  QN_UNROLL
  for (int d = 0; d < 3; d++)
    a[d] = over_x_of(item->over_x.root + (uint64_t)d * item->over_x.padded, at, u) *
           over_y_of(item->over_y.root + (uint64_t)d * item->over_y.padded, at, d, u, around);
  element_inputs(qn_lopt_taken(QN_LOPT_CLIPPED, get(item->g + i)), get(item->p + i), m, v, a, a, x);
}

/* New m and v from element i on. */
QN_FN void accumulate_at(const qn_lopt_rates *r, const qn_lopt_item *item, uint64_t i, qn_f32 m[3], qn_f32 *v)
{
  const qn_f32 g = qn_lopt_taken(QN_LOPT_CLIPPED, get(item->g + i));
  *v = qn_lopt_mean(r->v, r->v_rest, get(item->v + i), g * g);
  put(item->v + i, *v);
  QN_UNROLL
  for (uint64_t d = 0; d < 3; d++) {
    m[d] = qn_lopt_mean(r->m[d], r->m_rest[d], get(item->m + d * item->view.n + i), g);
    put(item->m + d * item->view.n + i, m[d]);
  }
}

QN_FN void stats_of(const qn_lopt_call *call, const qn_lopt_item *item, const places *at, uint64_t first, bool around,
                    float (*slot)[SLOTS])
{
  for (int from = 0; from < SLOTS; from += QN_LANES) {
    qn_f32 sum[ELEMENTS];
    QN_UNROLL
    for (int j = 0; j < ELEMENTS; j++) sum[j] = get(slot[j] + from);
    for (int u = from; u < BLOCK; u += SLOTS) {
      const uint64_t i = first + (uint64_t)u;
      qn_f32 m[3], v, x[ELEMENTS];
      accumulate_at(&call->rates, item, i, m, &v);
      inputs_at(item, at, i, u, around, m, v, x);
      QN_UNROLL
      for (int j = 0; j < ELEMENTS; j++) sum[j] = qn_fma(x[j], x[j], sum[j]);
    }
    QN_UNROLL
    for (int j = 0; j < ELEMENTS; j++) put(slot[j] + from, sum[j]);
  }
}

static bool stats_by_hand(const qn_lopt_call *call, const qn_lopt_item *item, const block *k, float (*slot)[SLOTS],
                          void *user)
{
  places *at = user;
  if (!place_block(item, k, at)) return false;
  if (item->view.c > 1)
    stats_of(call, item, at, k->first, true, slot);
  else
    stats_of(call, item, at, k->first, false, slot);
  return true;
}

QN_FN void update_of(const qn_lopt_call *call, const qn_lopt_item *item, const places *at, uint64_t i, int u,
                     bool around)
{
  const float *m0 = item->m + i, *m1 = m0 + item->view.n, *m2 = m1 + item->view.n;
  const qn_f32 m[3] = {get(m0), get(m1), get(m2)};
  qn_f32 x[ELEMENTS], first[WIDTH];
  inputs_at(item, at, i, u, around, m, get(item->v + i), x);
  QN_UNROLL
  for (int h = 0; h < WIDTH; h++)
    first[h] = over_y_of(item->over_y.table + (uint64_t)h * item->over_y.padded, at, 3 + h, u, around) +
               over_x_of(item->over_x.table + (uint64_t)h * item->over_x.padded, at, u);
  QN_UNROLL
  for (int j = 0; j < ELEMENTS; j++) {
    QN_UNROLL
    for (int h = 0; h < WIDTH; h++) first[h] = qn_fma(qn_splat(item->layer[j * WIDTH + h]), x[j], first[h]);
  }
  put(item->p + i, moved(call, item, get(item->p + i), first));
}

static bool update_by_hand(const qn_lopt_call *call, const qn_lopt_item *item, const block *k, places *at)
{
  if (!place_block(item, k, at)) return false;
  for (int u = 0; u < BLOCK; u += QN_LANES) {
    const uint64_t i = k->first + (uint64_t)u;
    if (item->view.c > 1)
      update_of(call, item, at, i, u, true);
    else
      update_of(call, item, at, i, u, false);
  }
  return true;
}

/* ---- the phase UPDATE ---- */

static void update(const qn_lopt_call *call, qn_lopt_item *item, uint64_t task)
{
  const uint64_t end = chunk_end(item, task);
  places at;
  block k;
  at.strip = UINT64_MAX;
  for (uint64_t first = task * QN_LOPT_CHUNK; first < end; first += BLOCK) {
    begin_block(&k, first, end);
    if (update_by_hand(call, item, &k, &at)) continue;
    load(call, item, &k);
    set_inputs(call, item, &k);
    move(call, item, &k);
    memcpy(item->p + k.first, k.p, k.n * sizeof(float));
  }
}

/* The LSTM's factor and the parameter's size, which were not known when the item was bound. */
static void first_layer(const qn_lopt_call *call, qn_lopt_item *item)
{
  const float lr_mult = item->weights[QN_VELO_LR_MULT];
  qn_lopt_first_layer(call->network, item);
  item->step = (float)((double)item->step * (double)lr_mult * (double)item->weights[QN_VELO_SIZE]);
  if (call->compat) item->decay *= lr_mult;
}

void QN_CPU_NAME(velo)(const qn_lopt_call *call, qn_lopt_phase phase, qn_lopt_item *item, uint64_t task)
{
  if (phase == QN_LOPT_SUMS) sums(call, item, task);
  if (phase == QN_LOPT_STATES) states(call, item);
  if (phase == QN_LOPT_TABLES) tables(call, item);
  if (phase == QN_LOPT_STATS) {
    places at;
    at.strip = UINT64_MAX;
    stats(call, item, task, stats_by_hand, &at);
  }
  if (phase == QN_LOPT_FIRST_LAYER) first_layer(call, item);
  if (phase == QN_LOPT_UPDATE) update(call, item, task);
}
#endif
