/* SPDX-License-Identifier: Apache-2.0 */
/* tune_space.c - see tune_space.h. Classes end where what is fastest was seen to change: one row, a row in one block
 * of a power of two, few rows against many multiprocessors. */
#include "workbench/tune_space.h"
#include "core/core.h"
#include "workbench/bench.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t row_ends[] = {1, 16, 256, 1024, UINT64_MAX};
static const uint64_t col_ends[] = {1024, 4096, 8192, 16384, 32768, UINT64_C(1) << 20, UINT64_MAX};
static const char usual_shapes[] = "1x65536,1x1048576,1x67108864";
static const uint64_t most_elements = UINT64_C(1) << 40;

/* ---- cells ---- */

static bool same_sizes(const qn_op *op, size_t a, size_t b)
{
  for (size_t r = 0; r < op->info.n_tensors; r++) {
    const qn_op_types *x = &op->info.types[a], *y = &op->info.types[b];
    if (qn_dtype_bytes(x->tensor[r].dtype) != qn_dtype_bytes(y->tensor[r].dtype)) return false;
  }
  return true;
}

static bool wanted_row(const qn_op *op, size_t row)
{
  for (size_t before = 0; before < row; before++)
    if (same_sizes(op, before, row)) return false;
  return true;
}

static bool read_shape(const char **at, uint64_t *rows, uint64_t *cols)
{
  char *end;
  if (**at < '1' || **at > '9') return false;
  *rows = strtoull(*at, &end, 10);
  if (*end != 'x' || end[1] < '1' || end[1] > '9') return false;
  *cols = strtoull(end + 1, &end, 10);
  if ((*end && *end != ',') || *cols > most_elements || *rows > most_elements / *cols) return false;
  *at = end + (*end == ',');
  return true;
}

static qn_status add_shapes(const char *shapes, size_t row, bool pitched, qn_tune_cell *cells, size_t *n)
{
  for (const char *at = shapes; *at;) {
    qn_tune_cell cell = {.row = row, .layout = QN_TUNE_DENSE};
    qn_require(read_shape(&at, &cell.rows, &cell.cols),
               "\"%s\" are no shapes; ROWSxCOLS, apart by commas, as in 4096x14336,16x4096", shapes);
    qn_require(*n + 2 <= QN_TUNE_CELLS, "more than %d shapes and types", QN_TUNE_CELLS);
    cells[(*n)++] = cell;
    cell.layout = QN_TUNE_PITCHED;
    if (pitched && cell.rows > 1) cells[(*n)++] = cell;
  }
  return QN_OK;
}

qn_status qn_tune_cells(const qn_op *op, const char *types, const char *shapes, bool pitched, qn_tune_cell *cells,
                        size_t *n)
{
  size_t only = 0;
  *n = 0;
  if (types) qn_try(qn_bench_row(op, types, &only));
  if (!shapes) shapes = op->tune_shapes ? op->tune_shapes : usual_shapes;
  for (size_t row = 0; row < qn_op_rows(&op->info, QN_CUDA); row++)
    if (types ? row == only : wanted_row(op, row)) qn_try(add_shapes(shapes, row, pitched, cells, n));
  return QN_OK;
}

void qn_tune_cell_name(const qn_op *op, const qn_tune_cell *cell, char *text, size_t bytes)
{
  char types[QN_TUNE_TYPES];
  qn_tune_types(op, cell->row, types);
  snprintf(text, bytes, "%s %llux%llu %s", types, (unsigned long long)cell->rows, (unsigned long long)cell->cols,
           cell->layout == QN_TUNE_DENSE ? "dense" : "pitched");
}

void qn_tune_class(uint64_t value, const uint64_t *ends, uint64_t *least, uint64_t *most)
{
  for (*least = 1; value > *ends; ends++) *least = *ends + 1;
  *most = *ends;
}

