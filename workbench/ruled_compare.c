/* SPDX-License-Identifier: Apache-2.0 */
/* ruled_compare.c - a list of an op whose shapes follow by rule, as a step left it, against what it must be. */
#include "quern/device.h"
#include "workbench/fill.h"
#include "workbench/ruled.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *name_of(const qn_ruled_data *d, size_t r) { return d->op->info.tensors[r].name; }

static double number_at(const unsigned char *image, const qn_ruled_role *role, size_t k, size_t i)
{
  return qn_number_load(role->dtype, image + role->offset[k] + i * role->width);
}

/* [from, to) of a role's memory. */
static bool same_bytes(const qn_ruled_data *d, size_t r, size_t from, size_t to, const char *what, char *wrong,
                       size_t bytes)
{
  const qn_ruled_role *role = &d->role[r];
  for (size_t at = from; at < to; at++) {
    if (role->before[at] == role->after[at]) continue;
    snprintf(wrong, bytes, "%s: %s was changed, at byte %zu of its memory", name_of(d, r), what, at);
    return false;
  }
  return true;
}

static bool lent_intact(const qn_ruled_data *d, char *wrong, size_t bytes)
{
  unsigned char guard[2][QN_RULED_GUARD];
  const unsigned char *behind = d->lent + QN_RULED_GUARD + d->exec.workspace_bytes;
  if (!d->lent) return true;
  if (qn_memory_read(d->exec.device, d->exec.stream, guard[0], d->lent, QN_RULED_GUARD) != QN_OK ||
      (!d->fenced && qn_memory_read(d->exec.device, d->exec.stream, guard[1], behind, QN_RULED_GUARD) != QN_OK))
    return false;
  for (size_t k = 0; k < (d->fenced ? QN_RULED_GUARD : sizeof guard); k++) {
    if (((unsigned char *)guard)[k] == 0xa5) continue;
    snprintf(wrong, bytes, "what stands %s the workspace was changed", k < QN_RULED_GUARD ? "before" : "behind");
    return false;
  }
  return true;
}

bool qn_ruled_intact(const qn_ruled_data *d, char *wrong, size_t bytes)
{
  for (size_t r = 0; r < d->op->info.n_tensors; r++) {
    const qn_ruled_role *role = &d->role[r];
    size_t from = 0;
    for (size_t k = 0; k < role->n; k++) {
      if (!same_bytes(d, r, from, role->offset[k], "what stands beside tensors", wrong, bytes)) return false;
      from = role->offset[k] + role->elements[k] * role->width;
    }
    if (!same_bytes(d, r, from, role->bytes, "what stands behind the last tensor", wrong, bytes)) return false;
    if (!(role->access & QN_WRITE) && !same_bytes(d, r, 0, role->bytes, "it is only read, and", wrong, bytes))
      return false;
  }
  return lent_intact(d, wrong, bytes);
}

static bool tensor_right(const qn_ruled_data *d, size_t r, size_t k, char *wrong, size_t bytes, double *worst)
{
  const qn_ruled_role *role = &d->role[r];
  for (size_t i = 0; i < role->elements[k]; i++) {
    const double got = number_at(role->after, role, k, i), want = role->value[k][i], allowed = role->allowed[k][i];
    if (got == want || (isnan(got) && isnan(want))) continue;
    const double share = fabs(got - want) / allowed;
    if (share > *worst) *worst = share;
    if (share <= 1) continue;
    snprintf(wrong, bytes, "%s[%zu], element %zu of %zu, is %.9g, the reference says %.9g and allows %.3g",
             name_of(d, r), k, i, role->elements[k], got, want, allowed);
    return false;
  }
  return true;
}

bool qn_ruled_right(const qn_ruled_data *d, char *wrong, size_t bytes, uint64_t *elements, double *worst)
{
  if (!qn_ruled_intact(d, wrong, bytes)) return false;
  for (size_t r = 0; r < d->op->info.n_tensors; r++)
    for (size_t k = 0; k < d->role[r].n && d->role[r].access & QN_WRITE; k++) {
      *elements += d->role[r].elements[k];
      if (!tensor_right(d, r, k, wrong, bytes, worst)) return false;
    }
  return true;
}

bool qn_ruled_same(const qn_ruled_data *a, const qn_ruled_data *b, char *wrong, size_t bytes)
{
  for (size_t r = 0; r < a->op->info.n_tensors; r++)
    for (size_t k = 0; k < a->role[r].n && a->role[r].access & QN_WRITE; k++)
      for (size_t i = 0; i < a->role[r].elements[k]; i++) {
        const qn_dtype dtype = a->role[r].dtype;
        const unsigned char *x = a->role[r].after + a->role[r].offset[k] + i * a->role[r].width;
        const unsigned char *y = b->role[r].after + b->role[r].offset[k] + i * b->role[r].width;
        if (qn_number_same(dtype, x, y)) continue;
        snprintf(wrong, bytes, "%s[%zu], element %zu of %zu, is 0x%08llx (%.9g), it must be 0x%08llx (%.9g)",
                 name_of(a, r), k, i, a->role[r].elements[k], (unsigned long long)qn_number_bits(dtype, x),
                 qn_number_load(dtype, x), (unsigned long long)qn_number_bits(dtype, y), qn_number_load(dtype, y));
        return false;
      }
  return true;
}

bool qn_ruled_untouched(const qn_ruled_data *d, char *wrong, size_t bytes)
{
  for (size_t r = 0; r < d->op->info.n_tensors; r++)
    if (!same_bytes(d, r, 0, d->role[r].bytes, "it", wrong, bytes)) return false;
  return true;
}
