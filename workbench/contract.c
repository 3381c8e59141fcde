/* SPDX-License-Identifier: Apache-2.0 */
/* contract.c - see contract.h. */
#include "workbench/contract.h"
#include "core/core.h"
#include <stdio.h>
#include <string.h>

static void reset(qn_contract *c)
{
  const qn_subject *d = &c->d;
  memcpy(c->params, d->params, sizeof d->params);
  memset(c->params + sizeof d->params, 0, sizeof c->params - sizeof d->params);
  c->exec = d->exec;
  c->exec_given = &c->exec;
  c->params_given = c->params;
  c->n = d->n;
  c->list_given = c->list;
  for (size_t r = 0; r < d->op->info.n_tensors; r++) {
    c->list[r] = c->tensor[r];
    if (c->tensor[r]) memcpy(c->tensor[r], d->role[r].tensor, d->role[r].n * sizeof(qn_tensor));
  }
}

/* Words behind the sample: a tensor of three dimensions and an empty one, or a setting that the row of types needs. */
static const char *words_behind(const qn_op *op, qn_device_kind kind, size_t row)
{
  const qn_op_check *check = qn_op_check_of(op);
  if (!qn_op_is_alone(&op->info)) return check->sample ? "4x3x2 0x3" : NULL;
  return row && check->variation ? check->variation(kind, row, 0) : NULL;
}

/* Lists without a text of their own have three tensors. */
qn_status qn_contract_open(qn_contract *c, qn_trial *trial, size_t row, const char *text)
{
  const qn_op *op = trial->item->target.op;
  const char *sample = text ? text : qn_op_check_of(op)->sample;
  *c = (qn_contract){.trial = trial};
  c->number = row ? 100000 : 0; /* so that a number means the same call whatever row ran before */
  const qn_subject_order order = {.op = op,
                                  .row = row,
                                  .device = trial->item->target.device,
                                  .text = sample ? sample : "35 6 64 filled odd",
                                  .more = text ? NULL : words_behind(op, trial->item->target.device.kind, row),
                                  .seed = trial->options->seed};
  qn_try(qn_subject_open(&c->d, &order));
  qn_try(qn_subject_lend(&c->d));
  for (size_t r = 0; r < op->info.n_tensors; r++)
    if (c->d.role[r].n) qn_try(qn_try_allocate(&c->tensor[r], c->d.role[r].n * sizeof(qn_tensor), "tensors"));
  reset(c);
  return QN_OK;
}

void qn_contract_close(qn_contract *c)
{
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) qn_release(c->tensor[r]);
  qn_subject_close(&c->d);
}

/* ---- one case ---- */

typedef struct verdicts {
  qn_status step, prepare, plan;
  char sentence[3][512];
} verdicts;

static bool begins(const qn_contract *c) { return qn_trial_takes(c->trial, c->number); }

static void end(qn_contract *c)
{
  c->number++;
  reset(c);
}

static void fail(qn_contract *c, const char *what, const char *how, const char *sentence)
{
  qn_trial_fail(c->trial, (long)c->number, "%s: %s%s%s", what, how, *sentence ? ": " : "", sentence);
}

static void forget_sentence(void) { qn_fail(QN_BAD_ARGUMENT, "(no sentence)"); } /* an older failure's proves nothing */

static qn_status note(char sentence[512], qn_status status)
{
  snprintf(sentence, 512, "%s", status == QN_OK ? "" : qn_last_error());
  return status;
}

/* prepare and plan come first, as they must change nothing. */
static verdicts try_all(qn_contract *c, bool step_only)
{
  verdicts v = {.step = QN_OK};
  const qn_op_info *op = &c->d.op->info;
  qn_plan *plan = NULL;
  if (!step_only) {
    forget_sentence();
    v.prepare = note(v.sentence[1], qn_op_prepare(op, c->exec_given, c->params_given, c->n, c->list_given));
    forget_sentence();
    v.plan = note(v.sentence[2], qn_op_plan_create(&plan, op, c->exec_given, c->params_given, c->n, c->list_given));
    if (v.plan != QN_OK && plan) fail(c, "plan", "a refused plan is not NULL", "");
    qn_plan_destroy(&plan);
  }
  forget_sentence();
  v.step = note(v.sentence[0], qn_op_step(op, c->exec_given, c->params_given, c->n, c->list_given));
  return v;
}

