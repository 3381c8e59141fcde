/* SPDX-License-Identifier: Apache-2.0 */
/* orthogonal.c - of large matrices on the processor, the network's outputs into moves: five rounds of products toward
 * the nearest orthogonal matrix, then the scale of its root mean square. Sums are in double, by rows, in order.
 *
 * A matrix is `tall`, (length, width) with length >= width, and `wide`, its transpose: the products of op/gemm_norm are
 * of rows with rows, so that wide wide^T is what A is, and tall B^T the next tall. One of the two is the tensor's own
 * layout. */
#include "core/core.h"
#include "op/celo2/celo2.h"
#include "op/celo2/product.h"
#include "op/celo2/scalar.math.h"
#include "op/gemm_norm/cpu.h"
#include <string.h>

enum { TASK = 16384, SQUARE = 16 }; /* elements, about; a line of memory's */

/* One matrix on its way. */
typedef struct matrix {
  const qn_lopt_call *call;
  const qn_exec *exec;
  float *own, *turned; /* outputs, and then moves, as the tensor lies, and transposed */
  uint64_t rows, columns, length, width;
  float *product, *a, *of_a; /* (length, width); (width, width) each */
  double *sums;              /* [rows] */
  void *lent;                /* to products */
  size_t lent_bytes;
  float scale;
} matrix;

/* ---- the memory that it takes ---- */

static size_t product_bytes(uint64_t length, uint64_t width)
{
  qn_gemm_problem of[QN_CELO2_PRODUCTS];
  uint64_t most = 0;
  qn_celo2_products(length, width, QN_GEMM_FP32, of);
  for (int k = 0; k < QN_CELO2_PRODUCTS; k++) most = qn_lopt_most(most, qn_gemm_cpu_workspace(&of[k], NULL));
  return (size_t)most;
}

static size_t lay(matrix *x, const qn_lopt_view *v, qn_lopt_arena r)
{
  x->rows = v->rows, x->columns = v->columns;
  x->width = v->rows < v->columns ? v->rows : v->columns;
  x->length = v->rows < v->columns ? v->columns : v->rows;
  const uint64_t bytes = x->rows * x->columns * sizeof(float), square = x->width * x->width * sizeof(float);
  x->turned = qn_lopt_take(&r, bytes);
  x->product = qn_lopt_take(&r, bytes);
  x->a = qn_lopt_take(&r, square);
  x->of_a = qn_lopt_take(&r, square);
  x->sums = qn_lopt_take(&r, x->rows * sizeof *x->sums);
  x->lent_bytes = product_bytes(x->length, x->width);
  x->lent = qn_lopt_take(&r, x->lent_bytes);
  return r.used;
}

size_t qn_celo2_lent_bytes(const qn_lopt_view *view)
{
  matrix measured = {0};
  if (!view->factored || !view->n || qn_celo2_is_small(view)) return 0;
  return lay(&measured, view, (qn_lopt_arena){.align = QN_LOPT_ALIGNMENT});
}

/* ---- steps, each over rows at once ---- */

typedef void rows_fn(matrix *x, uint64_t row);
typedef struct rows_run {
  matrix *x;
  rows_fn *fn;
  uint64_t rows, at_once;
} rows_run;

static void run_rows(void *user, size_t task)
{
  const rows_run *r = user;
  const uint64_t first = task * r->at_once;
  for (uint64_t row = first; row < r->rows && row < first + r->at_once; row++) r->fn(r->x, row);
}

static void by_rows(matrix *x, rows_fn *fn, uint64_t rows, uint64_t columns)
{
  rows_run r = {x, fn, rows, qn_lopt_most(1, TASK / columns)};
  qn_pool_run(x->exec->pool, (size_t)qn_lopt_ceiling(rows, r.at_once), run_rows, &r);
}

static void square_row(matrix *x, uint64_t row)
{
  const float *from = x->own + row * x->columns;
  double sum = 0;
  for (uint64_t j = 0; j < x->columns; j++) sum += (double)from[j] * (double)from[j];
  x->sums[row] = sum;
}

static void scale_row(matrix *x, uint64_t row)
{
  float *to = x->own + row * x->columns;
  for (uint64_t j = 0; j < x->columns; j++) to[j] *= x->scale;
}

static float *tall_of(const matrix *x) { return x->rows >= x->columns ? x->own : x->turned; }
static float *wide_of(const matrix *x) { return x->rows >= x->columns ? x->turned : x->own; }

