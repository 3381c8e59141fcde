/* SPDX-License-Identifier: Apache-2.0 */
/* play.c - see play.h. */
#include "workbench/play.h"
#include "core/core.h"
#include <math.h>
#include <stdio.h>

qn_status qn_play_complain(const qn_play *p, const char *what)
{
  return qn_fail(QN_BAD_FILE, "%s golden vectors, line %zu: %s", p->trial->item->target.op->info.name, p->at.line,
                 what);
}

void qn_play_lines(qn_play *p, size_t every, qn_status (*take)(void *leg, bool taken), void *leg)
{
  qn_trial *trial = p->trial;
  const qn_target *target = &trial->item->target;
  bool taken = false, inside = false;
  qn_status status = qn_target_select(target);
  if (status == QN_OK && !qn_golden_open(&p->at, target->op))
    status = qn_fail(QN_BAD_FILE, "%s has no golden vectors", target->op->info.name);
  while (status == QN_OK && !trial->failure && qn_golden_line(&p->at)) {
    const bool ends = qn_golden_is(&p->at, "end");
    inside = !ends;
    if (qn_golden_is(&p->at, "case")) {
      snprintf(p->name, sizeof p->name, "%.*s", (int)p->at.rest_bytes, p->at.rest);
      taken = p->number % every == 0 && qn_trial_takes(trial, p->number);
    }
    status = take(leg, taken);
    p->number += ends && status == QN_OK;
  }
  if (status == QN_OK && !trial->failure && inside) status = qn_play_complain(p, "the file ends within a case");
  if (status != QN_OK) qn_trial_fail(trial, (long)p->number, "%s: %s", p->name, qn_last_error());
  if (trial->only < 0 && !p->number) qn_trial_fail(trial, -1, "there is no golden case");
  qn_trial_note(trial, "%zu cases, %llu elements, worst %.2f of what is allowed", trial->cases,
                (unsigned long long)trial->elements, p->worst);
}

static bool is_near(double x, double want, double near)
{
  return x == want || (isnan(x) && isnan(want)) || fabs(x - want) <= near;
}

void qn_play_compare(const qn_play *p, const char *role, size_t k, const qn_play_number *x)
{
  if (!is_near(x->reference, x->want, x->near))
    qn_trial_fail(p->trial, (long)p->number, "%s: element %zu of %s is %.17g by the reference, golden is %.17g",
                  p->name, k, role, x->reference, x->want);
  if (!is_near(x->got, x->want, x->allowed))
    qn_trial_fail(p->trial, (long)p->number, "%s: element %zu of %s is %.9g, golden is %.9g, %.3g is allowed", p->name,
                  k, role, x->got, x->want, x->allowed);
}
