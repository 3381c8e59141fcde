/* SPDX-License-Identifier: Apache-2.0 */
/* lopt.layout.c - where the workspace of a step on a device has what belongs to each tensor, and how large it is. */
#include "core/core.h"
#include "op/lopt/layout.h"

uint64_t qn_lopt_tiles_of(const qn_lopt_device_item *it, uint64_t rows, uint64_t columns)
{
  return it->rows / it->x * qn_lopt_ceiling(it->x, rows) * qn_lopt_ceiling(it->length, columns);
}

bool qn_lopt_may_be_tiled(const qn_lopt_network *network, const qn_lopt_device_item *it)
{
  const uint32_t both = QN_LOPT_FACTORED | QN_LOPT_STRAIGHT;
  return (it->flags & both) == both && it->length >= network->tiling->least_length && it->length < QN_LOPT_MOST_LENGTH;
}

/* Numbers that STATS leaves of a piece. */
static uint64_t sums_of(const qn_lopt_network *network, const qn_lopt_device_item *it)
{
  return network->tiling->sums ? network->tiling->sums : it->channels;
}

/* The sums that SUMS leaves to STATES, then, in their place, the arrays of later phases. */
static void lay_parts(const qn_lopt_network *network, qn_lopt_arena *r, qn_lopt_device_item *it)
{
  const bool factored = it->flags & QN_LOPT_FACTORED, straight = it->flags & QN_LOPT_STRAIGHT;
  qn_lopt_arena early = *r, late = *r;
  const uint64_t pieces = it->rows / it->x * qn_lopt_ceiling(it->x, QN_LOPT_SUM_ROWS);
  if (factored) it->column_sums = qn_lopt_take(&early, pieces * it->length * sizeof(float));
  if (straight) it->row_sums = qn_lopt_take(&early, qn_lopt_ceiling(it->length, QN_LOPT_SUM_COLUMNS) * it->rows * 4);
  if (!straight) it->strip_sums = qn_lopt_take(&early, it->over_y.n * sizeof(double));
  if (factored) {
    it->over_x.root = qn_lopt_take(&late, it->over_x.n * 4 * sizeof(float));
    it->over_y.root = qn_lopt_take(&late, it->over_y.n * 4 * sizeof(float));
  }
  if (network->matrices) {
    network->matrices->device_lay(&late, it);
    r->used = early.used > late.used ? early.used : late.used;
    return;
  }
  if (factored) {
    /* A tile or a thread that takes what `over_x` gives its columns makes it, where a table would be larger than what
     * it is made of. */
    if (network->hidden <= QN_LOPT_FACTOR_CHANNELS)
      it->over_x.table = qn_lopt_take(&late, it->over_x.n * network->hidden * sizeof(float));
    else
      it->over_x.layer = qn_lopt_take(&late, QN_LOPT_FACTOR_CHANNELS * network->hidden * sizeof(float));
    it->over_y.table = qn_lopt_take(&late, it->over_y.n * network->hidden * sizeof(float));
  }
  /* Whether it is tiled may depend on the class of precision, which the size of a workspace does not. */
  const uint64_t tiled = qn_lopt_may_be_tiled(network, it)
                             ? qn_lopt_tiles_of(it, network->tiling->stat_rows, network->tiling->columns)
                             : 0;
  const uint64_t one_by_one = tiled && network->tiling->is_fp32 ? 0 : qn_lopt_ceiling(it->n, network->tiling->elements);
  it->partial = qn_lopt_take(&late, qn_lopt_most(one_by_one, tiled) * sums_of(network, it) * sizeof(double));
  it->layer = qn_lopt_take(&late, it->channels * network->hidden * sizeof(float));
  r->used = early.used > late.used ? early.used : late.used;
}

static void lay_factor(qn_lopt_arena *r, qn_lopt_device_factor *factor)
{
  factor->chunks = qn_lopt_take(r, qn_lopt_ceiling(factor->n, QN_LOPT_PLACES) * QN_LOPT_SQUARES * sizeof(double));
}

/* Its row's means are parts of sums. */
static bool has_shared_means(const qn_lopt_device_item *it)
{
  return it->flags & QN_LOPT_FACTORED && it->flags & QN_LOPT_X_CUT && !(it->flags & QN_LOPT_ROW_OVER_X);
}

