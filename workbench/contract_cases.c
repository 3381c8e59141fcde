/* SPDX-License-Identifier: Apache-2.0 */
/* contract_cases.c - faults of a call's structs and tensors, and unusual calls that are right, by the
 * op's description. Ranges of params are in leg_contract.c. */
#include "workbench/contract.h"
#include "core/core.h"
#include <stdio.h>
#include <string.h>

static const qn_op_info *info_of(const qn_contract *c) { return &c->d.op->info; }
static bool has(const qn_contract *c, size_t r) { return c->tensor[r] != NULL; }
static bool is_written(const qn_contract *c, size_t r) { return c->d.role[r].access & QN_WRITE; }

/* "grad[1]", or the role of one tensor a call; two texts last at a time. */
static const char *entry(const qn_contract *c, size_t r, size_t k)
{
  static char text[2][64];
  static int turn;
  turn = !turn;
  snprintf(text[turn], sizeof text[turn], c->d.role[r].single ? "%s" : "%s[%zu]", info_of(c)->tensors[r].name, k);
  return text[turn];
}

/* ---- structs ---- */

static void refuse_structs(qn_contract *c)
{
  const size_t none = 0, ours = info_of(c)->params_bytes, older = ours - 8, larger = ours + 8;
  c->exec_given = NULL;
  qn_contract_refuses(c, "exec that is NULL", QN_WORDS("exec"));
  c->exec.size = 0;
  qn_contract_refuses(c, "exec.size 0", QN_WORDS("exec", "size", "0"));
  c->exec.size--;
  qn_contract_refuses(c, "exec of another size", QN_WORDS("exec", "exec->size"));
  c->exec.size = (size_t)-1;
  qn_contract_refuses(c, "exec.size beyond reason", QN_WORDS("exec", "size"));
  c->exec.device.kind = QN_DEVICE_KIND_COUNT;
  qn_contract_refuses(c, "a device kind that does not exist", QN_WORDS("device"));
  c->exec.device.index = -1;
  qn_contract_refuses(c, "device -1", QN_WORDS("-1"));
  c->params_given = NULL;
  qn_contract_refuses(c, "params that are NULL", QN_WORDS("params"));
  memcpy(c->params, &none, sizeof none);
  qn_contract_refuses(c, "params.size 0", QN_WORDS("params", "size", "0"));
  memcpy(c->params, &older, sizeof older);
  qn_contract_refuses(c, "params of an older size", QN_WORDS("params->size"));
  memcpy(c->params, &larger, sizeof larger);
  c->params[ours] = 1;
  qn_contract_refuses(c, "a member of a later version that is set", QN_WORDS("params", "does not know"));
  c->list_given = NULL;
  qn_contract_refuses(c, "tensors that are NULL", QN_WORDS("tensors"));
}

/* ---- types ---- */

static bool is_optional(const qn_contract *c, size_t r)
{
  for (size_t row = 0; row < info_of(c)->n_types; row++)
    if (info_of(c)->types[row].tensor[r].access == QN_ABSENT) return true;
  return info_of(c)->tensors[r].optional;
}

static bool in_table(const qn_contract *c, size_t role, qn_dtype dtype)
{
  const qn_op_types *types = info_of(c)->types;
  for (size_t row = 0; row < info_of(c)->n_types; row++) {
    bool same = true;
    for (size_t r = 0; r < info_of(c)->n_tensors && same; r++)
      same = types[row].tensor[r].dtype == (r == role ? dtype : types[c->d.row].tensor[r].dtype);
    if (same) return true;
  }
  return false;
}

