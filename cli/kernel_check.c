/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_check.c - `quern check` of a kernel's folder: the arguments; all else is workbench/kernel_check.c. It works in
 * a process of its own, so that a body that crashes is a failed check. */
#include "cli/kernel.h"
#include "core/core.h"
#include "workbench/kernel_check.h"
#include "workbench/kernel_mutate.h"
#include "workbench/kernel_say.h"
#include <stdio.h>
#include <string.h>

enum { SEEDS = 4, QUICK_SEEDS = 1, LIMIT_S = 60 };

static qn_status prepare(qn_kernel_session *s, qn_progress *progress, qn_kernel_trial_request *r)
{
  const qn_kernel_order *o = s->order;
  int gpus = 0;
  qn_device_info cpu = {.size = sizeof cpu};
  *r = (qn_kernel_trial_request){.folder = s->folder,
                                 .processor = !o->backend || s->device.kind != QN_CUDA,
                                 .gpu = s->device.kind == QN_CUDA,
                                 .device = s->device,
                                 .seeds = o->seeds   ? o->seeds
                                          : o->quick ? QUICK_SEEDS
                                                     : SEEDS,
                                 .ignore = o->ignore,
                                 .quick = o->quick,
                                 .tuned = !o->untuned,
                                 .limit_ns = LIMIT_S * INT64_C(1000000000),
                                 .out = stdout,
                                 .json = o->json,
                                 .progress = progress};
  if (!o->backend && !r->gpu && qn_device_count(QN_CUDA, &gpus) == QN_OK && gpus > 0) r->gpu = true;
  if (r->gpu && s->device.kind != QN_CUDA) r->device = (qn_device){QN_CUDA, 0};
  qn_try(qn_device_query((qn_device){QN_CPU, 0}, &cpu));
  r->threads = o->threads ? o->threads : cpu.multiprocessors;
  r->base = (qn_kernel_case_order){.set = o->set, .n_set = o->n_set, .seed = o->seed, .given = &s->given};
  return QN_OK;
}

static int check_here(void *user)
{
  const qn_kernel_order *o = user;
  qn_kernel_session s;
  qn_progress progress = {.on = false};
  qn_kernel_trial_request r = {.run = 0};
  qn_status status = qn_kernel_open(&s, o);
  if (status == QN_OK) status = prepare(&s, &progress, &r);
  if (status == QN_OK) {
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
