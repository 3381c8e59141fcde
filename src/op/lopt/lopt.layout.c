/* SPDX-License-Identifier: Apache-2.0 */
/* lopt.layout.c - where the workspace of a step on a device has what belongs to each tensor, and how large it is. */
#include "core/core.h"
#include "op/lopt/layout.h"

uint64_t qn_lopt_tiles_of(const qn_lopt_device_item *it, uint64_t rows, uint64_t columns)
{
  return it->rows / it->x * qn_lopt_ceiling(it->x, rows) * qn_lopt_ceiling(it->length, columns);
}

bool qn_lopt_may_be_tiled(const qn_lopt_kind *kind, const qn_lopt_device_item *it)
{
  const uint32_t both = QN_LOPT_FACTORED | QN_LOPT_STRAIGHT;
  return (it->flags & both) == both && it->length >= kind->tiling->least_length && it->length < QN_LOPT_MOST_LENGTH;
}

/* Numbers that STATS leaves of a piece. */
static uint64_t sums_of(const qn_lopt_kind *kind, const qn_lopt_device_item *it)
{
  return kind->tiling->sums ? kind->tiling->sums : it->channels;
}

/* What SUMS leaves to STATES, then, in its place, what is made from there on. */
static void lay_parts(const qn_lopt_kind *kind, qn_lopt_room *r, qn_lopt_device_item *it)
{
  const bool factored = it->flags & QN_LOPT_FACTORED, straight = it->flags & QN_LOPT_STRAIGHT;
  qn_lopt_room early = *r, late = *r;
  const uint64_t pieces = it->rows / it->x * qn_lopt_ceiling(it->x, QN_LOPT_SUM_ROWS);
  if (factored) it->column_sums = qn_lopt_take(&early, pieces * it->length * sizeof(float));
  if (straight) it->row_sums = qn_lopt_take(&early, qn_lopt_ceiling(it->length, QN_LOPT_SUM_COLUMNS) * it->rows * 4);
  if (!straight) it->strip_sums = qn_lopt_take(&early, it->across.n * sizeof(double));
  if (factored) {
    it->along.factor = qn_lopt_take(&late, it->along.n * 4 * sizeof(float));
    it->across.factor = qn_lopt_take(&late, it->across.n * 4 * sizeof(float));
    /* A tile or a thread that takes what `along` gives its columns makes it, where a table would be larger than what
     * it is made of. */
    if (kind->hidden <= QN_LOPT_SIDES)
      it->along.table = qn_lopt_take(&late, it->along.n * kind->hidden * sizeof(float));
    else
      it->along.layer = qn_lopt_take(&late, QN_LOPT_SIDES * kind->hidden * sizeof(float));
    it->across.table = qn_lopt_take(&late, it->across.n * kind->hidden * sizeof(float));
  }
  /* Whether it is tiled may depend on the class of precision, which the size of a workspace does not. */
  const uint64_t tiled =
      qn_lopt_may_be_tiled(kind, it) ? qn_lopt_tiles_of(it, kind->tiling->stat_rows, kind->tiling->columns) : 0;
  const uint64_t one_by_one = tiled && kind->tiling->is_fp32 ? 0 : qn_lopt_ceiling(it->n, kind->tiling->elements);
  it->partial = qn_lopt_take(&late, qn_lopt_most(one_by_one, tiled) * sums_of(kind, it) * sizeof(double));
  it->layer = qn_lopt_take(&late, it->channels * kind->hidden * sizeof(float));
  r->used = early.used > late.used ? early.used : late.used;
}

static void lay_side(qn_lopt_room *r, qn_lopt_device_side *side)
{
  side->chunks = qn_lopt_take(r, qn_lopt_ceiling(side->n, QN_LOPT_PLACES) * QN_LOPT_SQUARES * sizeof(double));
}

/* Its row's means are parts of sums. */
static bool has_shared_means(const qn_lopt_device_item *it)
{
  return it->flags & QN_LOPT_FACTORED && it->flags & QN_LOPT_X_CUT && !(it->flags & QN_LOPT_ROWS_ALONG);
}

