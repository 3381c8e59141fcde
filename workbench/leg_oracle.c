/* SPDX-License-Identifier: Apache-2.0 */
/* leg_oracle.c - leg 2: the reference against the same formula in double (oracle.h says in what units). Elements within
 * rounding of a jump are counted and bounded. */
#include "workbench/check.h"
#include "core/core.h"
#include "workbench/oracle.h"
#include <math.h>
#include <stdlib.h>

typedef struct score {
  double worst;
  uint64_t uncertain, compared;
} score;

static void compare(qn_trial *trial, long number, const qn_oracle *o, const char *setting, score *s)
{
  const double units = o->op->info.oracle_units;
  const int roundings = o->op->info.oracle_roundings ? o->op->info.oracle_roundings : 1;
  for (size_t r = 0; r < o->op->info.n_tensors; r++) {
    const qn_subject *d = o->subject;
    if (!(d->role[r].access & QN_WRITE)) continue;
    for (size_t i = 0; i < o->n; i++) {
      double got = qn_subject_number(d, d->role[r].after, r, o->tensor, i), rounded = 0;
      double miss = qn_oracle_miss(o, r, i, got, NULL, units, roundings);
      bool uncertain = qn_oracle_uncertain(o, r, i);
      s->uncertain += uncertain;
      s->compared++;
      if (!uncertain) s->worst = fmax(s->worst, miss);
      if (miss <= units) continue;
      char wrong[QN_SUBJECT_WRONG];
      qn_number_store(d->role[r].dtype, &rounded, o->out[r][i]);
      qn_subject_tell(d, d, r, o->tensor, i, &rounded, wrong, sizeof wrong);
      qn_trial_fail(trial, number,
                    "case %ld: %s\noff by %.3g units of 2^-24 times %.3g, allowed are %g; the oracle gives %.17g\n%s",
                    number, setting, miss, o->scale[r][i], units, o->out[r][i], wrong);
    }
  }
}

static void compare_counters(qn_trial *trial, long number, const qn_oracle *o)
{
  for (int k = 0; k < 2; k++) {
    long long reference = (long long)o->counted[0][k], own = (long long)o->counted[1][k];
    if (llabs(reference - own) > (long long)(2 + o->n / 50))
      qn_trial_fail(trial, number, "counter %d of %zu elements is %lld for the reference and %lld for the oracle", k,
                    o->n, reference, own);
  }
}

static qn_status check_tensor(qn_trial *trial, long number, const qn_subject *d, const char *setting, score *s)
{
  _Alignas(16) unsigned char params[QN_SUBJECT_PARAMS];
  qn_oracle o;
  qn_subject_call_params(d, params);
  qn_status status = qn_oracle_open(&o, trial->item->target.op, params, d, 0);
  if (status == QN_OK) {
    compare_counters(trial, number, &o);
    compare(trial, number, &o, setting, s);
  }
  qn_oracle_close(&o);
  return status;
}

/* A list of one tensor. */
static qn_status run_setting(qn_trial *trial, size_t k, const qn_setting *setting, score *s, size_t *refused)
{
  const qn_target *target = &trial->item->target;
  const qn_subject_order order = {.op = target->op,
                                  .row = trial->item->row,
                                  .device = target->device,
                                  .text = "4099 " QN_SUBJECT_ODD,
                                  .setting = setting,
                                  .seed = qn_seed_mix(trial->options->seed, k)};
  char text[512];
  qn_subject d;
  qn_setting_text(&target->op->info, setting, text, sizeof text);
  qn_status status = qn_subject_open(&d, &order);
  if (status == QN_OK && qn_subject_step(&d) != QN_OK)
    ++*refused;
  else if (status == QN_OK)
    status = check_tensor(trial, (long)k, &d, text, s);
  qn_subject_close(&d);
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
