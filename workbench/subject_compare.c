/* SPDX-License-Identifier: Apache-2.0 */
/* subject_compare.c - a call's tensors, as a step left them, against what they must be. */
#include "quern/device.h"
#include "workbench/fill.h"
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

/* All bytes but those of elements. */
static bool guards_intact(const qn_subject *d, size_t r, char *wrong, size_t bytes)
{
  const qn_subject_role *role = &d->role[r];
  size_t from = 0;
  for (size_t k = 0; k < role->n; k++)
    for (size_t row = 0; row < role->place[k].rows; row++) {
      const size_t at = role->place[k].offset + row * role->place[k].pitch * role->width;
      if (!same_bytes(d, r, from, at, row ? "what stands between rows" : "what stands beside tensors", wrong, bytes))
        return false;
      from = at + role->place[k].cols * role->width;
    }
  return same_bytes(d, r, from, role->bytes, "what stands behind the last tensor", wrong, bytes);
}

bool qn_subject_intact(const qn_subject *d, char *wrong, size_t bytes)
{
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) {
    const qn_subject_role *role = &d->role[r];
    if (!role->memory) continue;
    if (!guards_intact(d, r, wrong, bytes)) return false;
    if (!(role->access & QN_WRITE) && !same_bytes(d, r, 0, role->bytes, "it is only read, and", wrong, bytes))
      return false;
  }
  return lent_intact(d, wrong, bytes);
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

bool qn_subject_same(const qn_subject *a, const qn_subject *b, char *wrong, size_t bytes)
{
  for (size_t r = 0; r < QN_MAX_TENSORS; r++)
    for (size_t k = 0; k < a->role[r].n && a->role[r].access & QN_WRITE; k++)
      for (size_t i = 0; i < a->role[r].place[k].elements; i++) {
        const qn_dtype dtype = a->role[r].dtype;
        const unsigned char *x = a->role[r].after + qn_subject_at(a, r, k, i);
        const unsigned char *y = b->role[r].after + qn_subject_at(b, r, k, i);
        if (qn_number_same(dtype, x, y)) continue;
        snprintf(wrong, bytes, "%s[%zu], element %zu of %zu, is 0x%08llx (%.9g), it must be 0x%08llx (%.9g)",
                 name_of(a, r), k, i, a->role[r].place[k].elements, (unsigned long long)qn_number_bits(dtype, x),
                 qn_number_load(dtype, x), (unsigned long long)qn_number_bits(dtype, y), qn_number_load(dtype, y));
        return false;
      }
  return true;
}

bool qn_subject_untouched(const qn_subject *d, char *wrong, size_t bytes)
{
  for (size_t r = 0; r < QN_MAX_TENSORS; r++)
    if (d->role[r].memory && !same_bytes(d, r, 0, d->role[r].bytes, "it", wrong, bytes)) return false;
  return true;
}
