/* SPDX-License-Identifier: Apache-2.0 */
/* run.c - see run.h. All that a step is given beside the tensors lies in one block of device memory: params' scalars,
 * structs and arrays, then guard, workspace, guard. */
#include "workbench/run.h"
#include "core/core.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GUARD = 64, GUARD_BYTE = 0x5C };

/* A piece of a tensor of the list: what one entry of the call's own list stands for. */
typedef struct cut {
  size_t tensor, first, n;
} cut;

struct qn_runner {
  const qn_op *op;
  qn_buffers *buffers;
  qn_way way;
  qn_exec exec;
  size_t n;                          /* entries of the call's list */
  cut *cuts;                         /* what they are */
  int64_t *shapes;                   /* and how long */
  qn_tensor *tensor[QN_MAX_TENSORS]; /* and where */
  const qn_tensor *list[QN_MAX_TENSORS];
  _Alignas(16) unsigned char params[QN_PARAMS_BYTES];
  uint64_t *arrays[QN_PARAMS_MOST]; /* HOST_U64 */
  size_t at[QN_PARAMS_MOST];        /* device params: offset in the block */
  size_t given_bytes, block_bytes;  /* what params point to; all of it */
  unsigned char *image, *block;     /* on the host, on the device */
  qn_plan *plan;
};

/* ---- the list ---- */

static size_t cuts_of(qn_way way) { return way == QN_WAY_SHARD ? 3 : 1; }

/* In thirds, at places that fit no lane, pack or chunk; short tensors give empty pieces. */
static void cut_tensors(qn_runner *r)
{
  for (size_t k = 0; k < r->buffers->n; k++) {
    size_t n = (size_t)r->buffers->elements[k], a = n / 3 + n % 2, b = n - n / 4;
    if (r->way != QN_WAY_SHARD) {
      r->cuts[k] = (cut){k, 0, n};
    } else {
      r->cuts[3 * k] = (cut){k, 0, a < b ? a : b};
      r->cuts[3 * k + 1] = (cut){k, a < b ? a : b, a < b ? b - a : 0};
      r->cuts[3 * k + 2] = (cut){k, b, n - b};
    }
  }
  for (size_t k = 0; k < r->n; k++) r->shapes[k] = (int64_t)r->cuts[k].n;
}

/* Again after the buffers have moved. */
static void point_tensors(qn_runner *r)
{
  for (size_t role = 0; role < r->op->info.n_tensors; role++) {
    if (!r->buffers->list[role]) continue;
    for (size_t k = 0; k < r->n; k++) {
      qn_tensor t = r->buffers->tensor[role][r->cuts[k].tensor];
      t.data = (char *)t.data + r->cuts[k].first * qn_dtype_bytes(t.dtype);
      t.shape = &r->shapes[k];
      r->tensor[role][k] = t;
    }
    r->list[role] = r->tensor[role];
  }
}

static qn_status make_list(qn_runner *r)
{
  r->n = r->buffers->n * cuts_of(r->way);
  qn_try(qn_try_allocate(&r->cuts, (r->n + 1) * sizeof *r->cuts, "the checker's list"));
  qn_try(qn_try_allocate(&r->shapes, (r->n + 1) * sizeof *r->shapes, "the checker's list"));
  for (size_t role = 0; role < r->op->info.n_tensors; role++)
    if (r->buffers->list[role])
      qn_try(qn_try_allocate(&r->tensor[role], (r->n + 1) * sizeof(qn_tensor), "the checker's list"));
  cut_tensors(r);
  point_tensors(r);
  return QN_OK;
}

/* ---- what params point to ---- */

static size_t given_bytes_of(const qn_runner *r, const qn_op_param *param)
{
  switch (param->type) {
  case QN_PARAM_DEVICE_F32: return sizeof(float);
  case QN_PARAM_DEVICE_I64: return (r->n + 1) * 2 * sizeof(int64_t);
  case QN_PARAM_DEVICE_HYPER: return r->op->info.hyper_bytes;
  default: return 0;
  }
}

