/* SPDX-License-Identifier: Apache-2.0 */
/* reference.c - see reference.h. */
#include "op/velo/reference.h"
#include "base/most.h"
#include "core/core.h"
#include "op/lopt/reference.h"
#include <math.h>
#include <string.h>

enum { UNITS = QN_VELO_UNITS, BANKS = QN_VELO_BANKS, BANK = QN_VELO_BANK, INPUTS = QN_VELO_INPUTS, LOSSES = 10 };

static double within(double x, double low, double high) { return qn_double_most(low, qn_double_least(high, x)); }

/* ---- the loss ---- */

static void take_loss(double loss, double num_steps, double *buffer, double feature[LOSSES - 1])
{
  double d[LOSSES], now[LOSSES], most = -HUGE_VAL;
  double *mean = buffer + QN_VELO_LOSS_MEANS, *least = buffer + QN_VELO_LOSS_LEAST;
  const double count = buffer[QN_VELO_LOSS_COUNT], next = count + 1;
  for (int i = 0; i < LOSSES; i++) d[i] = exp(-1 / pow(10, 1 + (log10(num_steps) - 1) * i / 9));
  for (int i = 0; i < LOSSES; i++) most = qn_double_most(most, mean[i] / (1 - pow(d[i], next)));
  loss = qn_double_least(2 * fabs(count == 0 ? loss : most), loss);
  for (int i = 0; i < LOSSES; i++) {
    mean[i] = d[i] * mean[i] + (1 - d[i]) * loss;
    now[i] = mean[i] / (1 - pow(d[i], next));
    least[i] = qn_double_least(count == 0 ? 999999999999.0 : least[i], now[i]);
  }
  buffer[QN_VELO_LOSS_COUNT] = next;
  for (int i = 0; i < LOSSES - 1; i++)
    feature[i] = next <= 2 ? 0 : within((now[i] - least[i]) / qn_double_most(1e-8, now[i + 1] - least[i]) - 1, -1, 1);
}

/* ---- a tensor as the LSTM sees it ---- */

static double shown(double x) { return 0.5 * within(log(1e-8 + fabs(10 * x)), -5, 5); }

static double mean_of(const double *x, size_t n)
{
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += x[i];
  return sum / (double)n;
}

static double mean_square(const double *x, size_t n, double scale, double centre)
{
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += (scale * x[i] - centre) * (scale * x[i] - centre);
  return sum / (double)n;
}

static void summarize(const qn_lopt_seen *r, double done, const double loss[LOSSES - 1], double x[INPUTS])
{
  static const double times[] = {0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.1};
  const double k = 1 / sqrt(qn_double_most(mean_square(r->p, r->n, 1, 0), 1e-9));
  int rank = 0;
  for (int d = 0; d < r->ndim; d++) rank += r->shape[d] > 1;
  for (int i = 0; i < 9; i++) x[i] = tanh(10 * (done - times[i])), x[9 + i] = loss[i];
  x[18] = shown(k * mean_of(r->v, r->n));
  for (int i = 0; i < 5; i++) x[19 + i] = i == rank;
  for (size_t j = 0; j < 3; j++) {
    const double *m = r->m + j * r->n, mean = k * mean_of(m, r->n);
    x[24 + j] = shown(mean_square(m, r->n, k, mean)), x[27 + j] = shown(mean_square(r->v, r->n, k, mean));
  }
}

/* ---- the LSTM ---- */

