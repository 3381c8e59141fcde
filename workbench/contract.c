/* SPDX-License-Identifier: Apache-2.0 */
/* contract.c - see contract.h. */
#include "workbench/contract.h"
#include "core/core.h"
#include <string.h>

static const size_t elements[QN_CONTRACT_TENSORS] = {35, 6, 64};

static void reset(qn_contract *c)
{
  const qn_op_info *op = &c->op->info;
  memset(c->params, 0, sizeof c->params);
  qn_op_defaults(op, c->params, op->params_bytes);
  c->exec = (qn_exec){.size = sizeof(qn_exec), .device = c->device};
  c->exec_given = &c->exec;
  c->params_given = c->params;
  c->n = QN_CONTRACT_TENSORS;
  c->list_given = c->list;
  for (size_t r = 0; r < op->n_tensors; r++) {
    c->list[r] = NULL;
    if (!c->buffers->tensor[r]) continue;
    memcpy(c->tensor[r], c->buffers->tensor[r], sizeof c->tensor[r]);
    c->list[r] = c->tensor[r];
  }
}

qn_status qn_contract_open(qn_contract *c, qn_trial *trial, size_t row)
{
  *c = (qn_contract){.trial = trial, .op = trial->item->target.op, .row = row, .device = trial->item->target.device};
  c->number = row ? 100000 : 0; /* so that a number means the same call whatever row ran before */
  qn_try(
      qn_buffers_create(&c->buffers, &c->op->info, row, c->device, NULL, QN_CONTRACT_TENSORS, elements, QN_ALIGN_64));
  qn_try(qn_memory_allocate(c->device, QN_CONTRACT_SPARE, &c->spare));
  reset(c);
  return QN_OK;
}

void qn_contract_close(qn_contract *c)
{
  if (c->spare) qn_memory_release(c->device, c->spare);
  qn_buffers_destroy(&c->buffers);
}

/* ---- one try ---- */

typedef struct verdicts {
  qn_status step, prepare, plan;
  char sentence[3][512];
} verdicts;

static void say_nothing(void)
{
  qn_fail(QN_BAD_ARGUMENT, "(no sentence)"); /* so that an older failure's sentence is not taken for this one's */
}

static void note_sentence(char *text, size_t bytes, qn_status status)
{
  snprintf(text, bytes, "%s", status == QN_OK ? "" : qn_last_error());
}

/* prepare and plan create come first, as they must change nothing at all. */
static verdicts try_all(qn_contract *c, bool step_only)
{
  verdicts v = {.step = QN_OK};
  qn_plan *plan = NULL;
  if (!step_only) {
    say_nothing();
    v.prepare = qn_op_prepare(&c->op->info, c->exec_given, c->params_given, c->n, c->list_given);
    note_sentence(v.sentence[1], sizeof v.sentence[1], v.prepare);
    say_nothing();
    v.plan = qn_op_plan_create(&plan, &c->op->info, c->exec_given, c->params_given, c->n, c->list_given);
    note_sentence(v.sentence[2], sizeof v.sentence[2], v.plan);
    if (v.plan != QN_OK && plan) qn_trial_fail(c->trial, (long)c->number, "a refused plan is not NULL");
    qn_plan_destroy(&plan);
  }
  say_nothing();
  v.step = qn_op_step(&c->op->info, c->exec_given, c->params_given, c->n, c->list_given);
  note_sentence(v.sentence[0], sizeof v.sentence[0], v.step);
  return v;
}

static bool upload(qn_contract *c)
{
  qn_buffers_fill(c->buffers, qn_seed_mix(c->trial->options->seed, c->number), true, false);
  if (qn_buffers_upload(c->buffers) == QN_OK) return true;
  qn_trial_fail(c->trial, (long)c->number, "%s", qn_last_error());
  return false;
}

static void check_unchanged(qn_contract *c, const char *what)
{
  if (qn_buffers_download(c->buffers) != QN_OK) {
    qn_trial_fail(c->trial, (long)c->number, "%s", qn_last_error());
    return;
  }
  qn_difference d = qn_buffers_unchanged(c->buffers);
  if (d.fault == QN_FAULT_NONE) return;
  char text[256];
  snprintf(text, sizeof text, "%s: it was refused, and yet wrote", what);
  qn_trial_differ(c->trial, (long)c->number, text, c->buffers, NULL, &d);
}