/* {count, n} of each tensor over all its shards, as tallies are. */
static void fill_pairs(const qn_runner *r, uint64_t seed, const uint64_t *array, unsigned char *at)
{
  for (size_t k = 0; k < r->n; k++) {
    size_t tensor = r->cuts[k].tensor;
    uint64_t n = 2 * (uint64_t)r->buffers->elements[tensor] + 1;
    uint64_t pair[2] = {array ? array[2 * tensor] : qn_seed_mix(seed, tensor) % (n + 1),
                        array ? array[2 * tensor + 1] : n};
    memcpy(at + k * sizeof pair, pair, sizeof pair);
  }
}

/* The members that the struct in device memory replaces are then not read: they become what no call would take. */
static void fill_hyper(qn_runner *r, unsigned char *at)
{
  for (size_t k = 0; k < r->op->info.n_params; k++) {
    const qn_op_param *param = &r->op->info.params[k];
    if (!param->hyper_offset) continue;
    memcpy(at + param->hyper_offset - 1, r->params + param->offset, 8);
    qn_param_set(param, r->params, param->type == QN_PARAM_DOUBLE ? NAN : 77);
  }
}

/* Small, odd, around 2^32 and far beyond it. */
static uint64_t number_of(uint64_t seed, size_t tensor)
{
  uint64_t bits = qn_seed_mix(seed, tensor);
  switch (bits & 3) {
  case 0: return bits >> 60;
  case 1: return bits >> 50;
  case 2: return 0xfffffff0u + (bits >> 59);
  default: return bits >> 14;
  }
}

/* Shards must say where they begin and single tensors which they are; elsewhere an array is given if the setting says
 * so. */
static qn_status make_array(qn_runner *r, size_t k, const qn_setting *s)
{
  const qn_op *op = r->op;
  const qn_op_param *param = &op->info.params[k];
  bool is_first = op->first_element_offset == param->offset + 1, is_id = op->tensor_id_offset == param->offset + 1;
  bool given = s->given >> k & 1;
  if (!given && !(r->way == QN_WAY_SHARD && (is_first || is_id)) && !(r->way == QN_WAY_SINGLE && is_id)) return QN_OK;
  qn_try(qn_try_allocate(&r->arrays[k], (r->n + 1) * sizeof(uint64_t), "the checker's arrays"));
  for (size_t i = 0; i < r->n; i++) {
    size_t tensor = r->cuts[i].tensor;
    uint64_t value = s->array[k] ? s->array[k][tensor] : given ? number_of(s->seed + k, tensor) : is_id ? tensor : 0;
    r->arrays[k][i] = value + (is_first ? r->cuts[i].first : 0);
  }
  memcpy(r->params + param->offset, &r->arrays[k], sizeof(void *));
  return QN_OK;
}

static void fill_given(qn_runner *r, const qn_setting *s)
{
  for (size_t k = 0; k < r->op->info.n_params; k++) {
    const qn_op_param *param = &r->op->info.params[k];
    if (!(s->given >> k & 1) || !given_bytes_of(r, param)) continue;
    unsigned char *at = r->image + r->at[k];
    if (param->type == QN_PARAM_DEVICE_F32) memcpy(at, &s->scalar[k], sizeof(float));
    if (param->type == QN_PARAM_DEVICE_I64) fill_pairs(r, s->seed + k, s->array[k], at);
    if (param->type == QN_PARAM_DEVICE_HYPER) fill_hyper(r, at);
    const unsigned char *pointer = r->block + r->at[k];
    memcpy(r->params + param->offset, &pointer, sizeof pointer);
  }
}

