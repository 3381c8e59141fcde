/* SPDX-License-Identifier: Apache-2.0 */
/* leg_shaped.c - the legs of `quern check` for ops whose tensors have shapes of their own. Leg 1 holds every variant
 * against the reference in double, within what the op's description allows, which is leg 2 as well; and two pools
 * against each other bit for bit. Leg 4 tries what must be refused. Leg 5 spoils right results, and asks for another
 * class of results than it compares with: both must be seen. Leg 3 is in leg_shaped_golden.c. */
#include "workbench/leg_shaped.h"
#include "core/core.h"
#include "workbench/shaped.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 512 };
static const double all_operations = 1e300;

static size_t n_cases(const qn_op *op)
{
  size_t n = 0;
  while (qn_op_check_of(op)->cases[n].name) n++;
  return n;
}

/* ---- leg 1 ---- */

enum { LOOSENESSES = 3 };

typedef struct tried {
  size_t ran, refused;
  double worst;
  qn_shaped_want want[LOOSENESSES]; /* the case's */
  bool known[LOOSENESSES];
} tried;

/* What the variant that ran last must have given. */
static qn_status find_want(qn_shaped_data *d, tried *t, const qn_shaped_want **want)
{
  const int k = qn_shaped_looseness(d);
  d->looseness = k;
  *want = &t->want[k];
  if (t->known[k]) return QN_OK;
  t->known[k] = true;
  return qn_shaped_reference(d, all_operations, &t->want[k]);
}

static void forget_wants(tried *t)
{
  for (int k = 0; k < LOOSENESSES; k++) {
    if (t->known[k]) qn_shaped_want_free(&t->want[k]);
    t->known[k] = false;
  }
}

/* One call as things are; `how` names it. */
static qn_status try_call(qn_trial *trial, size_t number, qn_shaped_data *d, const char *how, tried *t)
{
  const qn_shaped_want *want;
  char wrong[TEXT];
  qn_try(qn_shaped_reset(d));
  qn_try(qn_shaped_lend(d));
  qn_try(qn_op_prepare(&d->op->info, &d->exec, d->params, 1, d->list));
  qn_try(qn_shaped_run(d));
  qn_try(qn_shaped_fetch(d));
  qn_try(find_want(d, t, &want));
  t->ran++;
  if (!qn_shaped_right(d, want, wrong, sizeof wrong, &trial->elements, &t->worst))
    qn_trial_fail(trial, (long)number, "%s\n%s", how, wrong);
  return QN_OK;
}

/* The same call on a pool of three threads must give the same bits. */
static qn_status try_pool(qn_trial *trial, size_t number, qn_shaped_data *d, const char *how)
{
  d->exec.pool = qn_trial_pool(trial, 3);
  qn_try(qn_shaped_reset(d));
  qn_try(qn_shaped_lend(d));
  qn_try(qn_shaped_run(d));
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) {
    const qn_shaped_role *role = &d->role[r];
    if (!(role->access & QN_WRITE)) continue;
    if (memcmp(d->tensor[r].data, role->after + role->begin, role->bytes) != 0)
      qn_trial_fail(trial, (long)number, "%s\n%s has other bits with three threads than with one", how,
                    d->op->info.tensors[r].name);
  }
  d->exec.pool = NULL;
  return QN_OK;
}

/* The variant that is chosen, then each by name where it can do this. */
static qn_status try_variants(qn_trial *trial, size_t number, qn_shaped_data *d, const char *text, tried *t)
{
  const qn_engine *engine = d->op->engine;
  char how[2 * TEXT];
  const char *name;
  snprintf(how, sizeof how, "%s, the variant that is chosen", text);
  qn_try(try_call(trial, number, d, how, t));
  if (d->exec.device.kind != QN_CUDA) qn_try(try_pool(trial, number, d, how));
  for (size_t k = 0; d->exec.device.kind != QN_CPU && engine->variant && (name = engine->variant(k)); k++) {
    if (trial->failure) break;
    qn_try(qn_option_set(engine->option, name));
    snprintf(how, sizeof how, "%s, the variant %s", text, name);
    qn_status status = try_call(trial, number, d, how, t);
    qn_option_set(engine->option, NULL);
    if (status == QN_UNSUPPORTED)
      t->refused++;
    else
      qn_try(status);
  }
  return QN_OK;
}

