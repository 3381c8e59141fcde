/* SPDX-License-Identifier: Apache-2.0 */
/* lopt.cpu.c - the tasks of a learned optimizer's step on the processor; built once a tier.
 *
 * Elements are taken in blocks of 64, input by input, so that a lane is an element in every layer: sums of the network
 * run in the order of its inputs whatever the width, and all tiers give the same bits. Sums over elements go into 16
 * slots in f32 for 1024 elements at most, then the slots in pairs and all else in double, in order. */
#include "op/lopt/lopt.h"
#include "base/walk.h"

#ifndef QN_ORACLE /* its double form is the tests' own, written from the contract */
#include "op/lopt/lopt.math.h"
#include <math.h>
#include <string.h>

qn_lopt_cpu_fn QN_CPU_NAME(lopt);

enum { BLOCK = 64, SLOTS = 16, HIDDEN = QN_LOPT_HIDDEN, VECTORS = BLOCK / QN_LANES, RUN = 1024 };
#define ALIGNED _Alignas(64)

QN_FN qn_f32 get(const float *from)
{
  qn_f32 x;
  memcpy(&x, from, sizeof x);
  return x;
}

QN_FN void put(float *to, qn_f32 x) { memcpy(to, &x, sizeof x); }

/* n floats and zeros behind them, up to `room`. */
static void fill(float *to, const float *from, uint64_t n, uint64_t room)
{
  memcpy(to, from, n * sizeof *to);
  memset(to + n, 0, (room - n) * sizeof *to);
}

/* ---- sums ---- */

static double sum_of_slots(const float slot[SLOTS])
{
  double sum[SLOTS];
  for (int k = 0; k < SLOTS; k++) sum[k] = (double)slot[k];
  for (int half = SLOTS / 2; half; half /= 2)
    for (int k = 0; k < half; k++) sum[k] += sum[k + half];
  return sum[0];
}

/* slot += x^2 over a multiple of 16 elements. */
QN_FN void add_squares(float slot[SLOTS], const float *x, uint64_t n, bool number)
{
  for (int u = 0; u < SLOTS; u += QN_LANES) {
    qn_f32 sum = get(slot + u);
    for (uint64_t k = 0; k < n; k += SLOTS) {
      const qn_f32 value = number ? qn_lopt_number(get(x + k + u)) : get(x + k + u);
      sum = qn_fma(value, value, sum);
    }
    put(slot + u, sum);
  }
}

static double squares(const float *x, uint64_t n, bool number)
{
  double total = 0;
  for (uint64_t from = 0; from < n; from += RUN) {
    ALIGNED float slot[SLOTS] = {0}, rest[SLOTS];
    const uint64_t here = n - from < RUN ? n - from : RUN, whole = here / SLOTS * SLOTS;
    add_squares(slot, x + from, whole, number);
    fill(rest, x + from + whole, here - whole, SLOTS);
    add_squares(slot, rest, SLOTS, number);
    total += sum_of_slots(slot);
  }
  return total;
}

/* ---- the phase SUMS ---- */

/* Columns [j, j + 64) of the runs of one `a`: the squares down x, 32 places in f32. */
static void sum_tile(const qn_lopt_call *call, qn_lopt_item *item, uint64_t tile)
{
  const qn_lopt_view *v = &item->view;
  const uint64_t length = v->b * v->y * v->c, tiles = qn_lopt_ceiling(length, QN_LOPT_TILE);
  const uint64_t a = tile / tiles, j = tile % tiles * QN_LOPT_TILE;
  const uint64_t width = length - j < QN_LOPT_TILE ? length - j : QN_LOPT_TILE;
  const float *first = item->g + a * v->x * length + j;
  double total[QN_LOPT_TILE] = {0};
  for (uint64_t from = 0; from < v->x; from += 32) {
    ALIGNED float sum[QN_LOPT_TILE] = {0}, part[QN_LOPT_TILE];
    for (uint64_t x = from; x < v->x && x < from + 32; x++) {
      const float *row = first + x * length;
      if (width < QN_LOPT_TILE) fill(part, row, width, QN_LOPT_TILE), row = part;
      for (int u = 0; u < QN_LOPT_TILE; u += QN_LANES) {
        const qn_f32 g = call->elo ? qn_lopt_number(get(row + u)) : get(row + u);
        put(sum + u, qn_fma(g, g, get(sum + u)));
      }
    }
    for (int k = 0; k < QN_LOPT_TILE; k++) total[k] += (double)sum[k];
  }
  memcpy(item->along.sums + a * length + j, total, width * sizeof *total);
}