static void refuse_types(qn_contract *c, size_t r)
{
  const char *name = info_of(c)->tensors[r].name;
  const size_t last = c->d.role[r].n - 1;
  if (!is_optional(c, r)) {
    c->list[r] = NULL;
    qn_contract_refuses(c, "a role that is not given", QN_WORDS(name, "NULL"));
  }
  for (int dtype = 0; dtype < QN_DTYPE_COUNT; dtype++) {
    if (dtype == QN_NONE || in_table(c, r, (qn_dtype)dtype)) continue;
    for (size_t k = 0; k <= last; k++) c->tensor[r][k].dtype = (qn_dtype)dtype;
    qn_contract_refuses(c, "types outside the table", QN_WORDS(name, qn_dtype_name((qn_dtype)dtype)));
  }
  c->tensor[r][0].dtype = (qn_dtype)99;
  qn_contract_refuses(c, "a dtype that does not exist", QN_WORDS(name));
  if (!last) return;
  c->tensor[r][last].dtype = c->tensor[r][0].dtype == QN_F64 ? QN_F32 : QN_F64;
  qn_contract_refuses(c, "a list of two types", QN_WORDS(entry(c, r, last)));
}

/* Rows that this kind of device does not take: of f64, in the roles that are given here. */
static void refuse_rows(qn_contract *c)
{
  const qn_op_types *types = info_of(c)->types, *here = &types[c->d.row];
  for (size_t row = qn_op_rows(info_of(c), c->exec.device.kind); row < info_of(c)->n_types; row++) {
    size_t alike = 0;
    for (size_t r = 0; r < info_of(c)->n_tensors; r++)
      alike += (types[row].tensor[r].access == QN_ABSENT) == (here->tensor[r].access == QN_ABSENT);
    if (alike < info_of(c)->n_tensors) continue;
    for (size_t r = 0; r < info_of(c)->n_tensors; r++)
      for (size_t k = 0; has(c, r) && k < c->d.role[r].n; k++) c->tensor[r][k].dtype = types[row].tensor[r].dtype;
    qn_contract_refuses(c, "a row of types for the processor alone", QN_WORDS("f64", "cpu"));
  }
}

/* ---- shapes ---- */

/* Is the k-th extent of a shape one letter, which no other role's shape has? Then it may be any number. */
static bool is_free(const qn_op_info *info, size_t role, int k)
{
  const char *letter = info->tensors[role].shape;
  size_t found = 0;
  for (; letter && k > 0; k--) letter = (letter = strchr(letter, ',')) ? letter + 1 : NULL;
  if (!letter) return false;
  letter += strspn(letter, "[ ");
  if (*letter < 'a' || *letter > 'z' || !strchr(",]", letter[1])) return false;
  for (size_t r = 0; r < info->n_tensors; r++)
    for (const char *at = info->tensors[r].shape; at && *at; at++)
      found += *at == *letter && strchr("[ ", at[-(at > info->tensors[r].shape)]) && at[1] && strchr(",]", at[1]);
  return found == 1;
}

/* The tensor's shape becomes a copy, in which a case changes an extent. */
static void copy_shape(qn_contract *c, qn_tensor *t)
{
  memset(c->shape, 0, sizeof c->shape);
  memcpy(c->shape, t->shape, (size_t)t->ndim * sizeof *c->shape);
  c->shape[t->ndim] = t->ndim ? 1 : 2; /* one number may have an extent of 1 */
  t->shape = c->shape;
}

/* Where the roles' shapes follow from the first role's, the sentence is about a role that no longer fits. */
static const char *named(const qn_contract *c, size_t r, size_t k)
{
  return c->d.list && !r && !qn_op_is_alike(info_of(c)) ? info_of(c)->name : entry(c, r, k);
}

static void refuse_extents(qn_contract *c, size_t r, size_t k)
{
  static const struct {
    int64_t extent;
    bool added;
    const char *what;
  } wrong[] = {{1, true, "one element more along a dimension"},
               {-6, false, "an extent of -6"},
               {INT64_MAX / 2, false, "an extent that no memory has"}};
  const bool alike = qn_op_is_alike(info_of(c));
  qn_tensor *t = &c->tensor[r][k];
  const int ndim = t->ndim;
  for (int d = 0; d < ndim; d++)
    for (size_t w = 0; w < sizeof wrong / sizeof *wrong && !is_free(info_of(c), r, d); w++) {
      copy_shape(c, t);
      c->shape[d] = wrong[w].extent + (wrong[w].added ? c->shape[d] : 0);
      qn_contract_refuses(c, wrong[w].what, QN_WORDS(wrong[w].added && !alike ? "it must be" : entry(c, r, k)));
    }
}

