/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_check.c - `quern check` of a kernel's folder: the arguments; all else is workbench/kernel_check.c. It works in
 * a process of its own, so that a body that crashes is a failed check. */
#include "cli/kernel.h"
#include "core/core.h"
#include "workbench/kernel_check.h"
#include "workbench/kernel_mutate.h"
#include "workbench/kernel_say.h"
#include <stdio.h>

enum { SEEDS = 4, LIMIT_S = 180 }; /* a million elements take a third of it under AddressSanitizer */

static qn_status prepare(qn_kernel_session *s, qn_progress *progress, qn_kernel_trial_request *r)
{
  const qn_kernel_order *o = s->order;
  int gpus = 0;
  qn_try(qn_kernel_trial_of(s, LIMIT_S, r));
  if (!o->seeds && !o->quick) r->seeds = SEEDS;
  r->out = stdout;
  r->json = o->json;
  r->progress = progress;
  if (!o->backend && !r->gpu && qn_device_count(QN_CUDA, &gpus) == QN_OK && gpus > 0) r->gpu = true;
  if (r->gpu && s->device.kind != QN_CUDA) r->device = (qn_device){QN_CUDA, 0};
  return QN_OK;
}

static qn_status check(qn_kernel_session *s, bool *bad)
{
  const qn_kernel_order *o = s->order;
  qn_progress progress;
  qn_kernel_trial_request r = {.run = 0};
  qn_try(prepare(s, &progress, &r));
  qn_progress_begin(&progress, "check", s->folder->n_sizes);
  if (!o->json) printf("TAP version 13\n");
  const qn_status status = o->selftest ? qn_kernel_selftest(&r) : qn_kernel_trial(&r);
  qn_progress_end(&progress);
  if (status == QN_OK && !o->json)
    printf("1..%zu\n# %zu passed, %zu failed, %zu skipped\n", r.run, r.run - r.failures - r.skipped, r.failures,
           r.skipped);
  *bad = r.failures;
  return status;
}

static int check_here(void *order) { return qn_kernel_act(order, check); }

int qn_action_check(const qn_kernel_order *order)
{
  char said[128];
  qn_kernel_order copy = *order;
  int status = qn_isolated(check_here, &copy, said, sizeof said);
  if (status >= 0) return status;
  if (!order->json) printf("Bail out! %s\n", said);
  return qn_complain(order->verb, QN_EXIT_FAILED, "kernel %s: %s", order->folder, said);
}
