/* SPDX-License-Identifier: Apache-2.0 */
/* contract_cases.c - what can be wrong with the structs and tensors of a call, and what is unusual but right, for any
 * op on lists of tensors. Ranges of params are in leg_contract.c. */
#include "workbench/contract.h"
#include <string.h>

#define WORDS(...) ((const char *[]){__VA_ARGS__, NULL})

/* "grad[1]"; two of them can be held at a time. */
static const char *entry(const qn_contract *c, size_t role, size_t k)
{
  static char text[2][64];
  static int turn;
  turn = !turn;
  snprintf(text[turn], sizeof text[turn], "%s[%zu]", c->op->info.tensors[role].name, k);
  return text[turn];
}

static bool has(const qn_contract *c, size_t role) { return c->buffers->list[role] != NULL; }

static void refuse_structs(qn_contract *c)
{
  c->exec_given = NULL;
  qn_contract_refuses(c, "exec NULL", WORDS("exec"));
  c->exec.size = 0;
  qn_contract_refuses(c, "exec.size 0", WORDS("exec", "size", "0"));
  c->exec.size = (size_t)-1;
  qn_contract_refuses(c, "exec.size beyond reason", WORDS("exec", "size"));
  c->exec.device.kind = QN_DEVICE_KIND_COUNT;
  qn_contract_refuses(c, "a device kind that is none", WORDS("device"));
  c->exec.device.index = -1;
  qn_contract_refuses(c, "device -1", WORDS("-1"));
  c->params_given = NULL;
  qn_contract_refuses(c, "params NULL", WORDS("params"));
  size_t none = 0, larger = c->op->info.params_bytes + 8;
  memcpy(c->params, &none, sizeof none);
  qn_contract_refuses(c, "params.size 0", WORDS("params", "size", "0"));
  memcpy(c->params, &larger, sizeof larger);
  c->params[c->op->info.params_bytes] = 1;
  qn_contract_refuses(c, "a member of a later version that is set", WORDS("params"));
  c->list_given = NULL;
  qn_contract_refuses(c, "tensors NULL", WORDS("tensors"));
}

static bool is_optional(const qn_contract *c, size_t role)
{
  for (size_t row = 0; row < c->op->info.n_types; row++)
    if (c->op->info.types[row].tensor[role].access == QN_ABSENT) return true;
  return false;
}

static bool in_table(const qn_contract *c, size_t role, qn_dtype dtype)
{
  for (size_t row = 0; row < c->op->info.n_types; row++) {
    bool same = true;
    for (size_t r = 0; r < c->op->info.n_tensors && same; r++)
      same = c->op->info.types[row].tensor[r].dtype == (r == role ? dtype : c->op->info.types[c->row].tensor[r].dtype);
    if (same) return true;
  }
  return false;
}

static void refuse_types(qn_contract *c, size_t role)
{
  const char *name = c->op->info.tensors[role].name;
  if (!is_optional(c, role)) {
    c->list[role] = NULL;
    qn_contract_refuses(c, "a role that is not given", WORDS(name, "NULL"));
  }
  for (int dtype = 0; dtype < QN_DTYPE_COUNT; dtype++) {
    if (dtype == QN_NONE || in_table(c, role, (qn_dtype)dtype)) continue;
    for (size_t k = 0; k < c->n; k++) c->tensor[role][k].dtype = (qn_dtype)dtype;
    qn_contract_refuses(c, "types outside the table", WORDS(name, qn_dtype_name((qn_dtype)dtype)));
  }
  c->tensor[role][0].dtype = (qn_dtype)99;
  qn_contract_refuses(c, "a dtype that is none", WORDS(name));
  c->tensor[role][2].dtype = c->tensor[role][0].dtype == QN_F64 ? QN_F32 : QN_F64;
  qn_contract_refuses(c, "a list of two types", WORDS(entry(c, role, 2)));
}

/* Rows that this kind of device does not take: of f64, in the roles that are given here. */
static void refuse_rows(qn_contract *c)
{
  const qn_op_types *here = &c->op->info.types[c->row];
  for (size_t row = qn_op_rows(&c->op->info, c->device.kind); row < c->op->info.n_types; row++) {
    const qn_op_types *types = &c->op->info.types[row];
    size_t alike = 0;
    for (size_t r = 0; r < c->op->info.n_tensors; r++)
      alike += (types->tensor[r].access == QN_ABSENT) == (here->tensor[r].access == QN_ABSENT);
    if (alike < c->op->info.n_tensors) continue;
    for (size_t r = 0; r < c->op->info.n_tensors; r++)
      for (size_t k = 0; has(c, r) && k < c->n; k++) c->tensor[r][k].dtype = types->tensor[r].dtype;
    qn_contract_refuses(c, "a row of types for the processor alone", WORDS("f64", "cpu"));
  }
}

