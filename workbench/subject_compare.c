/* SPDX-License-Identifier: Apache-2.0 */
/* subject_compare.c - a call's tensors, as a step left them, against what they must be. */
#include "core/core.h"
#include "quern/device.h"
#include "workbench/fill.h"
#include "workbench/oracle.h"
#include "workbench/subject.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *name_of(const qn_subject *d, size_t r) { return d->op->info.tensors[r].name; }

/* [from, to) of a role's memory. */
static bool same_bytes(const qn_subject *d, size_t r, size_t from, size_t to, const char *what, char *wrong,
                       size_t bytes)
{
  const qn_subject_role *role = &d->role[r];
  if (!memcmp(role->before + from, role->after + from, to - from)) return true;
  while (role->before[from] == role->after[from]) from++;
  snprintf(wrong, bytes, "%s: %s was changed, at byte %zu of its memory", name_of(d, r), what, from);
  return false;
}

static bool lent_intact(const qn_subject *d, char *wrong, size_t bytes)
{
  unsigned char guard[2][QN_SUBJECT_GUARD];
  const unsigned char *const memory = d->lent.memory;
  const unsigned char *behind = memory + QN_SUBJECT_GUARD + d->exec.workspace_bytes;
  if (!memory) return true;
  if (qn_memory_read(d->exec.device, d->exec.stream, guard[0], memory, QN_SUBJECT_GUARD) != QN_OK ||
      (!d->fenced && qn_memory_read(d->exec.device, d->exec.stream, guard[1], behind, QN_SUBJECT_GUARD) != QN_OK))
    return false;
  for (size_t k = 0; k < (d->fenced ? QN_SUBJECT_GUARD : sizeof guard); k++) {
    if (((unsigned char *)guard)[k] == 0xa5) continue;
    snprintf(wrong, bytes, "what stands %s the workspace was changed", k < QN_SUBJECT_GUARD ? "before" : "behind");
    return false;
  }
  return true;
}

/* Names the tensor that the byte belongs to, or the nearest one before it. */
static void tell_byte(const qn_subject *d, size_t r, size_t at, char *wrong, size_t bytes)
{
  const qn_subject_role *role = &d->role[r];
  size_t k = 0;
  while (k + 1 < role->n && role->place[k + 1].offset <= at) k++;
  const qn_subject_place *p = &role->place[k];
  const size_t reach = p->rows ? ((p->rows - 1) * p->pitch + p->cols) * role->width : 0;
  const char *const read = role->access & QN_WRITE ? "" : ", which is only read";
  if (!role->n || at < p->offset)
    snprintf(wrong, bytes, "%s: byte %zu before the first tensor was written%s", name_of(d, r),
             role->n ? p->offset - at : at, read);
  else if (at >= p->offset + reach)
    snprintf(wrong, bytes, "%s[%zu] of %zu elements: byte %zu behind the tensor was written%s", name_of(d, r), k,
             p->elements, at - p->offset - reach, read);
  else
    snprintf(wrong, bytes, "%s[%zu]: byte %zu, %s, was written", name_of(d, r), k, at - p->offset,
             *read ? "of a tensor that is only read" : "between rows");
}

/* All bytes of a role but the elements that are written. */
static bool role_intact(const qn_subject *d, size_t r, char *wrong, size_t bytes)
{
  const qn_subject_role *role = &d->role[r];
  size_t from = 0;
  for (size_t k = 0; k <= role->n; k++)
    for (size_t row = 0; row < (k < role->n && role->access & QN_WRITE ? role->place[k].rows : k == role->n); row++) {
      const size_t to = k < role->n ? role->place[k].offset + row * role->place[k].pitch * role->width : role->bytes;
      if (memcmp(role->before + from, role->after + from, to - from) != 0) {
        while (role->before[from] == role->after[from]) from++;
        return tell_byte(d, r, from, wrong, bytes), false;
      }
      if (k < role->n) from = to + role->place[k].cols * role->width;
    }
  return true;
}

