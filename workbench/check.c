/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - which items there are, and how their outcome is told. Running them is the legs' business, doing so in
 * several processes that of jobs.c. */
#include "workbench/check.h"
#include "core/core.h"
#include "cpu/tier.h"
#include "quern/quern.h"
#include "workbench/jobs.h"
#include "workbench/op_check.h"
#include "workbench/progress.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { TARGETS_MOST = 64 };

typedef struct item_list {
  const qn_check_options *options;
  qn_item *at;
  size_t n;
} item_list;

/* ---- which items ---- */

static bool wants_leg(const qn_check_options *options, int leg)
{
  return options->leg ? options->leg == leg : leg != QN_LEG_SELFTEST;
}

/* The name without its "/caseN". */
static size_t only_length(const char *only)
{
  const char *at = strstr(only, "/case");
  return at ? (size_t)(at - only) : strlen(only);
}

static bool wants_name(const qn_check_options *options, const char *name)
{
  if (!options->only) return true;
  size_t n = only_length(options->only);
  return !strncmp(name, options->only, n) && (!name[n] || name[n] == '/');
}

static void add_item(item_list *list, int leg, const qn_target *target, size_t row, const char *word,
                     void (*run)(qn_trial *))
{
  qn_item item = {.leg = leg, .target = *target, .row = row, .run = run};
  char last[24] = "";
  if (row != QN_NO_ROW) {
    snprintf(last, sizeof last, "/row%zu", row);
    qn_row_name(&target->op->info, row, item.about, sizeof item.about);
  }
  snprintf(item.name, sizeof item.name, "leg%d/%s%s%s%s%s%s", leg, target->backend, *target->variant ? "/" : "",
           target->variant, word ? "/" : "", word ? word : "", last);
  if (list->n < QN_ITEMS_MOST && wants_leg(list->options, leg) && wants_name(list->options, item.name))
    list->at[list->n++] = item;
}

/* What needs size or forced launches; of an op with a reference in double what it brings itself. */
static void add_large(item_list *list, const qn_target *target, const qn_op_check *check)
{
  if (check->reference) {
    if (target->device.kind == QN_EMULATOR && check->far)
      add_item(list, QN_LEG_VARIANTS, target, QN_NO_ROW, "far", check->far);
    return;
  }
  add_item(list, QN_LEG_VARIANTS, target, QN_NO_ROW, "large", qn_leg_large);
  add_item(list, QN_LEG_VARIANTS, target, QN_NO_ROW, "huge", qn_leg_huge);
  if (target->device.kind == QN_CUDA) add_item(list, QN_LEG_VARIANTS, target, QN_NO_ROW, "graph", qn_leg_graph);
}

/* The items of one target. One that cannot run here is one item, which says why. Without a reference in double rows of
 * f64 are the same function whatever the tier is, and its formula is the oracle's: they are checked once, and by golden
 * vectors. With one, where tiers add up in orders of their own, leg 1 is leg 2 as well. */
static void add_target(item_list *list, const qn_target *target)
{
  const qn_op_info *info = &target->op->info;
  const qn_op_check *check = qn_op_check_of(target->op);
  const bool refers = check->reference, is_reference = target->device.kind == QN_CPU && !strcmp(target->variant, "ref");
  const size_t n_lanes = refers ? info->n_types : qn_op_rows(info, QN_CUDA);
  const size_t n_rows = is_reference ? info->n_types : n_lanes;
  const bool strided = !refers && qn_op_is_strided(info) && info->agreement == QN_BITWISE;
  const bool oracle = is_reference && (!refers || qn_tiers_agree(target->op));
  if (!target->runs) {
    add_item(list, QN_LEG_VARIANTS, target, QN_NO_ROW, NULL, qn_leg_variants);
    return;
  }
  for (size_t row = 0; row < n_rows; row++) add_item(list, QN_LEG_VARIANTS, target, row, NULL, qn_leg_variants);
  for (size_t row = 0; row < n_rows && strided; row++)
    add_item(list, QN_LEG_VARIANTS, target, row, "layouts", qn_leg_layouts);
  add_large(list, target, check);
  for (size_t row = 0; row < n_lanes && oracle; row++)
    add_item(list, QN_LEG_ORACLE, target, row, NULL, refers ? qn_leg_reference : qn_leg_oracle);
  for (size_t row = 0; row < (refers ? 1 : n_rows); row++)
    add_item(list, QN_LEG_GOLDEN, target, refers ? QN_NO_ROW : row, NULL, qn_leg_golden);
}