static void refuse_shapes(qn_contract *c, size_t role)
{
  const char *first = entry(c, role, 1);
  qn_tensor *t = &c->tensor[role][1];
  t->ndim = -1;
  qn_contract_refuses(c, "-1 dimensions", WORDS(first, "-1"));
  t->ndim = QN_MAX_NDIM + 1;
  qn_contract_refuses(c, "33 dimensions", WORDS(first, "33"));
  t->shape = NULL;
  qn_contract_refuses(c, "no shape", WORDS(first, "shape"));
  c->shape[0] = -6;
  t->shape = c->shape;
  qn_contract_refuses(c, "an extent of -6", WORDS(first, "-6"));
  c->shape[0] = 7;
  t->shape = c->shape;
  qn_contract_refuses(c, "another shape than the other roles", WORDS(first));
  c->shape[0] = c->shape[1] = (int64_t)1 << 40;
  for (size_t r = 0; r < c->op->info.n_tensors; r++)
    if (has(c, r)) c->tensor[r][1].shape = c->shape, c->tensor[r][1].ndim = 2;
  qn_contract_refuses(c, "2^80 elements", WORDS("elements"));
  c->shape[0] = 6, c->strides[0] = 2;
  if (qn_op_is_strided(&c->op->info)) c->shape[0] = 2, c->shape[1] = 3, c->strides[0] = 6, c->strides[1] = 3;
  for (size_t r = 0; r < c->op->info.n_tensors; r++) {
    if (has(c, r)) c->tensor[r][1].strides = c->strides, c->tensor[r][1].shape = c->shape;
    if (has(c, r) && qn_op_is_strided(&c->op->info)) c->tensor[r][1].ndim = 2;
  }
  qn_contract_refuses(c, "strides that leave gaps", WORDS("dense"));
  c->shape[0] = 2, c->shape[1] = 3, c->strides[0] = 1, c->strides[1] = 2;
  for (size_t r = 0; r < c->op->info.n_tensors; r++)
    if (has(c, r)) c->tensor[r][1].shape = c->shape, c->tensor[r][1].ndim = 2;
  t->strides = c->strides;
  qn_contract_refuses(c, "one role laid out in another order", WORDS("[1]"));
}

static void refuse_places(qn_contract *c, size_t role)
{
  const char *first = entry(c, role, 1);
  qn_tensor *t = &c->tensor[role][1];
  t->data = NULL;
  qn_contract_refuses(c, "no data", WORDS(first, "NULL"));
  t->data = (char *)t->data + 1;
  qn_contract_refuses(c, "data at an odd address", WORDS(first));
  t->device.kind = c->device.kind == QN_CPU ? QN_EMULATOR : QN_CPU;
  qn_contract_refuses(c, "a tensor on another device than the call", WORDS(first));
}

/* A written tensor may share no byte with another of the list; the last element of one lies on the other's first. */
static void refuse_overlap(qn_contract *c, size_t a, size_t b)
{
  bool written =
      c->op->info.types[c->row].tensor[a].access & QN_WRITE || c->op->info.types[c->row].tensor[b].access & QN_WRITE;
  if (!written) return;
  qn_tensor *t = &c->tensor[b][1];
  const qn_tensor *other = &c->tensor[a][2];
  size_t width = qn_dtype_bytes(t->dtype);
  char *at = (char *)other->data - 5 * width; /* six elements; the last lies on the other's first */
  t->data = at - (uintptr_t)at % width;
  qn_contract_refuses(c, "an overlap", WORDS(entry(c, a, 2), entry(c, b, 1)));
  if (a == b) return;
  if (qn_dtype_bytes(c->tensor[a][1].dtype) == width) {
    t->data = c->tensor[a][1].data;
    qn_contract_refuses(c, "two roles in one place", WORDS(entry(c, a, 1), entry(c, b, 1)));
  }
}

/* The params that ask for most workspace, if any do. */
static size_t ask_for_workspace(qn_contract *c)
{
  for (size_t k = 0; k < c->op->info.n_params; k++) {
    const qn_op_param *param = &c->op->info.params[k];
    if (param->type != QN_PARAM_BOOL && param->type != QN_PARAM_ENUM) continue;
    qn_param_set(param, c->params, 1);
    size_t bytes = qn_op_workspace_bytes(&c->op->info, c->params, c->n);
    if (bytes) return bytes;
    qn_param_set(param, c->params, qn_op_param_default(&c->op->info, param));
  }
  return 0;
}

