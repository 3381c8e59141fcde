/* SPDX-License-Identifier: Apache-2.0 */
/* reference.c - see reference.h. */
#include "op/celo2/reference.h"
#include "core/core.h"
#include "op/lopt/reference.h"
#include <math.h>
#include <string.h>

enum { INPUTS = 30, WIDTH = 8 };

/* A matrix of the last two dimensions. */
typedef struct matrix {
  size_t first, rows, columns, n; /* elements before it, and its own */
} matrix;

static double within(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

/* ---- AdamW ---- */

static void step_vector(const qn_celo2_params *told, double lr, size_t n, const double *grad, double *p, double *m,
                        double *v)
{
  const double count = (double)told->step + 1;
  const double of_m = 1 - pow(told->adam_m_decay, count), of_v = 1 - pow(told->adam_v_decay, count);
  for (size_t i = 0; i < n; i++) {
    const double g = within(grad[i], -1000, 1000);
    m[i] = told->adam_m_decay * m[i] + (1 - told->adam_m_decay) * g;
    v[i] = told->adam_v_decay * v[i] + (1 - told->adam_v_decay) * g * g;
    const double direction = m[i] / of_m / (sqrt(v[i] / of_v) + told->adam_eps);
    p[i] -= lr * told->adam_lr_mult * (direction + told->adam_weight_decay * p[i]);
  }
}

/* ---- the network ---- */

static void set_inputs(const qn_lopt_seen *t, size_t i, double x[INPUTS])
{
  const double s = 1 / sqrt(t->v[i] + 1e-8), g = t->g[i];
  x[0] = g, x[1] = within(g, -0.1, 0.1), x[2] = t->p[i], x[6] = t->v[i], x[10] = s, x[14] = g * s;
  for (size_t k = 0; k < 3; k++) {
    const qn_lopt_element_states f = qn_lopt_seen_factor(t, k, i);
    const double m = t->m[k * t->n + i];
    x[3 + k] = m, x[7 + k] = m * s, x[11 + k] = g * f.a, x[15 + k] = f.row, x[18 + k] = f.column;
    x[21 + k] = 1 / sqrt(f.row + 1e-8), x[24 + k] = 1 / sqrt(f.column + 1e-8), x[27 + k] = m * f.a;
  }
}

/* Weights (inputs, outputs), then biases. */
static void dense(const float *w, size_t inputs, size_t outputs, bool relu, const double *x, double *y)
{
  for (size_t h = 0; h < outputs; h++) {
    y[h] = (double)w[inputs * outputs + h];
    for (size_t k = 0; k < inputs; k++) y[h] += x[k] * (double)w[k * outputs + h];
    if (relu && y[h] < 0) y[h] = 0;
  }
}

static void run_network(const qn_lopt_seen *t, const qn_celo2_params *told, const matrix *at, double *out)
{
  double x[INPUTS], one[WIDTH], two[WIDTH], last[3], squares[INPUTS] = {0};
  for (size_t i = 0; i < at->n; i++) {
    set_inputs(t, at->first + i, x);
    for (size_t k = 0; k < INPUTS; k++) squares[k] += x[k] * x[k];
  }
  for (size_t i = 0; i < at->n; i++) {
    set_inputs(t, at->first + i, x);
    for (size_t k = 0; k < INPUTS; k++) x[k] /= sqrt(1e-9 + squares[k] / (double)at->n);
    dense(told->weights, INPUTS, WIDTH, true, x, one);
    dense(told->weights + 248, WIDTH, WIDTH, true, one, two);
    dense(told->weights + 320, WIDTH, 3, false, two, last);
    out[i] = last[0] * exp(last[1] * told->exp_mult);
  }
}

/* ---- a move ---- */

static double norm(const double *x, size_t n)
{
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += x[i] * x[i];
  return sqrt(sum);
}

/* to = x y^T, of rows. */
static void multiply(const double *x, size_t rows, const double *y, size_t columns, size_t n, double *to)
{
  for (size_t i = 0; i < rows; i++)
    for (size_t j = 0; j < columns; j++) {
      double sum = 0;
      for (size_t k = 0; k < n; k++) sum += x[i * n + k] * y[j * n + k];
      to[i * columns + j] = sum;
    }
}

static void transpose(const double *x, size_t rows, size_t columns, double *to)
{
  for (size_t i = 0; i < rows; i++)
    for (size_t j = 0; j < columns; j++) to[j * rows + i] = x[i * columns + j];
}

/* x is (rows, columns), rows <= columns; scratch: twice its elements and twice rows x rows. */
static void make_orthogonal(double *x, size_t rows, size_t columns, double *scratch)
{
  double *turned = scratch, *next = turned + rows * columns, *a = next + rows * columns, *b = a + rows * rows;
  const double size = norm(x, rows * columns) + 1e-8;
  for (size_t i = 0; i < rows * columns; i++) x[i] /= size;
  for (int round = 0; round < 5; round++) {
    multiply(x, rows, x, rows, columns, a);
    multiply(a, rows, a, rows, rows, b); /* a is its own transpose */
    for (size_t i = 0; i < rows * rows; i++) b[i] = -4.7750 * a[i] + 2.0315 * b[i];
    transpose(x, rows, columns, turned);
    multiply(b, rows, turned, columns, rows, next);
    for (size_t i = 0; i < rows * columns; i++) x[i] = 3.4445 * x[i] + next[i];
  }
}

static void move_matrix(qn_lopt_seen *t, const qn_celo2_params *told, double lr, const matrix *at, double *scratch)
{
  double *u = scratch, *turned = u + at->n, *rest = turned + at->n;
  run_network(t, told, at, u);
  if (told->orthogonalize && at->rows <= at->columns) make_orthogonal(u, at->rows, at->columns, rest);
  if (told->orthogonalize && at->rows > at->columns) {
    transpose(u, at->rows, at->columns, turned);
    make_orthogonal(turned, at->columns, at->rows, rest);
    transpose(turned, at->columns, at->rows, u);
  }
  const double size = norm(u, at->n), scale = told->rms_mult / sqrt(1e-9 + size * size / (double)at->n);
  for (size_t i = 0; i < at->n; i++) {
    double *p = &t->p[at->first + i];
    u[i] *= scale;
    *p -= lr * (u[i] + told->weight_decay * *p);
  }
}

static qn_status step_tensor(qn_lopt_seen *t, const qn_celo2_params *told, double lr, const double *grad, double *moved)
{
  const qn_lopt_step step = {.m = {told->m_decay0, told->m_decay1, told->m_decay2},
                             .v = told->v_decay,
                             .f = {told->factor_decay0, told->factor_decay1, told->factor_decay2}};
  matrix at = {.rows = (size_t)t->shape[t->ndim - 2], .columns = (size_t)t->shape[t->ndim - 1]};
  double *scratch, sum = 0;
  at.n = at.rows * at.columns;
  for (size_t i = 0; i < t->n; i++) t->g[i] = within(grad[i], -1000, 1000);
  qn_lopt_seen_states(t, &step);
  const size_t least = at.rows < at.columns ? at.rows : at.columns;
  qn_try(qn_try_allocate(&scratch, (4 * at.n + 2 * least * least + 1) * sizeof *scratch, "the reference"));
  for (at.first = 0; at.first < t->n; at.first += at.n) {
    move_matrix(t, told, lr, &at, scratch);
    for (size_t i = 0; i < at.n; i++) sum += isfinite(scratch[i]) ? scratch[i] * scratch[i] : 0;
  }
  *moved = lr * sqrt(sum / (double)(t->n ? t->n : 1));
  qn_release(scratch);
  return QN_OK;
}

qn_status qn_celo2_reference(const qn_celo2_params *told, size_t n, const qn_tensor *param,
                             double *const *const data[QN_MAX_TENSORS], double *moved)
{
  for (size_t k = 0; k < n; k++) {
    const double lr = told->lr * (told->lr_scale ? told->lr_scale[k] : 1);
    qn_lopt_seen t = {.p = data[QN_LOPT_PARAM][k],
                      .m = data[QN_LOPT_M][k],
                      .v = data[QN_LOPT_V][k],
                      .row = data[QN_LOPT_ROW][k],
                      .column = data[QN_LOPT_COLUMN][k]};
    const qn_lopt_ties ties = told->ties ? QN_LOPT_TIES_JAX : QN_LOPT_TIES_LATER;
    qn_status status = qn_lopt_see(&t, ties, param[k].ndim, param[k].shape);
    moved[k] = 0;
    if (status == QN_OK && t.ndim < 2)
      step_vector(told, lr, t.n, data[QN_LOPT_GRAD][k], t.p, t.m, t.v);
    else if (status == QN_OK && t.n)
      status = step_tensor(&t, told, lr, data[QN_LOPT_GRAD][k], &moved[k]);
    qn_release(t.g);
    qn_try(status);
  }
  return QN_OK;
}

void qn_celo2_make(const qn_op_param *param, float *values)
{
  uint64_t state = 41;
  qn_lopt_weight w;
  (void)param;
  for (size_t k = 0; qn_lopt_weight_at(QN_LOPT_CELO2_MLP, k, &w) == QN_OK; k++)
    for (size_t j = 0; j < w.n; j++) values[w.begin + j] = (float)(qn_lopt_draw(&state) * (w.ndim == 2 ? 0.5 : 0.2));
}