static void refuse_shape(qn_contract *c, size_t r, size_t k)
{
  qn_tensor *t = &c->tensor[r][k];
  const char *name = entry(c, r, k);
  copy_shape(c, t);
  t->ndim++;
  qn_contract_refuses(c, "one dimension more", QN_WORDS(named(c, r, k)));
  t->ndim = -1;
  qn_contract_refuses(c, "-1 dimensions", QN_WORDS(name, "-1"));
  t->ndim = QN_MAX_NDIM + 1;
  qn_contract_refuses(c, "33 dimensions", QN_WORDS(name, "33"));
  if (!t->ndim) return;
  t->shape = NULL;
  qn_contract_refuses(c, "no shape", QN_WORDS(name, "shape"));
  for (int d = 0; d <= QN_SUBJECT_NDIM; d++) c->strides[d] = 3;
  t->strides = c->strides;
  if (t->ndim > 1 || info_of(c)->tensors[r].storage != QN_STORAGE_ROWS) /* of one column each */
    qn_contract_refuses(c, "strides that leave gaps", QN_WORDS(name));
  t->strides = NULL;
  refuse_extents(c, r, k);
}

/* All tensors of a place get one shape, with or without strides. */
static void reshape(qn_contract *c, size_t k, int ndim, bool strided)
{
  for (size_t r = 0; r < info_of(c)->n_tensors; r++) {
    if (!has(c, r)) continue;
    c->tensor[r][k].ndim = ndim;
    c->tensor[r][k].shape = ndim ? c->shape : NULL;
    c->tensor[r][k].strides = strided ? c->strides : NULL;
  }
}

static void set_shape(qn_contract *c, int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride)
{
  c->shape[0] = rows, c->shape[1] = cols;
  c->strides[0] = row_stride, c->strides[1] = col_stride;
}

/* Of roles that have one shape in common. */
static void refuse_alike(qn_contract *c, size_t r, size_t k)
{
  char place[32];
  snprintf(place, sizeof place, "[%zu]", k);
  set_shape(c, (int64_t)1 << 40, (int64_t)1 << 40, 0, 0);
  reshape(c, k, 2, false);
  qn_contract_refuses(c, "2^80 elements", QN_WORDS("elements"));
  set_shape(c, 2, 3, 6, 3); /* columns two apart would be rows of an op that is strided */
  reshape(c, k, 2, true);
  qn_contract_refuses(c, "strides that leave gaps in all roles", QN_WORDS("dense"));
  set_shape(c, 2, 3, 1, 2);
  reshape(c, k, 2, false);
  c->tensor[r][k].strides = c->strides;
  qn_contract_refuses(c, "one role laid out in another order", QN_WORDS(place));
}

/* ---- places ---- */

static void refuse_place(qn_contract *c, size_t r, size_t k)
{
  const char *name = entry(c, r, k);
  qn_tensor *t = &c->tensor[r][k];
  t->data = NULL;
  qn_contract_refuses(c, "no data", QN_WORDS(name, "NULL"));
  t->data = (char *)t->data + 1;
  if (qn_dtype_bytes(t->dtype) > 1) qn_contract_refuses(c, "data at an odd address", QN_WORDS(name));
  t->data = c->d.role[r].tensor[k].data;
  t->device.kind = c->exec.device.kind == QN_CPU ? QN_EMULATOR : QN_CPU;
  qn_contract_refuses(c, "a tensor on another device than the call", QN_WORDS(name));
}

