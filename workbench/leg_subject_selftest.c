/* SPDX-License-Identifier: Apache-2.0 */
/* leg_subject_selftest.c - leg 5 for ops with a reference in double. Right results are spoilt; a step takes another
 * value of a param than the reference; or it is of a looser class than the reference: each must be caught. */
#include "workbench/check.h"
#include "core/core.h"
#include "workbench/fill.h"
#include "workbench/subject.h"
#include <math.h>
#include <string.h>

enum { TEXT = 512 };

static qn_subject_order order_of(const qn_trial *trial)
{
  const qn_op *op = trial->item->target.op;
  return (qn_subject_order){
      .op = op, .device = trial->item->target.device, .text = qn_op_check_of(op)->sample, .seed = trial->options->seed};
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
  const double want = d->role[r].value[k][middle];
  if (d->op->info.agreement == QN_BITWISE)
    *at ^= 1;
  else
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

static qn_status see_spoils(qn_trial *trial, qn_subject *d)
{
  uint64_t elements = 0;
  double worst = 0;
  char wrong[TEXT];
  for (size_t r = 0; r < d->op->info.n_tensors; r++)
    for (size_t k = 0; k < d->role[r].n && d->role[r].access & QN_WRITE; k++)
      for (int how = 0; how < SPOILS && d->role[r].place[k].elements > 1; how++) {
        if (!qn_trial_takes(trial, trial->cases)) return QN_OK;
        qn_try(qn_subject_fetch(d));
        if (spoil(d, r, k, how) && qn_subject_right(d, wrong, sizeof wrong, &elements, &worst))
          qn_trial_fail(trial, -1, "planted in %s[%zu] and not caught: %s", d->op->info.tensors[r].name, k,
                        spoils[how]);
      }
  return QN_OK;
}

/* Not fenced, as bytes behind tensors are spoilt too. */
static void see_right(qn_trial *trial)
{
  const qn_subject_order order = order_of(trial);
  double worst = 0;
  char wrong[TEXT];
  qn_subject d;
  qn_status status = qn_subject_open(&d, &order);
  if (status == QN_OK) status = qn_subject_step(&d);
  if (status == QN_OK) status = qn_subject_refer(&d, qn_subject_looseness(&d), 0);
  if (status == QN_OK && !qn_subject_right(&d, wrong, sizeof wrong, &trial->elements, &worst))
    qn_trial_fail(trial, -1, "no bug was planted, and there is one: %s", wrong);
  if (status == QN_OK) status = see_spoils(trial, &d);
  if (status != QN_OK) qn_trial_fail(trial, -1, "%s", qn_last_error());
  qn_subject_close(&d);
}

/* ---- another call than the reference's ---- */

/* A param as it is for the call, a little off. */
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

/* A step that `change` turns into another, which must not pass as the one that it was. False: it changes nothing. */
typedef struct change {
  const qn_op_param *param; /* a little off; NULL: a setting */
  const char *setting;
} change;

static qn_status see_change(qn_trial *trial, const qn_subject_order *order, const change *by)
{
  uint64_t elements = 0;
  double worst = 0;
  char wrong[TEXT];
  unsigned char kept[QN_SUBJECT_PARAMS];
  qn_subject d;
  qn_status status = qn_subject_open(&d, order);
  memcpy(kept, d.params, sizeof kept);
  if (status == QN_OK && by->setting) status = qn_subject_read(&d, by->setting);
  if (status == QN_OK && (by->setting || nudge(by->param, d.params))) {
    status = qn_subject_step(&d);
    memcpy(d.params, kept, sizeof kept);
    if (status == QN_OK) status = qn_subject_refer(&d, 0, 0);
    if (status == QN_OK && qn_subject_right(&d, wrong, sizeof wrong, &elements, &worst))
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

void qn_leg_subject_selftest(qn_trial *trial)
{
  see_right(trial);
  see_changes(trial);
  qn_trial_note(trial, "%zu bugs planted, all caught", trial->cases);
}