/* One g as qn_lopt_number gives it, squared. */
static double square_of(float g, bool number)
{
  if (number && !(fabsf(g) <= 0x1.fffffep127f)) g = g != g ? 0.0f : 0x1.fffffep127f;
  return (double)(g * g);
}

/* A strip along y, of c columns. */
static void sum_strip(const qn_lopt_call *call, qn_lopt_item *item, uint64_t strip)
{
  const qn_lopt_view *v = &item->view;
  const float *g = item->g + strip * v->y * v->c;
  double *sums = item->across.sums + strip * v->c;
  if (v->c == 1) {
    *sums = squares(g, v->y, call->elo);
    return;
  }
  memset(sums, 0, v->c * sizeof *sums);
  for (uint64_t y = 0; y < v->y; y++)
    for (uint64_t c = 0; c < v->c; c++) sums[c] += square_of(g[y * v->c + c], call->elo);
}

static void sums(const qn_lopt_call *call, qn_lopt_item *item, uint64_t task)
{
  const uint64_t tiles = qn_lopt_tiles(&item->view), at_once = qn_lopt_tiles_a_task(&item->view);
  const uint64_t tile_tasks = qn_lopt_ceiling(tiles, at_once);
  if (task < tile_tasks) {
    for (uint64_t k = task * at_once; k < (task + 1) * at_once && k < tiles; k++) sum_tile(call, item, k);
    return;
  }
  const uint64_t strips = qn_lopt_strips(&item->view), strips_at_once = qn_lopt_strips_a_task(&item->view);
  task -= tile_tasks;
  for (uint64_t k = task * strips_at_once; k < (task + 1) * strips_at_once && k < strips; k++) sum_strip(call, item, k);
}

/* ---- the phase FACTORS ---- */

/* The states of a side from its sums, each over `count` elements. The first plane of factors is lent for the means. */
static void set_states(const qn_lopt_call *call, qn_lopt_side *s, uint64_t count, double of_squares)
{
  float *mean = s->factor;
  memset(mean, 0, s->padded * sizeof *mean);
  for (uint64_t j = 0; j < s->n; j++) mean[j] = (float)(s->sums[j] * of_squares / (double)count + 1e-30);
  for (int k = 0; k < 3; k++) {
    float *state = s->state + (uint64_t)k * s->n, *kept = s->channel + (uint64_t)k * s->padded;
    float *inverse = kept + 3 * s->padded;
    fill(kept, state, s->n, s->padded);
    for (uint64_t j = 0; j < s->padded; j += QN_LANES) {
      const qn_f32 x = qn_lopt_mean(call->rates.f[k], call->rates.f_rest[k], get(kept + j), get(mean + j));
      put(kept + j, x);
      put(inverse + j, qn_lopt_inverse(x));
    }
    memcpy(state, kept, s->n * sizeof *state);
  }
}

/* The means of a row's state over the other factored dimension, which is the middle one of (outer, middle, inner), each
 * at all the places that it is of. */
static void set_row_means(qn_lopt_side *s, uint64_t middle, uint64_t inner, int k)
{
  const float *x = s->channel + (uint64_t)k * s->padded;
  float *mean = s->factor + (uint64_t)k * s->padded;
  memset(mean, 0, s->padded * sizeof *mean);
  for (uint64_t from = 0; from < s->n; from += middle * inner)
    for (uint64_t i = from; i < from + inner; i++) {
      double sum = 0;
      for (uint64_t j = 0; j < middle; j++) sum += (double)x[i + j * inner];
      const float of_all = (float)(sum / (double)middle);
      for (uint64_t j = 0; j < middle; j++) mean[i + j * inner] = of_all;
    }
}

