/* SPDX-License-Identifier: Apache-2.0 */
/* selftest.c - leg 5: the check itself is checked. An op is copied, a bug is planted in the copy, and the legs that are
 * there to see it run on the copy until one of their cases fails; a bug that nobody sees is a failure, and so is a
 * wrapper without a bug that somebody sees. Of every op right results are spoilt, and of one with a reference in double
 * a step takes another value of a param than the reference, or is of a looser class: each must be seen. */
#include "workbench/check.h"
#include "core/core.h"
#include "workbench/subject.h"
#include <math.h>
#include <string.h>

typedef struct planting {
  const qn_mutant *mutant;
  const qn_op *op;
  unsigned where; /* one of mutant->where */
  int leg;
  bool layouts; /* of leg 1 the part about tensors that are not dense */
} planting;

enum { PLANTINGS_MOST = 256, IN_BEST = QN_IN_ONE_TIER | QN_IN_LAYOUTS | QN_HARMLESS };
static planting plantings[PLANTINGS_MOST]; /* by item->row */
static size_t n_plantings;

/* ---- planting ---- */

static qn_tier best_tier(const qn_op *op)
{
  static const qn_tier tiers[] = {QN_TIER_AVX512, QN_TIER_AVX2, QN_TIER_NEON};
  for (size_t k = 0; k < sizeof tiers / sizeof *tiers; k++)
    if (op->cpu[tiers[k]] && qn_tier_runs_here(tiers[k])) return tiers[k];
  return QN_TIER_REF;
}

/* The reference is what others are compared with, so a bug in one tier needs a tier that is not the reference. */
static qn_op plant(const planting *p)
{
  qn_op op = *p->op;
  qn_tier best = best_tier(p->op);
  qn_mutant_of = p->op;
  if (p->mutant->alter) p->mutant->alter(&op);
  if (!p->mutant->fn) return op;
  qn_mutant_original = p->op->cpu[p->where & IN_BEST ? best : QN_TIER_REF];
  for (int tier = 0; tier < QN_TIER_ORACLE; tier++)
    if (op.cpu[tier] && (tier == (int)best || !(p->where & IN_BEST))) op.cpu[tier] = p->mutant->fn;
  return op;
}

/* ---- running a leg on the copy ---- */

static void (*leg_of(const planting *p))(qn_trial *)
{
  static void (*const legs[])(qn_trial *) = {
      [QN_LEG_VARIANTS] = qn_leg_variants,
      [QN_LEG_ORACLE] = qn_leg_oracle,
      [QN_LEG_GOLDEN] = qn_leg_golden,
      [QN_LEG_CONTRACT] = qn_leg_contract,
  };
  return p->layouts ? qn_leg_layouts : legs[p->leg];
}

/* True, and the first line of why, if the leg fails on a row of the copy. */
static bool is_caught(const planting *p, const qn_op *copy, const qn_check_options *options, char *why, size_t bytes)
{
  size_t rows = p->leg == QN_LEG_CONTRACT || p->where == QN_HARMLESS ? 1 : qn_op_rows(&copy->info, QN_CUDA);
  for (size_t row = 0; row < rows; row++) {
    qn_item item = {.leg = p->leg, .row = row, .run = leg_of(p)};
    item.target = (qn_target){.op = copy, .device = {QN_CPU, 0}, .backend = "cpu", .runs = true};
    qn_tier tier = p->leg == QN_LEG_VARIANTS ? best_tier(p->op) : QN_TIER_REF;
    if (p->leg != QN_LEG_CONTRACT) snprintf(item.target.variant, sizeof item.target.variant, "%s", qn_tier_name(tier));
    snprintf(item.name, sizeof item.name, "leg%d/cpu/row%zu", p->leg, row);
    qn_trial trial = {.options = options, .item = &item, .only = -1};
    qn_trial_run(&trial);
    bool caught = trial.failure != NULL;
    if (caught) snprintf(why, bytes, "row %zu, %.*s", row, (int)strcspn(trial.failure, "\n"), trial.failure);
    qn_trial_free(&trial);
    if (caught) return true;
  }
  return false;
}

static void run_planting(qn_trial *trial)
{
  const planting *p = &plantings[trial->item->row];
  char why[160] = "";
  if (p->where & IN_BEST && p->leg == QN_LEG_VARIANTS && best_tier(p->op) == QN_TIER_REF) {
    qn_trial_skip(trial, "this machine has no tier but the reference to plant it in");
    return;
  }
  qn_op copy = plant(p);
  qn_check_options options = *trial->options;
  options.level = QN_QUICK;
  trial->cases++;
  bool caught = is_caught(p, &copy, &options, why, sizeof why);
  if (caught && p->where == QN_HARMLESS)
    qn_trial_fail(trial, -1, "%s (%s) is caught, so this test tells nothing: %s", p->mutant->name, p->mutant->what,
                  why);
  if (!caught && p->where != QN_HARMLESS)
    qn_trial_fail(trial, -1, "%s: leg %d does not see it%s", p->mutant->what, p->leg, p->layouts ? " in layouts" : "");
  qn_trial_note(trial, caught ? "%s: caught (%s)" : "%s: passes", p->mutant->what, why);
}