static void run_case(qn_trial *trial, size_t number, const qn_check_text *size, const char *variation, tried *t)
{
  static const size_t shifts[] = {0, 0, 16, 4};
  const qn_item *item = trial->item;
  const size_t shift = shifts[number % 4] < qn_dtype_bytes(item->target.op->info.types[item->row].tensor[0].dtype)
                           ? 0
                           : shifts[number % 4];
  char text[TEXT];
  qn_shaped_data d;
  const qn_shaped_order order = {.op = item->target.op,
                                 .row = item->row,
                                 .device = item->target.device,
                                 .text = size->text,
                                 .more = variation,
                                 .shift = shift,
                                 .fenced = true,
                                 .planned = number % 2,
                                 .seed = trial->options->seed + number};
  snprintf(text, sizeof text, "%s: %s %s, %s", size->name, size->text, variation, item->about);
  qn_status status = qn_shaped_open(&d, &order);
  if (status == QN_OK) status = try_variants(trial, number, &d, text, t);
  if (status != QN_OK) qn_trial_fail(trial, (long)number, "%s\n%s", text, qn_last_error());
  forget_wants(t);
  qn_shaped_close(&d);
}

/* Every case in every variation; a device kernel is compiled for each, so fewer there below the full level. */
static bool is_taken(const qn_trial *trial, size_t k, size_t v, size_t n_variations)
{
  const qn_device_kind kind = trial->item->target.device.kind;
  const bool turn = v == k % n_variations;
  if (trial->options->level == QN_FULL) return true;
  if (trial->options->level == QN_QUICK) return turn && (kind != QN_HOST || k % 3 == 0);
  return kind == QN_HOST ? turn : true;
}

void qn_leg_shaped_variants(qn_trial *trial)
{
  const qn_item *item = trial->item;
  const qn_op_check *shaped = qn_op_check_of(item->target.op);
  tried t = {0};
  size_t number = 0, n_variations = 0;
  if (!item->target.runs) {
    qn_trial_skip(trial, "%s", item->target.why);
    return;
  }
  if (qn_target_select(&item->target) != QN_OK) {
    qn_trial_fail(trial, -1, "%s", qn_last_error());
    return;
  }
  while (shaped->variation(item->target.device.kind, item->row, n_variations)) n_variations++;
  for (size_t k = 0; shaped->cases[k].name; k++)
    for (size_t v = 0; v < n_variations; v++, number++)
      if (is_taken(trial, k, v, n_variations) && qn_trial_takes(trial, number))
        run_case(trial, number, &shaped->cases[k], shaped->variation(item->target.device.kind, item->row, v), &t);
  qn_trial_note(trial, "%zu cases, %zu calls, %llu elements, worst %.2f of what is allowed", trial->cases, t.ran,
                (unsigned long long)trial->elements, t.worst);
}

/* ---- leg 4 ---- */

typedef struct contract {
  qn_trial *trial;
  qn_shaped_data d;
  size_t n;
} contract;

