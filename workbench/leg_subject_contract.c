/* SPDX-License-Identifier: Apache-2.0 */
/* leg_subject_contract.c - leg 4 for ops with a reference in double: what must be refused, one thing at a time, by the
 * table of params, by role, and as the op itself says; then calls that are random in their params and shapes. A refusal
 * is a sentence that names the op and what is wrong, and leaves all memory as it was. */
#include "workbench/leg_subject.h"
#include "core/core.h"
#include "workbench/subject.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct contract {
  qn_trial *trial;
  qn_subject d;
  size_t n;
} contract;

static qn_status call(qn_subject *d, bool prepare)
{
  return prepare ? qn_op_prepare(&d->op->info, &d->exec, d->params, d->n, d->tensors) : qn_subject_run(d);
}

static void see_untouched(contract *c, const char *what)
{
  char wrong[256];
  if (qn_subject_fetch(&c->d) != QN_OK)
    qn_trial_fail(c->trial, (long)c->n - 1, "%s: %s", what, qn_last_error());
  else if (!qn_subject_untouched(&c->d, wrong, sizeof wrong))
    qn_trial_fail(c->trial, (long)c->n - 1, "%s: nothing may be written, and %s", what, wrong);
}

/* Step, and prepare where it sees it too, must refuse in words that hold `said`, and write nothing. */
static void refuses(contract *c, const char *what, const char *said, bool prepare_sees)
{
  if (c->trial->failure || !qn_trial_takes(c->trial, c->n++)) return;
  for (int prepare = 0; prepare <= prepare_sees; prepare++) {
    const qn_status status = call(&c->d, prepare);
    if (!qn_is_refusal(status))
      qn_trial_fail(c->trial, (long)c->n - 1, "%s: %s is not refused", what, prepare ? "prepare" : "step");
    else if (!strstr(qn_last_error(), said) || !strstr(qn_last_error(), c->d.op->info.name))
      qn_trial_fail(c->trial, (long)c->n - 1, "%s: the sentence lacks \"%s\": %s", what, said, qn_last_error());
  }
  see_untouched(c, what);
}

/* ---- params ---- */

static size_t count_values(const char *values)
{
  size_t n = 1;
  for (; values && *values; values++) n += *values == '|';
  return n;
}

static void refuse_number(contract *c, const qn_op_param *param, double value)
{
  unsigned char kept[QN_SUBJECT_PARAMS];
  char what[96];
  memcpy(kept, c->d.params, sizeof kept);
  snprintf(what, sizeof what, "%s = %g", param->name, value);
  qn_param_set(param, c->d.params, value);
  refuses(c, what, param->name, true);
  memcpy(c->d.params, kept, sizeof kept);
}

static void refuse_pointer(contract *c, const qn_op_param *param, const void *to, const char *what)
{
  unsigned char *at = c->d.params + param->offset, kept[sizeof to];
  char text[96];
  memcpy(kept, at, sizeof kept);
  memcpy(at, &to, sizeof to);
  snprintf(text, sizeof text, "%s that is %s", param->name, what);
  refuses(c, text, param->name, true);
  memcpy(at, kept, sizeof kept);
}

static void refuse_params(contract *c)
{
  enum { MOST = 64 }; /* tensors of the call */
  static const double nan[MOST] = {1, NAN}, less[MOST] = {1, -0.5}, much[MOST] = {HUGE_VAL};
  const qn_op_info *info = &c->d.op->info;
  for (size_t k = 0; k < info->n_params; k++) {
    const qn_op_param *p = &info->params[k];
    if (p->type == QN_PARAM_DOUBLE) {
      refuse_number(c, p, NAN);
      refuse_number(c, p, HUGE_VAL);
      refuse_number(c, p, -HUGE_VAL);
      if (isfinite(p->least)) refuse_number(c, p, nextafter(p->least, -HUGE_VAL));
      if (isfinite(p->most)) refuse_number(c, p, p->below_most ? p->most : nextafter(p->most, HUGE_VAL));
    }
    if (p->type == QN_PARAM_U64 && p->least > 0) refuse_number(c, p, p->least - 1);
    if (p->type == QN_PARAM_BOOL) refuse_number(c, p, 2);
    if (p->type == QN_PARAM_ENUM) refuse_number(c, p, (double)count_values(p->values));
    if (p->type == QN_PARAM_DEVICE_F32S) {
      refuse_pointer(c, p, NULL, "NULL");
      refuse_pointer(c, p, (const char *)c->d.pointed[k] + 2, "at an odd address");
      for (size_t r = 0; r < info->n_tensors; r++)
        if (c->d.role[r].access & QN_WRITE) refuse_pointer(c, p, c->d.role[r].tensor[0].data, "a written tensor");
    }
    if (p->type == QN_PARAM_HOST_F64) {
      refuse_pointer(c, p, nan, "NaN");
      refuse_pointer(c, p, less, "below zero");
      refuse_pointer(c, p, much, "infinite");
    }
  }
}