/* A tensor that is not empty, but for the caller's pointers. */
static void lay_item(const qn_lopt_kind *kind, qn_lopt_room *r, const qn_lopt_view *of, qn_lopt_device_item *it)
{
  const qn_lopt_view v = *of;
  *it = (qn_lopt_device_item){.n = v.n,
                              .whole = v.whole_n,
                              .x = qn_lopt_most(1, v.x),
                              .rows = v.a * v.x,
                              .length = v.b * v.y * v.c,
                              .strip = qn_lopt_most(1, v.y * v.c),
                              .c = v.c};
  it->flags = (v.cut ? QN_LOPT_CUT : 0u) | (v.x_cut ? QN_LOPT_X_CUT : 0u) | (v.factored ? QN_LOPT_FACTORED : 0u) |
              (v.rows_along ? QN_LOPT_ROWS_ALONG : 0u) | (v.b * v.c == 1 ? QN_LOPT_STRAIGHT : 0u);
  it->channels = kind->elements + (v.factored ? 0 : QN_LOPT_SIDES);
  const uint64_t groups = v.a * v.b * v.c;
  it->along = (qn_lopt_device_side){.n = v.a * v.b * v.y * v.c,
                                    .whole = v.whole_a * v.b * v.y * v.c,
                                    .count = v.whole_x,
                                    .middle = v.y,
                                    .inner = v.c,
                                    .groups = groups,
                                    .whole_middle = v.y};
  it->across = (qn_lopt_device_side){.n = v.a * v.x * v.b * v.c,
                                     .whole = v.whole_a * v.whole_x * v.b * v.c,
                                     .count = v.y,
                                     .middle = v.x,
                                     .inner = v.b * v.c,
                                     .groups = groups,
                                     .whole_middle = v.whole_x};
  it->found = qn_lopt_take(r, sizeof *it->found);
  if (v.factored) {
    lay_side(r, &it->along);
    lay_side(r, &it->across);
    if ((groups > 1 || v.cut) && !has_shared_means(it)) it->means = qn_lopt_take(r, 3 * groups * sizeof(double));
  }
  lay_parts(kind, r, it);
}

static double *take_shared(qn_lopt_shared_parts *s, int which, uint64_t n)
{
  double *at = s->base[which] ? s->base[which] + s->n[which] : NULL;
  s->n[which] += n;
  return at;
}

static void lay_shared(const qn_lopt_kind *kind, qn_lopt_shared_parts *s, qn_lopt_device_item *it, bool bounded)
{
  const bool x_cut = it->flags & QN_LOPT_X_CUT;
  if (!(it->flags & QN_LOPT_CUT)) return;
  it->shared_sums = take_shared(s, QN_LOPT_SHARED_SUMS, (x_cut ? it->along.n : 0) + bounded);
  if (it->flags & QN_LOPT_FACTORED)
    it->shared_states = take_shared(s, QN_LOPT_SHARED_STATES, (x_cut ? 1 : 2) * QN_LOPT_SQUARES);
  if (has_shared_means(it)) it->means = take_shared(s, QN_LOPT_SHARED_STATES, 3 * it->across.groups);
  it->shared_stats = take_shared(s, QN_LOPT_SHARED_STATS, sums_of(kind, it));
}

bool qn_lopt_lay(const qn_lopt_kind *kind, const qn_lopt_shards *shards, const qn_tensor *param, size_t k, bool bounded,
                 qn_lopt_room *r, qn_lopt_shared_parts *s, qn_lopt_device_item *it)
{
  const qn_tensor *p = &param[k];
  const qn_lopt_view view = qn_lopt_view_of(kind->ties, p->ndim, p->shape, qn_lopt_whole(shards, k));
  if (!view.whole_n) return false;
  lay_item(kind, r, &view, it);
  lay_shared(kind, s, it, bounded);
  return true;
}

uint64_t qn_lopt_table_bytes(size_t n)
{
  return n * (sizeof(qn_lopt_device_item) + QN_LOPT_NUMBERED * sizeof(uint32_t));
}

size_t qn_lopt_device_bytes(const qn_lopt_kind *kind, const qn_lopt_shards *shards, size_t n, const qn_tensor *param)
{
  qn_lopt_room r = {.align = QN_LOPT_DEVICE_ALIGNMENT};
  qn_lopt_shared_parts s = {0};
  bool any = false;
  qn_lopt_device_item it;
  for (size_t k = 0; k < n; k++) any = qn_lopt_lay(kind, shards, param, k, true, &r, &s, &it) || any;
  if (!any) return 0;
  for (int k = 0; k < QN_LOPT_SHARED; k++) qn_lopt_take(&r, s.n[k] * sizeof(double));
  qn_lopt_take(&r, sizeof(qn_lopt_head));
  qn_lopt_take(&r, qn_lopt_table_bytes(n));
  return r.used + QN_LOPT_DEVICE_ALIGNMENT;
}
