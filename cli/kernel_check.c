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

static void prepare(qn_kernel_session *s, qn_progress *progress, qn_kernel_trial_request *r)
{
  const qn_kernel_order *o = s->order;
  int gpus = 0;
  qn_kernel_trial_of(s, LIMIT_S, r);
  if (!o->seeds && !o->quick) r->seeds = SEEDS;
  r->out = stdout;
  r->json = o->json;
  r->progress = progress;
  if (!o->backend && !r->gpu && qn_device_count(QN_CUDA, &gpus) == QN_OK && gpus > 0) r->gpu = true;
  if (r->gpu && s->device.kind != QN_CUDA) r->device = (qn_device){QN_CUDA, 0};
}

static int check_here(void *user)
{
  const qn_kernel_order *o = user;
  qn_kernel_session s;
  qn_progress progress = {.on = false};
  qn_kernel_trial_request r = {.run = 0};
  qn_status status = qn_kernel_open(&s, o);
  if (status == QN_OK) {
    prepare(&s, &progress, &r);
    qn_progress_begin(&progress, "check", s.folder->n_sizes);
    if (!o->json) printf("TAP version 13\n");
    status = o->selftest ? qn_kernel_selftest(&r) : qn_kernel_trial(&r);
    qn_progress_end(&progress);
    if (status == QN_OK && !o->json)
      printf("1..%zu\n# %zu passed, %zu failed, %zu skipped\n", r.run, r.run - r.failures - r.skipped, r.failures,
             r.skipped);
  }
  int result = status != QN_OK ? qn_kernel_complain(&s, status) : r.failures ? QN_EXIT_FAILED : QN_EXIT_OK;
  qn_kernel_close(&s);
  return result;
}

int qn_action_check(const qn_kernel_order *order)
{
  char said[128];
  qn_kernel_order copy = *order;
  int status = qn_isolated(check_here, &copy, said, sizeof said);
  if (status >= 0) return status;
  if (!order->json) printf("Bail out! %s\n", said);
  return qn_complain(order->verb, QN_EXIT_FAILED, "kernel %s: %s", order->folder, said);
}
