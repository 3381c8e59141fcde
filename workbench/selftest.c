/* SPDX-License-Identifier: Apache-2.0 */
/* selftest.c - leg 5: the check itself is checked. An op is copied, a bug is planted in the copy, and the legs that are
 * there to see it run on the copy until one of their cases fails. A bug that nobody sees is a failure, and so is a
 * wrapper without a bug that somebody sees. */
#include "workbench/check.h"
#include "core/core.h"
#include "workbench/mutant.h"
#include "workbench/op_check.h"
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
