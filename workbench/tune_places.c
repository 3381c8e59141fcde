/* SPDX-License-Identifier: Apache-2.0 */
/* tune_places.c - see tune_places.h. */
#include "workbench/tune_places.h"
#include "core/core.h"
#include "workbench/bench.h"
#include "workbench/case.h"
#include "workbench/subject.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usual_shapes[] = "1x65536,1x1048576,1x67108864";
enum { GAP = 64 };
static const uint64_t most_elements = UINT64_C(1) << 40;

typedef struct walk {
  const qn_op *op;
  qn_device_kind kind;
  const qn_tune_filter *filter;
  qn_status (*at)(void *user, const qn_tune_place *place);
  void *user;
} walk;

/* ---- ranges ---- */

/* Ranges end where the fastest choice was seen to change. Of lists: one row, rows in one block, few rows against many
 * multiprocessors. Of the others: rows by the tiles' heights, columns and depth as launches fill a GPU, a norm's groups
 * by the widths that tiles hold. */
static const uint64_t list_rows[] = {1, 16, 256, 1024, UINT64_MAX}, rows[] = {1, 16, 64, 128, 256, 1024, UINT64_MAX};
static const uint64_t list_cols[] = {1024, 4096, 8192, 16384, 32768, UINT64_C(1) << 20, UINT64_MAX};
static const uint64_t cols[] = {512, 1024, 2048, 4096, 8192, 16384, UINT64_MAX},
                      widths[] = {16, 32, 64, 128, UINT64_MAX};

static void range_of(uint64_t value, const uint64_t *ends, uint64_t *least, uint64_t *most)
{
  for (*least = 1; value > *ends; ends++) *least = *ends + 1;
  *most = *ends;
}

void qn_tune_classes(const qn_op *op, const qn_tune_key *key, qn_tune_entry *e)
{
  const bool list = !qn_op_is_alone(&op->info);
  snprintf(e->types, sizeof e->types, "%s", key->types);
  e->layout = key->layout;
  range_of(key->rows, list ? list_rows : rows, &e->rows_least, &e->rows_most);
  range_of(key->cols, list ? list_cols : cols, &e->cols_least, &e->cols_most);
  if (!key->precision) return; /* it is no product */
  snprintf(e->precision, sizeof e->precision, "%s", key->precision);
  range_of(key->depth, cols, &e->depth_least, &e->depth_most);
  range_of(key->width, widths, &e->width_least, &e->width_most);
}

/* ---- ops on lists: rows by columns ---- */

static bool same_sizes(const qn_op *op, size_t a, size_t b)
{
  for (size_t r = 0; r < op->info.n_tensors; r++)
    if (qn_dtype_bytes(op->info.types[a].tensor[r].dtype) != qn_dtype_bytes(op->info.types[b].tensor[r].dtype))
      return false;
  return true;
}

static bool is_first_of_size(const qn_op *op, size_t row)
{
  for (size_t before = 0; before < row; before++)
    if (same_sizes(op, before, row)) return false;
  return true;
}

static bool is_shape(const char *item)
{
  char *end;
  if (*item < '1' || *item > '9') return false;
  const uint64_t n = strtoull(item, &end, 10);
  if (*end != 'x' || end[1] < '1' || end[1] > '9') return false;
  const uint64_t m = strtoull(end + 1, &end, 10);
  return !*end && m <= most_elements && n <= most_elements / m;
}

static qn_status each_layout(const walk *w, qn_tune_place *place)
{
  char types[QN_TUNE_TYPES];
  qn_require(is_shape(place->shape), "\"%s\" are no shapes; ROWSxCOLS, apart by commas, as in 4096x14336,16x4096",
             w->filter->shapes ? w->filter->shapes : place->shape);
  qn_tune_types(w->op, place->row, types);
  const bool may = w->filter->pitched && qn_op_is_strided(&w->op->info) && strncmp(place->shape, "1x", 2) != 0;
  for (int pitched = 0; pitched <= may; pitched++) {
    place->pitched = pitched;
    snprintf(place->name, sizeof place->name, "%s %s %s", types, place->shape, pitched ? "pitched" : "dense");
    snprintf(place->text, sizeof place->text, "%.120s", place->shape);
    if (pitched) snprintf(place->text + strlen(place->text), 32, " apart=%d", GAP);
    qn_try(w->at(w->user, place));
  }
  return QN_OK;
}

