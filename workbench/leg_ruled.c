/* SPDX-License-Identifier: Apache-2.0 */
/* leg_ruled.c - legs 1, 2 and 5 of `quern check` for ops of lists whose shapes follow by rule. Leg 1: on the processor
 * every tier has the ref tier's bits, serially and on pools; a device's results are as near to the reference in double
 * as the op's description says, and the same twice. Leg 2: the ref tier is as near to that reference. Leg 5 spoils
 * right results, and changes a param behind the reference's back: both must be seen. The others are in files of their
 * own. */
#include "workbench/leg_ruled.h"
#include <math.h>
#include "core/core.h"
#include "quern/device.h"
#include "workbench/fill.h"
#include "workbench/op_check.h"
#include "workbench/ruled.h"
#include <stdio.h>
#include <string.h>

enum { TEXT = 512 };

static size_t n_cases(const qn_op *op)
{
  size_t n = 0;
  while (qn_op_check_of(op)->cases[n].name) n++;
  return n;
}

static qn_ruled_order order_of(const qn_trial *trial, size_t number, const char *variation)
{
  static const size_t shifts[] = {0, 4, 16, 60};
  const qn_op *op = trial->item->target.op;
  return (qn_ruled_order){.op = op,
                          .device = trial->item->target.device,
                          .text = qn_op_check_of(op)->cases[number % n_cases(op)].text,
                          .more = variation,
                          .shift = shifts[number % 4],
                          .fenced = true,
                          .planned = number % 2,
                          .seed = trial->options->seed + number};
}

static void fail(qn_trial *trial, size_t number, const char *how, uint64_t step, const char *wrong)
{
  const qn_op *op = trial->item->target.op;
  const qn_check_text *c = &qn_op_check_of(op)->cases[number % n_cases(op)];
  qn_trial_fail(trial, (long)number, "%s: %s\n%s, step %llu: %s", c->name, c->text, how, (unsigned long long)step,
                wrong);
}

/* One step of one list, fetched; guards looked at. */
static qn_status take_step(qn_trial *trial, size_t number, qn_ruled_data *d, uint64_t t, const char *how)
{
  char wrong[TEXT];
  qn_try(qn_ruled_turn(d, t));
  qn_try(qn_ruled_run(d));
  qn_try(qn_ruled_fetch(d));
  if (!qn_ruled_intact(d, wrong, sizeof wrong)) fail(trial, number, how, t, wrong);
  return QN_OK;
}

/* ---- leg 1 ---- */

/* Both step; the one on the target, the other on the ref tier (or as the target does, where that is a device). */
static qn_status step_both(qn_trial *trial, size_t number, qn_ruled_data *d, qn_ruled_data *ref, const char *how)
{
  const bool device = d->exec.device.kind != QN_CPU;
  char wrong[TEXT];
  for (uint64_t t = 0; t < d->steps && !trial->failure; t++) {
    if (!device) qn_try(qn_option_set("cpu", trial->item->target.variant));
    qn_try(take_step(trial, number, d, t, how));
    if (!device) qn_try(qn_option_set("cpu", "ref"));
    qn_try(take_step(trial, number, ref, t, "what it stands beside"));
    for (size_t r = 0; r < d->op->info.n_tensors; r++)
      for (size_t k = 0; k < d->role[r].n; k++) trial->elements += d->role[r].elements[k];
    if (!qn_ruled_same(d, ref, wrong, sizeof wrong)) fail(trial, number, how, t, wrong);
  }
  return QN_OK;
}

/* A device's steps against those in double. */
static qn_status step_beside(qn_trial *trial, size_t number, qn_ruled_data *d, const char *how, double *worst)
{
  char wrong[TEXT];
  for (uint64_t t = 0; t < d->steps && !trial->failure; t++) {
    qn_try(take_step(trial, number, d, t, how));
    qn_try(qn_ruled_refer(d));
    if (!qn_ruled_right(d, wrong, sizeof wrong, &trial->elements, worst)) fail(trial, number, how, t, wrong);
  }
  return QN_OK;
}

/* On a device: as near to the reference as is allowed. */
static qn_status see_reference(qn_trial *trial, size_t number, const qn_ruled_order *order, double *worst)
{
  qn_ruled_data d;
  char how[128];
  snprintf(how, sizeof how, "beside the reference%s%s", order->more ? ", " : "", order->more ? order->more : "");
  qn_status status = qn_ruled_open(&d, order);
  if (status == QN_OK) status = step_beside(trial, number, &d, how, worst);
  qn_ruled_close(&d);
  return status;
}

/* threads: of the pool; 0: none. */
static qn_status see_bits(qn_trial *trial, size_t number, const qn_ruled_order *order, int threads)
{
  qn_ruled_data d = {.op = NULL}, other = {.op = NULL};
  qn_ruled_order pooled = *order;
  char how[128];
  snprintf(how, sizeof how, "%s with %d threads beside %s", trial->item->target.variant, threads,
           order->device.kind == QN_CPU ? "the ref tier" : "itself at other addresses");
  pooled.pool = qn_trial_pool(trial, threads);
  qn_status status = qn_ruled_open(&d, &pooled);
  qn_ruled_order elsewhere = *order;
  if (order->device.kind != QN_CPU) elsewhere.shift = (order->shift + 4) % 64;
  if (status == QN_OK) status = qn_ruled_open(&other, &elsewhere);
  if (status == QN_OK) status = step_both(trial, number, &d, &other, how);
  qn_ruled_close(&d);
  qn_ruled_close(&other);
  return status;
}

