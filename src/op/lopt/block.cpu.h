/* SPDX-License-Identifier: Apache-2.0 */
/* block.cpu.h - for files built once a tier: 64 elements of a tensor with all that the network's inputs are made of,
 * and the phase STATS over them. A lane is an element, so that sums of a network run in the order of its inputs
 * whatever the width. Such a file has ELEMENTS and CHANNELS before it includes this one, and a set_inputs of its own.
 */
#ifndef QN_OP_LOPT_BLOCK_CPU_H
#define QN_OP_LOPT_BLOCK_CPU_H
#include "op/lopt/factors.cpu.h"

/* ---- blocks ---- */

typedef struct block {
  uint64_t first, n; /* elements of the tensor; up to 64 */
  bool straight;     /* 64 places of `over_x` one after the other, one of `over_y` */
  bool in_turn;      /* 64 places of `over_x` one after the other, c places of `over_y` in turn, from the phase-th on */
  uint64_t phase;
  uint64_t over_x[BLOCK], over_y[BLOCK];
  ALIGNED float g[BLOCK], p[BLOCK], v[BLOCK], m[3][BLOCK], f[3][BLOCK], a[3][BLOCK], b[3][BLOCK];
  ALIGNED float x[CHANNELS][BLOCK];
} block;

/* Where the block's elements lie in the two factors: the first by division, the others by counting on. */
static void locate(const qn_lopt_view *v, block *k)
{
  const uint64_t strip = v->y * v->c, length = v->b * strip;
  uint64_t run = k->first / length, j = k->first % length, at = j % strip, c = j % v->c;
  uint64_t over_x = run / v->x * length + j, over_y = (run * v->b + j / strip) * v->c + c;
  k->straight = v->c == 1 && k->n == BLOCK && at + BLOCK <= strip;
  k->in_turn = v->c > 1 && k->n == BLOCK && at + BLOCK <= strip;
  k->phase = c;
  k->over_x[0] = over_x, k->over_y[0] = over_y;
  for (uint64_t e = 1; e < BLOCK && !k->straight; e++) {
    if (e < k->n) {
      over_x++, over_y++;
      if (++c == v->c) c = 0, over_y -= v->c;
      if (++at == strip) at = 0, over_y += v->c;
      if (++j == length) j = 0, over_x = ++run / v->x * length;
    }
    k->over_x[e] = over_x, k->over_y[e] = over_y;
  }
}

/* The block that begins at `first`, of elements up to `end`. */
static void begin_block(block *k, uint64_t first, uint64_t end)
{
  k->first = first;
  k->n = end - first < BLOCK ? end - first : BLOCK;
}

static void load(const qn_lopt_call *call, const qn_lopt_item *item, block *k)
{
  const uint64_t i = k->first, n = k->n, all = item->view.n;
  fill(k->g, item->g + i, n, BLOCK);
  fill(k->p, item->p + i, n, BLOCK);
  fill(k->v, item->v + i, n, BLOCK);
  for (uint64_t d = 0; d < 3; d++) fill(k->m[d], item->m + d * all + i, n, BLOCK);
  for (uint64_t d = 0; d < 3 && item->f; d++) fill(k->f[d], item->f + d * all + i, n, BLOCK);
  for (int u = 0; u < BLOCK; u += QN_LANES) {
    put(k->g + u, qn_lopt_taken(call->gradient, get(k->g + u)) * qn_splat(item->of_gradient));
  }
  if (item->view.factored) locate(&item->view, k);
}

/* The running means. */
static void accumulate(const qn_lopt_rates *r, const qn_lopt_item *item, block *k)
{
  const uint64_t i = k->first, n = k->n, all = item->view.n;
  for (int u = 0; u < BLOCK; u += QN_LANES) {
    const qn_f32 g = get(k->g + u), square = g * g;
    put(k->v + u, qn_lopt_mean(r->v, r->v_rest, get(k->v + u), square));
    for (int d = 0; d < 3; d++) {
      put(k->m[d] + u, qn_lopt_mean(r->m[d], r->m_rest[d], get(k->m[d] + u), g));
      if (item->f) put(k->f[d] + u, qn_lopt_mean(r->f[d], r->f_rest[d], get(k->f[d] + u), square + 1e-30f));
    }
  }
  memcpy(item->v + i, k->v, n * sizeof(float));
  for (uint64_t d = 0; d < 3; d++) memcpy(item->m + d * all + i, k->m[d], n * sizeof(float));
  for (uint64_t d = 0; d < 3 && item->f; d++) memcpy(item->f + d * all + i, k->f[d], n * sizeof(float));
}