/* ---- the items ---- */

static void add(const planting *p, qn_item *items, size_t *n, size_t most)
{
  const qn_mutant *mutant = p->mutant;
  if (!(mutant->where & p->where) || (mutant->fits && !mutant->fits(p->op)) || *n == most ||
      n_plantings == PLANTINGS_MOST)
    return;
  qn_item item = {.leg = QN_LEG_SELFTEST, .row = n_plantings, .run = run_planting};
  item.target = (qn_target){.op = p->op, .device = {QN_CPU, 0}, .backend = "cpu", .runs = true};
  if (p->layouts)
    snprintf(item.name, sizeof item.name, "leg5/%s/layouts", mutant->name);
  else
    snprintf(item.name, sizeof item.name, "leg5/%s/leg%d", mutant->name, p->leg);
  plantings[n_plantings++] = *p;
  items[(*n)++] = item;
}

size_t qn_selftest_items(const qn_op *op, qn_item *items, size_t most)
{
  const qn_mutant *lists[] = {qn_mutants, qn_op_check_of(op)->mutants};
  size_t n = 0;
  if (qn_op_check_of(op)->reference) return 0;
  for (int k = 0; k < 2; k++)
    for (const qn_mutant *m = lists[k]; m && m->name; m++) {
      add(&(planting){m, op, QN_IN_ONE_TIER, QN_LEG_VARIANTS, false}, items, &n, most);
      add(&(planting){m, op, QN_EVERYWHERE_ORACLE, QN_LEG_ORACLE, false}, items, &n, most);
      add(&(planting){m, op, QN_EVERYWHERE_GOLDEN, QN_LEG_GOLDEN, false}, items, &n, most);
      add(&(planting){m, op, QN_IN_DESCRIPTION, QN_LEG_CONTRACT, false}, items, &n, most);
      for (int leg = QN_LEG_VARIANTS; leg <= QN_LEG_CONTRACT; leg++)
        add(&(planting){m, op, QN_HARMLESS, leg, false}, items, &n, most);
      if (!qn_op_is_strided(&op->info)) continue;
      add(&(planting){m, op, QN_IN_LAYOUTS, QN_LEG_VARIANTS, true}, items, &n, most);
      if (!m->alter) add(&(planting){m, op, QN_HARMLESS, QN_LEG_VARIANTS, true}, items, &n, most);
    }
  return n;
}

/* ---- another result, another call ---- */

static qn_subject_order order_of(const qn_trial *trial)
{
  const qn_op *op = trial->item->target.op;
  const char *const sample = qn_op_check_of(op)->sample;
  return (qn_subject_order){.op = op,
                            .device = trial->item->target.device,
                            .text = sample ? sample : "35 6 64 filled",
                            .seed = trial->options->seed};
}

/* Is it seen to be right: beside the ref tier's call where there is one, else beside its reference in double? */
static bool passes(const qn_subject *d, const qn_subject *want, char wrong[QN_SUBJECT_WRONG])
{
  uint64_t elements = 0;
  double worst = 0;
  return want->op ? qn_subject_agree(d, want, wrong, QN_SUBJECT_WRONG)
                  : qn_subject_right(d, wrong, QN_SUBJECT_WRONG, &elements, &worst);
}

/* ---- spoilt results ---- */

static const char *const spoils[] = {"nothing is written",
                                     "the last element is not written",
                                     "an element is off",
                                     "a byte behind the tensor is written",
                                     "an element is NaN",
                                     "an element is another one's",
                                     "a byte before the tensor is written"};
enum { SPOILS = sizeof spoils / sizeof spoils[0] };

/* Bytes take the place of others. False: they were the same. */
static bool copy(unsigned char *to, const unsigned char *from, size_t bytes)
{
  const bool differs = memcmp(to, from, bytes);
  memcpy(to, from, bytes);
  return differs;
}

/* The number in the middle, as far off as may not pass; of an op that says bits, one bit. */
static void put_off(const qn_subject *d, size_t r, size_t k, unsigned char *at)
{
  const size_t middle = d->role[r].place[k].elements / 2;
  if (d->op->info.agreement == QN_BITWISE) {
    *at ^= 1;
    return;
  }
  const double want = d->role[r].value[k][middle];
  qn_number_store(d->role[r].dtype, at, isfinite(want) ? want + 2.5 * d->role[r].allowed[k][middle] : 1);
}

/* Spoils a written tensor's bytes that were right. False: it changes none, as where a step leaves the last
 * element what it was. */
static bool spoil(qn_subject *d, size_t r, size_t k, int how)
{
  const qn_subject_role *role = &d->role[r];
  const size_t width = role->width, n = role->place[k].elements;
  const size_t first = qn_subject_at(d, r, k, 0), middle = qn_subject_at(d, r, k, n / 2),
               last = qn_subject_at(d, r, k, n - 1);
  switch (how) {
  case 0: return copy(role->after + first, role->before + first, last + width - first);
  case 1: return copy(role->after + last, role->before + last, width);
  case 2: put_off(d, r, k, role->after + middle); return true;
  case 3: role->after[last + width] ^= 1; return true;
  case 4: memset(role->after + middle, 0xff, width); return true;
  case 5: return copy(role->after + first, role->after + middle, width);
  default: role->after[first - 1] ^= 1; return true;
  }
}

