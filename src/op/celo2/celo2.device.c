/* SPDX-License-Identifier: Apache-2.0 */
/* celo2.device.c - a checked step of CELO2 on a device: behind the factors of op/lopt/lopt.device.c its own kernels
 * over the list (celo2.elements.cu), then, for batches of large matrices, the products that make their moves
 * orthogonal, of op/gemm_norm, and what stands between them (celo2.matrix.cu). Nothing waits, so a step can be
 * captured. */
#include "core/core.h"
#include "op/celo2/celo2.h"
#include "op/celo2/product.h"
#include "op/celo2/scalar.math.h"
#include "quern/gemm_norm.h"
#include <stdio.h>
#include <string.h>

enum { THREADS = 256, PARTIALS_MOST = 1024 };
static const char elements[] = "op/celo2/celo2.elements.cu", of_matrix[] = "op/celo2/celo2.matrix.cu";

static const qn_lopt_sources sources = {
    .sums = "op/celo2/celo2.sums.cu", .factors = "op/celo2/celo2.factors.cu", .elements = elements};
const qn_lopt_tiling qn_celo2_device_tiling = {
    .elements = QN_CELO2_A_TASK, .least_length = UINT32_MAX, .is_fp32 = true, .source = &sources};

/* ---- tasks and arrays ---- */

static uint64_t size_of(const qn_lopt_device_item *it) { return it->matrix_rows * it->matrix_columns; }
static bool is_large(const qn_lopt_device_item *it) { return it->matrices && size_of(it) > QN_CELO2_SMALL; }
static uint64_t chunks_of(const qn_lopt_device_item *it) { return qn_lopt_ceiling(size_of(it), QN_CELO2_A_TASK); }

void qn_celo2_device_lay(qn_lopt_arena *r, qn_lopt_device_item *it)
{
  if (!is_large(it)) return;
  it->partial = qn_lopt_take(r, it->matrices * chunks_of(it) * QN_CELO2_INPUTS * sizeof *it->partial);
  it->layer = qn_lopt_take(r, it->matrices * QN_CELO2_INPUTS * QN_CELO2_WIDTH * sizeof *it->layer);
  it->moves = qn_lopt_take(r, it->n * sizeof *it->moves);
}

uint64_t qn_celo2_device_tasks(qn_lopt_phase phase, const qn_lopt_device_item *it)
{
  if (is_large(it))
    return phase == QN_LOPT_STATS ? it->matrices * chunks_of(it) : phase == QN_LOPT_FIRST_LAYER ? it->matrices : 0;
  if (phase != QN_LOPT_UPDATE) return 0;
  return it->matrices ? qn_lopt_ceiling(it->matrices, qn_celo2_device_together(size_of(it)))
                      : qn_lopt_ceiling(it->n, QN_CELO2_A_TASK);
}

/* ---- batches: large matrices of one shape, but for which side is the longer, are made orthogonal together ---- */

enum { SHAPES = 16, ELEMENTS_MOST = 1 << 25 }; /* of batches that are filled at once; of a batch of several */

typedef struct batch {
  uint64_t length, width;
  size_t room, n; /* matrices; products are of all of `room`, so that the workspace is known before */
  qn_celo2_matrix of[QN_CELO2_BATCH];
} batch;

/* A step of the list. */
typedef struct matrix_run {
  const qn_call *list;
  const qn_lopt_network *network;
  const qn_lopt_device_place *place;
  const qn_celo2_own *own;
  char *lent;
  int precision; /* qn_precision */
  batch *batches;
  size_t shapes, oldest;
  /* Of the batch at hand: */
  qn_celo2_batch_args args;
  size_t matrices;
  void *product, *products; /* the next `tall`; memory that is lent to products */
  size_t product_bytes;
} matrix_run;

static bool large_view(const qn_lopt_network *network, const qn_tensor *p, qn_lopt_view *v)
{
  *v = qn_lopt_view_of(network->ties, p->ndim, p->shape, -1);
  return p->device.kind != QN_CPU && v->factored && v->n && !qn_celo2_is_small(v);
}

static bool has_sides(const qn_lopt_view *v, uint64_t a, uint64_t b)
{
  return (v->rows == a && v->columns == b) || (v->rows == b && v->columns == a);
}

/* Of the list's matrices of a shape, those of a batch: all batches have the same size, as far as they can. */
static size_t room_for(const qn_lopt_network *network, const qn_call *list, uint64_t a, uint64_t b)
{
  uint64_t all = 0, most = ELEMENTS_MOST / (a * b);
  for (size_t k = 0; k < list->n; k++) {
    qn_lopt_view v;
    if (large_view(network, &list->tensors[QN_LOPT_PARAM][k], &v) && has_sides(&v, a, b)) all += v.matrices;
  }
  most = most < 1 ? 1 : most < QN_CELO2_BATCH ? most : QN_CELO2_BATCH;
  return (size_t)qn_lopt_ceiling(all, qn_lopt_ceiling(all, most));
}

