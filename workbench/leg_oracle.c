/* SPDX-License-Identifier: Apache-2.0 */
/* leg_oracle.c - leg 2: the reference against the same formula in double. The error is told in units of 2^-24 times the
 * sum of the magnitudes of the terms, never in the result's own last places, which mean nothing where terms cancel.
 * That sum is measured: each input is moved by STIR units, and what the oracle's result does then, divided by them, is
 * |x df/dx|; a jump (a sign that turns) shows as a move far beyond that. Such elements are counted and bounded, not
 * left out: their own jump is what they may differ by. */
#include "workbench/check.h"
#include "core/core.h"
#include "workbench/run.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double UNIT = 0x1p-24, STIR = 4;
static const double SMALLEST = 0x1p-149; /* f32's step near zero: products round there by that much */
static const double TINY = 0x1p-72;      /* below, a product with a coefficient may vanish in f32 and not in double */

/* One tensor, by role, in double. */
typedef struct oracle {
  const qn_op *op;
  qn_cpu_call call;
  unsigned char coef[QN_COEF_BYTES];
  size_t n;
  double *in[QN_MAX_TENSORS], *out[QN_MAX_TENSORS], *stirred[QN_MAX_TENSORS], *scale[QN_MAX_TENSORS];
  double *jump[QN_MAX_TENSORS];
  int64_t tally[2];
} oracle;

typedef struct score {
  double worst;
  uint64_t uncertain, compared;
} score;

static void free_oracle(oracle *o)
{
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) {
    qn_release(o->in[r]);
    qn_release(o->out[r]);
    qn_release(o->stirred[r]);
    qn_release(o->scale[r]);
    qn_release(o->jump[r]);
  }
}

static qn_status make_arrays(oracle *o, const qn_buffers *b, size_t tensor)
{
  o->n = (size_t)b->elements[tensor];
  size_t bytes = (o->n + 1) * sizeof(double);
  for (size_t r = 0; r < o->op->info.n_tensors; r++) {
    if (b->role[r].access == QN_ABSENT) continue;
    qn_try(qn_try_allocate(&o->in[r], bytes, "the oracle"));
    qn_try(qn_try_allocate(&o->out[r], bytes, "the oracle"));
    qn_try(qn_try_allocate(&o->stirred[r], bytes, "the oracle"));
    qn_try(qn_try_allocate(&o->scale[r], bytes, "the oracle"));
    qn_try(qn_try_allocate(&o->jump[r], bytes, "the oracle"));
    for (size_t i = 0; i < o->n; i++)
      o->in[r][i] =
          b->role[r].access & QN_READ ? qn_number_load(b->role[r].dtype, qn_buffers_before(b, r, tensor, i)) : NAN;
  }
  return QN_OK;
}

/* The oracle on `in`, with input role `moved` moved by `sign` STIR units, or, sign 0, its tiny numbers zero (moved >=
 * n_tensors: nothing is moved); results in `to`. */
static void evaluate(const oracle *o, size_t moved, double sign, double *const *to)
{
  qn_piece piece = {.n = o->n};
  for (size_t r = 0; r < o->op->info.n_tensors; r++) {
    if (!o->in[r]) continue;
    memcpy(to[r], o->in[r], o->n * sizeof(double));
    for (size_t i = 0; i < o->n && r == moved; i++)
      to[r][i] = sign == 0 && fabs(to[r][i]) < TINY ? 0 : to[r][i] * (1 + sign * STIR * UNIT);
    piece.data[r] = to[r];
  }
  if (o->n) o->op->cpu[QN_TIER_ORACLE](&o->call, &piece);
}

