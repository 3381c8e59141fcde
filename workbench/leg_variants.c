/* SPDX-License-Identifier: Apache-2.0 */
/* leg_variants.c - leg 1: every variant equals the one reference. The candidate goes first, on memory of its own that
 * the reference never sees; the reference is the ref tier on the CPU, called directly and serially. After each step all
 * elements, all guard bytes, the read-only tensors and what params point to are compared. */
#include "workbench/check.h"
#include "core/core.h"
#include "workbench/run.h"
#include <string.h>

/* A case being run: the candidate and the reference beside it. */
typedef struct pair {
  qn_trial *trial;
  const qn_case *c;
  const qn_setting *setting, *other; /* of the first step, and of every second one */
  qn_buffers *got, *want;
  qn_runner *candidate, *reference;
  void *stream;
} pair;

static void describe(const pair *p, int step, char *text, size_t bytes)
{
  qn_layout layout;
  char setting[512];
  qn_setting_text(&p->trial->item->target.op->info, step % 2 ? p->other : p->setting, setting, sizeof setting);
  qn_layout_make(p->c->layout, &layout);
  snprintf(text, bytes, "case %zu: %s; list \"%s\" (%zu tensors), %s, pool of %d, alignment %s; step %d of %d",
           p->c->number, setting, layout.name, layout.n, qn_way_name(p->c->way), p->c->threads,
           qn_alignment_name((qn_alignment)p->c->alignment), step + 1, p->c->steps);
}

static qn_status open_pair(pair *p)
{
  const qn_item *item = p->trial->item;
  const qn_op *op = item->target.op;
  qn_layout layout;
  qn_layout_make(p->c->layout, &layout);
  if (item->target.device.kind == QN_CUDA) qn_try(qn_stream_create(item->target.device, &p->stream));
  qn_try(qn_buffers_create(&p->got, &op->info, item->row, item->target.device, p->stream, layout.n, layout.elements,
                           (qn_alignment)p->c->alignment));
  qn_try(qn_buffers_create(&p->want, &op->info, item->row, (qn_device){QN_CPU, 0}, NULL, layout.n, layout.elements,
                           QN_ALIGN_64));
  qn_try(qn_runner_create(&p->reference, op, p->want, p->setting, QN_WAY_REFERENCE, NULL));
  qn_try(qn_target_select(&item->target));
  return qn_runner_create(&p->candidate, op, p->got, p->setting, p->c->way, qn_trial_pool(p->trial, p->c->threads));
}

static void close_pair(pair *p)
{
  qn_runner_destroy(&p->candidate);
  qn_runner_destroy(&p->reference);
  qn_buffers_destroy(&p->got);
  qn_buffers_destroy(&p->want);
  if (p->stream) qn_stream_destroy(p->trial->item->target.device, &p->stream);
}

/* The params of this step, where they are others than those of the step before. */
static qn_status change(pair *p, int step)
{
  const qn_setting *now = step % 2 ? p->other : p->setting;
  if (!step || p->other == p->setting) return QN_OK;
  qn_try(qn_runner_change(p->candidate, now));
  return qn_runner_change(p->reference, now);
}

/* False: nothing more to learn from this case. */
static bool step_pair(pair *p, int step, size_t *refused)
{
  char what[1024], error[512], broken[256];
  long number = (long)p->c->number;
  describe(p, step, what, sizeof what);
  qn_buffers_fill(p->got, qn_seed_mix(p->c->seed, (uint64_t)step), true, step > 0);
  qn_buffers_copy(p->want, p->got);

  if (change(p, step) != QN_OK) {
    qn_trial_fail(p->trial, number, "%s\nthe params could not be changed: %s", what, qn_last_error());
    return false;
  }
  qn_status got = qn_runner_step(p->candidate);
  snprintf(error, sizeof error, "%s", got == QN_OK ? "" : qn_last_error());
  const qn_status want = qn_runner_step(p->reference); /* no option is set meanwhile: a plan would keep nothing */
  if (got != want) {
    qn_trial_fail(p->trial, number, "%s\nit gives %s%s%s; the reference gives %s%s%s", what, qn_status_name(got),
                  *error ? ": " : "", error, qn_status_name(want), want == QN_OK ? "" : ": ",
                  want == QN_OK ? "" : qn_last_error());
    return false;
  }
  qn_difference d = got == QN_OK ? qn_trial_compare(p->trial, qn_runner_params(p->reference), p->got, p->want)
                                 : qn_buffers_unchanged(p->got);
  if (d.fault != QN_FAULT_NONE)
    qn_trial_differ(p->trial, number, what, p->got, p->want, &d);
  else if (!qn_runner_intact(p->candidate, broken, sizeof broken))
    qn_trial_fail(p->trial, number, "%s\n%s", what, broken);
  *refused += got != QN_OK;
  for (size_t k = 0; k < p->got->n; k++) p->trial->elements += (uint64_t)p->got->elements[k];
  return got == QN_OK && !p->trial->failure;
}

static void run_case(qn_trial *trial, const qn_cases *cases, const qn_case *c, size_t *refused)
{
  pair p = {.trial = trial, .c = c, .setting = &cases->settings[c->setting], .other = &cases->settings[c->other]};
  qn_status status = open_pair(&p);
  if (status == QN_OK) {
    for (int step = 0; step < c->steps && step_pair(&p, step, refused); step++) {}
  } else if (p.reference && p.got && qn_is_refusal(status)) {
    /* A plan is refused when it is made. The reference must refuse the step. */
    char error[512];
    snprintf(error, sizeof error, "%s", qn_last_error());
    if (qn_runner_step(p.reference) == status)
      ++*refused;
    else
      qn_trial_fail(trial, (long)c->number, "case %zu: the plan is refused, the reference's step is not: %s", c->number,
                    error);
  } else {
    qn_trial_fail(trial, (long)c->number, "case %zu could not be set up: %s", c->number, qn_last_error());
  }
  close_pair(&p);
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