void qn_tune_cell_classes(const qn_tune_cell *cell, qn_tune_entry *e)
{
  qn_tune_class(cell->rows, row_ends, &e->rows_least, &e->rows_most);
  qn_tune_class(cell->cols, col_ends, &e->cols_least, &e->cols_most);
  e->layout = cell->layout;
}

/* ---- geometries ---- */

typedef struct space {
  const qn_tune_cell *cell;
  const qn_launch_shape *incumbent;
  qn_launch_shape *to;
  size_t *n;
  uint64_t multiprocessors;
} space;

static uint64_t power_above(uint64_t value)
{
  uint64_t power = 1;
  while (power < value) power *= 2;
  return power;
}

static uint64_t pieces_of(const qn_tune_cell *cell, const qn_launch_shape *g)
{
  const uint64_t tile = (uint64_t)g->threads * g->pack * g->packs;
  if (g->shape == QN_LAUNCH_ROWS) return cell->rows;
  if (g->shape == QN_LAUNCH_TILES) return cell->rows * ((cell->cols + tile - 1) / tile);
  return (cell->rows * cell->cols + tile - 1) / tile;
}

static bool makes_sense(const space *s, const qn_launch_shape *g)
{
  const qn_tune_cell *cell = s->cell;
  const uint64_t tile = (uint64_t)g->threads * g->pack * g->packs;
  if (g->shape == QN_LAUNCH_FLAT && cell->layout != QN_TUNE_DENSE) return false;
  if (g->shape != QN_LAUNCH_FLAT && cell->rows < 2) return false; /* one row is flat */
  if (g->shape != QN_LAUNCH_FLAT && tile > power_above(cell->cols) && tile > 64 * (uint64_t)g->pack) return false;
  if (g->threads * g->pack * g->packs > 16384) return false; /* a multiprocessor's registers */
  return !g->persistent || pieces_of(cell, g) > 2 * s->multiprocessors * g->persistent;
}

static void offer(space *s, qn_launch_shape g)
{
  if (!makes_sense(s, &g) || qn_launch_shape_equal(&g, s->incumbent) || *s->n == QN_TUNE_CANDIDATES) return;
  s->to[(*s->n)++] = g;
}

static qn_status take_names(space *s, const char *only)
{
  char name[QN_LAUNCH_SHAPE_NAME + 8];
  for (const char *at = only; *at; at += *at == ',') {
    const size_t n = strcspn(at, ",");
    qn_launch_shape g;
    snprintf(name, sizeof name, "%.*s", n < sizeof name ? (int)n : (int)sizeof name - 1, at);
    qn_try(qn_launch_shape_from_name(name, &g));
    at += n;
    if (!qn_launch_shape_equal(&g, s->incumbent) && *s->n < QN_TUNE_CANDIDATES) s->to[(*s->n)++] = g;
  }
  return QN_OK;
}

qn_status qn_tune_candidates(const qn_op *op, const qn_tune_cell *cell, int multiprocessors, const char *only,
                             const qn_launch_shape *incumbent, qn_launch_shape *candidates, size_t *n)
{
  space s = {cell, incumbent, candidates, n, multiprocessors > 0 ? (uint64_t)multiprocessors : 1};
  qn_launch_shape rule;
  *n = 0;
  if (only) return take_names(&s, only);
  qn_launch_shape_rule(&(qn_launch_shape_key){.op = op, .row = cell->row, .dense = true}, &rule);
  for (int shape = 0; shape < QN_LAUNCH_KINDS; shape++)
    for (uint32_t threads = 128; threads <= (shape == QN_LAUNCH_ROWS ? 1024 : 512); threads *= 2)
      for (uint32_t packs = 1; packs <= 4; packs *= 2) {
        const qn_launch_shape g = {(qn_launch_kind)shape, threads, rule.pack, packs, 0};
        offer(&s, g);
        if (packs > 2) continue;
        offer(&s, (qn_launch_shape){g.shape, threads, g.pack, packs, 2048 / threads});
      }
  return QN_OK;
}
