/* SPDX-License-Identifier: Apache-2.0 */
/* velo_reference.h - a step of VeLO over a list, in double, as the contract says it (src/op/velo/README.md); of a
 * tensor's accumulators and factors it takes those of small_fc_lopt's reference, which stand in no step. It shares
 * nothing else with the library but the layout of states and weights. */
#ifndef QN_TESTS_VELO_REFERENCE_H
#define QN_TESTS_VELO_REFERENCE_H
#include "op/lopt/reference.h"
#include <stdlib.h>
#include <string.h>

/* What the optimizer keeps: the loss's means, and a row of h and c for each tensor. */
typedef struct velo_kept {
  double mean[10], least[10], count;
  double *h, *c; /* [n][512] */
} velo_kept;

typedef struct velo_told {
  qn_lopt_step of_tensor; /* decays, lr, mults, decay, step, compat */
  double loss, num_steps;
  const float *mlp, *rnn;
} velo_told;

static inline double within(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

/* ---- the loss ---- */

static inline void reference_loss(velo_kept *s, const velo_told *t, double feature[9])
{
  double d[10], now[10], most = -HUGE_VAL, loss = t->loss;
  const double next = s->count + 1;
  for (int i = 0; i < 10; i++) d[i] = exp(-1 / pow(10, 1 + (log10(t->num_steps) - 1) * i / 9));
  for (int i = 0; i < 10; i++) most = fmax(most, s->mean[i] / (1 - pow(d[i], next)));
  if (s->count == 0) most = loss;
  loss = fmin(2 * fabs(most), loss);
  for (int i = 0; i < 10; i++) {
    s->mean[i] = d[i] * s->mean[i] + (1 - d[i]) * loss;
    now[i] = s->mean[i] / (1 - pow(d[i], next));
    s->least[i] = fmin(s->count == 0 ? 999999999999.0 : s->least[i], now[i]);
  }
  s->count = next;
  for (int i = 0; i < 9; i++)
    feature[i] = s->count <= 2 ? 0 : within((now[i] - s->least[i]) / fmax(1e-8, now[i + 1] - s->least[i]) - 1, -1, 1);
}

/* ---- a tensor as the LSTM sees it ---- */

static inline double seen(double x) { return 0.5 * within(log(1e-8 + fabs(10 * x)), -5, 5); }

static inline double mean_of(const double *x, size_t n)
{
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += x[i];
  return sum / (double)n;
}

static inline void reference_summary(const qn_lopt_seen *r, const velo_told *t, const double loss[9], double x[30])
{
  static const double times[] = {0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.1};
  double squares = 0;
  int rank = 0;
  for (size_t i = 0; i < r->n; i++) squares += r->p[i] * r->p[i] / (double)r->n;
  for (int d = 0; d < r->ndim; d++) rank += r->shape[d] > 1;
  const double k = 1 / sqrt(fmax(squares, 1e-9));
  for (int i = 0; i < 9; i++)
    x[i] = tanh(10 * ((double)t->of_tensor.step / t->num_steps - times[i])), x[9 + i] = loss[i];
  x[18] = seen(k * mean_of(r->v, r->n));
  for (int i = 0; i < 5; i++) x[19 + i] = i == rank;
  for (size_t j = 0; j < 3; j++) {
    const double *m = r->m + j * r->n, mean = k * mean_of(m, r->n);
    double of_m = 0, of_v = 0;
    for (size_t i = 0; i < r->n; i++) {
      of_m += (k * m[i] - mean) * (k * m[i] - mean) / (double)r->n;
      of_v += (k * r->v[i] - mean) * (k * r->v[i] - mean) / (double)r->n;
    }
    x[24 + j] = seen(of_m), x[27 + j] = seen(of_v);
  }
}

/* ---- the LSTM ---- */

/* One output of a layer. */
static inline double output(const float *w, const float *bias, size_t inputs, size_t h, const double *x)
{
  double y = (double)bias[h];
  for (size_t k = 0; k < inputs; k++) y += (double)w[h * inputs + k] * x[k];
  return y;
}

enum { UNITS = 512 };

/* Where the tensors of the rnn's weights begin. */
enum {
  MIX = 0,
  MIX_BIAS = MIX + UNITS * 30,
  FINAL = MIX_BIAS + UNITS,
  FINAL_BIAS = FINAL + UNITS * 30,
  LSTM = FINAL_BIAS + UNITS,
  LSTM_BIAS = LSTM + 2048 * 1024,
  CONTROLS = LSTM_BIAS + 2048,
  CONTROLS_BIAS = CONTROLS + 256 * UNITS,
  STEP_SIZE = CONTROLS_BIAS + 256,
  STEP_SIZE_BIAS = STEP_SIZE + UNITS,
  FIRST_H = STEP_SIZE_BIAS + 1,
  FIRST_C = FIRST_H + UNITS
};

static inline double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* A tensor's new rows of h and c from Z. */
static inline void reference_cell(const float *w, const double *z, double *h, double *c)
{
  double both[2 * UNITS];
  memcpy(both, z, UNITS * sizeof *z);
  memcpy(both + UNITS, h, UNITS * sizeof *h);
  for (size_t j = 0; j < UNITS; j++) {
    double g[4];
    for (size_t k = 0; k < 4; k++) g[k] = output(w + LSTM, w + LSTM_BIAS, 2 * UNITS, k * UNITS + j, both);
    c[j] = sigmoid(g[2] + 1) * c[j] + sigmoid(g[0]) * tanh(g[1]);
    h[j] = sigmoid(g[3]) * tanh(c[j]);
  }
}

/* x: [n][30] of the tensors that have elements; others are left out. */
static inline void reference_lstm(velo_kept *s, const float *w, size_t n, const qn_lopt_seen *r, const double *x)
{
  double most[UNITS] = {0}, z[UNITS];
  for (size_t k = 0; k < n; k++)
    for (size_t j = 0; j < UNITS && r[k].n; j++)
      most[j] = fmax(most[j], output(w + MIX, w + MIX_BIAS, 30, j, x + 30 * k));
  for (size_t k = 0; k < n; k++) {
    if (!r[k].n) continue;
    for (size_t j = 0; j < UNITS; j++) z[j] = output(w + FINAL, w + FINAL_BIAS, 30, j, x + 30 * k) + most[j];
    reference_cell(w, z, s->h + k * UNITS, s->c + k * UNITS);
  }
}

/* ---- a tensor ---- */

static inline void reference_bank(const float *mlp, const double control[256], double mixed[159])
{
  static const size_t size[6] = {120, 4, 16, 4, 12, 3};
  for (size_t t = 0, at = 0; t < 6; at += size[t++]) {
    for (size_t j = 0; j < size[t]; j++) {
      double sum = 0;
      for (size_t k = 0; k < 256; k++) sum += control[k] * (double)mlp[256 * at + k * size[t] + j];
      mixed[at + j] = 100.0 * sum / 256;
    }
  }
}

static inline void velo_inputs(const qn_lopt_seen *r, bool compat, size_t i, double x[30])
{
  const double s = 1 / sqrt(r->v[i] + 1e-6), g = r->g[i];
  x[0] = g, x[1] = within(g, -0.1, 0.1), x[2] = r->p[i], x[6] = r->v[i], x[10] = s, x[14] = g * s;
  for (size_t k = 0; k < 3; k++) {
    const qn_lopt_factor f = qn_lopt_seen_factor(r, k, i);
    const double m = r->m[k * r->n + i], b = r->d0 >= 0 || compat ? f.a : 1 / sqrt(f.row);
    x[3 + k] = m, x[7 + k] = m * s, x[11 + k] = g * f.a, x[15 + k] = f.row, x[18 + k] = f.column;
    x[21 + k] = 1 / sqrt(f.row + 1e-8), x[24 + k] = 1 / sqrt(f.column + 1e-8), x[27 + k] = m * b;
  }
}

static inline void dense(const double *w, const double *bias, int outputs, int inputs, bool relu, const double *x,
                         double *y)
{
  for (int h = 0; h < outputs; h++) {
    y[h] = bias[h];
    for (int k = 0; k < inputs; k++) y[h] += w[h * inputs + k] * x[k];
    if (relu && y[h] < 0) y[h] = 0;
  }
}

static inline void reference_move(qn_lopt_seen *r, const qn_lopt_step *t, const double mixed[159], double lr_mult,
                                  const double *x)
{
  double squares = 0;
  for (size_t i = 0; i < r->n; i++) squares += r->p[i] * r->p[i] / (double)r->n;
  const double size = sqrt(squares + 1e-9);
  for (size_t i = 0; i < r->n; i++) {
    double one[4], two[4], out[3];
    dense(mixed, mixed + 120, 4, 30, true, x + 30 * i, one);
    dense(mixed + 124, mixed + 140, 4, 4, true, one, two);
    dense(mixed + 144, mixed + 156, 3, 4, false, two, out);
    r->p[i] -= t->lr * (lr_mult * size * out[0] * exp(out[1] * t->exp_mult) * t->step_mult);
    r->p[i] -= t->weight_decay * t->lr * (t->compat ? lr_mult : 1) * r->p[i];
  }
}

static inline void reference_velo_tensor(qn_lopt_seen *r, const qn_lopt_step *t, const float *grad,
                                         const double mixed[159], double lr_mult)
{
  double *x = malloc(r->n * 30 * sizeof *x), squares[30] = {0};
  qn_lopt_step plain = *t;
  plain.compat = false; /* its other departures are small_fc's */
  for (size_t i = 0; i < r->n; i++) r->g[i] = within((double)grad[i], -1000, 1000);
  qn_lopt_seen_states(r, &plain);
  for (size_t i = 0; i < r->n; i++) {
    velo_inputs(r, t->compat, i, x + 30 * i);
    for (size_t k = 0; k < 30; k++) squares[k] += x[30 * i + k] * x[30 * i + k];
  }
  for (size_t i = 0; i < r->n; i++)
    for (size_t k = 0; k < 30; k++) x[30 * i + k] /= sqrt(1e-5 + squares[k] / (double)r->n);
  reference_move(r, t, mixed, lr_mult, x);
  free(x);
}

/* One step of all; lr_scale one a tensor. */
static inline void reference_velo(velo_kept *s, const velo_told *t, size_t n, qn_lopt_seen *r, const float *const *grad,
                                  const double *lr_scale)
{
  double loss[9], *x = calloc(n * 30 + 1, sizeof *x);
  reference_loss(s, t, loss);
  for (size_t k = 0; k < n; k++)
    if (r[k].n) reference_summary(&r[k], t, loss, x + 30 * k);
  reference_lstm(s, t->rnn, n, r, x);
  for (size_t k = 0; k < n; k++) {
    double control[256], mixed[159];
    qn_lopt_step of_tensor = t->of_tensor;
    if (!r[k].n) continue;
    of_tensor.lr *= lr_scale[k];
    for (size_t j = 0; j < 256; j++)
      control[j] = output(t->rnn + CONTROLS, t->rnn + CONTROLS_BIAS, UNITS, j, s->h + k * UNITS);
    reference_bank(t->mlp, control, mixed);
    reference_velo_tensor(&r[k], &of_tensor, grad[k], mixed,
                          output(t->rnn + STEP_SIZE, t->rnn + STEP_SIZE_BIAS, UNITS, 0, s->h + k * UNITS));
  }
  free(x);
}
#endif