static qn_status see_spoils(qn_trial *trial, qn_subject *d, const qn_subject *want)
{
  char wrong[QN_SUBJECT_WRONG];
  for (size_t r = 0; r < d->op->info.n_tensors; r++)
    for (size_t k = 0; k < d->role[r].n && d->role[r].access & QN_WRITE; k++)
      for (int how = 0; how < SPOILS && d->role[r].place[k].elements > 1; how++) {
        if (!qn_trial_takes(trial, trial->cases)) return QN_OK;
        qn_try(qn_subject_fetch(d));
        if (spoil(d, r, k, how) && passes(d, want, wrong))
          qn_trial_fail(trial, -1, "planted in %s[%zu] and not caught: %s", d->op->info.tensors[r].name, k,
                        spoils[how]);
      }
  return QN_OK;
}

/* Not fenced, as bytes behind tensors are spoilt too. */
static void see_right(qn_trial *trial)
{
  qn_subject_order order = order_of(trial);
  char wrong[QN_SUBJECT_WRONG];
  qn_subject d, want = {.op = NULL};
  const bool refers = qn_op_check_of(order.op)->reference;
  qn_status status = qn_subject_open(&d, &order);
  if (status == QN_OK && !refers) status = qn_subject_open(&want, qn_subject_reference_order(&order, &d));
  if (status == QN_OK) status = qn_subject_step(&d);
  if (status == QN_OK) status = refers ? qn_subject_refer(&d, qn_subject_looseness(&d), 0) : qn_subject_step(&want);
  if (status == QN_OK && !passes(&d, &want, wrong))
    qn_trial_fail(trial, -1, "no bug was planted, and there is one: %s", wrong);
  if (status == QN_OK) status = see_spoils(trial, &d, &want);
  if (status != QN_OK) qn_trial_fail(trial, -1, "%s", qn_last_error());
  qn_subject_close(&d);
  qn_subject_close(&want);
}

/* ---- another call than the reference's ---- */

/* A param as it is for the call, a little off. */
static bool nudge(const qn_op_param *param, unsigned char *params)
{
  const double x = qn_param_get(param, params);
  if (param->type == QN_PARAM_HOST_F64) memset(params + param->offset, 0, sizeof(void *)); /* not given */
  switch (param->type) {
  case QN_PARAM_DOUBLE: qn_param_set(param, params, x > 0 ? x * 0.98 : 0.02); return true;
  case QN_PARAM_U64: qn_param_set_u64(param, params, (uint64_t)x + 1); return true;
  case QN_PARAM_BOOL: qn_param_set(param, params, x == 0); return true;
  default: return param->type == QN_PARAM_HOST_F64;
  }
}

/* A step that `change` turns into another, which must not pass as the one that it was. False: it changes nothing. */
typedef struct change {
  const qn_op_param *param; /* a little off; NULL: a setting */
  const char *setting;
} change;

static qn_status see_change(qn_trial *trial, const qn_subject_order *order, const change *by)
{
  char wrong[QN_SUBJECT_WRONG];
  unsigned char kept[QN_SUBJECT_PARAMS];
  qn_subject d, none = {.op = NULL};
  qn_status status = qn_subject_open(&d, order);
  memcpy(kept, d.params, sizeof kept);
  if (status == QN_OK && by->setting) status = qn_subject_read(&d, by->setting);
  if (status == QN_OK && (by->setting || nudge(by->param, d.params))) {
    status = qn_subject_step(&d);
    memcpy(d.params, kept, sizeof kept);
    if (status == QN_OK) status = qn_subject_refer(&d, 0, 0);
    if (status == QN_OK && passes(&d, &none, wrong))
      qn_trial_fail(trial, -1, "a step with another %s passes", by->setting ? by->setting : by->param->name);
  }
  qn_subject_close(&d);
  return status;
}

/* Settings that must be seen, where the op brings such; else every param. */
static void see_changes(qn_trial *trial)
{
  const qn_op *op = trial->item->target.op;
  const char *const *looser = qn_op_check_of(op)->looser;
  const qn_subject_order order = order_of(trial);
  for (size_t k = 0; looser ? looser[k] != NULL : k < op->info.n_params; k++) {
    const change by = {.param = looser ? NULL : &op->info.params[k], .setting = looser ? looser[k] : NULL};
    if (!qn_trial_takes(trial, trial->cases)) return;
    if (see_change(trial, &order, &by) != QN_OK)
      qn_trial_fail(trial, -1, "%s: %s", looser ? looser[k] : op->info.params[k].name, qn_last_error());
  }
}

void qn_leg_spoilt(qn_trial *trial)
{
  see_right(trial);
  if (qn_op_check_of(trial->item->target.op)->reference) see_changes(trial);
  qn_trial_note(trial, "%zu bugs planted, all caught", trial->cases);
}