/* ---- other ops: workloads, in each class of precision ---- */

/* The class's own word in a text: it is of that class alone. */
static bool says_class(const char *text, const char *class)
{
  char word[48];
  snprintf(word, sizeof word, "%.*s=", (int)strcspn(class, "="), class);
  return strstr(text, word) != NULL;
}

static qn_status each_class(const walk *w, qn_tune_place *place)
{
  const qn_op_check *check = qn_op_check_of(w->op);
  const char *type = qn_row_type(&w->op->info, place->row), *class = "", *text;
  qn_subject d;
  qn_try(qn_subject_find(w->op, place->shape, &text));
  snprintf(place->text, sizeof place->text, "%s", text);
  const qn_subject_order order = {.op = w->op, .row = place->row, .device = {w->kind, 0}, .text = text, .bare = true};
  const qn_status status = qn_subject_open(&d, &order);
  qn_subject_close(&d);
  qn_try(status);
  for (size_t k = 0; k == 0 || check->variation; k++) {
    if (check->variation && !(class = check->variation(w->kind, place->row, k))) break;
    const bool own = !*class || says_class(text, class);
    if (own && k) break;
    snprintf(place->name, sizeof place->name, "%s %s%s%s", type, place->shape, own ? "" : " ", own ? "" : class);
    snprintf(place->classed, sizeof place->classed, "%s", own ? "" : class);
    qn_try(w->at(w->user, place));
  }
  return QN_OK;
}

/* ---- all of them ---- */

static qn_status each_shape(const walk *w, size_t row)
{
  const bool list = !qn_op_is_alone(&w->op->info);
  const char *shapes = w->filter->shapes;
  qn_tune_place place = {.row = row};
  if (!shapes && list) shapes = w->op->tune_shapes ? w->op->tune_shapes : usual_shapes;
  for (const char *at = shapes; at && *at;) {
    const size_t n = strcspn(at, ",");
    qn_require(n > 0 && n < sizeof place.shape, "\"%.80s\" is no shape and no workload", at);
    memcpy(place.shape, at, n);
    place.shape[n] = 0;
    at += n + (at[n] == ',');
    qn_try(list ? each_layout(w, &place) : each_class(w, &place));
  }
  for (const qn_check_text *of = qn_op_check_of(w->op)->workloads; !shapes && of->name; of++) {
    snprintf(place.shape, sizeof place.shape, "%s", of->name);
    qn_try(each_class(w, &place));
  }
  return QN_OK;
}

static qn_status each_row(const walk *w)
{
  const bool list = !qn_op_is_alone(&w->op->info);
  size_t only = 0;
  if (w->filter->types) qn_try(qn_bench_row(w->op, w->filter->types, &only));
  for (size_t row = 0; row < qn_op_rows(&w->op->info, QN_CUDA); row++)
    if (w->filter->types ? row == only : !list || is_first_of_size(w->op, row)) qn_try(each_shape(w, row));
  return QN_OK;
}

static qn_status count(void *user, const qn_tune_place *place)
{
  (void)place;
  ++*(size_t *)user;
  return QN_OK;
}

qn_status qn_tune_places(const qn_op *op, qn_device device, const qn_tune_filter *filter,
                         qn_status (*at)(void *user, const qn_tune_place *place), void *user)
{
  size_t n = 0;
  qn_try(each_row(&(walk){op, device.kind, filter, count, &n}));
  return each_row(&(walk){op, device.kind, filter, at, user});
}
