/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_sanitize.c - `quern kernel sanitize`: checking mode alone, with many orders of simdgroups, and every finding
 * told once. */
#include "cli/kernel.h"
#include "core/core.h"
#include "workbench/kernel_say.h"
#include "workbench/record_inner.h"
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { SEEDS = 32, LIMIT_S = 60, MOST_FINDINGS = 256 };

typedef struct report {
  size_t n;
  qn_finding finding[MOST_FINDINGS];
  uint64_t seed[MOST_FINDINGS]; /* that found it first */
  size_t times[MOST_FINDINGS];
} report;

static bool same(const qn_finding *a, const qn_finding *b)
{
  return a->kind == b->kind && a->line == b->line && a->other_line == b->other_line && !strcmp(a->where, b->where);
}

static void collect(report *all, uint64_t seed)
{
  for (size_t k = 0; k < qn_kernel_finding_count(); k++) {
    qn_finding f = {.size = sizeof f};
    if (qn_kernel_finding_at(k, &f) != QN_OK) continue;
    size_t i = 0;
    while (i < all->n && !same(&all->finding[i], &f)) i++;
    if (i == MOST_FINDINGS) continue;
    if (i == all->n) {
      all->finding[all->n++] = f;
      all->seed[i] = seed;
      all->times[i] = 0;
    }
    all->times[i]++;
  }
}

static void print_line(const qn_folder *folder, int line)
{
  const char *at = folder->body.source;
  for (int k = 1; at && k < line; k++) {
    at = strchr(at, '\n');
    if (at) at++;
  }
  if (line > 0 && at) printf("%5d | %.*s\n", line, (int)strcspn(at, "\n"), at);
}

static void print_finding(const qn_kernel_session *s, const report *all, size_t k)
{
  const qn_finding *f = &all->finding[k];
  if (s->order->json) {
    json_t *line = json_pack("{s:s, s:s, s:i, s:i, s:s, s:I, s:I, s:I, s:s}", "kernel", s->folder->name, "kind",
                             qn_finding_kind_name(f->kind), "line", f->line, "other_line", f->other_line, "where",
                             f->where, "first", (json_int_t)f->first, "last", (json_int_t)f->last, "seed",
                             (json_int_t)all->seed[k], "text", f->text);
    qn_json_print(stdout, line, JSON_COMPACT);
    return;
  }
  printf("%s (%zu times, first with seed %llu): %s\n", qn_finding_kind_name(f->kind), all->times[k],
         (unsigned long long)all->seed[k], f->text);
  print_line(s->folder, f->line);
  if (f->other_line != f->line) print_line(s->folder, f->other_line);
}

static qn_status race(qn_kernel_session *s, report *all, int seeds)
{
  const qn_folder_size *size;
  qn_kernel_case_order order;
  qn_progress progress;
  qn_try(qn_kernel_size_of(s, &size));
  if (!s->order->size && !s->order->workload && s->folder->n_sizes) size = &s->folder->size[s->folder->n_sizes - 1];
  qn_try(qn_kernel_case_of(s, size, &order));
  order.device = (qn_device){QN_CPU, 0};
  qn_status status = qn_kernel_case_create(&s->c, &order);
  qn_progress_begin(&progress, "sanitize", (size_t)seeds);
  for (int seed = 0; status == QN_OK && seed < seeds; seed++) {
    qn_kernel_call *call = &s->c->call;
    qn_progress_at(&progress, (size_t)seed, "%s, %zu found", size->name, all->n);
    call->check = 1;
    call->ignore = s->order->ignore | s->folder->ignore;
    call->seed = (uint64_t)seed;
    call->limit_ns = (int64_t)((s->order->limit_s > 0 ? s->order->limit_s : LIMIT_S) * 1e9);
    status = qn_kernel_case_reset(s->c, 0xff);
    if (status == QN_OK) status = qn_kernel_case_launch(s->c);
    if (status != QN_KERNEL_ERROR) continue;
    collect(all, (uint64_t)seed);
    if (qn_kernel_finding_count()) status = QN_OK;
  }
  qn_progress_end(&progress);
  return status;
}

static qn_status sanitize(qn_kernel_session *s, bool *bad)
{
  static report all;
  const int seeds = s->order->seeds ? s->order->seeds : SEEDS;
  const qn_status status = race(s, &all, seeds);
  for (size_t k = 0; k < all.n; k++) print_finding(s, &all, k);
  if (status == QN_OK && !s->order->json)
    printf("%s%zu %s in %d orders of simdgroups\n", all.n ? "" : "no race, nothing out of bounds: ", all.n,
           all.n == 1 ? "finding" : "findings", seeds);
  *bad = all.n;
  return status;
}

static int sanitize_here(void *order) { return qn_kernel_act(order, sanitize); }

int qn_action_sanitize(const qn_kernel_order *order) { return qn_kernel_apart(order, sanitize_here); }