static qn_status make_block(qn_runner *r, const qn_setting *s)
{
  const qn_op_info *op = &r->op->info;
  memcpy(r->params, s->params, sizeof r->params);
  r->given_bytes = 0;
  for (size_t k = 0; k < op->n_params; k++) {
    if (op->params[k].type == QN_PARAM_HOST_U64) qn_try(make_array(r, k, s));
    r->at[k] = r->given_bytes;
    if (s->given >> k & 1) r->given_bytes += (given_bytes_of(r, &op->params[k]) + 63) / 64 * 64;
  }
  /* What the block is for decides how large it is: pointers first, so that the op sees them as given. */
  unsigned char with_pointers[QN_PARAMS_BYTES];
  memcpy(with_pointers, r->params, sizeof with_pointers);
  const void *somewhere = r->shapes;
  for (size_t k = 0; k < op->n_params; k++)
    if (s->given >> k & 1) memcpy(with_pointers + op->params[k].offset, &somewhere, sizeof somewhere);
  r->exec.workspace_bytes = qn_op_workspace_bytes(op, with_pointers, r->n);

  r->block_bytes = r->given_bytes + GUARD + r->exec.workspace_bytes + GUARD;
  qn_try(qn_try_allocate(&r->image, r->block_bytes, "the checker's workspace"));
  memset(r->image, GUARD_BYTE, r->block_bytes);
  void *block = NULL;
  qn_try(qn_memory_allocate(r->exec.device, r->block_bytes, &block));
  r->block = block;
  fill_given(r, s);
  r->exec.workspace = r->block + r->given_bytes + GUARD;
  return qn_memory_write(r->exec.device, r->exec.stream, r->block, r->image, r->block_bytes);
}

static void release_block(qn_runner *r)
{
  qn_memory_release(r->exec.device, r->block);
  for (size_t k = 0; k < QN_PARAMS_MOST; k++) {
    qn_release(r->arrays[k]);
    r->arrays[k] = NULL;
  }
  qn_release(r->image);
  r->block = r->image = NULL;
}

qn_status qn_runner_change(qn_runner *r, const qn_setting *setting)
{
  release_block(r);
  return make_block(r, setting);
}

/* ---- the runner ---- */

static qn_status make(qn_runner *r, const qn_setting *setting)
{
  qn_try(make_list(r));
  qn_try(make_block(r, setting));
  if (r->way == QN_WAY_PLAN || r->way == QN_WAY_MOVED)
    qn_try(qn_op_plan_create(&r->plan, &r->op->info, &r->exec, r->params, r->n, r->list));
  return QN_OK;
}

qn_status qn_runner_create(qn_runner **runner, const qn_op *op, qn_buffers *buffers, const qn_setting *setting,
                           qn_way way, qn_pool *pool)
{
  *runner = NULL;
  qn_runner *r = NULL;
  qn_try(qn_try_allocate(&r, sizeof *r, "the checker's runner"));
  *r = (qn_runner){.op = op, .buffers = buffers, .way = way};
  r->exec = (qn_exec){.size = sizeof(qn_exec), .device = buffers->device, .stream = buffers->stream, .pool = pool};
  qn_status status = make(r, setting);
  if (status == QN_OK)
    *runner = r;
  else
    qn_runner_destroy(&r);
  return status;
}

void qn_runner_destroy(qn_runner **runner)
{
  qn_runner *r = *runner;
  if (!r) return;
  qn_plan_destroy(&r->plan);
  release_block(r);
  for (size_t role = 0; role < QN_MAX_TENSORS; role++) qn_release(r->tensor[role]);
  qn_release(r->cuts);
  qn_release(r->shapes);
  qn_release(r);
  *runner = NULL;
}

/* One call a tensor; arrays that have an entry a tensor are passed from that entry on. */
static qn_status launch_singles(qn_runner *r)
{
  for (size_t i = 0; i < r->n; i++) {
    _Alignas(16) unsigned char params[QN_PARAMS_BYTES];
    const qn_tensor *list[QN_MAX_TENSORS] = {0};
    memcpy(params, r->params, sizeof params);
    for (size_t k = 0; k < r->op->info.n_params; k++) {
      const qn_op_param *param = &r->op->info.params[k];
      size_t entry = param->type == QN_PARAM_HOST_U64 ? 8 : param->type == QN_PARAM_DEVICE_I64 ? 16 : 0;
      const unsigned char *pointer = NULL;
      if (entry) memcpy(&pointer, params + param->offset, sizeof pointer);
      if (pointer) pointer += i * entry;
      if (pointer) memcpy(params + param->offset, &pointer, sizeof pointer);
    }
    for (size_t role = 0; role < r->op->info.n_tensors; role++) list[role] = r->list[role] ? r->list[role] + i : NULL;
    qn_try(qn_op_step(&r->op->info, &r->exec, params, 1, list));
  }
  return QN_OK;
}

