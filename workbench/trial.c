/* SPDX-License-Identifier: Apache-2.0 */
/* trial.c - the outcome of an item that a leg runs: cases counted, the first failure in full, a reason for
 * skipping. How that is printed is check.c's business. */
#include "workbench/check.h"
#include "core/core.h"
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
  if (!item->target.runs)
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
