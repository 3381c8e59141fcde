/* SPDX-License-Identifier: Apache-2.0 */
/* leg_variants.c - leg 1: every variant equals the one reference. The candidate goes first, on memory of its own that
 * the reference never sees; the reference is the ref tier on the CPU, called directly and serially. After each step all
 * elements, all guard bytes, the read-only tensors and what params point to are compared. */
#include "workbench/check.h"
#include "core/core.h"
#include "workbench/subject.h"
#include <stdio.h>

/* A case being run: the candidate and the reference beside it. */
typedef struct pair {
  qn_trial *trial;
  const qn_case *c;
  const qn_setting *setting, *other; /* of the first step, and of every second one */
  qn_layout layout;
  qn_subject got, want;
} pair;

static void describe(const pair *p, int step, char *text, size_t bytes)
{
  char setting[512];
  qn_setting_text(&p->trial->item->target.op->info, step % 2 ? p->other : p->setting, setting, sizeof setting);
  snprintf(text, bytes, "case %zu: %s; list \"%s\" (%zu tensors), %s, pool of %d, alignment %s; step %d of %d",
           p->c->number, setting, p->layout.name, p->layout.n, qn_way_name(p->c->way), p->c->threads,
           qn_alignment_name((qn_alignment)p->c->alignment), step + 1, p->c->steps);
}

static qn_status open_pair(pair *p)
{
  const qn_target *target = &p->trial->item->target;
  qn_layout_make(p->c->layout, &p->layout);
  qn_subject_order order = {.op = target->op,
                            .row = p->trial->item->row,
                            .device = target->device,
                            .pool = qn_trial_pool(p->trial, p->c->threads),
                            .text = QN_SUBJECT_ODD,
                            .elements = &p->layout,
                            .setting = p->setting,
                            .alignment = (qn_alignment)p->c->alignment,
                            .way = p->c->way,
                            .seed = p->c->seed,
                            .fenced = true};
  qn_try(qn_target_select(target));
  qn_try(qn_subject_open(&p->got, &order));
  return qn_subject_open(&p->want, qn_subject_reference_order(&order, &p->got));
}

/* The data and the params of this step. */
static qn_status turn(pair *p, int step)
{
  const qn_setting *now = step % 2 ? p->other : p->setting;
  if (!step) return QN_OK;
  qn_try(qn_subject_turn(&p->got, (uint64_t)step));
  qn_try(qn_subject_turn(&p->want, (uint64_t)step));
  if (p->other == p->setting) return QN_OK;
  qn_try(qn_subject_use(&p->got, now));
  return qn_subject_use(&p->want, now);
}

/* False: nothing more to learn from this case. */
static bool step_pair(pair *p, int step, size_t *refused)
{
  char what[1024], error[512], wrong[QN_SUBJECT_WRONG];
  const long number = (long)p->c->number;
  describe(p, step, what, sizeof what);
  if (turn(p, step) != QN_OK) {
    qn_trial_fail(p->trial, number, "%s\nthe step could not be set up: %s", what, qn_last_error());
    return false;
  }
  const qn_status got = qn_subject_step(&p->got);
  snprintf(error, sizeof error, "%s", got == QN_OK ? "" : qn_last_error());
  const qn_status want = qn_subject_step(&p->want); /* no option is set meanwhile: a plan would keep nothing */
  if (got != want) {
    qn_trial_fail(p->trial, number, "%s\nit gives %s%s%s; the reference gives %s%s%s", what, qn_status_name(got),
                  *error ? ": " : "", error, qn_status_name(want), want == QN_OK ? "" : ": ",
                  want == QN_OK ? "" : qn_last_error());
    return false;
  }
  if (!(got == QN_OK ? qn_subject_agree(&p->got, &p->want, wrong, sizeof wrong)
                     : qn_subject_untouched(&p->got, wrong, sizeof wrong)))
    qn_trial_fail(p->trial, number, "%s\n%s", what, wrong);
  *refused += got != QN_OK;
  p->trial->elements += qn_subject_elements(&p->got);
  return got == QN_OK && !p->trial->failure;
}

static void run_case(qn_trial *trial, const qn_cases *cases, const qn_case *c, size_t *refused)
{
  pair p = {.trial = trial, .c = c, .setting = &cases->settings[c->setting], .other = &cases->settings[c->other]};
  if (open_pair(&p) != QN_OK)
    qn_trial_fail(trial, (long)c->number, "case %zu could not be set up: %s", c->number, qn_last_error());
  for (int step = 0; step < c->steps && !trial->failure && step_pair(&p, step, refused); step++) {}
  qn_subject_close(&p.got);
  qn_subject_close(&p.want);
}

void qn_leg_variants(qn_trial *trial)
{
  qn_cases cases;
  size_t refused = 0;
  if (qn_cases_make(&cases, &trial->item->target, trial->item->row, trial->options->level, trial->options->seed)) {
    qn_trial_fail(trial, -1, "%s", qn_last_error());
    return;
  }
  for (size_t k = 0; k < cases.n; k++)
    if (qn_trial_takes(trial, k)) run_case(trial, &cases, &cases.at[k], &refused);
  if (trial->only < 0 && refused * 2 > trial->cases)
    qn_trial_fail(trial, -1, "%zu of %zu cases were refused by reference and variant alike: this shows too little",
                  refused, trial->cases);
  qn_trial_note(trial, "%zu cases, %llu elements", trial->cases, (unsigned long long)trial->elements);
  if (cases.dropped)
    qn_trial_note(trial, "%zu cases, %llu elements; %zu settings need further compilations: --full", trial->cases,
                  (unsigned long long)trial->elements, cases.dropped);
  qn_cases_free(&cases);
}