static void polynomial_row(matrix *x, uint64_t row)
{
  const float *a = x->a + row * x->width;
  float *to = x->of_a + row * x->width;
  for (uint64_t j = 0; j < x->width; j++) to[j] = QN_CELO2_SECOND * a[j] + QN_CELO2_THIRD * to[j];
}

static void next_row(matrix *x, uint64_t row)
{
  float *tall = tall_of(x) + row * x->width;
  const float *product = x->product + row * x->width;
  for (uint64_t j = 0; j < x->width; j++) tall[j] = QN_CELO2_FIRST * tall[j] + product[j];
}

/* Rows of a transpose, a square at a time, so that a line of memory is read once. */
static void turn(const float *from, uint64_t rows, uint64_t columns, float *to, uint64_t first)
{
  for (uint64_t i = 0; i < rows; i += SQUARE)
    for (uint64_t k = first; k < columns && k < first + SQUARE; k++)
      for (uint64_t j = i; j < rows && j < i + SQUARE; j++) to[k * rows + j] = from[j * columns + k];
}

static void turn_own(matrix *x, uint64_t k) { turn(x->own, x->rows, x->columns, x->turned, k * SQUARE); }
static void turn_tall(matrix *x, uint64_t k) { turn(tall_of(x), x->length, x->width, wide_of(x), k * SQUARE); }

/* ---- a matrix ---- */

static double squares_of(matrix *x)
{
  double sum = 0;
  by_rows(x, square_row, x->rows, x->columns);
  for (uint64_t row = 0; row < x->rows; row++) sum += x->sums[row];
  return sum;
}

static qn_status multiply(const matrix *x, const float *a, const float *b, float *to, uint64_t m, uint64_t n,
                          uint64_t k)
{
  const qn_gemm_problem problem = qn_celo2_product(a, b, to, m, n, k, QN_GEMM_FP32);
  qn_exec exec = *x->exec;
  exec.workspace = x->lent, exec.workspace_bytes = x->lent_bytes;
  return qn_gemm_cpu_run(&problem, &exec);
}

static qn_status make_orthogonal(matrix *x)
{
  const uint64_t length = x->length, width = x->width;
  x->scale = qn_celo2_into_ball(squares_of(x));
  by_rows(x, scale_row, x->rows, x->columns);
  by_rows(x, turn_own, qn_lopt_ceiling(x->columns, SQUARE), x->rows * SQUARE);
  for (int round = 0; round < QN_CELO2_ROUNDS; round++) {
    qn_try(multiply(x, wide_of(x), wide_of(x), x->a, width, width, length));
    qn_try(multiply(x, x->a, x->a, x->of_a, width, width, width));
    by_rows(x, polynomial_row, width, width);
    qn_try(multiply(x, tall_of(x), x->of_a, x->product, length, width, width));
    by_rows(x, next_row, length, width);
    by_rows(x, turn_tall, qn_lopt_ceiling(width, SQUARE), length * SQUARE);
  }
  return QN_OK;
}

typedef struct moving {
  const qn_lopt_call *call;
  qn_lopt_item *item;
  qn_lopt_cpu_fn *fn;
} moving;

static void run_move(void *user, size_t task)
{
  const moving *r = user;
  r->fn(r->call, (qn_lopt_phase)QN_CELO2_MOVE, r->item, task);
}

qn_status qn_celo2_behind(const qn_lopt_call *call, const qn_exec *exec, qn_lopt_item *item, void *lent)
{
  const qn_celo2_own *own = call->own;
  const qn_lopt_view *v = &item->view;
  const uint64_t n = qn_celo2_size(v);
  matrix x = {.call = call, .exec = exec};
  qn_tier tier;
  if (!v->factored || qn_celo2_is_small(v)) return QN_OK;
  qn_try(qn_tier_in_force(&tier));
  lay(&x, v, (qn_lopt_arena){.base = lent, .align = QN_LOPT_ALIGNMENT});
  for (uint64_t k = 0; k < v->matrices; k++) {
    x.own = item->moves + k * n;
    if (own->orthogonalize) qn_try(make_orthogonal(&x));
    item->layer[k * QN_CELO2_INPUTS * QN_CELO2_WIDTH] = (float)(own->rms_mult * qn_celo2_scale(squares_of(&x), n));
  }
  moving r = {call, item, call->network->tiers[tier]};
  qn_pool_run(exec->pool, (size_t)(v->matrices * qn_celo2_chunks(v)), run_move, &r);
  return QN_OK;
}
