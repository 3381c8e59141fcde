/* SPDX-License-Identifier: Apache-2.0 */
/* celo2.device.c - a checked step of CELO2 on a device: behind the factors of op/lopt/lopt.device.c its own kernels
 * over the list (celo2.elements.cu), then, one large matrix after another, the products that make its move orthogonal,
 * of op/gemm_norm, and what stands between them (celo2.matrix.cu). Nothing waits, so a step can be captured. */
#include "core/core.h"
#include "op/celo2/celo2.h"
#include "op/celo2/product.h"
#include "op/celo2/scalar.math.h"

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

/* ---- the memory that a large matrix takes ---- */

/* A step of the list, and its matrix at hand. */
typedef struct matrix_run {
  const qn_call *list;
  const qn_lopt_device_place *place;
  const qn_celo2_own *own;
  char *lent;
  qn_celo2_matrix_args args;
  void *products; /* memory that is lent to them */
  size_t product_bytes;
} matrix_run;

static size_t bytes_of_products(const qn_exec *exec, uint64_t length, uint64_t width)
{
  qn_gemm_problem of[QN_CELO2_PRODUCTS];
  uint64_t most = 0;
  qn_celo2_products(length, width, of);
  for (int k = 0; k < QN_CELO2_PRODUCTS; k++) most = qn_lopt_most(most, qn_gemm_device_workspace(&of[k], exec));
  return (size_t)most;
}

static size_t lay(matrix_run *run, uint64_t rows, uint64_t columns, qn_lopt_arena r)
{
  const uint64_t width = rows < columns ? rows : columns, n = rows * columns;
  qn_celo2_matrix_args *a = &run->args;
  a->rows = rows, a->columns = columns, a->width = width, a->length = n / width;
  a->partials = (qn_u32)(n / 4096 + 1 < PARTIALS_MOST ? n / 4096 + 1 : PARTIALS_MOST);
  a->turned = qn_lopt_take(&r, n * sizeof(float));
  a->product = qn_lopt_take(&r, n * sizeof(float));
  a->a = qn_lopt_take(&r, width * width * sizeof(float));
  a->of_a = qn_lopt_take(&r, width * width * sizeof(float));
  a->sums = qn_lopt_take(&r, a->partials * sizeof(double));
  run->product_bytes = bytes_of_products(run->list->exec, a->length, width);
  run->products = qn_lopt_take(&r, run->product_bytes);
  return r.used;
}

/* Of the largest matrix. */
size_t qn_celo2_first_bytes(const qn_lopt_network *network, const qn_lopt_shards *shards, const qn_call *list)
{
  size_t most = 0;
  (void)shards;
  for (size_t k = 0; k < list->n; k++) {
    const qn_tensor *p = &list->tensors[QN_LOPT_PARAM][k];
    const qn_lopt_view v = qn_lopt_view_of(network->ties, p->ndim, p->shape, -1);
    matrix_run measured = {.list = list};
    if (p->device.kind != QN_CPU && v.factored && v.n && !qn_celo2_is_small(&v))
      most = (size_t)qn_lopt_most(
          most, lay(&measured, v.rows, v.columns, (qn_lopt_arena){.align = QN_LOPT_DEVICE_ALIGNMENT}));
  }
  return most;
}

/* ---- a large matrix ---- */

static qn_status run_matrix(const matrix_run *run, const char *name, uint64_t blocks)
{
  return qn_lopt_device_launch(run->place, of_matrix, name, blocks, THREADS, &run->args, sizeof run->args);
}

static uint64_t blocks_of(uint64_t n) { return qn_lopt_ceiling(n, THREADS); }
static uint64_t tiles_of(uint64_t rows, uint64_t columns)
{
  return qn_lopt_ceiling(rows, QN_CELO2_TILE) * qn_lopt_ceiling(columns, QN_CELO2_TILE);
}

static qn_status multiply(const matrix_run *run, const float *x, const float *w, float *y, uint64_t m, uint64_t n,
                          uint64_t k)
{
  const qn_gemm_problem problem = qn_celo2_product(x, w, y, m, n, k);
  qn_exec exec = *run->list->exec;
  exec.workspace = run->products, exec.workspace_bytes = run->product_bytes;
  return qn_gemm_device_run(&problem, &exec, run->list->mode == QN_CALL_PREPARE);
}

static qn_status make_orthogonal(const matrix_run *run)
{
  const qn_celo2_matrix_args *a = &run->args;
  const uint64_t length = a->length, width = a->width;
  const float *tall = a->rows >= a->columns ? a->own : a->turned, *wide = tall == a->own ? a->turned : a->own;
  qn_try(run_matrix(run, "celo2_squares", a->partials));
  qn_try(run_matrix(run, "celo2_into_ball", tiles_of(a->rows, a->columns)));
  for (int round = 0; round < QN_CELO2_ROUNDS; round++) {
    qn_try(multiply(run, wide, wide, a->a, width, width, length));
    qn_try(multiply(run, a->a, a->a, a->of_a, width, width, width));
    qn_try(run_matrix(run, "celo2_polynomial", blocks_of(width * width)));
    qn_try(multiply(run, tall, a->of_a, a->product, length, width, width));
    qn_try(run_matrix(run, "celo2_next", tiles_of(length, width)));
  }
  return QN_OK;
}

static qn_status run_tensor(void *user, const qn_lopt_device_item *it)
{
  matrix_run *run = user;
  if (!is_large(it)) return QN_OK;
  lay(run, it->matrix_rows, it->matrix_columns, (qn_lopt_arena){.base = run->lent, .align = QN_LOPT_DEVICE_ALIGNMENT});
  run->args.scalars = it->scalars;
  run->args.rms_mult = run->own->rms_mult;
  for (uint64_t k = 0; k < it->matrices; k++) {
    run->args.own = it->moves + k * size_of(it), run->args.p = it->p + k * size_of(it);
    if (run->own->orthogonalize) qn_try(make_orthogonal(run));
    qn_try(run_matrix(run, "celo2_squares", run->args.partials));
    qn_try(run_matrix(run, "celo2_move", blocks_of(size_of(it))));
  }
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
  return qn_lopt_device_each(place, run_tensor, run);
}

qn_status qn_celo2_device_run(const qn_call *list, const qn_lopt_step *step)
{
  matrix_run run = {.list = list, .own = step->own};
  const qn_lopt_list_phases phases = {.before = run_begin, .user = &run, .elements = run_elements};
  run.lent = qn_lopt_arena_of(list->exec->workspace, QN_LOPT_DEVICE_ALIGNMENT).base;
  return qn_lopt_device_run_behind(list, step, &phases, qn_celo2_first_bytes(step->network, NULL, list));
}