/* Where tensor (r, k) begins when its last element lies on the other's first. */
static void *before(const qn_contract *c, size_t r, size_t k, const qn_tensor *other)
{
  const size_t width = qn_dtype_bytes(c->tensor[r][k].dtype);
  char *at = (char *)other->data - (c->d.role[r].place[k].elements - 1) * width;
  return at - (uintptr_t)at % width;
}

/* Of two tensors that share a byte one is written. */
static void refuse_overlap(qn_contract *c, size_t r, size_t k)
{
  for (size_t s = 0; s < info_of(c)->n_tensors; s++)
    for (size_t j = 0; has(c, s) && j < c->d.role[s].n; j++) {
      if ((s == r && j == k) || !c->d.role[s].place[j].elements || !(is_written(c, r) || is_written(c, s))) continue;
      c->tensor[r][k].data = before(c, r, k, &c->tensor[s][j]);
      qn_contract_refuses(c, "a tensor's last element on another's first", QN_WORDS(entry(c, r, k), "share memory"));
      if (qn_dtype_bytes(c->tensor[s][j].dtype) % qn_dtype_bytes(c->tensor[r][k].dtype)) continue;
      c->tensor[r][k].data = c->tensor[s][j].data;
      qn_contract_refuses(c, "two tensors in one place", QN_WORDS(entry(c, r, k), entry(c, s, j), "share memory"));
    }
}

/* A plan's step with one role elsewhere: what moved is validated as if it were new. */
static void refuse_moved(qn_contract *c, size_t r, size_t k)
{
  const char *name = entry(c, r, k);
  qn_tensor *t = &c->tensor[r][k];
  t->dtype = t->dtype == QN_F32 ? QN_BF16 : QN_F32;
  qn_contract_refuses_moved(c, r, "moved: another type", QN_WORDS(name));
  t->data = NULL;
  qn_contract_refuses_moved(c, r, "moved: no data", QN_WORDS(name, "NULL"));
  t->data = (char *)t->data + 1;
  if (qn_dtype_bytes(t->dtype) > 1) qn_contract_refuses_moved(c, r, "moved: data at an odd address", QN_WORDS(name));
  t->data = c->d.role[r].tensor[k].data;
  t->device.kind = c->exec.device.kind == QN_CPU ? QN_EMULATOR : QN_CPU;
  qn_contract_refuses_moved(c, r, "moved: another device", QN_WORDS(name));
  if (t->ndim) {
    copy_shape(c, t);
    c->shape[0]++;
    qn_contract_refuses_moved(c, r, "moved: another shape", QN_WORDS(name));
  }
  for (size_t s = 0; s < info_of(c)->n_tensors; s++) {
    if (s == r || !has(c, s) || !(is_written(c, r) || is_written(c, s))) continue;
    const size_t j = c->d.role[s].n > 2 ? 2 : 0;
    t->data = before(c, r, k, &c->tensor[s][j]);
    if (c->d.role[s].place[j].elements)
      qn_contract_refuses_moved(c, r, "moved: onto another role", QN_WORDS(name, "share memory"));
    t->data = c->d.role[r].tensor[k].data;
  }
}

/* ---- workspace ---- */

/* Params that ask for workspace, where the valid call's do not. */
static void ask_for_workspace(qn_contract *c)
{
  for (size_t k = 0; k < info_of(c)->n_params && !c->d.exec.workspace_bytes; k++) {
    const qn_op_param *param = &info_of(c)->params[k];
    if (param->type != QN_PARAM_BOOL && param->type != QN_PARAM_ENUM) continue;
    const double was = qn_param_get(param, c->d.params);
    qn_param_set(param, c->d.params, 1);
    if (qn_subject_lend(&c->d) != QN_OK) qn_trial_fail(c->trial, -1, "%s", qn_last_error());
    if (!c->d.exec.workspace_bytes) qn_param_set(param, c->d.params, was);
  }
}