/* All bytes of the memory that arranged tensors lie in but the elements that are written. */
static bool shared_intact(const qn_subject *d, size_t home, char *wrong, size_t bytes)
{
  const qn_subject_role *shared = &d->role[home];
  unsigned char *now = qn_allocate(shared->bytes);
  size_t at = 0;
  if (!now) return snprintf(wrong, bytes, "no memory"), false;
  memcpy(now, shared->after, shared->bytes);
  for (size_t r = 0; r < d->op->info.n_tensors; r++)
    for (size_t k = 0; k < d->role[r].n && d->role[r].access & QN_WRITE; k++)
      for (size_t i = 0; i < d->role[r].place[k].elements; i++) {
        const size_t element = qn_subject_at(d, r, k, i);
        memcpy(now + element, shared->before + element, d->role[r].width);
      }
  if (memcmp(now, shared->before, shared->bytes) != 0)
    while (now[at] == shared->before[at]) at++;
  else
    at = shared->bytes;
  qn_release(now);
  if (at < shared->bytes)
    snprintf(wrong, bytes,
             "byte %zu of %zu, which is no written element's, was written: between rows, columns or tensors", at,
             shared->bytes);
  return at == shared->bytes;
}

/* The values that params point to in the device's memory. */
static bool values_intact(const qn_subject *d, char *wrong, size_t bytes)
{
  for (size_t k = 0; k < d->op->info.n_params; k++) {
    if (!d->pointed[k]) continue;
    unsigned char *now = qn_allocate(d->value_bytes[k]);
    const bool same = now &&
                      qn_memory_read(d->exec.device, d->exec.stream, now, d->pointed[k], d->value_bytes[k]) == QN_OK &&
                      !memcmp(now, d->values[k], d->value_bytes[k]);
    qn_release(now);
    if (same) continue;
    snprintf(wrong, bytes, "a step wrote to memory that %s points to, or behind it", d->op->info.params[k].name);
    return false;
  }
  return true;
}

bool qn_subject_intact(const qn_subject *d, char *wrong, size_t bytes)
{
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) {
    const qn_subject_role *role = &d->role[r];
    if (!role->memory || role->home != r) continue;
    if (!(d->arranged ? shared_intact(d, r, wrong, bytes) : role_intact(d, r, wrong, bytes))) return false;
  }
  return lent_intact(d, wrong, bytes) && values_intact(d, wrong, bytes);
}

/* Of an op that says bits: those of the wanted number. */
static bool same_number(const qn_subject *d, qn_dtype dtype, const unsigned char *got, double want)
{
  uint64_t wanted = 0;
  const double value = qn_number_load(dtype, got);
  if (d->op->info.agreement != QN_BITWISE) return value == want || (isnan(value) && isnan(want));
  qn_number_store(dtype, &wanted, want);
  return qn_number_same(dtype, got, &wanted);
}

static bool tensor_right(const qn_subject *d, size_t r, size_t k, char *wrong, size_t bytes, double *worst)
{
  const qn_subject_role *role = &d->role[r];
  const size_t n = qn_subject_count(d, r, k);
  for (size_t i = 0; i < n; i++) {
    const size_t at = qn_subject_referred(d, r, k, i);
    const double want = role->value[k][i], got = qn_subject_number(d, role->after, r, k, at);
    if (same_number(d, role->dtype, role->after + qn_subject_at(d, r, k, at), want)) continue;
    const double share = fabs(got - want) / role->allowed[k][i];
    if (share > *worst) *worst = share;
    if (share <= 1) continue;
    snprintf(wrong, bytes, "%s[%zu], element %zu of %zu, is %.9g, the reference says %.9g and allows %.3g",
             name_of(d, r), k, at, role->place[k].elements, got, want, role->allowed[k][i]);
    return false;
  }
  return true;
}

bool qn_subject_right(const qn_subject *d, char *wrong, size_t bytes, uint64_t *elements, double *worst)
{
  if (!qn_subject_intact(d, wrong, bytes)) return false;
  for (size_t r = 0; r < QN_MAX_TENSORS; r++)
    for (size_t k = 0; k < d->role[r].n && d->role[r].access & QN_WRITE; k++) {
      *elements += qn_subject_count(d, r, k);
      if (!tensor_right(d, r, k, wrong, bytes, worst)) return false;
    }
  return true;
}

static void number_text(qn_dtype dtype, const void *at, char text[48])
{
  snprintf(text, 48, "0x%0*llx (%.9g)", (int)(2 * qn_dtype_bytes(dtype)), (unsigned long long)qn_number_bits(dtype, at),
           qn_number_load(dtype, at));
}

