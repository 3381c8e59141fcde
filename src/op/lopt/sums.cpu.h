/* SPDX-License-Identifier: Apache-2.0 */
/* sums.cpu.h - for files built once a tier: sums in the contract's order, and the phase SUMS.
 *
 * Sums over elements go into 16 slots in f32 for 1024 elements at most, then the slots in pairs and all else in double,
 * in order: the same bits on every tier and for any number of threads. */
#ifndef QN_OP_LOPT_SUMS_CPU_H
#define QN_OP_LOPT_SUMS_CPU_H
#include "op/lopt/lanes.cpu.h"
#include "op/lopt/lopt.h"
#include <math.h>

enum { SLOTS = 16, RUN = 1024 };

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
QN_FN void add_squares(float slot[SLOTS], const float *x, uint64_t n, qn_lopt_gradient as)
{
  for (int u = 0; u < SLOTS; u += QN_LANES) {
    qn_f32 sum = get(slot + u);
    for (uint64_t k = 0; k < n; k += SLOTS) {
      const qn_f32 value = qn_lopt_taken(as, get(x + k + u));
      sum = qn_fma(value, value, sum);
    }
    put(slot + u, sum);
  }
}

static double squares(const float *x, uint64_t n, qn_lopt_gradient as)
{
  double total = 0;
  for (uint64_t from = 0; from < n; from += RUN) {
    ALIGNED float slot[SLOTS] = {0}, rest[SLOTS];
    const uint64_t here = n - from < RUN ? n - from : RUN, whole = here / SLOTS * SLOTS;
    add_squares(slot, x + from, whole, as);
    fill(rest, x + from + whole, here - whole, SLOTS);
    add_squares(slot, rest, SLOTS, as);
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
        const qn_f32 g = qn_lopt_taken(call->gradient, get(row + u));
        put(sum + u, qn_fma(g, g, get(sum + u)));
      }
    }
    for (int k = 0; k < QN_LOPT_TILE; k++) total[k] += (double)sum[k];
  }
  memcpy(item->over_x.sums + a * length + j, total, width * sizeof *total);
}

/* One g as qn_lopt_taken gives it, squared. */
static double square_of(float g, qn_lopt_gradient as)
{
  if (as == QN_LOPT_NUMBERS && !(fabsf(g) <= 0x1.fffffep127f)) g = g != g ? 0.0f : 0x1.fffffep127f;
  if (as == QN_LOPT_CLIPPED && fabsf(g) > QN_LOPT_CLIP) g = QN_LOPT_CLIP;
  return (double)(g * g);
}

/* A strip along y, of c columns. */
static void sum_strip(const qn_lopt_call *call, qn_lopt_item *item, uint64_t strip)
{
  const qn_lopt_view *v = &item->view;
  const float *g = item->g + strip * v->y * v->c;
  double *sums = item->over_y.sums + strip * v->c;
  if (v->c == 1) {
    *sums = squares(g, v->y, call->gradient);
    return;
  }
  memset(sums, 0, v->c * sizeof *sums);
  for (uint64_t y = 0; y < v->y; y++)
    for (uint64_t c = 0; c < v->c; c++) sums[c] += square_of(g[y * v->c + c], call->gradient);
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

#endif