static void refuse_workspace(qn_contract *c)
{
  unsigned char kept[QN_SUBJECT_PARAMS];
  memcpy(kept, c->d.params, sizeof kept);
  ask_for_workspace(c);
  const qn_exec good = c->exec = c->d.exec;
  memcpy(c->params, c->d.params, sizeof c->d.params);
  if (!good.workspace_bytes) return;
  c->exec.workspace = NULL, c->exec.workspace_bytes = 0;
  qn_contract_refuses_step(c, "no workspace where a step needs one", QN_WORDS("workspace"));
  c->exec.workspace_bytes--;
  qn_contract_refuses_step(c, "a workspace that lacks a byte", QN_WORDS("workspace", "are needed"));
  c->exec.workspace = (char *)good.workspace + 8;
  qn_contract_refuses_step(c, "a workspace at a multiple of 8", QN_WORDS("workspace", "16"));
  c->exec.workspace = (char *)good.workspace + 4;
  qn_contract_refuses_step(c, "a workspace at an odd address", QN_WORDS("workspace", "16"));
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) {
    if (!has(c, r)) continue;
    c->exec.workspace = (void *)((uintptr_t)c->tensor[r][0].data & ~(uintptr_t)15);
    qn_contract_refuses_step(c, "a workspace that is a tensor", QN_WORDS("workspace", "share memory"));
  }
  memcpy(c->d.params, kept, sizeof kept);
  c->d.exec = good;
}

/* ---- all ---- */

void qn_contract_refuses_all(qn_contract *c)
{
  refuse_structs(c);
  for (size_t r = 0; r < info_of(c)->n_tensors; r++) {
    if (!has(c, r)) continue;
    refuse_types(c, r);
    for (size_t k = 0; k < c->d.role[r].n; k++) {
      if (!c->d.role[r].place[k].elements) continue;
      refuse_shape(c, r, k);
      refuse_place(c, r, k);
      refuse_overlap(c, r, k);
      refuse_moved(c, r, k);
      if (qn_op_is_alike(info_of(c))) refuse_alike(c, r, k);
    }
  }
  refuse_rows(c);
  refuse_workspace(c);
}

static bool has_single(const qn_op_info *info)
{
  for (size_t r = 0; r < info->n_tensors; r++)
    if (info->tensors[r].single) return true;
  return false;
}

/* Of roles that have one shape in common. */
static void accept_alike(qn_contract *c)
{
  const size_t k = 1;
  c->shape[0] = 0;
  reshape(c, k, 1, false);
  for (size_t r = 0; r < info_of(c)->n_tensors; r++)
    if (has(c, r)) c->tensor[r][k].data = NULL;
  qn_contract_accepts(c, "an empty tensor without data");
  reshape(c, k, 0, false);
  qn_contract_accepts(c, "a tensor of no dimensions");
  set_shape(c, 2, 3, 1, 2);
  c->shape[2] = 1, c->strides[2] = 12345;
  reshape(c, k, 3, true);
  qn_contract_accepts(c, "dense tensors in another order, alike in every role");
  for (size_t r = 0; r < info_of(c)->n_tensors; r++)
    if (has(c, r) && !is_written(c, r)) {
      c->tensor[r][k].data = c->tensor[r][0].data;
      qn_contract_accepts(c, "two tensors that read one gradient");
    }
}

void qn_contract_accepts_all(qn_contract *c)
{
  const size_t larger = info_of(c)->params_bytes + 8;
  qn_contract_accepts(c, "the plain call");
  memcpy(c->params, &larger, sizeof larger);
  qn_contract_accepts(c, "params of a later version that say nothing new");
  if (qn_op_call_workspace_bytes(info_of(c), &c->exec, c->params, c->n, NULL))
    qn_trial_fail(c->trial, -1, "tensors that are NULL are given a workspace");
  if (has_single(info_of(c))) return;
  c->n = 0;
  qn_contract_accepts(c, "an empty list");
  c->n = 0;
  c->list_given = NULL;
  qn_contract_accepts(c, "an empty list without tensors");
  if (qn_op_is_alike(info_of(c))) accept_alike(c);
}