/* Step and prepare must refuse, in words that hold `said`, and write nothing. */
static void refuses(contract *c, const char *what, const char *said)
{
  qn_shaped_data *d = &c->d;
  if (c->trial->failure || !qn_trial_takes(c->trial, c->n++)) return;
  for (int prepare = 0; prepare < 2; prepare++) {
    const qn_status status = prepare ? qn_op_prepare(&d->op->info, &d->exec, d->params, 1, d->list)
                                     : qn_op_step(&d->op->info, &d->exec, d->params, 1, d->list);
    if (!qn_is_refusal(status))
      qn_trial_fail(c->trial, (long)c->n - 1, "%s: %s is not refused", what, prepare ? "prepare" : "step");
    else if (!strstr(qn_last_error(), said) || !strstr(qn_last_error(), d->op->info.name))
      qn_trial_fail(c->trial, (long)c->n - 1, "%s: the sentence lacks \"%s\": %s", what, said, qn_last_error());
  }
  if (qn_shaped_fetch(d) != QN_OK) qn_trial_fail(c->trial, (long)c->n - 1, "%s", qn_last_error());
  for (size_t r = 0; r < QN_MAX_TENSORS; r++)
    if (d->role[r].memory && memcmp(d->role[r].before, d->role[r].after, d->role[r].all) != 0)
      qn_trial_fail(c->trial, (long)c->n - 1, "%s: it was refused, and %s was changed", what,
                    d->op->info.tensors[r].name);
}

static size_t count_values(const char *values)
{
  size_t n = 1;
  for (; values && *values; values++) n += *values == '|';
  return n;
}

static void refuse_number(contract *c, const qn_op_param *param, double value)
{
  unsigned char kept[QN_SHAPED_PARAMS];
  char what[96];
  memcpy(kept, c->d.params, sizeof kept);
  snprintf(what, sizeof what, "%s = %g", param->name, value);
  qn_param_set(param, c->d.params, value);
  refuses(c, what, param->name);
  memcpy(c->d.params, kept, sizeof kept);
}

static void refuse_params(contract *c)
{
  const qn_op_info *info = &c->d.op->info;
  for (size_t k = 0; k < info->n_params; k++) {
    const qn_op_param *p = &info->params[k];
    if (p->type == QN_PARAM_DOUBLE) {
      refuse_number(c, p, NAN);
      refuse_number(c, p, HUGE_VAL);
      if (isfinite(p->least)) refuse_number(c, p, nextafter(p->least, -HUGE_VAL));
      if (isfinite(p->most)) refuse_number(c, p, nextafter(p->most, HUGE_VAL));
    }
    if (p->type == QN_PARAM_BOOL) refuse_number(c, p, 2);
    if (p->type == QN_PARAM_ENUM) refuse_number(c, p, (double)count_values(p->values));
  }
}

/* What one tensor can have wrong, one thing at a time. */
static void refuse_tensor(contract *c, size_t r)
{
  qn_shaped_data *d = &c->d;
  const qn_tensor good = d->tensor[r];
  const char *name = d->op->info.tensors[r].name;
  int64_t shape[QN_SHAPED_NDIM + 1] = {0}, strides[QN_SHAPED_NDIM] = {0};
  memcpy(shape, good.shape, (size_t)good.ndim * sizeof *shape);
  d->tensor[r].shape = shape;
  d->tensor[r].ndim = good.ndim + 1;
  refuses(c, "one dimension more", name);
  d->tensor[r].ndim = good.ndim - 1;
  refuses(c, "one dimension fewer", name);
  d->tensor[r] = good;
  d->tensor[r].dtype = QN_I32;
  refuses(c, "another type", name);
  d->tensor[r] = good;
  d->tensor[r].data = NULL;
  refuses(c, "no data", name);
  d->tensor[r].data = (char *)good.data + 1;
  refuses(c, "data at an odd address", name);
  d->tensor[r] = good;
  d->tensor[r].device.kind = good.device.kind == QN_CPU ? QN_HOST : QN_CPU;
  refuses(c, "another device", name);
  d->tensor[r] = good;
  d->tensor[r].strides = strides;
  for (int k = 0; k < good.ndim; k++) strides[k] = 2;
  refuses(c, "not row-major", name);
  d->tensor[r] = good;
  for (int k = 0; k < good.ndim; k++) {
    shape[k] = good.shape[k] + 1;
    d->tensor[r].shape = shape;
    if (r) refuses(c, "one element more along a dimension", "it must be");
    shape[k] = -1;
    refuses(c, "an extent below zero", name);
    shape[k] = good.shape[k];
  }
  d->tensor[r] = good;
  if (d->op->info.tensors[r].optional) return;
  d->list[r] = NULL;
  refuses(c, "a tensor that is not there", name);
  d->list[r] = &d->tensor[r];
}