/* One output of a layer. */
static double output(const float *w, const float *bias, size_t inputs, size_t h, const double *x)
{
  double y = (double)bias[h];
  for (size_t k = 0; k < inputs; k++) y += (double)w[h * inputs + k] * x[k];
  return y;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* A tensor's new rows of h and c from Z. */
static void step_cell(const float *w, const double *z, double *h, double *c)
{
  double both[2 * UNITS];
  memcpy(both, z, UNITS * sizeof *z);
  memcpy(both + UNITS, h, UNITS * sizeof *h);
  for (size_t j = 0; j < UNITS; j++) {
    double g[4];
    for (size_t k = 0; k < 4; k++)
      g[k] = output(w + QN_VELO_LSTM_W, w + QN_VELO_LSTM_B, 2 * UNITS, k * UNITS + j, both);
    c[j] = sigmoid(g[2] + 1) * c[j] + sigmoid(g[0]) * tanh(g[1]);
    h[j] = sigmoid(g[3]) * tanh(c[j]);
  }
}

/* x: [n][30] of the tensors that have elements; others are left out. */
static void step_lstm(const float *w, size_t n, const qn_lopt_seen *r, const double *x, double *h, double *c)
{
  double most[UNITS] = {0}, z[UNITS];
  for (size_t k = 0; k < n; k++)
    for (size_t j = 0; j < UNITS && r[k].n; j++)
      most[j] = qn_double_most(most[j], output(w + QN_VELO_MIX_W, w + QN_VELO_MIX_B, INPUTS, j, x + INPUTS * k));
  for (size_t k = 0; k < n; k++) {
    for (size_t j = 0; j < UNITS && r[k].n; j++)
      z[j] = output(w + QN_VELO_FINAL_W, w + QN_VELO_FINAL_B, INPUTS, j, x + INPUTS * k) + most[j];
    if (r[k].n) step_cell(w, z, h + k * UNITS, c + k * UNITS);
  }
}

/* ---- a tensor ---- */

static void mix_banks(const float *mlp, const double control[BANKS], double mixed[BANK])
{
  static const size_t size[6] = {120, 4, 16, 4, 12, 3};
  for (size_t t = 0, at = 0; t < 6; at += size[t++])
    for (size_t j = 0; j < size[t]; j++) {
      double sum = 0;
      for (size_t k = 0; k < BANKS; k++) sum += control[k] * (double)mlp[BANKS * at + k * size[t] + j];
      mixed[at + j] = 100.0 * sum / BANKS;
    }
}

static void set_inputs(const qn_lopt_seen *r, bool compat, size_t i, double x[INPUTS])
{
  const double s = 1 / sqrt(r->v[i] + 1e-6), g = r->g[i];
  x[0] = g, x[1] = within(g, -0.1, 0.1), x[2] = r->p[i], x[6] = r->v[i], x[10] = s, x[14] = g * s;
  for (size_t k = 0; k < 3; k++) {
    const qn_lopt_element_states f = qn_lopt_seen_factor(r, k, i);
    const double m = r->m[k * r->n + i], b = r->d0 >= 0 || compat ? f.a : 1 / sqrt(f.row);
    x[3 + k] = m, x[7 + k] = m * s, x[11 + k] = g * f.a, x[15 + k] = f.row, x[18 + k] = f.column;
    x[21 + k] = 1 / sqrt(f.row + 1e-8), x[24 + k] = 1 / sqrt(f.column + 1e-8), x[27 + k] = m * b;
  }
}

static void dense(const double *w, int outputs, int inputs, bool relu, const double *x, double *y)
{
  for (int h = 0; h < outputs; h++) {
    y[h] = w[outputs * inputs + h];
    for (int k = 0; k < inputs; k++) y[h] += w[h * inputs + k] * x[k];
    if (relu && y[h] < 0) y[h] = 0;
  }
}

/* The tensor's own network, of the inputs with their scales. */
static void move(qn_lopt_seen *r, const qn_velo_params *told, double lr, const double mixed[BANK], double lr_mult,
                 const double scale[INPUTS])
{
  const double size = sqrt(mean_square(r->p, r->n, 1, 0) + 1e-9), rate = lr * lr_mult * size * told->step_mult;
  const double decay = told->weight_decay * lr * (told->pylo_cuda_compat ? lr_mult : 1);
  for (size_t i = 0; i < r->n; i++) {
    double x[INPUTS], one[4], two[4], out[3];
    set_inputs(r, told->pylo_cuda_compat, i, x);
    for (size_t k = 0; k < INPUTS; k++) x[k] *= scale[k];
    dense(mixed, 4, INPUTS, true, x, one);
    dense(mixed + 124, 4, 4, true, one, two);
    dense(mixed + 144, 3, 4, false, two, out);
    r->p[i] -= rate * out[0] * exp(out[1] * told->exp_mult);
    r->p[i] -= decay * r->p[i];
  }
}

static void step_tensor(qn_lopt_seen *r, const qn_velo_params *told, double lr, const double *grad,
                        const double mixed[BANK], double lr_mult)
{
  double x[INPUTS], scale[INPUTS] = {0};
  const qn_lopt_step step = {.m = {told->m_decay0, told->m_decay1, told->m_decay2},
                             .v = told->v_decay,
                             .f = {told->factor_decay0, told->factor_decay1, told->factor_decay2}};
  for (size_t i = 0; i < r->n; i++) r->g[i] = within(grad[i], -1000, 1000);
  qn_lopt_seen_states(r, &step);
  for (size_t i = 0; i < r->n; i++) {
    set_inputs(r, told->pylo_cuda_compat, i, x);
    for (size_t k = 0; k < INPUTS; k++) scale[k] += x[k] * x[k];
  }
  for (size_t k = 0; k < INPUTS; k++) scale[k] = 1 / sqrt(1e-5 + scale[k] / (double)r->n);
  move(r, told, lr, mixed, lr_mult, scale);
}

/* Behind the LSTM: tensor by tensor. */
static void step_tensors(const qn_velo_params *told, size_t n, qn_lopt_seen *r, double *const *grad, const double *h)
{
  for (size_t k = 0; k < n; k++, h += UNITS) {
    double control[BANKS], mixed[BANK];
    if (!r[k].n) continue;
    for (size_t j = 0; j < BANKS; j++)
      control[j] = output(told->rnn + QN_VELO_CONTROL_W, told->rnn + QN_VELO_CONTROL_B, UNITS, j, h);
    mix_banks(told->mlp, control, mixed);
    step_tensor(&r[k], told, told->lr * (told->lr_scale ? told->lr_scale[k] : 1), grad[k], mixed,
                output(told->rnn + QN_VELO_STEP_W, told->rnn + QN_VELO_STEP_B, UNITS, 0, h));
  }
}

static void step_list(const qn_velo_params *told, size_t n, qn_lopt_seen *r, double *x,
                      double *const *const data[QN_MAX_TENSORS])
{
  double losses[LOSSES - 1], *h = data[QN_VELO_ROLE_HIDDEN][0];
  take_loss(data[QN_VELO_ROLE_LOSS][0][0], (double)told->num_steps, data[QN_VELO_ROLE_BUFFER][0], losses);
  for (size_t k = 0; k < n; k++)
    if (r[k].n) summarize(&r[k], (double)told->step / (double)told->num_steps, losses, x + INPUTS * k);
  step_lstm(told->rnn, n, r, x, h, data[QN_VELO_ROLE_CELL][0]);
  step_tensors(told, n, r, data[QN_LOPT_GRAD], h);
}

qn_status qn_velo_reference(const void *params, size_t n, const qn_tensor *const *tensors,
                            double *const *const data[QN_MAX_TENSORS])
{
  const qn_velo_params *told = params;
  qn_lopt_seen *r;
  double *x;
  size_t elements = 0;
  qn_try(qn_try_allocate(&r, (n + 1) * sizeof *r, "the reference"));
  memset(r, 0, (n + 1) * sizeof *r);
  qn_status status = qn_try_allocate(&x, (INPUTS * n + 1) * sizeof *x, "the reference");
  for (size_t k = 0; k < n && status == QN_OK; k++) {
    const qn_tensor *p = &tensors[QN_LOPT_PARAM][k];
    r[k] = (qn_lopt_seen){.p = data[QN_LOPT_PARAM][k],
                          .m = data[QN_LOPT_M][k],
                          .v = data[QN_LOPT_V][k],
                          .row = data[QN_LOPT_ROW][k],
                          .column = data[QN_LOPT_COLUMN][k]};
    status = qn_lopt_see(&r[k], qn_lopt_velo[told->ties].ties, p->ndim, p->shape);
    elements += r[k].n;
  }
  if (status == QN_OK && elements && isfinite(data[QN_VELO_ROLE_LOSS][0][0]))
    step_list(params, n, r, x, data);
  else if (status == QN_OK && elements)
    data[QN_VELO_ROLE_BUFFER][0][QN_VELO_LOSS_SKIPPED]++;
  for (size_t k = 0; k < n; k++) qn_release(r[k].g);
  qn_release(r);
  qn_release(x);
  return status;
}

double qn_velo_allowed(size_t role, double want, double before, double size, double moved)
{
  if (role < QN_LOPT_ROLES) return qn_lopt_allowed(role, want, before, size, moved);
  return role == QN_VELO_ROLE_BUFFER ? 1e-10 * (fabs(want) + fabs(before)) : 1e-6 * qn_double_most(1, fabs(want));
}

/* ---- made ones ---- */

/* The file has mix_layer1 too, which is drawn before the others and not kept. */
void qn_velo_make(const qn_op_param *param, float *values)
{
  static const double scale[] = {0.2, 0.3, 0.2, 0.3, 0.05, 0.3, 0.2, 0.3, 0.2, 0.3, 0.1, 0.1};
  const bool is_rnn = !strcmp(param->name, "rnn");
  uint64_t state = is_rnn ? 31 : 32;
  qn_lopt_weight w;
  for (size_t k = 0; k < UNITS * (INPUTS + 1) && is_rnn; k++) qn_lopt_draw(&state);
  for (size_t k = 0; qn_lopt_weight_at(is_rnn ? QN_LOPT_VELO_RNN : QN_LOPT_VELO_MLP, k, &w) == QN_OK; k++)
    for (size_t j = 0; j < w.n; j++) values[w.begin + j] = (float)(qn_lopt_draw(&state) * (is_rnn ? scale[k] : 1));
}

/* In the middle the rows differ from tensor to tensor, and there have been some losses. */
void qn_velo_begin(const void *params, size_t role, bool middle, const int64_t *shape, double *values)
{
  const qn_velo_params *told = params;
  const float *first = told->rnn + QN_VELO_STEP_B + 1 + (role == QN_VELO_ROLE_CELL ? UNITS : 0);
  uint64_t state = 7;
  for (size_t k = 0; k < (size_t)shape[0] && role != QN_VELO_ROLE_BUFFER; k++)
    for (size_t j = 0; j < UNITS; j++)
      values[k * UNITS + j] = (double)(float)((double)first[j] + (middle ? 0.5 * qn_lopt_draw(&state) : 0));
  for (size_t j = 0; j < QN_VELO_LOSS_BUFFER && role == QN_VELO_ROLE_BUFFER; j++)
    values[j] = !middle                   ? 0
                : j < QN_VELO_LOSS_LEAST  ? 2 + qn_lopt_draw(&state) / 2
                : j < QN_VELO_LOSS_COUNT  ? 1.5 + qn_lopt_draw(&state) / 2
                : j == QN_VELO_LOSS_COUNT ? 40
                                          : 2;
}