static void see_unchanged(qn_contract *c, const char *what)
{
  char wrong[256];
  if (qn_subject_fetch(&c->d) != QN_OK)
    fail(c, what, "memory cannot be read", qn_last_error());
  else if (!qn_subject_untouched(&c->d, wrong, sizeof wrong))
    fail(c, what, "it is refused, and yet memory was written", wrong);
}

static void see_refusal(qn_contract *c, const char *what, const char *call, qn_status status, const char *sentence,
                        const char *const *words)
{
  const char *const name = c->d.op->info.name;
  char how[128];
  snprintf(how, sizeof how, "%s accepts it", call);
  if (!qn_is_refusal(status) && status != QN_UNSUPPORTED) fail(c, what, how, sentence);
  snprintf(how, sizeof how, "the sentence of %s lacks \"%s\"", call, name);
  if (!strstr(sentence, name) && strcmp(*words, "exec") != 0) fail(c, what, how, sentence);
  for (; *words; words++) {
    snprintf(how, sizeof how, "the sentence of %s lacks \"%s\"", call, *words);
    if (!strstr(sentence, *words)) fail(c, what, how, sentence);
  }
}

/* A plan of the valid call, or of the case's, refuses the step with these tensors. */
static void see_plan_refuses(qn_contract *c, bool valid, const qn_tensor *const *moved, const char *what,
                             const char *const *words)
{
  qn_plan *plan = NULL;
  if (qn_op_plan_create(&plan, &c->d.op->info, &c->exec, c->params, c->n, valid ? c->d.tensors : c->list) != QN_OK)
    fail(c, what, valid ? "a plan of the valid call is refused" : "the second plan is refused", qn_last_error());
  forget_sentence();
  if (plan)
    see_refusal(c, what, "a plan's step", qn_op_plan_step(plan, &c->exec, c->params, moved), qn_last_error(), words);
  qn_plan_destroy(&plan);
  see_unchanged(c, what);
}

void qn_contract_refuses(qn_contract *c, const char *what, const char *const *words)
{
  if (begins(c)) {
    const verdicts v = try_all(c, false);
    see_refusal(c, what, "step", v.step, v.sentence[0], words);
    see_refusal(c, what, "prepare", v.prepare, v.sentence[1], words);
    see_refusal(c, what, "plan", v.plan, v.sentence[2], words);
    see_unchanged(c, what);
  }
  end(c);
}

void qn_contract_refuses_step(qn_contract *c, const char *what, const char *const *words)
{
  if (begins(c)) {
    const verdicts v = try_all(c, false);
    see_refusal(c, what, "step", v.step, v.sentence[0], words);
    if (v.prepare || v.plan) fail(c, what, "prepare or plan refuses it", v.sentence[v.prepare ? 1 : 2]);
    see_plan_refuses(c, false, NULL, what, words);
  }
  end(c);
}

void qn_contract_refuses_moved(qn_contract *c, size_t role, const char *what, const char *const *words)
{
  if (begins(c)) {
    const qn_tensor *moved[QN_MAX_TENSORS] = {NULL};
    moved[role] = c->tensor[role];
    see_plan_refuses(c, true, moved, what, words);
  }
  end(c);
}

/* Written tensors get their first contents again. */
static void rewind_tensors(qn_contract *c, const char *what)
{
  if (qn_subject_rewind(&c->d) != QN_OK) fail(c, what, "memory cannot be written", qn_last_error());
}

void qn_contract_accepts(qn_contract *c, const char *what)
{
  if (begins(c)) {
    const verdicts v = try_all(c, false);
    if (v.step) fail(c, what, "step does not accept it", v.sentence[0]);
    if (v.prepare) fail(c, what, "prepare does not accept it", v.sentence[1]);
    if (v.plan) fail(c, what, "plan does not accept it", v.sentence[2]);
    rewind_tensors(c, what);
  }
  end(c);
}

qn_status qn_contract_tries(qn_contract *c, const char *what, bool must_refuse)
{
  qn_status status = QN_STATUS_COUNT;
  if (begins(c)) {
    const verdicts v = try_all(c, true);
    status = v.step;
    if (status != QN_OK && !qn_is_refusal(status)) fail(c, what, qn_status_name(status), v.sentence[0]);
    if (status == QN_OK && must_refuse) fail(c, what, "it is accepted, though a value is outside its range", "");
    if (qn_is_refusal(status) && strstr(v.sentence[0], "(no sentence)"))
      fail(c, what, "it is refused without a sentence", "");
    if (status == QN_OK)
      rewind_tensors(c, what);
    else
      see_unchanged(c, what);
  }
  end(c);
  return status;
}
