/* SPDX-License-Identifier: Apache-2.0 */
/* leg_subject.c - legs 1 and 2 of `quern check` for ops with a reference in double. Leg 1: a device's variants, and the
 * processor's where they add up in orders of their own, are as near to the reference as the op says; all other tiers
 * have the ref tier's bits; and calls with other pools, on devices at other addresses, have the same bits again. Leg 2:
 * the ref tier is as near to the reference, unless leg 1 says so. */
#include "workbench/check.h"
#include "core/core.h"
#include "workbench/subject.h"
#include <stdio.h>
#include <string.h>

enum { TEXT = 512 };

typedef struct tried {
  size_t calls;
  double worst;
} tried;

static size_t n_cases(const qn_op *op)
{
  size_t n = 0;
  while (qn_op_check_of(op)->cases[n].name) n++;
  return n;
}

/* NULL past the last. */
static const char *variation_of(const qn_item *item, size_t v)
{
  const qn_op_check *check = qn_op_check_of(item->target.op);
  if (check->variation) return check->variation(item->target.device.kind, item->row, v);
  return v ? NULL : "";
}

/* Have all tiers the ref tier's bits? */
static bool tiers_agree(const qn_op *op) { return op->info.agreement != QN_REDUCTION; }

/* Case k in its v-th variation. Kernels of products mostly want 16 bytes. */
static qn_subject_order order_of(const qn_trial *trial, size_t k, size_t v)
{
  static const qn_alignment alignments[2][4] = {{QN_ALIGN_END, QN_ALIGN_64, QN_ALIGN_16, QN_ALIGN_ELEMENT},
                                                {QN_ALIGN_64, QN_ALIGN_END, QN_ALIGN_16, QN_ALIGN_MIXED}};
  const qn_op *op = trial->item->target.op;
  const size_t turn = (k + v) % 4, agree = tiers_agree(op);
  return (qn_subject_order){.op = op,
                            .row = trial->item->row,
                            .device = trial->item->target.device,
                            .text = qn_op_check_of(op)->cases[k].text,
                            .more = variation_of(trial->item, v),
                            .alignment = alignments[agree][turn],
                            .fenced = true,
                            .way = turn % 2 ? QN_WAY_ELSEWHERE : QN_WAY_DIRECT,
                            .seed = trial->options->seed + v * n_cases(op) + k};
}

static void fail(qn_trial *trial, size_t number, const qn_subject_order *order, const char *how, uint64_t step,
                 const char *wrong)
{
  const char *name = qn_op_check_of(order->op)->cases[number % n_cases(order->op)].name;
  qn_trial_fail(trial, (long)number, "%s: %s %s\n%s, step %llu: %s", name, order->text, order->more, how,
                (unsigned long long)step, wrong);
}

/* One step, fetched; guards looked at. */
static qn_status take_step(qn_trial *trial, size_t number, qn_subject *d, const qn_subject_order *order, uint64_t t,
                           const char *how)
{
  char wrong[TEXT];
  qn_try(qn_subject_turn(d, t));
  qn_try(qn_subject_step(d));
  if (!qn_subject_intact(d, wrong, sizeof wrong)) fail(trial, number, order, how, t, wrong);
  return QN_OK;
}

/* ---- against the reference ---- */

static qn_status step_beside(qn_trial *trial, size_t number, qn_subject *d, const qn_subject_order *order,
                             const char *how, tried *t)
{
  char wrong[TEXT];
  qn_try(qn_op_prepare(&d->op->info, &d->exec, d->params, d->n, d->tensors));
  for (uint64_t step = 0; step < d->steps && !trial->failure; step++) {
    qn_try(take_step(trial, number, d, order, step, how));
    qn_try(qn_subject_refer(d, qn_subject_looseness(d), 0));
    if (!qn_subject_right(d, wrong, sizeof wrong, &trial->elements, &t->worst))
      fail(trial, number, order, how, step, wrong);
  }
  t->calls++;
  return QN_OK;
}

/* Each variant that can do this, by name, from where the first one began. */
static qn_status see_named(qn_trial *trial, size_t number, qn_subject *d, const qn_subject_order *order, tried *t)
{
  const qn_engine *engine = d->op->engine;
  char how[128];
  const char *name;
  for (size_t k = 0; engine->variant && (name = engine->variant(d->op, k)) && !trial->failure; k++) {
    qn_try(qn_subject_rewind(d));
    qn_try(qn_option_set(engine->option, name));
    snprintf(how, sizeof how, "the variant %s", name);
    const qn_status status = step_beside(trial, number, d, order, how, t);
    qn_option_set(engine->option, NULL);
    if (status != QN_UNSUPPORTED) qn_try(status);
  }
  return QN_OK;
}

static qn_status see_reference(qn_trial *trial, size_t number, const qn_subject_order *order, tried *t)
{
  qn_subject d;
  qn_status status = qn_subject_open(&d, order);
  if (status == QN_OK) status = step_beside(trial, number, &d, order, "the variant that is chosen", t);
  if (status == QN_OK && order->device.kind != QN_CPU) status = see_named(trial, number, &d, order, t);
  qn_subject_close(&d);
  return status;
}

/* ---- bits ---- */

