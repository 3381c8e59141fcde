/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_tune.c - `quern tune` of a kernel's folder: every candidate checked, timed side by side with the values in
 * force, the best of them timed again for longer; kept only where the interval says that it is faster. */
#include "cli/kernel.h"
#include "core/core.h"
#include "workbench/kernel_bench.h"
#include "workbench/kernel_check.h"
#include "workbench/kernel_tuned.h"
#include "workbench/search.h"
#include "workbench/table.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_CANDIDATES = QN_SEARCH_MOST };
static const double look_s = 0.4, prove_s = 4;

typedef struct candidate {
  uint32_t group[3];
  size_t n_set;
  qn_name set[QN_KERNEL_SETTINGS + QN_KERNEL_MAX_TEMPLATES];
  qn_tuned tuned;
} candidate;

typedef struct tuning {
  qn_kernel_session *s;
  const qn_folder_size *size;
  qn_kernel_case_order incumbent;
  qn_progress progress;
  candidate best;
  json_t *lines;
} tuning;

/* ---- candidates as digits of a mixed number ---- */
static bool is_set(const qn_kernel_order *o, const char *name)
{
  for (size_t k = 0; k < o->n_set; k++)
    if (!strcmp(o->set[k].name, name)) return true;
  return false;
}

static size_t count(const qn_folder *f, const qn_kernel_order *o)
{
  size_t n = f->n_groups && !o->group[0] ? f->n_groups : 1;
  for (size_t k = 0; k < f->body.n_templates && n <= MOST_CANDIDATES; k++)
    if (f->body.templates[k].n_candidates && !is_set(o, f->body.templates[k].name))
      n *= f->body.templates[k].n_candidates;
  return n;
}

static void choose(const tuning *t, size_t k, candidate *c)
{
  const qn_folder *f = t->s->folder;
  const qn_kernel_order *o = t->s->order;
  *c = (candidate){.n_set = o->n_set};
  memcpy(c->set, o->set, sizeof o->set);
  memcpy(c->group, t->incumbent.group, sizeof c->group);
  if (f->n_groups && !o->group[0]) {
    memcpy(c->group, f->tune_group[k % f->n_groups], sizeof c->group);
    memcpy(c->tuned.group, c->group, sizeof c->group);
    k /= f->n_groups;
  }
  for (size_t i = 0; i < f->body.n_templates; i++) {
    const qn_folder_template *template = &f->body.templates[i];
    if (!template->n_candidates || is_set(o, template->name)) continue;
    const qn_name value = {template->name, template->candidate[k % template->n_candidates]};
    k /= template->n_candidates;
    c->set[c->n_set++] = value;
    c->tuned.value[c->tuned.n++] = value;
  }
}

static qn_kernel_case_order order_of(const tuning *t, const candidate *c)
{
  qn_kernel_case_order order = t->incumbent;
  order.set = c->set;
  order.n_set = c->n_set;
  memcpy(order.group, c->group, sizeof order.group);
  return order;
}

/* ---- one of them ---- */
static bool is_right(tuning *t, const candidate *c, char *why, size_t bytes)
{
  const qn_kernel_case_order order = order_of(t, c);
  qn_kernel_trial_request r = {.folder = t->s->folder,
                               .base = order,
                               .processor = t->s->device.kind != QN_CUDA,
                               .gpu = t->s->device.kind == QN_CUDA,
                               .device = t->s->device,
                               .threads = 2,
                               .quick = true,
                               .first_only = true};
  if (qn_kernel_trial(&r) != QN_OK) snprintf(r.first, sizeof r.first, "%s", qn_last_error());
  snprintf(why, bytes, "%.*s", (int)strcspn(r.first, "\n"), r.first);
  return !*r.first;
}

static void tell(tuning *t, const candidate *c, const qn_kernel_bench *k, const char *why)
{
  char text[256];
  qn_tuned_text(&c->tuned, text, sizeof text);
  const qn_ratio *r = &k->b.speedup;
  if (t->s->order->json) {
    json_t *line = json_pack("{s:s, s:s}", "candidate", text, "failure", why);
    if (!*why) {
      json_object_set_new(line, "ns", json_real(k->b.fused.time.median));
      json_object_set_new(line, "speedup", json_real(r->ratio));
    }
    json_array_append_new(t->lines, line);
    return;
  }
  qn_progress_hide(&t->progress);
  if (*why)
    printf("  %-32s not possible: %s\n", text, why);
  else
    printf("  %-32s %10s  %5.2fx %s\n", text, qn_duration(k->b.fused.time.median).text, r->ratio,
           qn_interval(r->low, r->high, 2).text);
  fflush(stdout);
}

static qn_status measure(tuning *t, const candidate *c, double seconds, qn_kernel_bench *k)
{
  qn_kernel_bench_request ask = {
      .order = order_of(t, c), .against = &t->incumbent, .seconds = seconds, .progress = &t->progress};
  return qn_kernel_bench_run(&ask, k);
}