/* ---- the reference: the ref tier's function over each tensor as a whole. Of the engine, which cuts and counts, it has
 * nothing but the checks. ---- */

static const uint64_t *host_array(const qn_runner *r, size_t offset)
{
  const uint64_t *array = NULL;
  if (offset) memcpy(&array, r->params + offset - 1, sizeof array);
  return array;
}

/* One phase over tensor k. Its counters are the first that the function sees, so that no place can be mistaken. */
static void run_reference(const qn_runner *r, size_t k, int phase, bool counts, const void *coef, uint64_t *tally)
{
  const qn_op *op = r->op;
  _Alignas(16) char own[QN_COEF_BYTES];
  const uint64_t *first = host_array(r, op->first_element_offset), *id = host_array(r, op->tensor_id_offset), *pairs;
  qn_piece piece = {.n = (size_t)r->shapes[k],
                    .first = first ? first[k] : 0,
                    .tensor_id = (uint32_t)(id ? id[k] : k),
                    .tally = counts ? tally + 2 * k : NULL};
  memcpy(own, coef, sizeof own);
  if (op->tally_offset) {
    memcpy(&pairs, own + op->tally_offset - 1, sizeof pairs);
    if (tally) pairs = tally;
    if (pairs) pairs += 2 * k;
    memcpy(own + op->tally_offset - 1, &pairs, sizeof pairs);
  }
  for (size_t role = 0; role < op->info.n_tensors; role++)
    if (r->list[role]) piece.data[role] = r->list[role][k].data;
  const qn_cpu_call call = {.row = r->buffers->row,
                            .flags = op->flags ? op->flags(r->params, r->buffers->row) : 0,
                            .phase = phase,
                            .coef = own};
  const qn_tier tier = qn_op_row_is_double(&op->info, r->buffers->row) ? QN_TIER_ORACLE : QN_TIER_REF;
  if (piece.n) op->cpu[tier](&call, &piece);
}

static qn_status launch_reference(const qn_runner *r)
{
  _Alignas(16) char coef[QN_COEF_BYTES] = {0};
  const int phases = r->op->phases ? r->op->phases(r->params) : 1;
  uint64_t *tally = phases > 1 ? r->exec.workspace : NULL;
  qn_try(qn_op_prepare(&r->op->info, &r->exec, r->params, r->n, r->list));
  r->op->coefficients(r->params, coef);
  if (tally) memset(tally, 0, 2 * r->n * sizeof *tally);
  for (int phase = 0; phase < phases; phase++)
    for (size_t k = 0; k < r->n; k++) run_reference(r, k, phase, phase + 1 < phases, coef, tally);
  return QN_OK;
}

qn_status qn_runner_launch(qn_runner *r)
{
  const qn_tensor *moved[QN_MAX_TENSORS] = {0};
  switch (r->way) {
  case QN_WAY_REFERENCE: return launch_reference(r);
  case QN_WAY_SINGLE: return launch_singles(r);
  case QN_WAY_PLAN: return qn_op_plan_step(r->plan, &r->exec, r->params, NULL);
  case QN_WAY_MOVED:
    for (size_t role = 0; role < r->op->info.n_tensors; role++)
      if (r->buffers->role[role].access == QN_READ) moved[role] = r->list[role];
    return qn_op_plan_step(r->plan, &r->exec, r->params, moved);
  default: return qn_op_step(&r->op->info, &r->exec, r->params, r->n, r->list);
  }
}

qn_status qn_runner_step(qn_runner *r)
{
  if (r->way == QN_WAY_MOVED) {
    qn_try(qn_buffers_move(r->buffers));
    point_tensors(r);
  }
  qn_try(qn_buffers_upload(r->buffers));
  qn_status status = qn_runner_launch(r); /* the tensors are read back even so: a refused call must have left them */
  qn_try(qn_buffers_download(r->buffers));
  return status;
}

void *qn_runner_params(qn_runner *r) { return r->params; }

