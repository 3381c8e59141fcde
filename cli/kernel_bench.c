/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_bench.c - `quern bench` of a kernel's folder: which workloads, the other kernel, the waits for the compiler in
 * processes of their own; printed and kept. */
#include "cli/kernel.h"
#include "core/core.h"
#include "workbench/kernel_bench.h"
#include "workbench/record.h"
#include "workbench/table.h"
#include <stdio.h>
#include <string.h>

typedef struct pair {
  qn_kernel_session *s, other; /* other: with a folder where there is one */
  qn_trace *trace;
} pair;

/* The other kernel over the same extents, where it has them by the same names. */
static qn_status order_other(pair *p, const qn_folder_size *size, qn_kernel_case_order *order)
{
  p->other.device = p->s->device;
  p->other.pool = p->s->pool;
  const qn_folder *f = p->other.folder;
  const qn_folder_size *own = size;
  for (size_t k = 0; k < f->n_workloads; k++)
    if (!strcmp(f->workload[k].name, size->name)) own = &f->workload[k];
  return qn_kernel_case_of(&p->other, own, order);
}

static qn_status first_use(const pair *p, const qn_folder_size *size, qn_kernel_bench *k)
{
  const qn_kernel_order *o = p->s->order;
  char device[32], number[24], path[4096];
  const char *arguments[16] = {"quern", "bench", path, "--first-use-here", "--backend"};
  size_t n = 5;
  snprintf(path, sizeof path, "%s%s", strchr(o->folder, '/') ? "" : "./", o->folder); /* never an op's name */
  qn_verb_device_text(p->s->device, device);
  arguments[n++] = device;
  if (p->s->folder->n_workloads) {
    arguments[n++] = "--workload";
    arguments[n++] = size->name;
  }
  snprintf(number, sizeof number, "%d", o->threads ? o->threads : 1);
  arguments[n++] = "--threads";
  arguments[n++] = number;
  qn_try(qn_first_use(arguments, 3, "--first-use-here=empty", &k->b.first_use));
  k->b.has_first_use = true;
  return QN_OK;
}

static qn_status bench_one(pair *p, const qn_folder_size *size, bool *wrong)
{
  const qn_kernel_order *o = p->s->order;
  qn_progress progress;
  qn_kernel_case_order against;
  qn_kernel_bench k;
  qn_kernel_bench_request ask = {.hot = o->hot, .seconds = o->seconds, .trace = p->trace, .progress = &progress};
  qn_try(qn_kernel_case_of(p->s, size, &ask.order));
  if (o->first_use) {
    double ns = 0;
    ask.order.size = p->s->folder->n_sizes ? &p->s->folder->size[0] : size;
    qn_try(qn_kernel_first_use_here(&ask.order, o->first_use_empty, &ns));
    printf("%.0f\n", ns);
    return QN_OK;
  }
  if (p->other.folder) {
    qn_try(order_other(p, size, &against));
    ask.against = &against;
  }
  if (p->s->folder->n_sizes && !o->n_set) ask.small = &p->s->folder->size[0];
  qn_progress_begin(&progress, p->s->folder->name, 100);
  qn_status status = qn_kernel_bench_run(&ask, &k);
  if (status == QN_OK && k.b.timed && !o->n_set && !o->types.n) status = first_use(p, size, &k);
  qn_progress_end(&progress);
  if (status == QN_OK) {
    qn_bench_print(stdout, &k.b);
    if (*p->s->tuned) printf("  %-10s %s\n", "tuned", p->s->tuned);
    fflush(stdout);
    *wrong = *wrong || !k.b.check.right || k.b.impossible;
    if (o->json_file) status = qn_record_append(o->json_file, &k.b);
  }
  qn_bench_clear(&k.b);
  return status;
}

static qn_status bench_all(pair *p, bool *wrong)
{
  const qn_folder *f = p->s->folder;
  const qn_folder_size *size = f->n_sizes ? &f->size[f->n_sizes - 1] : NULL;
  if (p->s->order->workload) {
    qn_try(qn_kernel_size_of(p->s, &size));
    return bench_one(p, size, wrong);
  }
  if (!f->n_workloads) return bench_one(p, size, wrong);
  for (size_t k = 0; k < f->n_workloads && !(k && p->s->order->first_use); k++)
    qn_try(bench_one(p, &f->workload[k], wrong));
  return QN_OK;
}

static qn_status bench(qn_kernel_session *s, bool *wrong)
{
  const qn_kernel_order *o = s->order;
  pair p = {.s = s, .other.order = o};
  qn_status status = o->trace ? qn_trace_create(&p.trace) : QN_OK;
  if (status == QN_OK && o->against) status = qn_folder_read(o->against, &p.other.folder);
  if (status == QN_OK) status = bench_all(&p, wrong);
  if (status == QN_OK && p.trace) status = qn_trace_write(p.trace, o->trace);
  qn_folder_free(&p.other.folder);
  qn_trace_destroy(&p.trace);
  return status;
}

int qn_action_bench(const qn_kernel_order *order) { return qn_kernel_act(order, bench); }
