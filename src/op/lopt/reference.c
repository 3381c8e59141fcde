/* SPDX-License-Identifier: Apache-2.0 */
/* reference.c - see reference.h. */
#include "op/lopt/reference.h"
#include "core/core.h"
#include <math.h>
#include <string.h>

static size_t product(int ndim, const int64_t *shape)
{
  size_t n = 1;
  for (int d = 0; d < ndim; d++) n *= (size_t)shape[d];
  return n;
}

/* Element i's place in an array that lacks dimension d. */
static size_t lacking(int ndim, const int64_t *shape, size_t i, int d)
{
  const size_t behind = product(ndim - d - 1, shape + d + 1);
  return i / (behind * (size_t)shape[d]) * behind + i % behind;
}

static size_t row_of(const qn_lopt_seen *t, size_t i) { return t->d0 < 0 ? i : lacking(t->ndim, t->shape, i, t->d0); }
static size_t column_of(const qn_lopt_seen *t, size_t i)
{
  return t->d0 < 0 ? i : lacking(t->ndim, t->shape, i, t->d1);
}

static double root_inverse(double x, double least) { return 1 / sqrt(x < least ? least : x); }

/* As f32 holds it, which has an end: a square or a product may be beyond. */
static double held(double x) { return fabs(x) > 0x1.fffffep127 ? copysign(HUGE_VAL, x) : x; }

static double number(double g) { return isnan(g) ? 0 : fabs(g) > 0x1.fffffep127 ? copysign(0x1.fffffep127, g) : g; }

static void take_gradient(qn_lopt_seen *t, const qn_lopt_step *step, const double *grad)
{
  double norm = 0;
  for (size_t i = 0; i < t->n; i++) {
    t->g[i] = step->gradient == QN_LOPT_NUMBERS ? number(grad[i]) : grad[i];
    norm += held(t->g[i] * t->g[i]);
  }
  const double clip = step->max_grad_norm > 0 ? step->max_grad_norm / (sqrt(norm) + 1e-6) : 1;
  for (size_t i = 0; i < t->n && !(clip >= 1); i++) t->g[i] *= clip;
}

static void accumulate(qn_lopt_seen *t, const qn_lopt_step *s)
{
  memset(t->mean_row, 0, t->n_row * sizeof *t->mean_row);
  memset(t->mean_column, 0, t->n_column * sizeof *t->mean_column);
  for (size_t i = 0; i < t->n; i++) {
    const double g = t->g[i], only = held(g * g), square = only + 1e-30;
    for (size_t k = 0; k < 3; k++) t->m[k * t->n + i] = s->m[k] * t->m[k * t->n + i] + (1 - s->m[k]) * g;
    t->v[i] = s->v * t->v[i] + (1 - s->v) * only;
    t->mean_row[row_of(t, i)] += t->d0 < 0 ? square : square / (double)t->shape[t->d0];
    if (t->d0 >= 0) t->mean_column[column_of(t, i)] += square / (double)t->shape[t->d1];
  }
  for (size_t k = 0; k < 3; k++) {
    for (size_t j = 0; j < t->n_row; j++)
      t->row[k * t->n_row + j] = s->f[k] * t->row[k * t->n_row + j] + (1 - s->f[k]) * t->mean_row[j];
    for (size_t j = 0; j < t->n_column; j++)
      t->column[k * t->n_column + j] = s->f[k] * t->column[k * t->n_column + j] + (1 - s->f[k]) * t->mean_column[j];
  }
}

/* The means of a row's states over d1, at all places of them; rows are grouped by what is left without d1. */
static void set_row_means(qn_lopt_seen *t, const qn_lopt_step *s, size_t k)
{
  const int at = t->d1 > t->d0 ? t->d1 - 1 : t->d1; /* d1 among the row's dimensions */
  const double *row = t->row + k * t->n_row;
  double *sum = t->mean_row, *mean = t->means + k * t->n_row;
  int64_t shape[QN_LOPT_MOST_DIMENSIONS];
  for (int d = 0, to = 0; d < t->ndim; d++)
    if (d != t->d0) shape[to++] = t->shape[d];
  memset(sum, 0, t->n_row * sizeof *sum);
  for (size_t j = 0; j < t->n_row; j++) sum[lacking(t->ndim - 1, shape, j, at)] += row[j];
  for (size_t j = 0; j < t->n_row; j++) {
    mean[j] = sum[lacking(t->ndim - 1, shape, j, at)] / (double)t->shape[t->d1];
    if (s->compat) mean[j] = (t->row[j] + t->row[t->n_row + j] + t->row[2 * t->n_row + j]) / 3;
  }
}

void qn_lopt_seen_states(qn_lopt_seen *t, const qn_lopt_step *step)
{
  accumulate(t, step);
  for (size_t k = 0; k < 3 && t->d0 >= 0; k++) set_row_means(t, step, k);
}

qn_lopt_element_states qn_lopt_seen_factor(const qn_lopt_seen *t, size_t k, size_t i)
{
  const size_t at = row_of(t, i);
  const double row = t->row[k * t->n_row + at];
  if (t->d0 < 0) return (qn_lopt_element_states){row, row, root_inverse(row + 1e-9, 1e-9)};
  const double column = t->column[k * t->n_column + column_of(t, i)];
  const double of_row = root_inverse(row / (t->means[k * t->n_row + at] + 1e-9), 1e-9);
  return (qn_lopt_element_states){row, column, of_row * root_inverse(column, 1e-9)};
}