qn_status qn_runner_set(qn_runner *r, const qn_op_param *param, double value)
{
  for (size_t k = 0; k < r->op->info.n_params && param->hyper_offset; k++) {
    const void *given;
    if (r->op->info.params[k].type != QN_PARAM_DEVICE_HYPER) continue;
    memcpy(&given, r->params + r->op->info.params[k].offset, sizeof given);
    if (!given) continue;
    uint64_t whole = (uint64_t)value;
    unsigned char *at = r->image + r->at[k];
    memcpy(at + param->hyper_offset - 1, param->type == QN_PARAM_DOUBLE ? (void *)&value : (void *)&whole, 8);
    return qn_memory_write(r->exec.device, r->exec.stream, r->block + r->at[k], at, r->op->info.hyper_bytes);
  }
  const void *scalar = NULL;
  if (param->type != QN_PARAM_DEVICE_F32) {
    qn_param_set(param, r->params, value);
    return QN_OK;
  }
  memcpy(&scalar, r->params + param->offset, sizeof scalar);
  if (!scalar) return qn_fail(QN_BAD_ARGUMENT, "%s was not given", param->name);
  float single = (float)value;
  size_t at = (size_t)((const unsigned char *)scalar - r->block);
  memcpy(r->image + at, &single, sizeof single);
  return qn_memory_write(r->exec.device, r->exec.stream, r->block + at, r->image + at, sizeof single);
}

bool qn_runner_intact(qn_runner *r, char *text, size_t bytes)
{
  bool intact = true;
  void *image = qn_allocate(r->block_bytes);
  if (!image || qn_memory_read(r->exec.device, r->exec.stream, image, r->block, r->block_bytes) != QN_OK) {
    snprintf(text, bytes, "the memory round the workspace cannot be read: %s", qn_last_error());
    intact = false;
  }
  for (size_t at = 0; intact && at < r->block_bytes; at++) {
    if (at >= r->given_bytes + GUARD && at < r->block_bytes - GUARD) continue; /* the workspace itself */
    if (((unsigned char *)image)[at] == r->image[at]) continue;
    intact = false;
    if (at < r->given_bytes)
      snprintf(text, bytes, "a step wrote to memory that a param points to (byte %zu of what params were given)", at);
    else
      snprintf(text, bytes, "a step wrote %s its workspace of %zu bytes",
               at < r->given_bytes + GUARD ? "before" : "behind", r->exec.workspace_bytes);
  }
  qn_release(image);
  return intact;
}

/* The plan is of tensors at other addresses, which a plan's making does not touch. */
static qn_status make_elsewhere(qn_plan **plan, const qn_op *op, const qn_exec *exec, const void *params, size_t n,
                                const qn_tensor *const *list)
{
  qn_tensor *copies, *at;
  const qn_tensor *elsewhere[QN_MAX_TENSORS] = {NULL};
  qn_try(qn_try_allocate(&copies, (QN_MAX_TENSORS * (n + 1)) * sizeof *copies, "tensors elsewhere"));
  at = copies;
  for (size_t role = 0; role < op->info.n_tensors; role++) {
    const size_t count = op->info.tensors[role].single ? 1 : n;
    if (!list[role]) continue;
    elsewhere[role] = at;
    for (size_t k = 0; k < count; k++, at++) {
      *at = list[role][k];
      if (at->data) at->data = (void *)((uintptr_t)at->data + (UINT64_C(1) << 44));
    }
  }
  const qn_status status = qn_op_plan_create(plan, &op->info, exec, params, n, elsewhere);
  qn_release(copies);
  return status;
}

qn_status qn_run_once(const qn_op *op, const qn_exec *exec, const void *params, size_t n, const qn_tensor *const *list,
                      bool planned)
{
  qn_plan *plan = NULL;
  if (!planned) return qn_op_step(&op->info, exec, params, n, list);
  qn_status status = make_elsewhere(&plan, op, exec, params, n, list);
  if (status == QN_OK) status = qn_op_plan_step(plan, exec, params, list);
  qn_plan_destroy(&plan);
  return status;
}
