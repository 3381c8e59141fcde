/* SPDX-License-Identifier: Apache-2.0 */
/* judge_verify.c - launches of a model over data that nobody saw before, held against the reference. */
#include "workbench/judge_inner.h"
#include "core/core.h"
#include <stdio.h>
#include <string.h>

static const int distributions[] = {1, 2, QN_DATA_COUNT - 1}; /* by level: changed ones of each size */

static void describe(const qn_judged_launch *l, const qn_data_order *o, char *text, size_t bytes)
{
  qn_kernel_case_text(l->c, text, bytes);
  const size_t used = strlen(text);
  if (o->distribution) snprintf(text + used, bytes - used, " (data: %s)", qn_distribution_name(o->distribution));
}

/* One launch of a model over data that nobody saw before. The reference is computed after the model has run. */
static bool verify_one(qn_judge *j, qn_judge_process *p, size_t number, qn_data_order *o, qn_judge_verdict *v,
                       qn_status *status)
{
  char why[512], about[200];
  qn_talk_answer a;
  qn_judged_launch l = {.c = NULL};
  const uint64_t offset = j->verify_offset + (qn_draw(&j->random) & 0xff) * QN_GUARD;
  bool right = false;
  o->at = p->arena + offset;
  *status = qn_judged_launch_make(o, &l);
  if (*status == QN_OK) {
    describe(&l, o, about, sizeof about);
    if (!qn_ask_slot(p, QN_VERIFY_SLOT, number, offset, &a))
      right = qn_model_broken(p, v);
    else if (a.status != QN_OK)
      right = qn_judged(v, QN_JUDGED_LAUNCH, "%s: %s", about, a.text);
    else
      right = qn_model_run(p, QN_VERIFY_SLOT, QN_TIMER_SIMPLE, NULL, v);
    if (!right && *v->reason && (v->word == QN_JUDGED_BROKEN || v->word == QN_JUDGED_LAUNCH) &&
        !strstr(v->reason, about)) {
      char first[512];
      snprintf(first, sizeof first, "%.500s", v->reason);
      qn_judged(v, v->word, "%s: %s", about, first);
    }
  }
  if (right) *status = qn_judged_launch_reference(&l);
  if (right && *status == QN_OK) {
    qn_judge_word word;
    right = qn_judged_launch_right(&l, l.reference, &word, why, sizeof why);
    if (!right) qn_judged(v, word, "%s: %s", about, why);
    v->launches += right;
  }
  qn_judged_launch_clear(&l);
  return right && *status == QN_OK;
}

qn_data_order qn_judge_data(qn_judge *j, size_t number, qn_distribution d)
{
  return (qn_data_order){.folder = j->folder,
                         .spec = &j->planned[number].spec,
                         .seed = qn_draw(&j->random),
                         .fill = (size_t)qn_draw(&j->random) % 8,
                         .distribution = d,
                         .pool = j->pool};
}

/* What the baseline itself does not bear is not asked of a candidate: hidden sizes that its launch refuses, data on
 * which its outputs are not right. A size of the folder's own must be right. */
bool qn_judge_prove(qn_judge *j, qn_judge_verdict *v, qn_status *status)
{
  for (size_t k = 0; k < j->n_planned; k++) {
    qn_planned *p = &j->planned[k];
    if (p->dropped) continue;
    for (int d = 0; d < QN_DATA_COUNT; d++) {
      if (d && (size_t)d != 1 + k % (QN_DATA_COUNT - 1) && j->ask.level == QN_JUDGE_QUICK) continue;
      qn_data_order o = qn_judge_data(j, k, (qn_distribution)d);
      if (verify_one(j, &j->baseline, k, &o, v, status)) {
        p->bears |= 1u << d;
        continue;
      }
      if (*status != QN_OK && *status != QN_BAD_ARGUMENT && *status != QN_KERNEL_ERROR) return false;
      if (!d && !p->spec.drawn) return qn_judged(v, QN_JUDGED_NOT, "the problem's own body is wrong: %s", v->reason);
      if (*j->baseline.broken)
        return qn_judged(v, QN_JUDGED_NOT, "the problem's own body is broken: %s", j->baseline.broken);
      *status = QN_OK;
      *v->reason = 0;
      if (!d) p->dropped = true;
      if (!d) break;
    }
  }
  for (size_t k = j->n_planned; k-- > 0;) { /* both must be launches that are prepared */
    if (j->planned[k].dropped) continue;
    if (j->planned[j->proved].dropped) j->proved = k;
    if (j->planned[j->inspected].dropped) j->inspected = k;
  }
  if (j->planned[j->proved].dropped)
    return qn_judged(v, QN_JUDGED_NOT, "the problem's own body is right at none of the sizes that are verified");
  return true;
}