static size_t bytes_of_products(const matrix_run *run)
{
  qn_gemm_problem of[QN_CELO2_PRODUCTS];
  uint64_t most = 0;
  qn_celo2_products(run->args.length, run->args.width, run->precision, of);
  for (int k = 0; k < QN_CELO2_PRODUCTS; k++) {
    of[k].batches = (int64_t)run->matrices;
    most = qn_lopt_most(most, qn_gemm_device_workspace(&of[k], run->list->exec));
  }
  return (size_t)most;
}

static size_t lay(matrix_run *run, uint64_t a, uint64_t b, size_t room, qn_lopt_arena r)
{
  const uint64_t width = a < b ? a : b, n = a * b, each = run->precision == QN_PRECISION_BF16 ? 2 : 4;
  qn_celo2_batch_args *to = &run->args;
  run->matrices = room;
  to->width = width, to->length = n / width;
  to->partials = (qn_u32)(n / 4096 + 1 < PARTIALS_MOST ? n / 4096 + 1 : PARTIALS_MOST);
  to->tall = qn_lopt_take(&r, room * n * each);
  to->wide = qn_lopt_take(&r, room * n * each);
  run->product = qn_lopt_take(&r, room * n * each);
  to->a = qn_lopt_take(&r, room * width * width * each);
  to->of_a = qn_lopt_take(&r, room * width * width * each);
  to->sums = qn_lopt_take(&r, room * to->partials * sizeof(double));
  run->product_bytes = bytes_of_products(run);
  run->products = qn_lopt_take(&r, run->product_bytes);
  return r.used;
}

static int precision_of(const qn_call *list) { return ((const qn_celo2_params *)list->params)->precision; }

/* Was there a tensor of this one's sides before it? */
static bool is_first(const qn_lopt_network *network, const qn_call *list, size_t k, const qn_lopt_view *v)
{
  qn_lopt_view other;
  for (size_t j = 0; j < k; j++)
    if (large_view(network, &list->tensors[QN_LOPT_PARAM][j], &other) && has_sides(&other, v->rows, v->columns))
      return false;
  return true;
}

/* Of the largest batch. */
size_t qn_celo2_first_bytes(const qn_lopt_network *network, const qn_lopt_shards *shards, const qn_call *list)
{
  size_t most = 0;
  (void)shards;
  for (size_t k = 0; k < list->n; k++) {
    matrix_run measured = {.list = list, .precision = precision_of(list)};
    qn_lopt_view v;
    if (!large_view(network, &list->tensors[QN_LOPT_PARAM][k], &v) || !is_first(network, list, k, &v)) continue;
    most = (size_t)qn_lopt_most(most, lay(&measured, v.rows, v.columns, room_for(network, list, v.rows, v.columns),
                                          (qn_lopt_arena){.align = QN_LOPT_DEVICE_ALIGNMENT}));
  }
  return most;
}

static qn_status run_batch(matrix_run *run, const char *name, uint64_t blocks, size_t matrices)
{
  char whole[32];
  snprintf(whole, sizeof whole, "celo2_%s%s", name, run->precision == QN_PRECISION_BF16 ? "_bf16" : "");
  run->args.blocks = blocks;
  return qn_lopt_device_launch(run->place, of_matrix, whole, blocks * matrices, THREADS, &run->args, sizeof run->args);
}

static uint64_t tiles_of(uint64_t rows, uint64_t columns)
{
  return qn_lopt_ceiling(rows, QN_CELO2_TILE) * qn_lopt_ceiling(columns, QN_CELO2_TILE);
}

static qn_status multiply(const matrix_run *run, const void *x, const void *w, void *y, uint64_t m, uint64_t n,
                          uint64_t k)
{
  qn_gemm_problem problem = qn_celo2_product(x, w, y, m, n, k, run->precision);
  qn_exec exec = *run->list->exec;
  problem.batches = (int64_t)run->matrices;
  exec.workspace = run->products, exec.workspace_bytes = run->product_bytes;
  return qn_gemm_device_run(&problem, &exec, run->list->mode == QN_CALL_PREPARE);
}

static qn_status make_orthogonal(matrix_run *run, size_t n, uint64_t tiles)
{
  qn_celo2_batch_args *a = &run->args;
  const uint64_t length = a->length, width = a->width;
  qn_try(run_batch(run, "squares", a->partials, n));
  qn_try(run_batch(run, "into_ball", tiles, n));
  a->is_orthogonal = 1;
  for (int round = 0; round < QN_CELO2_ROUNDS; round++) {
    if (round) qn_try(run_batch(run, "turn", tiles, n));
    qn_try(multiply(run, a->wide, a->wide, a->a, width, width, length));
    qn_try(multiply(run, a->a, a->a, a->of_a, width, width, width));
    qn_try(run_batch(run, "polynomial", qn_lopt_ceiling(width * width, QN_CELO2_FOUR * THREADS), n));
    qn_try(multiply(run, a->tall, a->of_a, run->product, length, width, width));
    void *const was = a->tall;
    a->tall = run->product, run->product = was;
  }
  return QN_OK;
}