/* Both step; the one on the target, the other on the ref tier, or as the target does. */
static qn_status step_both(qn_trial *trial, size_t number, qn_subject *d, qn_subject *other,
                           const qn_subject_order *order, const char *how)
{
  const char *const tier = trial->item->target.variant;
  const bool ref = d->exec.device.kind == QN_CPU && tiers_agree(d->op);
  char wrong[TEXT];
  for (uint64_t t = 0; t < d->steps && !trial->failure; t++) {
    if (ref) qn_try(qn_option_set("cpu", tier));
    qn_try(take_step(trial, number, d, order, t, how));
    if (ref) qn_try(qn_option_set("cpu", "ref"));
    qn_try(take_step(trial, number, other, order, t, "what it stands beside"));
    for (size_t r = 0; r < d->op->info.n_tensors; r++)
      for (size_t k = 0; k < d->role[r].n; k++) trial->elements += d->role[r].place[k].elements;
    if (!qn_subject_same(d, other, wrong, sizeof wrong)) fail(trial, number, order, how, t, wrong);
  }
  return QN_OK;
}

/* threads: of the pool; 0: none. */
static qn_status see_bits(qn_trial *trial, size_t number, const qn_subject_order *order, int threads)
{
  const bool agree = tiers_agree(order->op), on_cpu = order->device.kind == QN_CPU;
  qn_subject d, other = {.op = NULL};
  qn_subject_order pooled = *order, elsewhere = *order;
  char how[128];
  snprintf(how, sizeof how, "%s with %d threads beside %s", trial->item->target.variant, threads,
           !agree   ? "itself with one"
           : on_cpu ? "the ref tier"
                    : "itself at other addresses");
  pooled.pool = qn_trial_pool(trial, threads);
  if (!on_cpu && agree) elsewhere.alignment = order->alignment == QN_ALIGN_64 ? QN_ALIGN_ELEMENT : QN_ALIGN_64;
  qn_status status = qn_subject_open(&d, &pooled);
  if (status == QN_OK) status = qn_subject_open(&other, &elsewhere);
  if (status == QN_OK) status = step_both(trial, number, &d, &other, order, how);
  qn_subject_close(&d);
  qn_subject_close(&other);
  return status;
}

/* The ref tier alone has nothing new to show without a pool, and nothing has that adds up in an order of its own. */
static int threads_of(const qn_trial *trial, size_t k)
{
  static const int threads[] = {0, 3, 2};
  const qn_target *target = &trial->item->target;
  const bool ref = target->device.kind == QN_CPU && !strcmp(target->variant, "ref");
  return !tiers_agree(target->op) ? 3 : ref ? 2 + (int)(k % 2) : threads[k % 3];
}

/* ---- which cases ---- */

static void run_case(qn_trial *trial, size_t number, size_t k, size_t v, tried *t)
{
  const qn_op *op = trial->item->target.op;
  const qn_subject_order order = order_of(trial, k, v);
  const bool agree = tiers_agree(op), on_cpu = order.device.kind == QN_CPU, on_gpu = order.device.kind == QN_CUDA;
  qn_status status = QN_OK;
  if (!on_cpu || !agree) status = see_reference(trial, number, &order, t);
  if (status == QN_OK && (agree || !on_gpu)) status = see_bits(trial, number, &order, threads_of(trial, k));
  if (status != QN_OK) fail(trial, number, &order, "a call", 0, qn_last_error());
}

/* A device kernel is compiled for each variation on the emulator: below the full level cases take turns there, and
 * at the quick one everywhere, where there are variations. Settings that change nothing are every case's, at the quick
 * level every third's. */
static bool is_taken(const qn_trial *trial, size_t k, size_t v, size_t n_variations)
{
  const bool on_host = trial->item->target.device.kind == QN_EMULATOR;
  const bool plain = !*variation_of(trial->item, 0), turn = v == k % n_variations || (!v && plain);
  if (trial->options->level == QN_FULL) return true;
  if (trial->options->level == QN_QUICK) return turn && (k % 3 == 0 || (!on_host && !plain));
  return turn || !on_host;
}

void qn_leg_subject_variants(qn_trial *trial)
{
  const qn_item *item = trial->item;
  const size_t cases = n_cases(item->target.op);
  tried t = {0};
  size_t n = 0;
  if (!item->target.runs) {
    qn_trial_skip(trial, "%s", item->target.why);
    return;
  }
  if (qn_target_select(&item->target) != QN_OK) {
    qn_trial_fail(trial, -1, "%s", qn_last_error());
    return;
  }
  while (variation_of(item, n)) n++;
  for (size_t v = 0; v < n; v++)
    for (size_t k = 0; k < cases; k++)
      if (is_taken(trial, k, v, n) && qn_trial_takes(trial, v * cases + k)) run_case(trial, v * cases + k, k, v, &t);
  if (t.calls)
    qn_trial_note(trial, "%zu cases, %zu calls, %llu elements, worst %.2f of what is allowed", trial->cases, t.calls,
                  (unsigned long long)trial->elements, t.worst);
  else
    qn_trial_note(trial, "%zu cases, %llu elements, the ref tier's bits", trial->cases,
                  (unsigned long long)trial->elements);
}

void qn_leg_subject_oracle(qn_trial *trial)
{
  tried t = {0};
  for (size_t k = 0; k < n_cases(trial->item->target.op); k++) {
    if (!is_taken(trial, k, 0, 1) || !qn_trial_takes(trial, k)) continue;
    const qn_subject_order order = order_of(trial, k, 0);
    qn_subject d = {.op = NULL};
    qn_status status = qn_option_set("cpu", "ref");
    if (status == QN_OK) status = qn_subject_open(&d, &order);
    if (status == QN_OK) status = step_beside(trial, k, &d, &order, "the ref tier", &t);
    if (status != QN_OK) fail(trial, k, &order, "a call", 0, qn_last_error());
    qn_subject_close(&d);
  }
  qn_trial_note(trial, "%zu cases, %llu elements, worst %.2f of what is allowed", trial->cases,
                (unsigned long long)trial->elements, t.worst);
}
