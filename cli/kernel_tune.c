/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_tune.c - `quern tune` over a kernel's folder. The work is workbench/tune.c's, as over an op. */
#include "cli/kernel.h"
#include "core/core.h"
#include "workbench/tune_folder.h"
#include <stdio.h>

static const double look_s = 0.4, prove_s = 4;

qn_status qn_kernel_tune(qn_kernel_session *s, json_t *results, qn_tune_outcome *out)
{
  const qn_kernel_order *o = s->order;
  const qn_folder *f = s->folder;
  const qn_folder_size *size = f->n_workloads ? &f->workload[0] : &f->size[f->n_sizes - 1];
  qn_kernel_case_order incumbent;
  qn_progress progress;
  qn_tune_bed bed;
  qn_tune_folder *made = NULL;
  qn_tune_order order = o->tune;
  if (o->workload) qn_try(qn_kernel_size_of(s, &size));
  qn_try(qn_kernel_case_of(s, size, &incumbent));
  if (order.out) {
    fprintf(order.out, "%s over %s on %s\n", f->name, size->name, qn_device_kind_name(s->device.kind));
    fflush(order.out);
  }
  qn_progress_begin(&progress, "tune", 0);
  order.look_s = o->seconds > 0 ? o->seconds : look_s;
  order.prove_s = o->seconds > 0 ? 4 * o->seconds : prove_s;
  order.seed = o->seed;
  order.results = results;
  order.progress = &progress;
  qn_status status = qn_tune_folder_create(&made, &incumbent, o->group[0] != 0, &bed);
  if (status == QN_OK) status = qn_tune_run(&bed, &order, out);
  qn_progress_end(&progress);
  qn_tune_folder_destroy(&made);
  return status;
}

static qn_status tune(qn_kernel_session *s, bool *bad)
{
  qn_tune_outcome out = {.places = 0};
  json_t *results = s->order->json_file ? json_array() : NULL;
  qn_status status = qn_kernel_tune(s, results, &out);
  if (status == QN_OK && *out.path)
    printf("kept in %s/%s.tune; --untuned leaves it aside\n", out.path, s->folder->name);
  if (status == QN_OK && !s->order->tune.dry_run && !out.faster && !out.failed) printf("the values in force stay\n");
  if (results) {
    const qn_status written = qn_tune_json_write(s->order->json_file, s->device, results);
    if (status == QN_OK) status = written;
  }
  *bad = out.wrong || out.failed;
  return status;
}

int qn_action_tune(const qn_kernel_order *order) { return qn_kernel_act(order, tune); }