static void run_case(qn_trial *trial, size_t number, const char *variation, int threads, double *worst)
{
  const qn_ruled_order order = order_of(trial, number, variation);
  qn_status status = QN_OK;
  if (order.device.kind != QN_CPU) status = see_reference(trial, number, &order, worst);
  if (status == QN_OK) status = see_bits(trial, number, &order, threads);
  if (status != QN_OK) qn_trial_fail(trial, (long)number, "%s\n%s", order.text, qn_last_error());
}

/* A device kernel is compiled for each variation on the host backend: a few cases there below the full level. At the
 * quick one every third, of all. */
static bool is_taken(const qn_trial *trial, size_t k, size_t v)
{
  if (trial->options->level == QN_FULL) return true;
  if (trial->options->level == QN_QUICK && k % 3) return false;
  return v == 0 || trial->item->target.device.kind != QN_HOST || k % 4 == v % 4;
}

void qn_leg_ruled_variants(qn_trial *trial)
{
  const qn_item *item = trial->item;
  const qn_op_check *ruled = qn_op_check_of(item->target.op);
  const size_t cases = n_cases(item->target.op);
  double worst = 0;
  size_t variations = 0;
  if (!item->target.runs) {
    qn_trial_skip(trial, "%s", item->target.why);
    return;
  }
  while (ruled->variation && ruled->variation(item->target.device.kind, 0, variations)) variations++;
  for (size_t v = 0; v < (variations ? variations : 1) && !trial->failure; v++)
    for (size_t k = 0; k < cases; k++) {
      static const int threads[] = {0, 3, 2};
      const size_t number = v * cases + k;
      /* The ref tier alone has nothing new to show without a pool. */
      const bool ref = !strcmp(item->target.variant, "ref");
      const int pool = item->target.device.kind == QN_CPU && ref ? 2 + (int)(k % 2) : threads[k % 3];
      if (is_taken(trial, k, v) && qn_trial_takes(trial, number))
        run_case(trial, number, v ? ruled->variation(item->target.device.kind, 0, v) : NULL, pool, &worst);
    }
  if (item->target.device.kind == QN_CPU)
    qn_trial_note(trial, "%zu cases, %llu elements, the ref tier's bits", trial->cases,
                  (unsigned long long)trial->elements);
  else
    qn_trial_note(trial, "%zu cases, %llu elements, worst %.2f of what is allowed", trial->cases,
                  (unsigned long long)trial->elements, worst);
}

/* ---- leg 2 ---- */

void qn_leg_ruled_oracle(qn_trial *trial)
{
  double worst = 0;
  for (size_t k = 0; k < n_cases(trial->item->target.op); k++) {
    if (!is_taken(trial, k, 0) || !qn_trial_takes(trial, k)) continue;
    const qn_ruled_order order = order_of(trial, k, NULL);
    qn_ruled_data d;
    qn_status status = qn_option_set("cpu", "ref");
    if (status == QN_OK) status = qn_ruled_open(&d, &order);
    if (status == QN_OK) status = step_beside(trial, k, &d, "the ref tier", &worst);
    if (status != QN_OK) qn_trial_fail(trial, (long)k, "%s\n%s", order.text, qn_last_error());
    qn_ruled_close(&d);
  }
  qn_trial_note(trial, "%zu cases, %llu elements, worst %.2f of what is allowed", trial->cases,
                (unsigned long long)trial->elements, worst);
}

/* ---- leg 5 ---- */

static const char *const spoils[] = {"nothing is written",
                                     "the last element is not written",
                                     "an element is off",
                                     "a byte behind the tensor is written",
                                     "an element is NaN",
                                     "an element is another one's",
                                     "a byte before the tensor is written"};
enum { SPOILS = sizeof spoils / sizeof spoils[0] };

/* What is done to a written tensor's bytes that were right. False: it changes none, as where a step leaves the last
 * element what it was. */
static bool spoil(qn_ruled_data *d, size_t r, size_t k, int how)
{
  const qn_ruled_role *role = &d->role[r];
  const size_t width = role->width, n = role->elements[k], middle = n / 2;
  unsigned char *at = role->after + role->offset[k], *end = at + n * width, *in_middle = at + middle * width;
  const unsigned char *before = role->before + role->offset[k];
  const double *want = role->value[k];
  const double off = 3 * role->allowed[k][middle] + 1e-4 * fabs(want[middle]);
  switch (how) {
  case 0: memcpy(at, before, n * width); return true;
  case 1: {
    const bool differs = memcmp(end - width, before + (n - 1) * width, width);
    memcpy(end - width, before + (n - 1) * width, width);
    return differs;
  }
  case 2: qn_number_store(role->dtype, in_middle, isfinite(want[middle]) ? want[middle] + off : 1); return true;
  case 3: end[0] ^= 1; return true;
  case 4: memset(in_middle, 0xff, width); return true;
  case 5: memcpy(at, in_middle, width); return true;
  default: at[-1] ^= 1; return true;
  }
}