static bool wants_device(const qn_device *only, const qn_target *target)
{
  return !only || (only->kind == target->device.kind && only->index == target->device.index);
}

/* The golden vectors and the contract are checked where the op runs, the contract once a backend. */
static void add_op(item_list *list, const qn_op *op, const qn_device *only)
{
  qn_target targets[TARGETS_MOST], *contract[QN_DEVICE_KIND_COUNT] = {0};
  size_t n = qn_targets_of(op, only ? only->index : 0, targets, TARGETS_MOST);
  for (size_t k = 0; k < n; k++) {
    if (!wants_device(only, &targets[k])) continue;
    add_target(list, &targets[k]);
    if (targets[k].runs && !contract[targets[k].device.kind]) contract[targets[k].device.kind] = &targets[k];
  }
  for (int kind = 0; kind < QN_DEVICE_KIND_COUNT; kind++) {
    if (!contract[kind]) continue;
    qn_target target = *contract[kind];
    target.variant[0] = 0; /* what the library chooses */
    qn_tier tier;
    if (kind == QN_CPU && qn_tier_in_force(&tier) != QN_OK) { /* the option names one that cannot run here */
      target.runs = false;
      snprintf(target.why, sizeof target.why, "%s", qn_last_error());
    }
    add_item(list, QN_LEG_CONTRACT, &target, QN_NO_ROW, NULL, qn_leg_contract);
    add_item(list, QN_LEG_SELFTEST, &target, QN_NO_ROW, NULL, qn_leg_spoilt);
  }
  if (wants_leg(list->options, QN_LEG_SELFTEST))
    list->n += qn_selftest_items(op, list->at + list->n, QN_ITEMS_MOST - list->n);
}

/* A backend that was asked for and of which nothing can run here is a mistake, not a list of skips; a tier of the
 * processor that is not here is no such backend. */
static qn_status require_one_that_runs(const item_list *list, const char *backend)
{
  for (size_t k = 0; k < list->n; k++)
    if (list->at[k].target.runs || !*list->at[k].target.variant) return QN_OK;
  return list->n
             ? qn_fail(QN_UNSUPPORTED, "nothing of the backend %s can run here: %s", backend, list->at[0].target.why)
             : QN_OK;
}

/* The same list in every process: it depends on the options and the machine alone. */
static qn_status make_items(item_list *list, const qn_check_options *options)
{
  const qn_op_info *one = NULL;
  qn_device device, *only = NULL;
  char text[64];
  const char *backend = options->backend;
  *list = (item_list){.options = options};
  if (options->op) qn_try(qn_op_find(options->op, &one));
  qn_try(qn_option_text(QN_OPTION_DEVICE, text, sizeof text));
  if (!backend && *text) backend = text;
  if (backend) {
    qn_try(qn_device_from_name(backend, &device));
    only = &device;
  }
  qn_try(qn_try_allocate(&list->at, QN_ITEMS_MOST * sizeof *list->at, "the list of checks"));
  for (size_t k = 0; qn_ops[k]; k++)
    if (!one || one == &qn_ops[k]->info) add_op(list, qn_ops[k], only);
  qn_status status = backend && !options->only ? require_one_that_runs(list, backend) : QN_OK;
  if (status != QN_OK) qn_release(list->at);
  return status;
}

/* ---- how they are told ---- */

void qn_tap_lines(FILE *out, const char *text)
{
  while (*text) {
    size_t n = strcspn(text, "\n");
    fprintf(out, "#   %.*s\n", (int)n, text);
    text += n + (text[n] == '\n');
  }
}

static void tell_tap(FILE *out, size_t number, const qn_item *item, const qn_outcome *o)
{
  fprintf(out, "%sok %zu - %s %s", o->failure ? "not " : "", number, item->target.op->info.name, item->name);
  if (*item->about) fprintf(out, " (%s)", item->about);
  if (o->skipped && !o->failure)
    fprintf(out, " # SKIP %s", o->skipped);
  else if (*o->note)
    fprintf(out, ": %s", o->note);
  fputc('\n', out);
  if (o->failure) qn_tap_lines(out, o->failure);
  fflush(out);
}