/* Its speedup, NAN where it is not possible. */
static double try_one(tuning *t, const candidate *c, double seconds)
{
  char why[512] = "";
  qn_kernel_bench k = {.workload = NULL};
  bool right = is_right(t, c, why, sizeof why);
  if (right && measure(t, c, seconds, &k) != QN_OK)
    snprintf(why, sizeof why, "%.*s", (int)strcspn(qn_last_error(), "\n"), qn_last_error());
  else if (right && (!k.b.check.right || !k.b.has_unfused))
    snprintf(why, sizeof why, "%s", k.b.check.right ? k.b.unfused_check.wrong : k.b.check.wrong);
  tell(t, c, &k, why);
  const double speedup = *why ? (double)NAN : k.b.speedup.ratio;
  qn_bench_clear(&k.b);
  return speedup;
}

static qn_status look(void *user, const size_t *which, size_t n, double seconds, double *speedup)
{
  tuning *t = user;
  for (size_t k = 0; k < n; k++) {
    candidate c;
    choose(t, which[k], &c);
    speedup[k] = try_one(t, &c, seconds);
  }
  return QN_OK;
}

/* ---- the verdict ---- */
static void fill_tuned(const tuning *t, const qn_kernel_bench *k, qn_tuned *tuned)
{
  time_t now = time(NULL);
  struct tm utc;
  *tuned = t->best.tuned;
  snprintf(tuned->device, sizeof tuned->device, "%s", k->b.device.name);
  strftime(tuned->date, sizeof tuned->date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
  snprintf(tuned->workload, sizeof tuned->workload, "%s", t->size->name);
  tuned->before_ns = k->b.unfused.time.median;
  tuned->after_ns = k->b.fused.time.median;
}

static void say(const tuning *t, const qn_kernel_bench *k, const char *text, bool written)
{
  const qn_ratio *r = &k->b.speedup;
  const char *word = qn_verdict_word(k->b.verdict);
  if (t->s->order->json) {
    json_t *all = json_pack("{s:s, s:s, s:s, s:O, s:s, s:f, s:[f, f], s:s, s:b}", "kernel", t->s->folder->name,
                            "device", k->b.device.name, "workload", t->size->name, "candidates", t->lines, "best", text,
                            "speedup", r->ratio, "interval", r->low, r->high, "verdict", word, "written", written);
    json_dumpf(all, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(all);
    return;
  }
  printf("best: %s, measured again beside the values in force: %.2fx %s, %s\n", text, r->ratio,
         qn_interval(r->low, r->high, 2).text, word);
  if (written)
    printf("kept in %s/tuned.json for %s; --untuned leaves it aside\n", t->s->folder->path, k->b.device.name);
  else if (k->b.verdict != QN_FASTER)
    printf("the values in force stay\n");
}

static qn_status conclude(tuning *t)
{
  char text[256];
  qn_kernel_bench k;
  qn_tuned tuned;
  const double seconds = t->s->order->seconds;
  qn_status status = measure(t, &t->best, seconds > 0 ? 4 * seconds : prove_s, &k);
  qn_progress_end(&t->progress);
  if (status == QN_OK && !k.b.has_unfused) status = qn_fail(QN_KERNEL_ERROR, "the best candidate is wrong now");
  const bool write = status == QN_OK && k.b.verdict == QN_FASTER && !t->s->order->dry_run;
  if (status == QN_OK) {
    fill_tuned(t, &k, &tuned);
    qn_tuned_text(&tuned, text, sizeof text);
    if (write) status = qn_tuned_write(t->s->folder, &tuned);
  }
  if (status == QN_OK) say(t, &k, text, write);
  qn_bench_clear(&k.b);
  return status;
}

static qn_status tune(tuning *t)
{
  const qn_folder *f = t->s->folder;
  const size_t n = count(f, t->s->order);
  if (n < 2)
    return qn_fail(QN_BAD_ARGUMENT,
                   "kernel %s has nothing to tune: a member like \"tune\": {\"threadgroup\": [[64], "
                   "[128], [256]]} in %s says what",
                   f->name, f->file);
  qn_require(n <= MOST_CANDIDATES, "kernel %s: more than %d candidates to tune", f->name, MOST_CANDIDATES);
  t->size = f->n_workloads ? &f->workload[0] : &f->size[f->n_sizes - 1];
  if (t->s->order->workload) qn_try(qn_kernel_size_of(t->s, &t->size));
  qn_try(qn_kernel_case_of(t->s, t->size, &t->incumbent));
  if (!t->s->order->json)
    printf("%s over %s on %s, %zu candidates\n", f->name, t->size->name, qn_device_kind_name(t->s->device.kind), n);
  qn_progress_begin(&t->progress, "tune", n);
  size_t best, looked;
  double speedup;
  const qn_search search = {
      .n = n, .look_s = t->s->order->seconds > 0 ? t->s->order->seconds : look_s, .look = look, .user = t};
  const qn_status status = qn_search_run(&search, &best, &speedup, &looked);
  if (status == QN_OK && best < n) {
    choose(t, best, &t->best);
    return conclude(t);
  }
  qn_progress_end(&t->progress);
  qn_try(status);
  return qn_fail(QN_KERNEL_ERROR, "kernel %s: none of %zu candidates is right", f->name, looked);
}

int qn_action_tune(const qn_kernel_order *order)
{
  qn_kernel_session s;
  tuning t = {.s = &s, .lines = json_array()};
  qn_status status = qn_kernel_open(&s, order);
  if (status == QN_OK) status = tune(&t);
  int result = status == QN_OK ? QN_EXIT_OK : qn_kernel_complain(&s, status);
  json_decref(t.lines);
  qn_kernel_close(&s);
  return result;
}