/* The published CUDA code's: over the three decays, for each place. */
static void set_compat_means(qn_lopt_side *s)
{
  for (uint64_t j = 0; j < s->n; j++) {
    double sum = 0;
    for (uint64_t k = 0; k < 3; k++) sum += (double)s->channel[k * s->padded + j];
    for (uint64_t k = 0; k < 3; k++) s->factor[k * s->padded + j] = (float)(sum / 3);
  }
}

static void set_factors(const qn_lopt_call *call, qn_lopt_side *s, bool row, uint64_t middle, uint64_t inner)
{
  for (int k = 0; k < 3 && row; k++) set_row_means(s, middle, inner, k);
  if (row && call->compat) set_compat_means(s);
  for (uint64_t j = 0; j < 3 * s->padded; j += QN_LANES) {
    qn_f32 x = get(s->channel + j);
    if (row) x = x / (get(s->factor + j) + 1e-9f);
    put(s->factor + j, qn_lopt_root(x));
  }
}

/* What the side gives the first layer at each of its places: the table, 32 values a place. */
static void set_table(const qn_lopt_call *call, qn_lopt_side *s, bool row, bool along)
{
  ALIGNED float layer[QN_LOPT_SIDES][HIDDEN], bias[HIDDEN];
  double scale[QN_LOPT_SIDES];
  for (uint64_t k = 0; k < QN_LOPT_SIDES; k++)
    scale[k] = qn_lopt_scale(squares(s->channel + k * s->padded, s->n, false), s->n);
  qn_lopt_side_layer(call, row, scale, layer);
  for (int h = 0; h < HIDDEN; h++) bias[h] = (float)call->bias[h];
  for (uint64_t h = 0; along && h < HIDDEN; h++)
    for (uint64_t j = 0; j < s->padded; j += QN_LANES) {
      qn_f32 sum = qn_splat(0.0f);
      for (uint64_t k = 0; k < QN_LOPT_SIDES; k++)
        sum = qn_fma(qn_splat(layer[k][h]), get(s->channel + k * s->padded + j), sum);
      put(s->table + h * s->padded + j, sum);
    }
  for (uint64_t j = 0; !along && j < s->n; j++)
    for (uint64_t h = 0; h < HIDDEN; h += QN_LANES) {
      qn_f32 sum = get(bias + h);
      for (uint64_t k = 0; k < QN_LOPT_SIDES; k++)
        sum = qn_fma(get(layer[k] + h), qn_splat(s->channel[k * s->padded + j]), sum);
      put(s->table + j * HIDDEN + h, sum);
    }
}

/* What the gradients are multiplied by where their norm is bounded. */
static void set_norm(const qn_lopt_call *call, qn_lopt_item *item)
{
  double total = 0;
  item->of_gradient = 1.0f;
  if (call->max_grad_norm <= 0) return;
  for (uint64_t k = 0; k < item->across.n; k++) total += item->across.sums[k];
  const double scale = call->max_grad_norm / (sqrt(total) + 1e-6);
  if (!(scale >= 1)) item->of_gradient = (float)scale;
}

static void factors(const qn_lopt_call *call, qn_lopt_item *item)
{
  const qn_lopt_view *v = &item->view;
  set_norm(call, item);
  if (!v->factored) return;
  const double of_squares = (double)item->of_gradient * (double)item->of_gradient;
  set_states(call, &item->along, v->x, of_squares);
  set_states(call, &item->across, v->y, of_squares);
  set_factors(call, &item->along, v->rows_along, v->y, v->c);
  set_factors(call, &item->across, !v->rows_along, v->x, v->b * v->c);
  set_table(call, &item->along, v->rows_along, true);
  set_table(call, &item->across, !v->rows_along, false);
}

/* ---- blocks ---- */

