/* SPDX-License-Identifier: Apache-2.0 */
/* lopt_reference.h - a step of small_fc_lopt and elo on one tensor, in double, element by element, as the contract says
 * it (src/op/small_fc_lopt/README.md); it shares nothing with the library but the layout of states and weights. */
#ifndef QN_TESTS_LOPT_REFERENCE_H
#define QN_TESTS_LOPT_REFERENCE_H
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct reference {
  int ndim, d0, d1; /* -1: not factored */
  int64_t shape[5];
  size_t n, n_row, n_column;
  double *p, *m, *v, *row, *column; /* m, row and column by decay first */
} reference;

/* What a step is told. */
typedef struct told {
  bool elo, compat;
  double lr, step_mult, exp_mult, weight_decay, max_grad_norm, m[3], v, f[3];
  uint64_t step;
  const float *weights;
} told;

static inline size_t product(int ndim, const int64_t *shape)
{
  size_t n = 1;
  for (int d = 0; d < ndim; d++) n *= (size_t)shape[d];
  return n;
}

/* Element i's place in an array that lacks dimension d. */
static inline size_t lacking(const reference *r, size_t i, int d)
{
  const size_t behind = product(r->ndim - d - 1, r->shape + d + 1);
  return i / (behind * (size_t)r->shape[d]) * behind + i % behind;
}

static inline double root_inverse(double x, double least) { return 1 / sqrt(x < least ? least : x); }

static inline double number(double g)
{
  return isnan(g) ? 0 : fabs(g) > 0x1.fffffep127 ? copysign(0x1.fffffep127, g) : g;
}

static inline void accumulate(reference *r, const told *t, const double *g)
{
  double *mean_row = calloc(r->n_row, sizeof(double)), *mean_column = calloc(r->n_column + 1, sizeof(double));
  for (size_t i = 0; i < r->n; i++) {
    for (size_t k = 0; k < 3; k++) r->m[k * r->n + i] = t->m[k] * r->m[k * r->n + i] + (1 - t->m[k]) * g[i];
    r->v[i] = t->v * r->v[i] + (1 - t->v) * g[i] * g[i];
    if (r->d0 < 0) mean_row[i] = g[i] * g[i] + 1e-30;
    if (r->d0 < 0) continue;
    mean_row[lacking(r, i, r->d0)] += (g[i] * g[i] + 1e-30) / (double)r->shape[r->d0];
    mean_column[lacking(r, i, r->d1)] += (g[i] * g[i] + 1e-30) / (double)r->shape[r->d1];
  }
  for (size_t k = 0; k < 3; k++) {
    for (size_t j = 0; j < r->n_row; j++)
      r->row[k * r->n_row + j] = t->f[k] * r->row[k * r->n_row + j] + (1 - t->f[k]) * mean_row[j];
    for (size_t j = 0; j < r->n_column; j++)
      r->column[k * r->n_column + j] = t->f[k] * r->column[k * r->n_column + j] + (1 - t->f[k]) * mean_column[j];
  }
  free(mean_row), free(mean_column);
}

/* The mean of the row's states over d1, at all places of them; rows are grouped by what is left without d1. */
static inline double *row_means(const reference *r, const told *t, size_t k)
{
  double *mean = calloc(r->n_row, sizeof(double)), *sum = calloc(r->n_row, sizeof(double));
  const int at = r->d1 > r->d0 ? r->d1 - 1 : r->d1; /* d1 among the row's dimensions */
  reference row = {.ndim = r->ndim - 1};
  for (int d = 0, to = 0; d < r->ndim; d++)
    if (d != r->d0) row.shape[to++] = r->shape[d];
  for (size_t j = 0; j < r->n_row; j++) sum[lacking(&row, j, at)] += r->row[k * r->n_row + j];
  for (size_t j = 0; j < r->n_row; j++) {
    mean[j] = sum[lacking(&row, j, at)] / (double)r->shape[r->d1];
    if (t->compat) mean[j] = (r->row[j] + r->row[r->n_row + j] + r->row[2 * r->n_row + j]) / 3;
  }
  free(sum);
  return mean;
}