/* What is written may stand in no other's place. */
static void refuse_overlap(contract *c)
{
  qn_shaped_data *d = &c->d;
  for (size_t w = 0; w < QN_MAX_TENSORS; w++)
    for (size_t r = 0; r < QN_MAX_TENSORS; r++) {
      if (w == r || !(d->role[w].access & QN_WRITE) || !d->role[r].memory) continue;
      void *const kept = d->tensor[w].data;
      d->tensor[w].data = d->tensor[r].data;
      refuses(c, "memory that is shared", "share memory");
      d->tensor[w].data = kept;
    }
}

static void refuse_lines(contract *c)
{
  const qn_check_text *refused = qn_op_check_of(c->d.op)->refused;
  for (size_t k = 0; refused && refused[k].name && !c->trial->failure; k++) {
    contract other = {.trial = c->trial, .n = c->n};
    const qn_shaped_order order = {.op = c->d.op,
                                   .row = c->d.row,
                                   .device = c->d.exec.device,
                                   .text = refused[k].text,
                                   .seed = c->trial->options->seed};
    if (qn_shaped_open(&other.d, &order) == QN_OK)
      refuses(&other, refused[k].text, refused[k].name);
    else
      qn_trial_fail(c->trial, -1, "%s", qn_last_error());
    c->n = other.n;
    qn_shaped_close(&other.d);
  }
}

void qn_leg_shaped_contract(qn_trial *trial)
{
  const qn_item *item = trial->item;
  contract c = {.trial = trial};
  const qn_shaped_order order = {.op = item->target.op,
                                 .device = item->target.device,
                                 .text = qn_op_check_of(item->target.op)->cases[n_cases(item->target.op) / 2].text,
                                 .seed = trial->options->seed};
  if (qn_shaped_open(&c.d, &order) != QN_OK || qn_shaped_lend(&c.d) != QN_OK) {
    qn_trial_fail(trial, -1, "%s", qn_last_error());
  } else {
    refuse_params(&c);
    for (size_t r = 0; r < QN_MAX_TENSORS; r++)
      if (c.d.role[r].memory) refuse_tensor(&c, r);
    refuse_overlap(&c);
    refuse_lines(&c);
  }
  qn_shaped_close(&c.d);
  qn_trial_note(trial, "%zu calls refused", c.n);
}

/* ---- leg 5 ---- */

/* What is done to the bytes of a written tensor that was right. */
static void spoil(const qn_shaped_data *d, const qn_shaped_want *want, size_t r, int how)
{
  const qn_shaped_role *role = &d->role[r];
  const size_t item = qn_dtype_bytes(role->dtype), begin = role->begin, end = role->end;
  unsigned char *after = role->after;
  const size_t at = role->elements / 2;
  switch (how) {
  case 0: memcpy(after, role->before, role->all); break;                      /* nothing written */
  case 1: memcpy(after + end - item, role->before + end - item, item); break; /* the last one not */
  case 2:
    qn_number_store(role->dtype, after + begin + at * item, want->value[r][at] + 2.5 * want->allowed[r][at]);
    break;
  case 3: after[end] ^= 1; break; /* one byte too many */
  case 4: after[begin - 1] ^= 1; break;
  case 5: qn_number_store(role->dtype, after + begin + at * item, NAN); break;
  case 6: memcpy(after + begin, after + begin + item, item); break; /* a neighbour's value */
  default: break;
  }
}