typedef struct block {
  uint64_t first, n; /* elements of the tensor; up to 64 */
  bool straight;     /* 64 places of `along` one after the other, one of `across` */
  uint64_t along[BLOCK], across[BLOCK];
  ALIGNED float g[BLOCK], p[BLOCK], v[BLOCK], m[3][BLOCK], f[3][BLOCK], a[3][BLOCK], b[3][BLOCK];
  ALIGNED float x[QN_LOPT_CHANNELS][BLOCK];
} block;

/* Where the block's elements lie in the two vectors: the first by division, the others by counting on. */
static void locate(const qn_lopt_view *v, block *k)
{
  const uint64_t strip = v->y * v->c, length = v->b * strip;
  uint64_t run = k->first / length, j = k->first % length, at = j % strip, c = j % v->c;
  uint64_t along = run / v->x * length + j, across = (run * v->b + j / strip) * v->c + c;
  k->straight = v->c == 1 && k->n == BLOCK && at + BLOCK <= strip;
  k->along[0] = along, k->across[0] = across;
  for (uint64_t e = 1; e < BLOCK && !k->straight; e++) {
    if (e < k->n) {
      along++, across++;
      if (++c == v->c) c = 0, across -= v->c;
      if (++at == strip) at = 0, across += v->c;
      if (++j == length) j = 0, along = ++run / v->x * length;
    }
    k->along[e] = along, k->across[e] = across;
  }
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
    qn_f32 g = get(k->g + u);
    if (call->elo) g = qn_lopt_number(g);
    put(k->g + u, g * qn_splat(item->of_gradient));
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
    const float *along = item->along.factor + d * item->along.padded;
    const float *across = item->across.factor + d * item->across.padded;
    if (!item->view.factored)
      for (int u = 0; u < BLOCK; u += QN_LANES) {
        const qn_f32 f = get(k->f[d] + u), a = qn_lopt_factor_a(f);
        put(k->a[d] + u, a);
        put(k->b[d] + u, call->compat ? a : qn_lopt_factor_b(f));
      }
    else if (k->straight)
      for (int u = 0; u < BLOCK; u += QN_LANES)
        put(k->a[d] + u, get(along + k->along[0] + u) * qn_splat(across[k->across[0]]));
    else
      for (int e = 0; e < BLOCK; e++) k->a[d][e] = along[k->along[e]] * across[k->across[e]];
  }
  if (item->view.factored) memcpy(k->b, k->a, sizeof k->b);
}

static void set_inputs(const qn_lopt_call *call, const qn_lopt_item *item, block *k)
{
  set_element_factors(call, item, k);
  for (int u = 0; u < BLOCK; u += QN_LANES) {
    qn_f32 m[3], a[3], b[3], x[QN_LOPT_ELEMENTS];
    for (int d = 0; d < 3; d++) m[d] = get(k->m[d] + u), a[d] = get(k->a[d] + u), b[d] = get(k->b[d] + u);
    qn_lopt_inputs(get(k->g + u), get(k->p + u), m, get(k->v + u), a, b, x);
    for (int j = 0; j < QN_LOPT_ELEMENTS; j++) put(k->x[j] + u, x[j]);
    for (int d = 0; d < 3 && item->f; d++) {
      put(k->x[QN_LOPT_ELEMENTS + d] + u, get(k->f[d] + u));
      put(k->x[QN_LOPT_ELEMENTS + 3 + d] + u, qn_lopt_inverse(get(k->f[d] + u)));
    }
  }
}

static uint64_t chunk_end(const qn_lopt_item *item, uint64_t task)
{
  const uint64_t end = (task + 1) * QN_LOPT_CHUNK;
  return end < item->view.n ? end : item->view.n;
}

/* ---- the phase STATS ---- */