static void tell_json(FILE *out, const qn_item *item, const qn_outcome *o)
{
  const char *result = o->failure ? "failed" : o->skipped ? "skipped" : "passed";
  json_t *line = json_pack("{s:s, s:s, s:i, s:s, s:s, s:s, s:s, s:s?}", "op", item->target.op->info.name, "item",
                           item->name, "leg", item->leg, "backend", item->target.backend, "types", item->about,
                           "result", result, "note", o->note, "why", o->failure ? o->failure : o->skipped);
  char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
  fprintf(out, "%s\n", text ? text : "{\"result\":\"failed\",\"why\":\"out of memory\"}");
  fflush(out);
  free(text);
  json_decref(line);
}

/* The first item of its target? */
static bool is_first_of_target(const item_list *list, size_t k)
{
  const qn_target *t = &list->at[k].target;
  for (size_t j = 0; j < k; j++) {
    const qn_target *u = &list->at[j].target;
    if (u->op == t->op && !strcmp(u->backend, t->backend) && !strcmp(u->variant, t->variant)) return false;
  }
  return true;
}

/* Names the targets that run here, and those that do not. */
static void tell_targets(FILE *out, const item_list *list)
{
  for (int runs = 1; runs >= 0; runs--) {
    qn_text line = {0};
    for (size_t k = 0; k < list->n; k++) {
      const qn_target *t = &list->at[k].target;
      if (*t->variant && t->runs == (bool)runs && is_first_of_target(list, k))
        qn_text_add(&line, " %s/%s/%s", t->op->info.name, t->backend, t->variant);
    }
    if (line.at) fprintf(out, "# targets that %s:%s\n", runs ? "run here" : "do not", line.at);
    qn_text_free(&line);
  }
}

typedef struct teller {
  const item_list *list;
  FILE *out;
  qn_progress progress;
  size_t failed, skipped;
} teller;

static void tell(void *user, size_t k, const qn_outcome *outcome)
{
  teller *t = user;
  qn_progress_hide(&t->progress);
  t->failed += outcome->failure != NULL;
  t->skipped += !outcome->failure && outcome->skipped;
  if (t->list->options->json)
    tell_json(t->out, &t->list->at[k], outcome);
  else
    tell_tap(t->out, k + 1, &t->list->at[k], outcome);
}

static void tell_progress(void *user, size_t done, size_t running)
{
  teller *t = user;
  qn_progress_at(&t->progress, done, "%s %s", t->list->at[running].target.op->info.name, t->list->at[running].name);
}

/* Nothing is called as `only` says: which name is near? */
static qn_status fail_only(const qn_check_options *options)
{
  qn_check_options all = *options;
  item_list list;
  all.only = NULL;
  qn_try(make_items(&list, &all));
  const char **names = qn_allocate((list.n + 1) * sizeof *names);
  char name[64] = "";
  if (options->only) snprintf(name, sizeof name, "%.*s", (int)only_length(options->only), options->only);
  for (size_t k = 0; names && k <= list.n; k++) names[k] = k < list.n ? list.at[k].name : NULL;
  qn_status status = options->only ? qn_fail(QN_BAD_ARGUMENT, "there is no check called %s%s", options->only,
                                             names ? qn_suggest(name, names) : "")
                                   : qn_fail(QN_UNSUPPORTED, "there is nothing to check: no such leg on that backend");
  qn_release(names);
  qn_release(list.at);
  return status;
}

qn_status qn_check(const qn_check_options *options, FILE *out, size_t *failures)
{
  item_list list;
  qn_try(make_items(&list, options));
  if (!list.n) {
    qn_release(list.at);
    return fail_only(options);
  }
  teller t = {.list = &list, .out = out};
  if (!options->json) {
    fprintf(out, "TAP version 13\n# quern %s check, seed %llu\n", qn_version(), (unsigned long long)options->seed);
    tell_targets(out, &list);
    fprintf(out, "1..%zu\n", list.n);
  }
  qn_progress_begin(&t.progress, "check", list.n);
  qn_status status = qn_jobs_run(options, list.at, list.n, tell, tell_progress, &t);
  qn_progress_end(&t.progress);
  if (!options->json)
    fprintf(out, "# %zu passed, %zu failed, %zu skipped\n", list.n - t.failed - t.skipped, t.failed, t.skipped);
  qn_release(list.at);
  *failures = t.failed;
  return status;
}