static void measure_scale(oracle *o, const qn_buffers *b)
{
  size_t roles = o->op->info.n_tensors;
  evaluate(o, roles, 0, o->out);
  for (size_t r = 0; r < roles; r++)
    for (size_t i = 0; i < o->n && o->in[r]; i++) {
      o->scale[r][i] = fabs(o->out[r][i]);
      o->jump[r][i] = 0;
    }
  for (size_t moved = 0; moved < roles; moved++) {
    if (!(b->role[moved].access & QN_READ)) continue;
    for (int sign = -1; sign <= 1; sign++) {
      evaluate(o, moved, sign, o->stirred);
      for (size_t r = 0; r < roles; r++)
        for (size_t i = 0; i < o->n && o->in[r]; i++) {
          double change = fabs(o->stirred[r][i] - o->out[r][i]);
          if (!isfinite(change)) continue;
          if (sign) o->scale[r][i] += change / (2 * STIR * UNIT); /* half of it from each direction */
          o->jump[r][i] = fmax(o->jump[r][i], change);
        }
    }
  }
}

/* What storing may add: half a step to nearest, a step by chance; nothing for f32, whose rounding is among the units.
 */
static double storage_error(const oracle *o, qn_dtype dtype, double value)
{
  if (qn_dtype_bytes(dtype) != 2) return 0;
  return qn_number_step(dtype, value) * (o->call.flags & o->op->random_flags ? 1 : 0.5);
}

static double largest(qn_dtype dtype) { return dtype == QN_F16 ? 65504 : dtype == QN_BF16 ? 0x1.fep127 : FLT_MAX; }

/* Units by which `got` misses the oracle beyond `allowed`; INFINITY: another class of number. */
static double miss(const oracle *o, qn_dtype dtype, double got, double want, double scale, double allowed)
{
  if (isnan(got) || isnan(want)) return isnan(got) && isnan(want) ? 0 : INFINITY;
  if (isinf(got) || isinf(want)) {
    if (isinf(want)) return got == want ? 0 : INFINITY;
    return fabs(want) + allowed + o->op->info.oracle_units * UNIT * scale >= largest(dtype) && (got > 0) == (want > 0)
               ? 0
               : INFINITY;
  }
  double error = fabs(got - want) - allowed;
  return error <= 0 ? 0 : error / (UNIT * scale);
}

static void compare(qn_trial *trial, long number, const oracle *o, const qn_buffers *b, size_t tensor,
                    const char *setting, score *s)
{
  for (size_t r = 0; r < o->op->info.n_tensors; r++) {
    if (!(b->role[r].access & QN_WRITE)) continue;
    qn_dtype dtype = b->role[r].dtype;
    for (size_t i = 0; i < o->n; i++) {
      double want = o->out[r][i], got = qn_number_load(dtype, qn_buffers_at(b, r, tensor, i));
      bool uncertain = o->jump[r][i] > 256 * STIR * UNIT * fabs(want);
      double allowed = storage_error(o, dtype, fmax(fabs(want), fabs(got))) + o->op->info.oracle_units * SMALLEST;
      double units = miss(o, dtype, got, want, o->scale[r][i], allowed + (uncertain ? o->jump[r][i] : 0));
      s->uncertain += uncertain;
      s->compared++;
      if (!uncertain) s->worst = fmax(s->worst, units);
      if (units <= o->op->info.oracle_units) continue;
      char text[1024];
      snprintf(text, sizeof text,
               "case %ld: %s\noff by %.3g units of 2^-24 times %.3g, allowed are %g; the oracle gives %.17g", number,
               setting, units, o->scale[r][i], o->op->info.oracle_units, want);
      qn_difference d = {QN_FAULT_VALUE, r, tensor, i, 0};
      qn_trial_differ(trial, number, text, b, NULL, &d);
    }
  }
}

/* Where a reduction comes first, the reference's tally is what the oracle's last phase reads; the oracle's own must be
 * near: only where a sign is within rounding can they count differently. */
