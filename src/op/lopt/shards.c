/* SPDX-License-Identifier: Apache-2.0 */
/* shards.c - a step of learned optimizers whose tensors are held in pieces by several processes: which of a phase's
 * sums a process has but a part of, and their way to the caller's function, which adds them, and back.
 *
 * Along the first dimension a tensor is cut in runs of x, or of a, or, where it has but one, of y. A factor over x is
 * then a part of its sum wherever x is cut; all that is summed over a vector whose places are cut is a part as well. */
#include "core/core.h"
#include "op/lopt/lopt.h"
#include <inttypes.h>
#include <string.h>

typedef struct span {
  double *from;
  uint64_t n;
} span;
enum { MOST_SPANS = 3 };

double qn_lopt_norm(const qn_lopt_item *item)
{
  double total = 0;
  for (uint64_t k = 0; k < item->over_y.n; k++) total += item->over_y.sums[k];
  return total;
}

/* All that a task of its own summed, in the first one's place. */
static void join_chunks(qn_lopt_item *item, uint64_t channels)
{
  for (uint64_t k = 0; k < channels; k++) {
    double sum = 0;
    for (uint64_t chunk = 0; chunk < item->chunks; chunk++) sum += item->partial[chunk * channels + k];
    item->partial[k] = sum;
  }
  item->chunks = 1;
}

/* The phase's sums of a tensor that is cut. */
static unsigned spans_of(const qn_lopt_call *call, qn_lopt_phase phase, qn_lopt_item *item, span at[MOST_SPANS])
{
  const uint64_t channels = call->network->elements + QN_LOPT_FACTOR_CHANNELS;
  qn_lopt_factor *over_x = &item->over_x, *over_y = &item->over_y;
  unsigned n = 0;
  if (phase == QN_LOPT_SUMS) {
    if (item->view.x_cut) at[n++] = (span){over_x->sums, over_x->n};
    if (call->max_grad_norm > 0) at[n++] = (span){&item->norm, 1};
  } else if (phase == QN_LOPT_STATES && item->view.factored) {
    at[n++] = (span){over_y->squares, QN_LOPT_FACTOR_CHANNELS};
    if (!item->view.x_cut) at[n++] = (span){over_x->squares, QN_LOPT_FACTOR_CHANNELS};
    if (item->view.x_cut) at[n++] = (span){over_y->row_sums, 3 * over_y->row_places};
  } else if (phase == QN_LOPT_STATS)
    at[n++] = (span){item->partial, channels};
  return n;
}

static void prepare(const qn_lopt_call *call, qn_lopt_phase phase, qn_lopt_item *item)
{
  if (phase == QN_LOPT_SUMS && call->max_grad_norm > 0) item->norm = qn_lopt_norm(item);
  if (phase == QN_LOPT_STATS) join_chunks(item, call->network->elements + QN_LOPT_FACTOR_CHANNELS);
}

uint64_t qn_lopt_shared_room(const qn_lopt_network *network, const qn_lopt_item *item)
{
  if (!item->view.cut || !item->view.whole_n) return 0;
  const uint64_t sums = item->over_x.n + 1, states = 2 * QN_LOPT_FACTOR_CHANNELS + 3 * item->over_y.row_places;
  return qn_lopt_most(qn_lopt_most(sums, states), network->elements + QN_LOPT_FACTOR_CHANNELS);
}

qn_status qn_lopt_add(const qn_lopt_shards *shards, const qn_exec *exec, double *sums, size_t n)
{
  const qn_status status = n ? shards->add(shards->user, exec, sums, n) : QN_OK;
  if (status == QN_OK) return QN_OK;
  return qn_fail(status, "lopt: the sums of the shards were not added, and the step is not whole (status %d)",
                 (int)status);
}

qn_status qn_lopt_share(const qn_lopt_call *call, const qn_lopt_shards *shards, const qn_exec *exec,
                        qn_lopt_phase phase, size_t n, qn_lopt_item *item, double *room)
{
  span at[MOST_SPANS];
  uint64_t all = 0;
  for (size_t k = 0; k < n && shards; k++) {
    if (!item[k].view.cut || !item[k].view.whole_n) continue;
    prepare(call, phase, &item[k]);
    for (unsigned s = spans_of(call, phase, &item[k], at); s-- > 0; all += at[s].n)
      memcpy(room + all, at[s].from, at[s].n * sizeof *room);
  }
  if (!all) return QN_OK;
  qn_try(qn_lopt_add(shards, exec, room, (size_t)all));
  all = 0;
  for (size_t k = 0; k < n; k++) {
    if (!item[k].view.cut || !item[k].view.whole_n) continue;
    for (unsigned s = spans_of(call, phase, &item[k], at); s-- > 0; all += at[s].n)
      memcpy(at[s].from, room + all, at[s].n * sizeof *room);
  }
  return QN_OK;
}

qn_status qn_lopt_check_shards(const qn_call *list, const qn_lopt_shards *shards)
{
  const char *op = list->op->info.name;
  if (!shards) return QN_OK;
  qn_require(shards->size == sizeof *shards, "%s: shards.size is %zu, it must be sizeof(qn_lopt_shards), %zu", op,
             shards->size, sizeof *shards);
  qn_require(shards->add, "%s: shards.add is NULL", op);
  qn_require(shards->extents || !list->n, "%s: shards.extents is NULL, and the list has %zu tensors", op, list->n);
  for (size_t k = 0; k < list->n; k++) {
    const qn_tensor *t = &list->tensors[QN_LOPT_PARAM][k];
    const int64_t whole = shards->extents[k];
    if (whole < 0) continue;
    qn_require(t->ndim, "%s: param[%zu] has no dimension, and shards.extents[%zu] is %" PRId64, op, k, k, whole);
    qn_require(t->shape[0] <= whole, "%s: param[%zu] has %" PRId64 " rows, and shards.extents[%zu] is %" PRId64, op, k,
               t->shape[0], k, whole);
    qn_require(!t->shape[0] || whole <= (INT64_C(1) << 40) / ((int64_t)qn_tensor_elements(t) / t->shape[0]),
               "%s: param[%zu] has more than 2^40 elements in all its shards", op, k);
  }
  return QN_OK;
}