static void refuse_sizes(contract *c)
{
  size_t *const size = (size_t *)(void *)c->d.params, kept = *size;
  *size = kept - 8;
  refuses(c, "params of an older size", "params->size", true);
  *size = kept + 8; /* as a newer caller's, whose member says something */
  c->d.params[kept] = 1;
  refuses(c, "params with a member that is not known", "does not know", true);
  c->d.params[kept] = 0;
  *size = kept;
  c->d.exec.size--;
  refuses(c, "exec of another size", "exec->size", true);
  c->d.exec.size++;
}

/* ---- tensors ---- */

/* Is the k-th extent of a shape one letter, which no other role's shape has? Then it may be any number. */
static bool is_free(const qn_op_info *info, const char *name, int k)
{
  const char *letter = NULL;
  size_t found = 0;
  for (size_t r = 0; r < info->n_tensors; r++)
    if (!strcmp(info->tensors[r].name, name)) letter = info->tensors[r].shape;
  for (; letter && k > 0; k--) letter = (letter = strchr(letter, ',')) ? letter + 1 : NULL;
  if (!letter) return false;
  letter += strspn(letter, "[ ");
  if (*letter < 'a' || *letter > 'z' || !strchr(",]", letter[1])) return false;
  for (size_t r = 0; r < info->n_tensors; r++)
    for (const char *at = info->tensors[r].shape; at && *at; at++)
      found += *at == *letter && strchr("[ ", at[-(at > info->tensors[r].shape)]) && at[1] && strchr(",]", at[1]);
  return found == 1;
}

static void refuse_shape(contract *c, qn_tensor *t, const char *name, bool is_first)
{
  const qn_tensor good = *t;
  int64_t shape[QN_SUBJECT_NDIM + 1] = {0}, strides[QN_SUBJECT_NDIM + 1];
  memcpy(shape, good.shape, (size_t)good.ndim * sizeof *shape);
  for (int k = 0; k <= QN_SUBJECT_NDIM; k++) strides[k] = 3;
  shape[good.ndim] = good.ndim ? 1 : 2; /* one number may have an extent of 1 */
  t->shape = shape;
  t->ndim = good.ndim + 1;
  /* The first role's sentence of a list is about the next, which no longer fits. */
  refuses(c, "one dimension more", is_first ? "" : name, true);
  t->ndim = -1;
  refuses(c, "dimensions below zero", name, true);
  t->ndim = 40;
  refuses(c, "more dimensions than there can be", name, true);
  *t = good;
  if (!good.ndim) return;
  t->shape = NULL;
  refuses(c, "no shape", name, true);
  t->shape = shape;
  t->strides = strides;
  refuses(c, "not row-major", name, true);
  t->strides = NULL;
  for (int k = 0; k < good.ndim; k++) {
    if (is_free(&c->d.op->info, name, k)) continue;
    shape[k] = good.shape[k] + 1;
    refuses(c, "one element more along a dimension", "it must be", true);
    shape[k] = -1;
    refuses(c, "an extent below zero", name, true);
    shape[k] = INT64_MAX / 2;
    refuses(c, "an extent that no memory has", name, true);
    shape[k] = good.shape[k];
  }
  *t = good;
}

static void refuse_tensor(contract *c, size_t r, size_t k)
{
  qn_subject *d = &c->d;
  qn_tensor *t = &d->role[r].tensor[k];
  const qn_tensor good = *t;
  char name[64];
  snprintf(name, sizeof name, d->role[r].single ? "%s" : "%s[%zu]", d->op->info.tensors[r].name, k);
  t->dtype = QN_I32;
  refuses(c, "another type", name, true);
  t->dtype = (qn_dtype)99;
  refuses(c, "a type that there is none of", name, true);
  *t = good;
  t->data = NULL;
  refuses(c, "no data", name, true);
  t->data = (char *)good.data + 2;
  if (qn_dtype_bytes(good.dtype) > 2) refuses(c, "data at an odd address", name, true);
  *t = good;
  t->device.kind = good.device.kind == QN_CPU ? QN_EMULATOR : QN_CPU;
  refuses(c, "another device", name, true);
  *t = good;
  refuse_shape(c, t, name, d->list && !r);
}

static void refuse_tensors(contract *c)
{
  qn_subject *d = &c->d;
  for (size_t r = 0; r < d->op->info.n_tensors; r++) {
    for (size_t k = 0; k < d->role[r].n; k++)
      if (d->role[r].place[k].elements) refuse_tensor(c, r, k);
    if (d->op->info.tensors[r].optional) continue;
    const qn_tensor *const kept = d->tensors[r];
    d->tensors[r] = NULL;
    refuses(c, "a role that is not there", d->op->info.tensors[r].name, true);
    d->tensors[r] = kept;
  }
}