static qn_status flush(matrix_run *run, batch *b)
{
  const uint64_t tiles = tiles_of(b->length, b->width);
  if (!b->n) return QN_OK;
  lay(run, b->length, b->width, b->room, (qn_lopt_arena){.base = run->lent, .align = QN_LOPT_DEVICE_ALIGNMENT});
  memcpy(run->args.of, b->of, sizeof b->of);
  run->args.rms_mult = run->own->rms_mult;
  run->args.is_orthogonal = 0;
  if (run->own->orthogonalize) qn_try(make_orthogonal(run, b->n, tiles));
  qn_try(run_batch(run, "squares", run->args.partials, b->n));
  qn_try(run_batch(run, "move", tiles, b->n));
  b->n = 0;
  return QN_OK;
}

/* The batch of an item's shape; where all are taken, another goes first. */
static qn_status batch_for(matrix_run *run, const qn_lopt_device_item *it, batch **to)
{
  const uint64_t a = it->matrix_rows, b = it->matrix_columns, width = a < b ? a : b;
  for (size_t k = 0; k < run->shapes; k++) {
    *to = &run->batches[k];
    if ((*to)->width == width && (*to)->length == a * b / width) return QN_OK;
  }
  if (run->shapes < SHAPES) {
    *to = &run->batches[run->shapes++];
  } else {
    *to = &run->batches[run->oldest++ % SHAPES];
    qn_try(flush(run, *to));
  }
  (*to)->n = 0, (*to)->room = room_for(run->network, run->list, a, b);
  (*to)->width = width, (*to)->length = a * b / width;
  return QN_OK;
}

static qn_status run_tensor(void *user, const qn_lopt_device_item *it)
{
  matrix_run *run = user;
  batch *b;
  if (!is_large(it)) return QN_OK;
  for (uint64_t k = 0; k < it->matrices; k++) {
    qn_try(batch_for(run, it, &b));
    b->of[b->n++] = (qn_celo2_matrix){.own = it->moves + k * size_of(it),
                                      .p = it->p + k * size_of(it),
                                      .scalars = it->scalars,
                                      .is_wide = it->matrix_rows < it->matrix_columns};
    if (b->n == b->room) qn_try(flush(run, b));
  }
  return QN_OK;
}

static qn_status run_matrices(matrix_run *run)
{
  batch batches[SHAPES];
  run->batches = batches, run->shapes = run->oldest = 0;
  qn_try(qn_lopt_device_each(run->place, run_tensor, run));
  for (size_t k = 0; k < run->shapes; k++) qn_try(flush(run, &batches[k]));
  return QN_OK;
}

/* ---- a step ---- */

static qn_status run_tasks(const matrix_run *run, const qn_lopt_device_place *place, const char *name,
                           qn_lopt_phase phase, uint64_t blocks, uint32_t threads)
{
  return qn_lopt_device_tasks(place, elements, name, phase, blocks, threads, run->own, sizeof *run->own);
}

static qn_status run_begin(void *user, const qn_lopt_device_place *place)
{
  return run_tasks(user, place, "celo2_begin", QN_LOPT_UPDATE, 1, THREADS);
}

static qn_status run_elements(void *user, const qn_lopt_device_place *place)
{
  matrix_run *run = user;
  run->place = place;
  qn_try(run_tasks(run, place, "celo2_stats", QN_LOPT_STATS, 0, THREADS));
  qn_try(run_tasks(run, place, "celo2_layer", QN_LOPT_FIRST_LAYER, 0, THREADS));
  qn_try(run_tasks(run, place, "celo2_outputs", QN_LOPT_STATS, 0, THREADS));
  qn_try(run_tasks(run, place, "celo2_whole", QN_LOPT_UPDATE, 0, 32 * QN_CELO2_SIMDS));
  return run_matrices(run);
}

qn_status qn_celo2_device_run(const qn_call *list, const qn_lopt_step *step)
{
  matrix_run run = {.list = list, .network = step->network, .own = step->own, .precision = precision_of(list)};
  const qn_lopt_list_phases phases = {.before = run_begin, .user = &run, .elements = run_elements};
  run.lent = qn_lopt_arena_of(list->exec->workspace, QN_LOPT_DEVICE_ALIGNMENT).base;
  return qn_lopt_device_run_behind(list, step, &phases, qn_celo2_first_bytes(step->network, NULL, list));
}