/* Adds the numbers that the step read at an element, from tensors of its shape. */
static void tell_inputs(const qn_subject *d, size_t k, size_t i, size_t elements, char *wrong, size_t bytes)
{
  size_t used = strlen(wrong);
  for (size_t r = 0; r < d->op->info.n_tensors && used < bytes; r++) {
    const qn_subject_role *role = &d->role[r];
    char text[48];
    if (!(role->access & QN_READ) || k >= role->n || role->place[k].elements != elements) continue;
    number_text(role->dtype, role->before + qn_subject_at(d, r, k, i), text);
    used += (size_t)snprintf(wrong + used, bytes - used, "%s %s %s",
                             r ? "" : "\nbefore the step, there:", name_of(d, r), text);
  }
}

void qn_subject_tell(const qn_subject *a, const qn_subject *was, size_t r, size_t k, size_t i, const void *want,
                     char *wrong, size_t bytes)
{
  const qn_subject_role *role = &a->role[r];
  char is[48], must[48];
  number_text(role->dtype, role->after + qn_subject_at(a, r, k, i), is);
  number_text(role->dtype, want, must);
  snprintf(wrong, bytes, "%s[%zu], element %zu of %zu, is %s, it must be %s", name_of(a, r), k, i,
           role->place[k].elements, is, must);
  tell_inputs(was, k, i, role->place[k].elements, wrong, bytes);
}

static bool same_tensor(const qn_subject *a, const qn_subject *b, size_t r, size_t k, char *wrong, size_t bytes)
{
  const qn_subject_place *p = &a->role[r].place[k], *q = &b->role[r].place[k];
  const unsigned char *x = a->role[r].after, *y = b->role[r].after;
  const size_t width = a->role[r].width;
  if (!p->at && p->cols == p->elements && q->cols == p->elements &&
      !memcmp(x + p->offset, y + q->offset, p->elements * width))
    return true;
  for (size_t i = 0; i < p->elements; i++) {
    const unsigned char *want = y + qn_subject_at(b, r, k, i);
    if (qn_number_same(a->role[r].dtype, x + qn_subject_at(a, r, k, i), want)) continue;
    qn_subject_tell(a, b->like ? b : a, r, k, i, want, wrong, bytes);
    return false;
  }
  return true;
}

bool qn_subject_same(const qn_subject *a, const qn_subject *b, char *wrong, size_t bytes)
{
  for (size_t r = 0; r < QN_MAX_TENSORS; r++)
    for (size_t k = 0; k < a->role[r].n && a->role[r].access & QN_WRITE; k++)
      if (!same_tensor(a, b, r, k, wrong, bytes)) return false;
  return true;
}

/* Is the tensor as near to the reference's as the op's class allows, in the oracle's units? */
static qn_status near_tensor(const qn_subject *got, const qn_subject *want, size_t k, bool *near, char *wrong,
                             size_t bytes)
{
  _Alignas(16) unsigned char params[QN_SUBJECT_PARAMS];
  qn_oracle o;
  const double units = got->op->info.agreement_units;
  qn_subject_call_params(want, params);
  const qn_status status = qn_oracle_open(&o, got->op, params, want, k);
  for (size_t r = 0; r < got->op->info.n_tensors && status == QN_OK; r++)
    for (size_t i = 0; i < o.n && *near && got->role[r].access & QN_WRITE; i++) {
      const double its = qn_subject_number(want, want->role[r].after, r, k, i);
      *near = qn_oracle_miss(&o, r, i, qn_subject_number(got, got->role[r].after, r, k, i), &its, units, 2) <= units;
      if (!*near) qn_subject_tell(got, want, r, k, i, want->role[r].after + qn_subject_at(want, r, k, i), wrong, bytes);
    }
  qn_oracle_close(&o);
  return status;
}

bool qn_subject_agree(const qn_subject *got, const qn_subject *want, char *wrong, size_t bytes)
{
  bool near = qn_subject_intact(got, wrong, bytes) && qn_subject_intact(want, wrong, bytes);
  if (near && (got->op->info.agreement == QN_BITWISE || got->check->reference))
    return qn_subject_same(got, want, wrong, bytes);
  for (size_t k = 0; k < got->n && near; k++)
    if (near_tensor(got, want, k, &near, wrong, bytes) != QN_OK) {
      snprintf(wrong, bytes, "%s", qn_last_error());
      return false;
    }
  return near;
}

bool qn_subject_untouched(const qn_subject *d, char *wrong, size_t bytes)
{
  for (size_t r = 0; r < QN_MAX_TENSORS; r++)
    if (d->role[r].memory && !same_bytes(d, r, 0, d->role[r].bytes, "it", wrong, bytes)) return false;
  return true;
}