/* What is written may stand in no other's place. */
static void refuse_overlap(contract *c)
{
  qn_subject *d = &c->d;
  for (size_t w = 0; w < d->op->info.n_tensors; w++)
    for (size_t r = 0; r < d->op->info.n_tensors; r++)
      for (size_t k = 0; k < d->role[r].n && d->role[w].access & QN_WRITE; k++) {
        if ((w == r && !k) || !d->role[r].place[k].elements) continue;
        void *const kept = d->role[w].tensor[0].data;
        d->role[w].tensor[0].data = d->role[r].tensor[k].data;
        refuses(c, "memory that is shared", "share memory", true);
        d->role[w].tensor[0].data = kept;
      }
}

static void refuse_workspace(contract *c)
{
  const qn_exec good = c->d.exec;
  qn_exec *const exec = &c->d.exec;
  if (!good.workspace_bytes) return;
  exec->workspace = NULL;
  refuses(c, "no workspace", "workspace", false);
  *exec = good;
  exec->workspace_bytes--;
  refuses(c, "a workspace that lacks a byte", "are needed", false);
  *exec = good;
  exec->workspace = (char *)good.workspace + 4;
  refuses(c, "a workspace at an odd address", "multiple of 16", false);
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) {
    if (!c->d.role[r].n) continue;
    exec->workspace = (void *)((uintptr_t)c->d.role[r].tensor[0].data & ~(uintptr_t)15);
    refuses(c, "a workspace that is a tensor", "share memory", false);
  }
  *exec = good;
}

/* What the op itself says must be refused, and in what word. */
static void refuse_lines(contract *c)
{
  const qn_check_text *refused = c->d.check->refused;
  for (size_t k = 0; refused && refused[k].name && !c->trial->failure; k++) {
    contract other = {.trial = c->trial, .n = c->n};
    const qn_subject_order order = {
        .op = c->d.op, .device = c->d.exec.device, .text = refused[k].text, .seed = c->trial->options->seed};
    if (qn_subject_open(&other.d, &order) == QN_OK)
      refuses(&other, refused[k].text, refused[k].name, true);
    else
      qn_trial_fail(c->trial, -1, "%s", qn_last_error());
    c->n = other.n;
    qn_subject_close(&other.d);
  }
}

/* ---- random ---- */

/* Bits of any kind in place of one param. */
static void fuzz_param(contract *c, uint64_t seed)
{
  const qn_op_info *info = &c->d.op->info;
  const qn_op_param *p = &info->params[qn_seed_mix(seed, 0) % info->n_params];
  const uint64_t bits = qn_seed_mix(seed, 1) >> (qn_seed_mix(seed, 2) % 3 ? 0 : 40);
  if (p->type == QN_PARAM_DOUBLE || p->type == QN_PARAM_U64) memcpy(c->d.params + p->offset, &bits, 8);
  if (p->type == QN_PARAM_BOOL || p->type == QN_PARAM_ENUM) memcpy(c->d.params + p->offset, &bits, 4);
}

/* The tensor whose shape is another then, and what it was; NULL: such a role is not given. */
static qn_tensor *fuzz_tensor(contract *c, uint64_t seed, int64_t shape[QN_SUBJECT_NDIM], qn_tensor *kept)
{
  static const int64_t extents[] = {0, 1, 2, 3, 7, 12, -1, 1 << 20, INT64_MAX, INT64_MIN};
  qn_subject_role *role = &c->d.role[qn_seed_mix(seed, 3) % c->d.op->info.n_tensors];
  if (!role->n) return NULL;
  qn_tensor *t = &role->tensor[qn_seed_mix(seed, 4) % role->n];
  *kept = *t;
  t->ndim = (int)(qn_seed_mix(seed, 5) % 10) - 1;
  if (t->ndim > QN_SUBJECT_NDIM) t->ndim = QN_SUBJECT_NDIM;
  for (uint64_t k = 0; k < QN_SUBJECT_NDIM; k++) shape[k] = extents[qn_seed_mix(seed, 6 + k) % 10];
  t->shape = shape;
  return t;
}