static void count(qn_trial *trial, long number, oracle *o, const qn_buffers *b, size_t tensor, int phases)
{
  uint64_t reference[2] = {0}, own[2] = {0};
  qn_piece piece = {.n = o->n, .tally = reference}, wide = {.n = o->n, .tally = own};
  for (size_t r = 0; r < o->op->info.n_tensors; r++) {
    if (!o->in[r]) continue;
    piece.data[r] = qn_buffers_before(b, r, tensor, 0);
    wide.data[r] = o->in[r];
  }
  for (o->call.phase = 0; o->call.phase < phases - 1 && o->n; o->call.phase++) {
    o->op->cpu[QN_TIER_REF](&o->call, &piece);
    o->op->cpu[QN_TIER_ORACLE](&o->call, &wide);
  }
  for (int k = 0; k < 2; k++) {
    o->tally[k] = (int64_t)reference[k];
    if (llabs((long long)(reference[k] - own[k])) > (long long)(2 + o->n / 50))
      qn_trial_fail(trial, number, "counter %d of %zu elements is %llu for the reference and %llu for the oracle", k,
                    o->n, (unsigned long long)reference[k], (unsigned long long)own[k]);
  }
  const int64_t *tally = o->tally;
  memcpy(o->coef + o->op->tally_offset - 1, &tally, sizeof tally);
}

static qn_status check_tensor(qn_trial *trial, long number, const void *params, qn_buffers *b, size_t tensor,
                              const char *setting, score *s)
{
  const qn_op *op = trial->item->target.op;
  oracle o = {.op = op, .call = {.row = b->row, .flags = op->flags ? op->flags(params, b->row) : 0}};
  int phases = op->phases ? op->phases(params) : 1;
  o.call.coef = o.coef;
  op->coefficients(params, o.coef);
  qn_status status = make_arrays(&o, b, tensor);
  if (status == QN_OK) {
    if (phases > 1) count(trial, number, &o, b, tensor, phases);
    o.call.phase = phases - 1;
    measure_scale(&o, b);
    compare(trial, number, &o, b, tensor, setting, s);
  }
  free_oracle(&o);
  return status;
}

/* One list of one tensor, because what params point to is then one tensor's. */
static qn_status run_setting(qn_trial *trial, size_t k, const qn_setting *setting, score *s, size_t *refused)
{
  static const size_t elements[] = {4099};
  const qn_item *item = trial->item;
  char text[512];
  qn_buffers *b = NULL;
  qn_runner *runner = NULL;
  qn_setting_text(&item->target.op->info, setting, text, sizeof text);
  qn_status status =
      qn_buffers_create(&b, &item->target.op->info, item->row, item->target.device, NULL, 1, elements, QN_ALIGN_64);
  if (status == QN_OK) status = qn_runner_create(&runner, item->target.op, b, setting, QN_WAY_DIRECT, NULL);
  if (status == QN_OK) {
    qn_buffers_fill(b, qn_mix(trial->options->seed, k), true, false);
    qn_status step = qn_runner_step(runner);
    *refused += step != QN_OK;
    if (step == QN_OK) status = check_tensor(trial, (long)k, qn_runner_params(runner), b, 0, text, s);
  }
  qn_runner_destroy(&runner);
  qn_buffers_destroy(&b);
  return status;
}

void qn_leg_oracle(qn_trial *trial)
{
  const qn_item *item = trial->item;
  score s = {0};
  size_t refused = 0;
  qn_setting *settings = qn_allocate(QN_SETTINGS_MOST * sizeof *settings);
  size_t n = settings ? qn_settings_of(&item->target.op->info, trial->options->level, trial->options->seed, settings,
                                       QN_SETTINGS_MOST)
                      : 0;
  if (!n) qn_trial_fail(trial, -1, "no settings: %s", qn_last_error());
  for (size_t k = 0; k < n; k++)
    if (qn_trial_takes(trial, k) && run_setting(trial, k, &settings[k], &s, &refused) != QN_OK)
      qn_trial_fail(trial, (long)k, "%s", qn_last_error());
  if (trial->only < 0 && refused * 2 > n)
    qn_trial_fail(trial, -1, "%zu of %zu settings were refused: this shows too little", refused, n);
  if (s.uncertain > s.compared / 20)
    qn_trial_fail(trial, -1, "%llu of %llu elements are within rounding of a jump: too many to show anything",
                  (unsigned long long)s.uncertain, (unsigned long long)s.compared);
  qn_trial_note(trial, "%zu cases, %llu elements, worst %.2f of %g units, %llu within rounding of a jump", trial->cases,
                (unsigned long long)s.compared, s.worst, item->target.op->info.oracle_units,
                (unsigned long long)s.uncertain);
  qn_release(settings);
}