/* Data on which the baseline is wrong too prove nothing: where terms cancel, say, a tolerance of the result's own
 * magnitude holds nobody. Of the folder's own sizes others are drawn then, so that each is verified. */
enum { MOST_DRAWS = 8 };

static bool is_excused(qn_judge *j, size_t number, qn_data_order *o, qn_judge_verdict *v, qn_status *status)
{
  qn_judge_verdict own = {.n_notes = 0};
  if (*status != QN_OK || v->word != QN_JUDGED_WRONG) return false;
  if (verify_one(j, &j->baseline, number, o, &own, status) || *status != QN_OK || *j->baseline.broken) return false;
  if (o->distribution || j->planned[number].spec.drawn) j->planned[number].bears &= ~(1u << o->distribution);
  v->word = QN_JUDGED_UNCLEAR;
  *v->reason = 0;
  return true;
}

bool qn_judge_verify(qn_judge *j, qn_judge_process *p, qn_judge_verdict *v, qn_status *status)
{
  for (size_t k = 0; k < j->n_planned; k++) {
    if (j->planned[k].dropped) continue;
    int changed = distributions[j->ask.level];
    for (int turn = 0; turn < QN_DATA_COUNT; turn++) {
      const int d = turn ? 1 + (int)((k + (size_t)turn - 1) % (QN_DATA_COUNT - 1)) : 0;
      if (!(j->planned[k].bears >> d & 1) || (d && changed-- <= 0)) continue;
      qn_data_order o = qn_judge_data(j, k, (qn_distribution)d);
      if (j->ask.progress) qn_progress_at(j->ask.progress, k, "verifying");
      for (int draws = 1; !verify_one(j, p, k, &o, v, status); draws++) {
        if (draws > MOST_DRAWS || !is_excused(j, k, &o, v, status)) return false;
        if (d || j->planned[k].spec.drawn) break;
        o = qn_judge_data(j, k, QN_DATA_AS_FILLED);
      }
    }
  }
  return true;
}

/* The same data again: the same bits? */
bool qn_judge_repeat(qn_judge *j, qn_judge_process *p, qn_judge_verdict *v, qn_status *status)
{
  qn_data_order o = qn_judge_data(j, j->proved, QN_DATA_AS_FILLED);
  qn_judged_launch l[2] = {{.c = NULL}, {.c = NULL}};
  qn_talk_answer a;
  const uint64_t room = (j->verify_bytes + QN_GUARD - 1) / QN_GUARD * QN_GUARD;
  bool right = true;
  for (int k = 0; k < 2 && right && *status == QN_OK; k++) {
    const uint64_t offset = j->verify_offset + (uint64_t)k * room;
    o.at = p->arena + offset;
    *status = qn_judged_launch_make(&o, &l[k]);
    if (*status != QN_OK) break;
    if (!qn_ask_slot(p, QN_VERIFY_SLOT, j->proved, offset, &a))
      right = qn_model_broken(p, v);
    else
      right = qn_model_run(p, QN_VERIFY_SLOT, QN_TIMER_SIMPLE, NULL, v);
  }
  if (right && *status == QN_OK) v->deterministic = qn_same_outputs(l[0].c, l[1].c);
  for (int k = 0; k < 2; k++) qn_judged_launch_clear(&l[k]);
  return right && *status == QN_OK;
}