enum { SPOILS = 7 };
static const char *const spoils[] = {"nothing is written",
                                     "the last element is not written",
                                     "an element is off",
                                     "a byte behind the tensor is written",
                                     "a byte before it is",
                                     "an element is NaN",
                                     "an element is its neighbour's"};

static void see_spoils(qn_trial *trial, qn_shaped_data *d, const qn_shaped_want *want)
{
  uint64_t elements = 0;
  double worst = 0;
  char wrong[TEXT];
  for (size_t r = 0; r < QN_MAX_TENSORS; r++)
    for (int how = 0; how < SPOILS && d->role[r].access & QN_WRITE; how++) {
      if (!qn_trial_takes(trial, trial->cases) || qn_shaped_fetch(d) != QN_OK) return;
      spoil(d, want, r, how);
      if (qn_shaped_right(d, want, wrong, sizeof wrong, &elements, &worst))
        qn_trial_fail(trial, -1, "planted in %s and not caught: %s", d->op->info.tensors[r].name, spoils[how]);
    }
}

/* Results of a looser class must not pass as those of the tightest, the first variation. */
static qn_status see_classes(qn_trial *trial, qn_shaped_data *d, const qn_shaped_want *want)
{
  const qn_item *item = trial->item;
  const qn_op_check *shaped = qn_op_check_of(item->target.op);
  uint64_t elements = 0;
  double worst = 0;
  char wrong[TEXT];
  for (size_t k = 0; shaped->looser && shaped->looser[k]; k++) {
    qn_shaped_data other;
    const qn_shaped_order order = {.op = item->target.op,
                                   .device = item->target.device,
                                   .text = shaped->cases[n_cases(item->target.op) / 2].text,
                                   .more = shaped->looser[k],
                                   .seed = trial->options->seed};
    qn_status status = qn_shaped_open(&other, &order);
    if (status == QN_OK) status = qn_shaped_lend(&other);
    if (status == QN_OK) status = qn_shaped_run(&other);
    if (status == QN_OK) status = qn_shaped_fetch(&other);
    trial->cases++;
    if (status == QN_OK && qn_shaped_right(&other, want, wrong, sizeof wrong, &elements, &worst))
      qn_trial_fail(trial, -1, "results of %s pass as those of the default", shaped->looser[k]);
    qn_shaped_close(&other);
    qn_try(status);
  }
  (void)d;
  return QN_OK;
}

void qn_leg_shaped_selftest(qn_trial *trial)
{
  const qn_item *item = trial->item;
  qn_shaped_data d;
  qn_shaped_want want = {.rows = NULL};
  char wrong[TEXT];
  double worst = 0;
  const qn_shaped_order order = {.op = item->target.op,
                                 .device = item->target.device,
                                 .text = qn_op_check_of(item->target.op)->cases[n_cases(item->target.op) / 2].text,
                                 .seed = trial->options->seed};
  qn_status status = qn_shaped_open(&d, &order);
  if (status == QN_OK) status = qn_shaped_reference(&d, all_operations, &want);
  if (status == QN_OK) status = qn_shaped_lend(&d);
  if (status == QN_OK) status = qn_shaped_run(&d);
  if (status == QN_OK) status = qn_shaped_fetch(&d);
  if (status == QN_OK && !qn_shaped_right(&d, &want, wrong, sizeof wrong, &trial->elements, &worst))
    qn_trial_fail(trial, -1, "no bug was planted, and there is one: %s", wrong);
  if (status == QN_OK) see_spoils(trial, &d, &want);
  if (status == QN_OK) status = see_classes(trial, &d, &want);
  if (status != QN_OK) qn_trial_fail(trial, -1, "%s", qn_last_error());
  qn_trial_note(trial, "%zu bugs planted, all caught", trial->cases);
  qn_shaped_want_free(&want);
  qn_shaped_close(&d);
}
