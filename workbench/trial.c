/* SPDX-License-Identifier: Apache-2.0 */
/* trial.c - what a leg says about an item that it runs: cases counted, the first failure in full, a reason for
 * skipping. How that is printed is check.c's business. */
#include "workbench/check.h"
#include "workbench/oracle.h"
#include "core/core.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

bool qn_trial_takes(qn_trial *trial, size_t number)
{
  if (trial->failure || (trial->only >= 0 && (size_t)trial->only != number)) return false;
  trial->cases++;
  return true;
}

static char *format_text(const char *format, va_list arguments)
{
  char *text = NULL;
  return vasprintf(&text, format, arguments) < 0 ? NULL : text;
}

/* The command that runs just this again. */
static char *rerun_line(const qn_trial *trial, long number)
{
  static const char *const levels[] = {" --quick", "", " --full"};
  char *line = NULL, *which = NULL;
  if (number < 0)
    which = strdup(trial->item->name);
  else if (asprintf(&which, "%s/case%ld", trial->item->name, number) < 0)
    which = NULL;
  if (asprintf(&line, "rerun: quern check %s --only '%s' --seed %llu%s", trial->item->target.op->info.name,
               which ? which : "", (unsigned long long)trial->options->seed, levels[trial->options->level]) < 0)
    line = NULL;
  free(which);
  return line;
}

void qn_trial_fail(qn_trial *trial, long number, const char *format, ...)
{
  if (trial->failure) return;
  va_list arguments;
  va_start(arguments, format);
  char *text = format_text(format, arguments), *rerun = rerun_line(trial, number);
  va_end(arguments);
  if (asprintf(&trial->failure, "%s\n%s", text ? text : "(out of memory)", rerun ? rerun : "") < 0)
    trial->failure = strdup("it failed, and no memory is left to say how");
  free(text);
  free(rerun);
}

void qn_trial_skip(qn_trial *trial, const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  free(trial->skipped);
  trial->skipped = format_text(format, arguments);
  va_end(arguments);
}

void qn_trial_note(qn_trial *trial, const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(trial->note, sizeof trial->note, format, arguments);
  va_end(arguments);
}

void qn_trial_free(qn_trial *trial)
{
  free(trial->failure);
  free(trial->skipped);
  trial->failure = trial->skipped = NULL;
}

void qn_trial_run(qn_trial *trial)
{
  const qn_item *item = trial->item;
  if (*item->target.variant && !item->target.runs)
    qn_trial_skip(trial, "%s", item->target.why);
  else if (*item->target.variant && qn_target_select(&item->target) != QN_OK)
    qn_trial_fail(trial, -1, "%s", qn_last_error());
  else
    item->run(trial);
  if (!trial->failure && !trial->skipped && trial->only >= 0 && !trial->cases)
    qn_trial_fail(trial, -1, "%s has no case %ld", item->name, trial->only);
  qn_option_set("cpu", NULL);
}

qn_pool *qn_trial_pool(qn_trial *trial, int threads)
{
  enum { POOLS_MOST = 16 };
  static qn_pool *pools[POOLS_MOST];
  if (threads <= 0 || threads >= POOLS_MOST) return NULL;
  if (!pools[threads] && qn_pool_create(&pools[threads], threads) != QN_OK)
    qn_trial_fail(trial, -1, "a pool of %d threads: %s", threads, qn_last_error());
  return pools[threads];
}

/* ---- where two sets differ ---- */

static void add_number(qn_text *text, qn_dtype dtype, const void *at)
{
  qn_text_add(text, "0x%0*llx (%.9g)", (int)(2 * qn_dtype_bytes(dtype)), (unsigned long long)qn_number_bits(dtype, at),
              qn_number_load(dtype, at));
}

static void add_inputs(qn_text *text, const qn_buffers *b, size_t tensor, size_t index)
{
  qn_text_add(text, "\nbefore the step, there:");
  for (size_t r = 0; r < b->op->n_tensors; r++) {
    if (!(b->role[r].access & QN_READ)) continue;
    qn_text_add(text, " %s ", b->op->tensors[r].name);
    add_number(text, b->role[r].dtype, qn_buffers_before(b, r, tensor, index));
  }
}

void qn_trial_differ(qn_trial *trial, long number, const char *what, const qn_buffers *got, const qn_buffers *want,
                     const qn_difference *d)
{
  qn_text text = {0};
  const qn_role *role = &got->role[d->role];
  const char *name = got->op->tensors[d->role].name;
  qn_text_add(&text, "%s\n", what);
  if (d->fault == QN_FAULT_GUARD) {
    long at = (long)d->index;
    qn_text_add(&text, "%s[%zu] of %lld elements: byte %ld %s the tensor was written", name, d->tensor,
                (long long)got->elements[d->tensor], at < 0 ? -at : at + 1, at < 0 ? "before" : "behind");
  } else {
    qn_text_add(&text, "%s[%zu] element %zu of %lld: got ", name, d->tensor, d->index,
                (long long)got->elements[d->tensor]);
    add_number(&text, role->dtype, qn_buffers_at(got, d->role, d->tensor, d->index));
    if (want || d->fault == QN_FAULT_READ_ONLY) {
      qn_text_add(&text, ", must be ");
      add_number(&text, role->dtype,
                 d->fault == QN_FAULT_VALUE ? qn_buffers_at(want, d->role, d->tensor, d->index)
                                            : qn_buffers_before(got, d->role, d->tensor, d->index));
    }
    if (d->fault == QN_FAULT_READ_ONLY) qn_text_add(&text, ": it is only to be read");
    if (d->fault == QN_FAULT_VALUE && d->count) qn_text_add(&text, "; %zu elements differ", d->count);
    add_inputs(&text, got, d->tensor, d->index);
  }
  qn_trial_fail(trial, number, "%s", text.at ? text.at : what);
  qn_text_free(&text);
}

/* ---- by the op's class ---- */

/* Elements of one tensor that are farther from the reference's than the class allows are counted into *d. */
static qn_status compare_tensor(const qn_op *op, const void *params, const qn_buffers *got, const qn_buffers *want,
                                size_t tensor, qn_difference *d)
{
  qn_oracle o;
  double units = op->info.agreement_units;
  qn_status status = qn_oracle_open(&o, op, params, want, tensor);
  for (size_t r = 0; r < op->info.n_tensors && status == QN_OK; r++) {
    if (!(got->role[r].access & QN_WRITE)) continue;
    for (size_t i = 0; i < o.n; i++) {
      double mine = qn_number_load(got->role[r].dtype, qn_buffers_at(got, r, tensor, i));
      double its = qn_number_load(got->role[r].dtype, qn_buffers_at(want, r, tensor, i));
      if (qn_oracle_miss(&o, r, i, mine, &its, units, 2) <= units) continue;
      if (!d->count++) *d = (qn_difference){QN_FAULT_VALUE, r, tensor, i, 1};
    }
  }
  qn_oracle_close(&o);
  return status;
}

qn_difference qn_trial_compare(qn_trial *trial, const void *params, const qn_buffers *got, const qn_buffers *want)
{
  const qn_op *op = trial->item->target.op;
  if (op->info.agreement == QN_BITWISE) return qn_buffers_compare(got, want);
  qn_difference d = qn_buffers_compare(got, got); /* with itself: guards and what is only read */
  for (size_t k = 0; k < got->n && d.fault == QN_FAULT_NONE; k++)
    if (compare_tensor(op, params, got, want, k, &d) != QN_OK) qn_trial_fail(trial, -1, "%s", qn_last_error());
  return d;
}