static void see_random(contract *c, uint64_t k)
{
  unsigned char params[QN_SUBJECT_PARAMS];
  int64_t shape[QN_SUBJECT_NDIM];
  const uint64_t seed = qn_seed_mix(c->trial->options->seed, k);
  qn_tensor kept;
  memcpy(params, c->d.params, sizeof params);
  qn_tensor *changed = k % 2 ? fuzz_tensor(c, seed, shape, &kept) : NULL;
  if (!changed) fuzz_param(c, seed);
  const qn_status status = qn_subject_run(&c->d);
  if (status != QN_OK && (!qn_is_refusal(status) || !*qn_last_error()))
    qn_trial_fail(c->trial, (long)c->n - 1, "random call %llu: %s", (unsigned long long)k, qn_last_error());
  memcpy(c->d.params, params, sizeof params);
  if (changed) *changed = kept;
  if (status != QN_OK)
    see_untouched(c, "a random call");
  else if (qn_subject_rewind(&c->d) != QN_OK)
    qn_trial_fail(c->trial, (long)c->n - 1, "%s", qn_last_error());
}

/* A status and no crash; a refusal that changed nothing. What was good by chance is stepped, and then filled again: on
 * the emulator, which takes its time for that, there are fewer, as all devices refuse by the same code. */
static void fuzz(contract *c)
{
  const uint64_t calls = c->d.exec.device.kind == QN_EMULATOR && c->trial->options->level != QN_FULL ? 100 : 400;
  for (uint64_t k = 0; k < calls && !c->trial->failure; k++)
    if (qn_trial_takes(c->trial, c->n++)) see_random(c, k);
}

static bool has_single(const qn_op_info *info)
{
  for (size_t r = 0; r < info->n_tensors; r++)
    if (info->tensors[r].single) return true;
  return false;
}

/* NULL in place of the call's own arguments, and a list of none, which is a call. */
static void see_null(contract *c)
{
  qn_subject *d = &c->d;
  const qn_op_info *info = &d->op->info;
  const qn_tensor *none[QN_MAX_TENSORS] = {NULL};
  if (!qn_trial_takes(c->trial, c->n++)) return;
  qn_exec nowhere = d->exec;
  nowhere.device.kind = (qn_device_kind)77;
  if (!qn_is_refusal(qn_op_step(info, &nowhere, d->params, d->n, d->tensors)))
    qn_trial_fail(c->trial, (long)c->n - 1, "a device that there is none of is not refused");
  if (qn_op_step(info, NULL, d->params, d->n, d->tensors) != QN_BAD_ARGUMENT)
    qn_trial_fail(c->trial, (long)c->n - 1, "exec that is NULL is not refused");
  if (qn_op_step(info, &d->exec, NULL, d->n, d->tensors) != QN_BAD_ARGUMENT)
    qn_trial_fail(c->trial, (long)c->n - 1, "params that are NULL are not refused");
  if (qn_op_step(info, &d->exec, d->params, d->n, NULL) != QN_BAD_ARGUMENT)
    qn_trial_fail(c->trial, (long)c->n - 1, "tensors that are NULL are not refused");
  if (qn_op_call_workspace_bytes(info, &d->exec, d->params, d->n, NULL))
    qn_trial_fail(c->trial, (long)c->n - 1, "tensors that are NULL are given a workspace");
  if (d->list && !has_single(info) && qn_op_step(info, &d->exec, d->params, 0, none) != QN_OK)
    qn_trial_fail(c->trial, (long)c->n - 1, "a list of none is refused: %s", qn_last_error());
}

/* Preparing a good call needs no workspace and writes nothing. */
static void see_prepare(contract *c)
{
  const qn_exec good = c->d.exec;
  if (!qn_trial_takes(c->trial, c->n++)) return;
  c->d.exec.workspace = NULL, c->d.exec.workspace_bytes = 0;
  if (call(&c->d, true) != QN_OK) qn_trial_fail(c->trial, (long)c->n - 1, "preparing a good call: %s", qn_last_error());
  c->d.exec = good;
  see_untouched(c, "preparing a good call");
}

/* Lists have a tensor of three dimensions and an empty one besides. */
void qn_leg_subject_contract(qn_trial *trial)
{
  contract c = {.trial = trial};
  const qn_subject_order order = {.op = trial->item->target.op,
                                  .device = trial->item->target.device,
                                  .text = qn_op_check_of(trial->item->target.op)->sample,
                                  .more = qn_op_is_alone(&trial->item->target.op->info) ? NULL : "4x3x2 0x3",
                                  .seed = trial->options->seed};
  if (qn_subject_open(&c.d, &order) != QN_OK || qn_subject_lend(&c.d) != QN_OK) {
    qn_trial_fail(trial, -1, "%s", qn_last_error());
  } else {
    see_null(&c);
    see_prepare(&c);
    refuse_params(&c);
    refuse_sizes(&c);
    refuse_tensors(&c);
    refuse_overlap(&c);
    refuse_workspace(&c);
    refuse_lines(&c);
    fuzz(&c);
  }
  qn_subject_close(&c.d);
  qn_trial_note(trial, "%zu calls", c.n);
}