static void expect_refusal(qn_contract *c, const char *what, const char *call, qn_status status, const char *sentence,
                           const char *const *words)
{
  if (status == QN_OK) qn_trial_fail(c->trial, (long)c->number, "%s: %s takes it", what, call);
  for (; *words; words++)
    if (!strstr(sentence, *words))
      qn_trial_fail(c->trial, (long)c->number, "%s: %s refuses it, but its sentence does not say \"%s\": %s", what,
                    call, *words, sentence);
}

void qn_contract_refuses(qn_contract *c, const char *what, const char *const *words)
{
  if (qn_trial_takes(c->trial, c->number) && upload(c)) {
    verdicts v = try_all(c, false);
    expect_refusal(c, what, "step", v.step, v.sentence[0], words);
    expect_refusal(c, what, "prepare", v.prepare, v.sentence[1], words);
    expect_refusal(c, what, "plan create", v.plan, v.sentence[2], words);
    check_unchanged(c, what);
  }
  c->number++;
  reset(c);
}

void qn_contract_refuses_step(qn_contract *c, const char *what, const char *const *words)
{
  if (qn_trial_takes(c->trial, c->number) && upload(c)) {
    verdicts v = try_all(c, false);
    qn_plan *plan = NULL;
    expect_refusal(c, what, "step", v.step, v.sentence[0], words);
    if (v.prepare || v.plan ||
        qn_op_plan_create(&plan, &c->op->info, c->exec_given, c->params_given, c->n, c->list_given))
      qn_trial_fail(c->trial, (long)c->number, "%s: prepare or plan create refuses it: %s%s", what, v.sentence[1],
                    v.sentence[2]);
    say_nothing();
    qn_status status = plan ? qn_op_plan_step(plan, c->exec_given, c->params_given, NULL) : QN_OK;
    expect_refusal(c, what, "plan step", status, qn_last_error(), words);
    qn_plan_destroy(&plan);
    check_unchanged(c, what);
  }
  c->number++;
  reset(c);
}

void qn_contract_refuses_moved(qn_contract *c, size_t role, const char *what, const char *const *words)
{
  if (qn_trial_takes(c->trial, c->number) && upload(c)) {
    const qn_tensor *moved[QN_MAX_TENSORS] = {0};
    qn_plan *plan = NULL;
    if (qn_op_plan_create(&plan, &c->op->info, &c->exec, c->params, c->n, c->buffers->list) != QN_OK) {
      qn_trial_fail(c->trial, (long)c->number, "a plan of the plain call is refused: %s", qn_last_error());
    } else {
      moved[role] = c->tensor[role];
      say_nothing();
      qn_status status = qn_op_plan_step(plan, &c->exec, c->params, moved);
      expect_refusal(c, what, "plan step", status, qn_last_error(), words);
      check_unchanged(c, what);
    }
    qn_plan_destroy(&plan);
  }
  c->number++;
  reset(c);
}

void qn_contract_takes(qn_contract *c, const char *what)
{
  if (qn_trial_takes(c->trial, c->number) && upload(c)) {
    verdicts v = try_all(c, false);
    if (v.step || v.prepare || v.plan)
      qn_trial_fail(c->trial, (long)c->number, "%s must be taken: step %s %s; prepare %s %s; plan %s %s", what,
                    qn_status_name(v.step), v.sentence[0], qn_status_name(v.prepare), v.sentence[1],
                    qn_status_name(v.plan), v.sentence[2]);
  }
  c->number++;
  reset(c);
}

qn_status qn_contract_tries(qn_contract *c, const char *what, bool must_refuse)
{
  qn_status status = QN_STATUS_COUNT;
  if (qn_trial_takes(c->trial, c->number) && upload(c)) {
    verdicts v = try_all(c, true);
    status = v.step;
    if (status != QN_OK && !qn_is_refusal(status))
      qn_trial_fail(c->trial, (long)c->number, "%s: %s: %s", what, qn_status_name(status), v.sentence[0]);
    if (status == QN_OK && must_refuse)
      qn_trial_fail(c->trial, (long)c->number, "%s: it is taken, though a value is outside its range", what);
    if (qn_is_refusal(status) && strstr(v.sentence[0], "(no sentence)"))
      qn_trial_fail(c->trial, (long)c->number, "%s: it is refused without a sentence", what);
    if (status != QN_OK) check_unchanged(c, what);
  }
  c->number++;
  reset(c);
  return status;
}