static qn_status see_spoils(qn_trial *trial, qn_ruled_data *d)
{
  uint64_t elements = 0;
  double worst = 0;
  char wrong[TEXT];
  for (size_t r = 0; r < d->op->info.n_tensors; r++)
    for (size_t k = 0; k < d->role[r].n && d->role[r].access & QN_WRITE; k++)
      for (int how = 0; how < SPOILS && d->role[r].elements[k] > 1; how++) {
        if (!qn_trial_takes(trial, trial->cases)) return QN_OK;
        qn_try(qn_ruled_fetch(d));
        if (spoil(d, r, k, how) && qn_ruled_right(d, wrong, sizeof wrong, &elements, &worst))
          qn_trial_fail(trial, -1, "planted in %s[%zu] and not caught: %s", d->op->info.tensors[r].name, k,
                        spoils[how]);
      }
  return QN_OK;
}

/* A param as it is for the call, a little off; what the reference steps by is set back. */
static bool nudge(const qn_op_param *param, unsigned char *params)
{
  double x;
  int32_t word;
  uint64_t whole;
  unsigned char *at = params + param->offset;
  switch (param->type) {
  case QN_PARAM_DOUBLE:
    memcpy(&x, at, sizeof x);
    x = x > 0 ? x * 0.98 : 0.02;
    memcpy(at, &x, sizeof x);
    return true;
  case QN_PARAM_U64:
    memcpy(&whole, at, sizeof whole);
    whole += 1;
    memcpy(at, &whole, sizeof whole);
    return true;
  case QN_PARAM_BOOL:
    memcpy(&word, at, sizeof word);
    word = !word;
    memcpy(at, &word, sizeof word);
    return true;
  case QN_PARAM_HOST_F64: memset(at, 0, sizeof(void *)); return true; /* not given */
  default: return false;
  }
}

/* A call that takes another value of a param than the reference: it must not pass. The last case has params that all
 * count. */
static void see_params(qn_trial *trial)
{
  const qn_op_info *info = &trial->item->target.op->info;
  const qn_op_check *ruled = qn_op_check_of(trial->item->target.op);
  uint64_t elements = 0;
  double worst = 0;
  char wrong[TEXT];
  for (size_t p = 0; p < info->n_params; p++) {
    qn_ruled_data d;
    unsigned char kept[QN_RULED_PARAMS];
    const qn_ruled_order order = {.op = trial->item->target.op,
                                  .device = trial->item->target.device,
                                  .text = ruled->cases[n_cases(trial->item->target.op) - 1].text,
                                  .more = "lr_scale filled",
                                  .seed = trial->options->seed};
    if (!qn_trial_takes(trial, trial->cases)) return;
    qn_status status = qn_ruled_open(&d, &order);
    if (status == QN_OK) status = qn_ruled_turn(&d, 0);
    memcpy(kept, d.params, sizeof kept);
    if (status == QN_OK && nudge(&info->params[p], d.params)) {
      status = qn_ruled_run(&d);
      memcpy(d.params, kept, sizeof kept);
      if (status == QN_OK) status = qn_ruled_refer(&d);
      if (status == QN_OK) status = qn_ruled_fetch(&d);
      if (status == QN_OK && qn_ruled_right(&d, wrong, sizeof wrong, &elements, &worst))
        qn_trial_fail(trial, -1, "a step with another %s passes", info->params[p].name);
    }
    if (status != QN_OK) qn_trial_fail(trial, -1, "%s: %s", info->params[p].name, qn_last_error());
    qn_ruled_close(&d);
  }
}

void qn_leg_ruled_selftest(qn_trial *trial)
{
  qn_ruled_order order = order_of(trial, n_cases(trial->item->target.op) - 1, NULL); /* of a full step */
  order.fenced = false; /* bytes behind tensors are spoilt too */
  uint64_t elements = 0;
  double worst = 0;
  char wrong[TEXT];
  qn_ruled_data d;
  qn_status status = qn_ruled_open(&d, &order);
  if (status == QN_OK) status = qn_ruled_turn(&d, 0);
  if (status == QN_OK) status = qn_ruled_run(&d);
  if (status == QN_OK) status = qn_ruled_refer(&d);
  if (status == QN_OK) status = qn_ruled_fetch(&d);
  if (status == QN_OK && !qn_ruled_right(&d, wrong, sizeof wrong, &elements, &worst))
    qn_trial_fail(trial, -1, "no bug was planted, and there is one: %s", wrong);
  if (status == QN_OK) status = see_spoils(trial, &d);
  if (status != QN_OK) qn_trial_fail(trial, -1, "%s", qn_last_error());
  qn_ruled_close(&d);
  see_params(trial);
  qn_trial_note(trial, "%zu bugs planted, all caught", trial->cases);
}