static void set_inputs(const qn_lopt_seen *t, const qn_lopt_step *step, size_t i, double x[QN_LOPT_INPUTS])
{
  const double s = 1 / sqrt(t->v[i] + 1e-6), g = t->g[i];
  x[0] = g, x[1] = t->p[i], x[5] = t->v[i], x[9] = s;
  for (size_t k = 0; k < 3; k++) {
    const qn_lopt_element_states f = qn_lopt_seen_factor(t, k, i);
    const double m = t->m[k * t->n + i], b = t->d0 >= 0 || step->compat ? f.a : 1 / sqrt(f.row + 1e-6);
    x[2 + k] = m, x[6 + k] = m * s, x[10 + k] = g * f.a, x[13 + k] = f.row, x[16 + k] = f.column;
    x[19 + k] = 1 / sqrt(f.row + 1e-8), x[22 + k] = 1 / sqrt(f.column + 1e-8), x[25 + k] = m * b;
  }
  for (size_t k = 0; k < 28; k++) x[k] = held(x[k]);
}

static void layer(const float *w, int outputs, int inputs, bool relu, const double *x, double *y)
{
  const float *bias = w + outputs * inputs;
  for (int h = 0; h < outputs; h++) {
    y[h] = (double)bias[h];
    for (int k = 0; k < inputs; k++) y[h] += (double)w[h * inputs + k] * x[k];
    if (relu && y[h] < 0) y[h] = 0;
  }
}

static double moved(const qn_lopt_step *s, double lr, double p, const double x[QN_LOPT_INPUTS])
{
  double first[32], second[32], out[2];
  layer(s->weights, 32, 39, true, x, first);
  layer(s->weights + 1280, 32, 32, true, first, second);
  layer(s->weights + 2336, 2, 32, false, second, out);
  const double step = out[0] * exp(out[1] * s->exp_mult);
  if (s->joint_decay) return p - lr * (step + s->weight_decay * p);
  p -= lr * step * s->step_mult;
  return p - s->weight_decay * lr * p;
}

static void update(qn_lopt_seen *t, const qn_lopt_step *s, double lr)
{
  static const double period[11] = {1, 3, 10, 30, 100, 300, 1000, 3000, 10000, 30000, 100000};
  double x[QN_LOPT_INPUTS], squares[28] = {0}, scale[28];
  for (size_t i = 0; i < t->n; i++) {
    set_inputs(t, s, i, x);
    for (size_t k = 0; k < 28; k++) squares[k] += held(x[k] * x[k]);
  }
  for (size_t k = 0; k < 28; k++) scale[k] = 1 / sqrt(1e-5 + squares[k] / (double)t->n);
  for (size_t i = 0; i < t->n; i++) {
    set_inputs(t, s, i, x);
    for (size_t k = 0; k < 28; k++) x[k] *= scale[k];
    for (size_t k = 0; k < 11; k++) x[28 + k] = tanh((double)s->step / period[k] - 1);
    t->p[i] = moved(s, lr, t->p[i], x);
  }
}

qn_status qn_lopt_see(qn_lopt_seen *t, qn_lopt_ties ties, int ndim, const int64_t *shape)
{
  int d[2];
  qn_try(qn_lopt_factored(ties, ndim, shape, d));
  t->ndim = ndim, t->shape = shape, t->d0 = d[0], t->d1 = d[1], t->n = product(ndim, shape);
  t->n_row = d[0] < 0 || !t->n ? t->n : t->n / (size_t)shape[d[0]];
  t->n_column = d[0] < 0 || !t->n ? 0 : t->n / (size_t)shape[d[1]];
  qn_try(qn_try_allocate(&t->g, (t->n + 4 * t->n_row + t->n_column + 1) * sizeof *t->g, "the reference"));
  t->mean_row = t->g + t->n, t->means = t->mean_row + t->n_row, t->mean_column = t->means + 3 * t->n_row;
  return QN_OK;
}

qn_status qn_lopt_reference(const qn_lopt_step *step, size_t n, const qn_tensor *param,
                            double *const *const data[QN_MAX_TENSORS])
{
  for (size_t k = 0; k < n; k++) {
    qn_lopt_seen t = {.p = data[QN_LOPT_PARAM][k],
                      .m = data[QN_LOPT_M][k],
                      .v = data[QN_LOPT_V][k],
                      .row = data[QN_LOPT_ROW][k],
                      .column = data[QN_LOPT_COLUMN][k]};
    qn_try(qn_lopt_see(&t, step->network->ties, param[k].ndim, param[k].shape));
    take_gradient(&t, step, data[QN_LOPT_GRAD][k]);
    qn_lopt_seen_states(&t, step);
    update(&t, step, step->lr * (step->lr_scale ? step->lr_scale[k] : 1));
    qn_release(t.g);
  }
  return QN_OK;
}

double qn_lopt_allowed(size_t role, double want, double before, double size, double moved)
{
  if (role == QN_LOPT_PARAM) return 1e-6 * fmax(1, fabs(want)) + 1e-5 * fmax(moved, fabs(want - before));
  return 3e-7 * (fabs(want) + fabs(before) + size) + 1e-36; /* a mean may be small where its terms are not */
}

double qn_lopt_draw(uint64_t *state)
{
  uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return (double)((z ^ z >> 31) >> 40) / 0x1p23 - 1;
}

void qn_lopt_make_small_fc(const qn_op_param *param, float *values)
{
  uint64_t state = 11;
  qn_lopt_weight w;
  (void)param;
  for (size_t k = 0; qn_lopt_weight_at(QN_LOPT_SMALL_FC, k, &w) == QN_OK; k++)
    for (size_t j = 0; j < w.n; j++) values[w.begin + j] = (float)(qn_lopt_draw(&state) * (w.ndim == 2 ? 0.3 : 0.1));
}