static inline void set_inputs(const reference *r, const told *t, const double *g, double *const mean[3], size_t i,
                              double *x)
{
  const double s = 1 / sqrt(r->v[i] + 1e-6);
  x[0] = g[i], x[1] = r->p[i], x[5] = r->v[i], x[9] = s;
  for (size_t k = 0; k < 3; k++) {
    const size_t row = r->d0 < 0 ? i : lacking(r, i, r->d0), column = r->d0 < 0 ? i : lacking(r, i, r->d1);
    const double of_row = r->row[k * r->n_row + row], m = r->m[k * r->n + i];
    const double of_column = r->d0 < 0 ? of_row : r->column[k * r->n_column + column];
    double a, b;
    if (r->d0 < 0) {
      a = root_inverse(of_row + 1e-9, 1e-9);
      b = t->compat ? a : 1 / sqrt(of_row + 1e-6);
    } else
      a = b = root_inverse(of_row / (mean[k][row] + 1e-9), 1e-9) * root_inverse(of_column, 1e-9);
    x[2 + k] = m, x[6 + k] = m * s, x[10 + k] = g[i] * a, x[13 + k] = of_row, x[16 + k] = of_column;
    x[19 + k] = 1 / sqrt(of_row + 1e-8), x[22 + k] = 1 / sqrt(of_column + 1e-8), x[25 + k] = m * b;
  }
}

static inline void layer(const float *w, int outputs, int inputs, bool relu, const double *x, double *y)
{
  const float *bias = w + outputs * inputs;
  for (int h = 0; h < outputs; h++) {
    y[h] = (double)bias[h];
    for (int k = 0; k < inputs; k++) y[h] += (double)w[h * inputs + k] * x[k];
    if (relu && y[h] < 0) y[h] = 0;
  }
}

static inline double moved(const told *t, double p, const double *x)
{
  double first[32], second[32], out[2];
  layer(t->weights, 32, 39, true, x, first);
  layer(t->weights + 1280, 32, 32, true, first, second);
  layer(t->weights + 2336, 2, 32, false, second, out);
  const double step = out[0] * exp(out[1] * t->exp_mult);
  if (t->elo) return p - t->lr * (step + t->weight_decay * p);
  p -= t->lr * step * t->step_mult;
  return p - t->weight_decay * t->lr * p;
}

static inline void reference_step(reference *r, const told *t, const float *grad)
{
  static const double period[11] = {1, 3, 10, 30, 100, 300, 1000, 3000, 10000, 30000, 100000};
  double *g = malloc(r->n * sizeof *g), *x = malloc(r->n * 39 * sizeof *x), *mean[3] = {NULL}, norm = 0;
  double squares[28] = {0};
  for (size_t i = 0; i < r->n; i++) g[i] = t->elo ? number((double)grad[i]) : (double)grad[i], norm += g[i] * g[i];
  const double clip = t->max_grad_norm > 0 ? t->max_grad_norm / (sqrt(norm) + 1e-6) : 1;
  for (size_t i = 0; i < r->n && clip < 1; i++) g[i] *= clip;
  accumulate(r, t, g);
  for (size_t k = 0; k < 3 && r->d0 >= 0; k++) mean[k] = row_means(r, t, k);
  for (size_t i = 0; i < r->n; i++) {
    set_inputs(r, t, g, mean, i, x + 39 * i);
    for (size_t k = 0; k < 28; k++) squares[k] += x[39 * i + k] * x[39 * i + k];
  }
  for (size_t i = 0; i < r->n; i++) {
    for (size_t k = 0; k < 28; k++) x[39 * i + k] /= sqrt(1e-5 + squares[k] / (double)r->n);
    for (size_t k = 0; k < 11; k++) x[39 * i + 28 + k] = tanh((double)t->step / period[k] - 1);
    r->p[i] = moved(t, r->p[i], x + 39 * i);
  }
  for (size_t k = 0; k < 3; k++) free(mean[k]);
  free(g), free(x);
}
#endif