/* A and B of every element. */
static void set_element_factors(const qn_lopt_call *call, const qn_lopt_item *item, block *k)
{
  for (uint64_t d = 0; d < 3; d++) {
    const float *over_x = item->over_x.root + d * item->over_x.padded;
    const float *over_y = item->over_y.root + d * item->over_y.padded;
    if (!item->view.factored)
      for (int u = 0; u < BLOCK; u += QN_LANES) {
        const qn_f32 f = get(k->f[d] + u), a = qn_lopt_factor_a(f);
        put(k->a[d] + u, a);
        put(k->b[d] + u, call->b_is_a ? a : qn_lopt_factor_b(f, call->b_term));
      }
    else if (k->straight)
      for (int u = 0; u < BLOCK; u += QN_LANES)
        put(k->a[d] + u, get(over_x + k->over_x[0] + u) * qn_splat(over_y[k->over_y[0]]));
    else
      for (int e = 0; e < BLOCK; e++) k->a[d][e] = over_x[k->over_x[e]] * over_y[k->over_y[e]];
  }
  if (item->view.factored) memcpy(k->b, k->a, sizeof k->b);
}

/* Of one vector of elements, the network's inputs that differ from element to element: the file's own. */
QN_FN void element_inputs(qn_f32 g, qn_f32 p, const qn_f32 m[3], qn_f32 v, const qn_f32 a[3], const qn_f32 b[3],
                          qn_f32 x[ELEMENTS]);

/* Where nothing is factored CHANNELS of them. */
static void set_inputs(const qn_lopt_call *call, const qn_lopt_item *item, block *k)
{
  set_element_factors(call, item, k);
  for (int u = 0; u < BLOCK; u += QN_LANES) {
    qn_f32 m[3], a[3], b[3], x[ELEMENTS];
    for (int d = 0; d < 3; d++) m[d] = get(k->m[d] + u), a[d] = get(k->a[d] + u), b[d] = get(k->b[d] + u);
    element_inputs(get(k->g + u), get(k->p + u), m, get(k->v + u), a, b, x);
    for (int j = 0; j < ELEMENTS; j++) put(k->x[j] + u, x[j]);
    for (int d = 0; d < 3 && item->f; d++) {
      put(k->x[ELEMENTS + d] + u, get(k->f[d] + u));
      put(k->x[ELEMENTS + 3 + d] + u, qn_lopt_inverse(get(k->f[d] + u)));
    }
  }
}

static uint64_t chunk_end(const qn_lopt_item *item, uint64_t task)
{
  const uint64_t end = (task + 1) * QN_LOPT_CHUNK;
  return end < item->view.n ? end : item->view.n;
}

/* ---- the phase STATS ---- */

/* A file's own form of the loop below for some blocks: from memory to memory and slots, the same bits; false where it
 * does not take the block. `user` is the file's. */
typedef bool by_hand_fn(const qn_lopt_call *call, const qn_lopt_item *item, const block *k, float (*slot)[SLOTS],
                        void *user);

static inline void stats(const qn_lopt_call *call, qn_lopt_item *item, uint64_t task, by_hand_fn *by_hand, void *user)
{
  const int channels = item->view.factored ? ELEMENTS : CHANNELS;
  const uint64_t end = chunk_end(item, task);
  double *total = item->partial + task * CHANNELS;
  block k;
  memset(total, 0, CHANNELS * sizeof *total);
  for (uint64_t from = task * QN_LOPT_CHUNK; from < end; from += RUN) {
    ALIGNED float slot[CHANNELS][SLOTS] = {{0}};
    for (uint64_t first = from; first < end && first < from + RUN; first += BLOCK) {
      begin_block(&k, first, end);
      if (by_hand && by_hand(call, item, &k, slot, user)) continue;
      load(call, item, &k);
      accumulate(&call->rates, item, &k);
      set_inputs(call, item, &k);
      for (int j = 0; j < channels; j++) {
        memset(k.x[j] + k.n, 0, (BLOCK - k.n) * sizeof(float)); /* behind the end there are inputs too */
        add_squares(slot[j], k.x[j], BLOCK, QN_LOPT_AS_IS);
      }
    }
    for (int j = 0; j < channels; j++) total[j] += sum_of_slots(slot[j]);
  }
}
#endif