/* A tensor that is not empty, but for the caller's pointers. */
static void lay_item(const qn_lopt_network *network, qn_lopt_arena *r, const qn_lopt_view *of, qn_lopt_device_item *it)
{
  const qn_lopt_view v = *of;
  *it = (qn_lopt_device_item){.n = v.n,
                              .whole = v.whole_n,
                              .x = qn_lopt_most(1, v.x),
                              .rows = v.a * v.x,
                              .length = v.b * v.y * v.c,
                              .strip = qn_lopt_most(1, v.y * v.c),
                              .c = v.c,
                              .matrices = v.matrices,
                              .matrix_rows = v.rows,
                              .matrix_columns = v.columns};
  it->flags = (v.cut ? QN_LOPT_CUT : 0u) | (v.x_cut ? QN_LOPT_X_CUT : 0u) | (v.factored ? QN_LOPT_FACTORED : 0u) |
              (v.row_over_x ? QN_LOPT_ROW_OVER_X : 0u) | (v.b * v.c == 1 ? QN_LOPT_STRAIGHT : 0u);
  it->channels = network->elements + (v.factored ? 0 : QN_LOPT_FACTOR_CHANNELS);
  const uint64_t means = v.a * v.b * v.c;
  it->over_x = (qn_lopt_device_factor){.n = v.a * v.b * v.y * v.c,
                                       .whole = v.whole_a * v.b * v.y * v.c,
                                       .count = v.whole_x,
                                       .middle = v.y,
                                       .inner = v.c,
                                       .means = means,
                                       .whole_middle = v.y};
  it->over_y = (qn_lopt_device_factor){.n = v.a * v.x * v.b * v.c,
                                       .whole = v.whole_a * v.whole_x * v.b * v.c,
                                       .count = v.y,
                                       .middle = v.x,
                                       .inner = v.b * v.c,
                                       .means = means,
                                       .whole_middle = v.whole_x};
  it->scalars = qn_lopt_take(r, sizeof *it->scalars);
  if (v.factored) {
    lay_factor(r, &it->over_x);
    lay_factor(r, &it->over_y);
    if ((means > 1 || v.cut) && !has_shared_means(it)) it->means = qn_lopt_take(r, 3 * means * sizeof(double));
  }
  lay_parts(network, r, it);
}

static double *take_shared(qn_lopt_shared_parts *s, int which, uint64_t n)
{
  double *at = s->base[which] ? s->base[which] + s->n[which] : NULL;
  s->n[which] += n;
  return at;
}

static void lay_shared(const qn_lopt_network *network, qn_lopt_shared_parts *s, qn_lopt_device_item *it, bool bounded)
{
  const bool x_cut = it->flags & QN_LOPT_X_CUT;
  if (!(it->flags & QN_LOPT_CUT)) return;
  it->shared_sums = take_shared(s, QN_LOPT_SHARED_SUMS, (x_cut ? it->over_x.n : 0) + bounded);
  if (it->flags & QN_LOPT_FACTORED)
    it->shared_states = take_shared(s, QN_LOPT_SHARED_STATES, (x_cut ? 1 : 2) * QN_LOPT_SQUARES);
  if (has_shared_means(it)) it->means = take_shared(s, QN_LOPT_SHARED_STATES, 3 * it->over_y.means);
  it->shared_stats = take_shared(s, QN_LOPT_SHARED_STATS, sums_of(network, it));
}

bool qn_lopt_lay(const qn_lopt_network *network, const qn_lopt_shards *shards, const qn_tensor *param, size_t k,
                 bool bounded, qn_lopt_arena *r, qn_lopt_shared_parts *s, qn_lopt_device_item *it)
{
  const qn_tensor *p = &param[k];
  const qn_lopt_view view = qn_lopt_view_of(network->ties, p->ndim, p->shape, qn_lopt_whole(shards, k));
  if (!view.whole_n) return false;
  lay_item(network, r, &view, it);
  lay_shared(network, s, it, bounded);
  return true;
}

uint64_t qn_lopt_table_bytes(size_t n)
{
  return n * (sizeof(qn_lopt_device_item) + QN_LOPT_NUMBERED * sizeof(uint32_t));
}

size_t qn_lopt_device_bytes(const qn_lopt_network *network, const qn_lopt_shards *shards, size_t n,
                            const qn_tensor *param)
{
  qn_lopt_arena r = {.align = QN_LOPT_DEVICE_ALIGNMENT};
  qn_lopt_shared_parts s = {0};
  bool any = false;
  qn_lopt_device_item it;
  for (size_t k = 0; k < n; k++) any = qn_lopt_lay(network, shards, param, k, true, &r, &s, &it) || any;
  if (!any) return 0;
  for (int k = 0; k < QN_LOPT_SHARED; k++) qn_lopt_take(&r, s.n[k] * sizeof(double));
  qn_lopt_take(&r, sizeof(qn_lopt_head));
  qn_lopt_take(&r, qn_lopt_table_bytes(n));
  return r.used + QN_LOPT_DEVICE_ALIGNMENT;
}