static void stats(const qn_lopt_call *call, qn_lopt_item *item, uint64_t task)
{
  const int channels = item->view.factored ? QN_LOPT_ELEMENTS : QN_LOPT_CHANNELS;
  const uint64_t end = chunk_end(item, task);
  double *total = item->partial + task * QN_LOPT_CHANNELS;
  block k;
  memset(total, 0, QN_LOPT_CHANNELS * sizeof *total);
  for (uint64_t from = task * QN_LOPT_CHUNK; from < end; from += RUN) {
    ALIGNED float slot[QN_LOPT_CHANNELS][SLOTS] = {{0}};
    for (k.first = from; k.first < end && k.first < from + RUN; k.first += BLOCK) {
      k.n = end - k.first < BLOCK ? end - k.first : BLOCK;
      load(call, item, &k);
      accumulate(&call->rates, item, &k);
      set_inputs(call, item, &k);
      for (int j = 0; j < channels; j++) {
        memset(k.x[j] + k.n, 0, (BLOCK - k.n) * sizeof(float)); /* behind the end there are inputs too */
        add_squares(slot[j], k.x[j], BLOCK, false);
      }
    }
    for (int j = 0; j < channels; j++) total[j] += sum_of_slots(slot[j]);
  }
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

static void spread(float to[BLOCK], float x)
{
  for (int u = 0; u < BLOCK; u += QN_LANES) put(to + u, qn_splat(x));
}

/* What the two vectors, or the bias alone, give the first layer. */
static void begin_layer(const qn_lopt_call *call, const qn_lopt_item *item, const block *k, float (*out)[BLOCK])
{
  for (uint64_t h = 0; h < HIDDEN; h++) {
    const float *along = item->along.table + h * item->along.padded, *across = item->across.table + h;
    if (!item->view.factored)
      spread(out[h], (float)call->bias[h]);
    else if (k->straight)
      for (int u = 0; u < BLOCK; u += QN_LANES)
        put(out[h] + u, qn_splat(across[k->across[0] * HIDDEN]) + get(along + k->along[0] + u));
    else
      for (int e = 0; e < BLOCK; e++) out[h][e] = across[k->across[e] * HIDDEN] + along[k->along[e]];
  }
}

static void network(const qn_lopt_call *call, const qn_lopt_item *item, block *k, float (*out)[BLOCK])
{
  ALIGNED float first[HIDDEN][BLOCK], second[HIDDEN][BLOCK];
  begin_layer(call, item, k, first);
  hidden_layer(item->layer, item->view.factored ? QN_LOPT_ELEMENTS : QN_LOPT_CHANNELS, k->x, first);
  for (int h = 0; h < HIDDEN; h++) spread(second[h], call->weights[QN_LOPT_B2 + h]);
  hidden_layer(call->second[0], HIDDEN, first, second);
  for (int h = 0; h < 2; h++) spread(out[h], call->weights[QN_LOPT_B3 + h]);
  add_layer(call->third[0], HIDDEN, 2, 0, 2, second, out);
}

static void update(const qn_lopt_call *call, qn_lopt_item *item, uint64_t task)
{
  const uint64_t end = chunk_end(item, task);
  const float exp_mult = call->rates.exp_mult;
  block k;
  for (k.first = task * QN_LOPT_CHUNK; k.first < end; k.first += BLOCK) {
    ALIGNED float out[2][BLOCK];
    k.n = end - k.first < BLOCK ? end - k.first : BLOCK;
    load(call, item, &k);
    set_inputs(call, item, &k);
    network(call, item, &k, out);
    for (int u = 0; u < BLOCK; u += QN_LANES) {
      const qn_f32 p = get(k.p + u), direction = get(out[0] + u), magnitude = get(out[1] + u);
      put(k.p + u, call->elo ? qn_lopt_moved_elo(p, direction, magnitude, exp_mult, item->lr, item->decay)
                             : qn_lopt_moved(p, direction, magnitude, exp_mult, item->step, item->decay));
    }
    memcpy(item->p + k.first, k.p, k.n * sizeof(float));
  }
}

void QN_CPU_NAME(lopt)(const qn_lopt_call *call, qn_lopt_phase phase, qn_lopt_item *item, uint64_t task)
{
  if (phase == QN_LOPT_SUMS) sums(call, item, task);
  if (phase == QN_LOPT_FACTORS) factors(call, item);
  if (phase == QN_LOPT_STATS) stats(call, item, task);
  if (phase == QN_LOPT_FOLD) qn_lopt_fold(call, item);
  if (phase == QN_LOPT_UPDATE) update(call, item, task);
}
#endif
