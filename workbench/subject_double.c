/* SPDX-License-Identifier: Apache-2.0 */
/* subject_double.c - a call's tensors in double, and the op's reference over them. They are made when the reference is
 * asked for first, of what the tensors were filled with; the steps of a list go on from there, any other call begins
 * there again. */
#include "core/core.h"
#include "workbench/fill.h"
#include "workbench/subject.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double every_operation = 1e300;

/* Does the role's first dimension bear the letter that results are independent along? */
static bool has_rows(const qn_subject *d, size_t r)
{
  const qn_shape_rule *rule = qn_subject_rule(d, r);
  return d->rows && rule->n && rule->part[0].letter == d->check->independent;
}

size_t qn_subject_count(const qn_subject *d, size_t r, size_t k)
{
  const qn_subject_place *p = &d->role[r].place[k];
  return has_rows(d, r) ? p->elements / (size_t)p->shape[0] * (size_t)d->n_rows : p->elements;
}

size_t qn_subject_referred(const qn_subject *d, size_t r, size_t k, size_t i)
{
  const qn_subject_place *p = &d->role[r].place[k];
  if (!has_rows(d, r)) return i;
  const size_t width = p->elements / (size_t)p->shape[0];
  return (size_t)d->rows[i / width] * width + i % width;
}

/* All of them, or as many as `most` allows, 2 at least, from the first to the last. */
static qn_status choose_rows(qn_subject *d, double most)
{
  const char letter = d->check->independent;
  const int64_t all = letter ? d->extent[letter - 'a'] : 0;
  const double each = all > 0 ? qn_subject_operations(d) / (double)all : 0;
  if (all < 3 || each * (double)all <= most) return QN_OK;
  d->n_rows = (int64_t)fmax(2, fmin((double)all, most / each));
  qn_try(qn_try_allocate(&d->rows, (size_t)d->n_rows * sizeof *d->rows, "rows"));
  for (int64_t k = 0; k < d->n_rows; k++) d->rows[k] = k * (all - 1) / (d->n_rows - 1);
  return QN_OK;
}

static qn_status make_role(qn_subject *d, size_t r)
{
  qn_subject_role *role = &d->role[r];
  const bool written = role->access & QN_WRITE;
  double **pointers;
  qn_try(qn_try_allocate(&pointers, 3 * (role->n + 1) * sizeof *pointers, "tensors in double"));
  memset(pointers, 0, 3 * (role->n + 1) * sizeof *pointers);
  role->value = pointers, role->was = pointers + role->n, role->allowed = role->was + role->n;
  for (size_t k = 0; k < role->n; k++) {
    const size_t n = qn_subject_count(d, r, k);
    qn_try(qn_try_allocate(&role->value[k], ((written ? 3 : 1) * n + 1) * sizeof(double), "tensors in double"));
    role->was[k] = written ? role->value[k] + n : role->value[k];
    role->allowed[k] = role->was[k] + n;
    for (size_t i = 0; i < n && written; i++) role->was[k][i] = role->allowed[k][i] = 0;
  }
  qn_subject_refresh(d, r);
  return QN_OK;
}

void qn_subject_refresh(qn_subject *d, size_t r)
{
  qn_subject_role *role = &d->role[r];
  for (size_t k = 0; k < role->n && role->value; k++) {
    const size_t n = qn_subject_count(d, r, k);
    for (size_t i = 0; i < n; i++)
      role->value[k][i] =
          role->access & QN_READ ? qn_subject_number(d, role->before, r, k, qn_subject_referred(d, r, k, i)) : 0;
  }
}

void qn_subject_forget(qn_subject *d)
{
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) {
    for (size_t k = 0; k < d->role[r].n && d->role[r].value; k++) qn_release(d->role[r].value[k]);
    qn_release(d->role[r].value);
    d->role[r].value = d->role[r].was = d->role[r].allowed = NULL;
  }
  qn_release(d->rows);
  d->rows = NULL, d->referred = 0;
}

static qn_status make_all(qn_subject *d, double most)
{
  qn_try(choose_rows(d, most));
  for (size_t r = 0; r < d->op->info.n_tensors; r++)
    if (d->role[r].access != QN_ABSENT) qn_try(make_role(d, r));
  return QN_OK;
}

/* The params with pointers to what the host reads. */
void qn_subject_host_params(const qn_subject *d, unsigned char params[QN_SUBJECT_PARAMS])
{
  memcpy(params, d->params, QN_SUBJECT_PARAMS);
  for (size_t k = 0; k < d->op->info.n_params && k < QN_PARAMS_MOST; k++)
    if (d->values[k]) memcpy(params + d->op->info.params[k].offset, &d->values[k], sizeof d->values[k]);
}

qn_call qn_subject_call(const qn_subject *d, qn_call_mode mode)
{
  qn_call call = {.op = d->op, .mode = mode, .exec = &d->exec, .params = d->params, .n = d->n, .row = d->row};
  memcpy(call.extent, d->extent, sizeof call.extent);
  memcpy(call.tensors, d->tensors, sizeof call.tensors);
  for (size_t r = 0; r < d->op->info.n_tensors; r++)
    for (size_t k = 0; k < d->role[r].n; k++)
      call.strided = call.strided || d->role[r].place[k].pitch > d->role[r].place[k].cols;
  return call;
}

int qn_subject_looseness(const qn_subject *d)
{
  char name[64];
  if (d->exec.device.kind == QN_CPU || !d->check->looseness) return 0;
  return sscanf(qn_op_last_variant(), "%63s", name) == 1 ? d->check->looseness(name) : 0;
}

qn_status qn_subject_refer(qn_subject *d, int looseness, double most)
{
  _Alignas(16) unsigned char params[QN_SUBJECT_PARAMS];
  qn_call call = qn_subject_call(d, QN_CALL_STEP);
  qn_reference reference = {.call = &call, .looseness = looseness};
  if (d->referred == 1 + looseness) return QN_OK;
  if (!d->role[0].value) qn_try(make_all(d, most > 0 ? most : every_operation));
  qn_subject_host_params(d, params);
  call.params = params;
  if (d->rows) call.extent[d->check->independent - 'a'] = d->n_rows;
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) {
    qn_subject_role *role = &d->role[r];
    if (!role->value) continue;
    if (!d->list) qn_subject_refresh(d, r);
    reference.value[r] = role->value, reference.was[r] = role->was;
    if (!(role->access & QN_WRITE)) continue;
    reference.allowed[r] = role->allowed;
    for (size_t k = 0; k < role->n; k++)
      memcpy(role->was[k], role->value[k], qn_subject_count(d, r, k) * sizeof(double));
  }
  d->referred = 1 + looseness;
  return d->check->reference(&reference);
}

double qn_subject_operations(const qn_subject *d)
{
  const qn_call call = qn_subject_call(d, QN_CALL_STEP);
  double operations = d->check->operations ? d->check->operations(&call) : 0;
  for (size_t k = 0; k < d->role[0].n; k++) operations += d->op->info.operations * (double)d->role[0].place[k].elements;
  return operations;
}

double qn_subject_bytes(const qn_subject *d)
{
  double bytes = 0;
  for (size_t r = 0; r < QN_MAX_TENSORS; r++)
    for (size_t k = 0; k < d->role[r].n; k++)
      bytes += (double)d->role[r].place[k].elements * (double)d->role[r].width *
               (!!(d->role[r].access & QN_READ) + !!(d->role[r].access & QN_WRITE));
  return bytes;
}