static void refuse_workspace(qn_contract *c)
{
  size_t bytes = ask_for_workspace(c);
  if (!bytes || bytes > QN_CONTRACT_SPARE / 2) return;
  qn_contract_refuses_step(c, "no workspace where one is needed", WORDS("workspace"));
  ask_for_workspace(c);
  c->exec.workspace = c->spare;
  c->exec.workspace_bytes = bytes - 1;
  qn_contract_refuses_step(c, "a workspace one byte short", WORDS("workspace"));
  ask_for_workspace(c);
  c->exec.workspace = (char *)c->spare + 8;
  c->exec.workspace_bytes = bytes;
  qn_contract_refuses_step(c, "a workspace at a multiple of 8", WORDS("workspace", "16"));
  ask_for_workspace(c);
  c->exec.workspace = c->tensor[0][0].data;
  c->exec.workspace_bytes = bytes;
  qn_contract_refuses_step(c, "a workspace that is a tensor", WORDS("workspace"));
}

/* A plan's step with one role elsewhere: what moved is checked as if it were new. */
static void refuse_moved(qn_contract *c, size_t role)
{
  const char *first = entry(c, role, 1);
  bool written = c->op->info.types[c->row].tensor[role].access & QN_WRITE;
  qn_tensor *t = &c->tensor[role][1];
  t->dtype = t->dtype == QN_F32 ? QN_BF16 : QN_F32;
  qn_contract_refuses_moved(c, role, "moved: another type", WORDS(first));
  c->shape[0] = 7;
  t->shape = c->shape;
  qn_contract_refuses_moved(c, role, "moved: another shape", WORDS(first));
  t->data = NULL;
  qn_contract_refuses_moved(c, role, "moved: no data", WORDS(first, "NULL"));
  t->data = (char *)t->data + 1;
  qn_contract_refuses_moved(c, role, "moved: data at an odd address", WORDS(first));
  t->device.kind = c->device.kind == QN_CPU ? QN_EMULATOR : QN_CPU;
  qn_contract_refuses_moved(c, role, "moved: another device", WORDS(first));
  for (size_t other = 0; other < c->op->info.n_tensors; other++) {
    bool other_written = c->op->info.types[c->row].tensor[other].access & QN_WRITE;
    if (other == role || !has(c, other) || !(written || other_written)) continue;
    size_t width = qn_dtype_bytes(t->dtype);
    uintptr_t at = (uintptr_t)c->tensor[other][2].data - 5 * width; /* the last of six lies on the other's first */
    t->data = (void *)(at - at % width);
    qn_contract_refuses_moved(c, role, "moved: onto another role", WORDS(entry(c, role, 1), entry(c, other, 2)));
  }
}

void qn_contract_refuses_all(qn_contract *c)
{
  refuse_structs(c);
  for (size_t role = 0; role < c->op->info.n_tensors; role++) {
    if (!has(c, role)) continue;
    refuse_types(c, role);
    refuse_shapes(c, role);
    refuse_places(c, role);
    for (size_t other = 0; other <= role; other++)
      if (has(c, other)) refuse_overlap(c, other, role);
    refuse_moved(c, role);
  }
  refuse_rows(c);
  refuse_workspace(c);
}

void qn_contract_takes_all(qn_contract *c)
{
  size_t larger = c->op->info.params_bytes + 8;
  qn_contract_takes(c, "the plain call");
  c->n = 0;
  qn_contract_takes(c, "an empty list");
  c->n = 0;
  c->list_given = NULL;
  qn_contract_takes(c, "an empty list without tensors");
  memcpy(c->params, &larger, sizeof larger);
  qn_contract_takes(c, "params of a later version that say nothing new");
  c->shape[0] = 0;
  for (size_t r = 0; r < c->op->info.n_tensors; r++)
    if (has(c, r)) c->tensor[r][1].shape = c->shape, c->tensor[r][1].data = NULL;
  qn_contract_takes(c, "an empty tensor without data");
  for (size_t r = 0; r < c->op->info.n_tensors; r++)
    if (has(c, r)) c->tensor[r][1].ndim = 0, c->tensor[r][1].shape = NULL;
  qn_contract_takes(c, "a tensor of no dimensions");
  c->shape[0] = 2, c->shape[1] = 3, c->shape[2] = 1;
  c->strides[0] = 1, c->strides[1] = 2, c->strides[2] = 12345;
  for (size_t r = 0; r < c->op->info.n_tensors; r++)
    if (has(c, r)) c->tensor[r][1].ndim = 3, c->tensor[r][1].shape = c->shape, c->tensor[r][1].strides = c->strides;
  qn_contract_takes(c, "dense tensors in another order, alike in every role");
  for (size_t r = 0; r < c->op->info.n_tensors; r++)
    if (c->op->info.types[c->row].tensor[r].access == QN_READ) {
      c->tensor[r][1].data = c->tensor[r][0].data;
      qn_contract_takes(c, "two tensors that read one gradient");
    }
}
