/* SPDX-License-Identifier: Apache-2.0 */
/* subject_run.c - the ways in which a call's tensors are stepped (qn_way), and the ref tier's function by itself, of
 * which the engine, which cuts and counts, has no part. */
#include "core/core.h"
#include "quern/device.h"
#include "workbench/subject.h"
#include <string.h>

/* ---- the list ---- */

/* In thirds, at places that fit no lane, pack or chunk; short tensors give empty pieces. */
static void cut_tensor(qn_subject_cut *cut, size_t k, size_t n)
{
  const size_t a = n / 3 + n % 2, b = n - n / 4;
  cut[0] = (qn_subject_cut){k, 0, a < b ? a : b, 0};
  cut[1] = (qn_subject_cut){k, a < b ? a : b, a < b ? b - a : 0, 0};
  cut[2] = (qn_subject_cut){k, b, n - b, 0};
}

static void make_pieces(qn_subject *d, size_t r)
{
  for (size_t i = 0; i < d->n_calls; i++) {
    qn_tensor t = d->role[r].tensor[d->cut[i].tensor];
    t.data = (char *)t.data + d->cut[i].first * d->role[r].width;
    t.ndim = 1;
    t.shape = &d->cut[i].extent;
    d->piece[r][i] = t;
  }
  d->pieces[r] = d->piece[r];
}

/* Once the tensors have their memory. */
qn_status qn_subject_cut_up(qn_subject *d)
{
  const bool shards = d->way == QN_WAY_SHARD;
  d->n_calls = d->n * (shards ? 3 : 1);
  qn_try(qn_try_allocate(&d->cut, (d->n_calls + 1) * sizeof *d->cut, "a list"));
  for (size_t k = 0; k < d->n; k++) {
    const size_t n = d->role[0].place ? d->role[0].place[k].elements : 0;
    if (shards)
      cut_tensor(&d->cut[3 * k], k, n);
    else
      d->cut[k] = (qn_subject_cut){k, 0, n, 0};
  }
  for (size_t i = 0; i < d->n_calls; i++) d->cut[i].extent = (int64_t)d->cut[i].n;
  memcpy(d->pieces, d->tensors, sizeof d->pieces);
  for (size_t r = 0; r < QN_MAX_TENSORS && shards; r++) {
    if (!d->tensors[r]) continue;
    qn_try(qn_try_allocate(&d->piece[r], (d->n_calls + 1) * sizeof(qn_tensor), "a list"));
    make_pieces(d, r);
  }
  return QN_OK;
}

/* Tensors that are only read get other memory; all bytes of the former become 0xFF. The third time, and each third one
 * from there, it begins one element off where it would, but for what lies at walls. */
qn_status qn_subject_move(qn_subject *d)
{
  for (size_t r = 0; r < d->op->info.n_tensors; r++) {
    qn_subject_role *role = &d->role[r];
    if (role->access != QN_READ || !role->memory) continue;
    const bool off = ++role->moves % 3 == 0 && !role->walls.n;
    qn_fence was = role->fence;
    if (!role->spare.block) qn_try(qn_subject_allocate(d, r, &role->spare));
    role->fence = role->spare, role->spare = was;
    qn_fence_lower(&role->spare);
    qn_try(qn_memory_fill(d->exec.device, d->exec.stream, role->memory, 0xff, role->bytes));
    role->memory = (unsigned char *)role->fence.memory + (off ? role->width : 0);
    for (size_t k = 0; k < role->n; k++) role->tensor[k].data = role->memory + role->place[k].offset;
    qn_try(qn_subject_send(d, r));
  }
  return QN_OK;
}

/* ---- the ways ---- */

/* One call a tensor; arrays that have an entry a tensor are passed from that entry on. */
static qn_status run_singles(const qn_subject *d, const unsigned char *given)
{
  for (size_t i = 0; i < d->n; i++) {
    _Alignas(16) unsigned char params[QN_SUBJECT_PARAMS];
    const qn_tensor *list[QN_MAX_TENSORS] = {NULL};
    memcpy(params, given, sizeof params);
    for (size_t k = 0; k < d->op->info.n_params; k++) {
      const qn_op_param *param = &d->op->info.params[k];
      const size_t entry = param->type == QN_PARAM_HOST_U64 ? 8 : param->type == QN_PARAM_DEVICE_I64 ? 16 : 0;
      const unsigned char *pointer = NULL;
      if (entry) memcpy(&pointer, params + param->offset, sizeof pointer);
      if (pointer) pointer += i * entry;
      if (pointer) memcpy(params + param->offset, &pointer, sizeof pointer);
    }
    for (size_t r = 0; r < d->op->info.n_tensors; r++) list[r] = d->tensors[r] ? d->tensors[r] + i : NULL;
    qn_try(qn_op_step(&d->op->info, &d->exec, params, 1, list));
  }
  return QN_OK;
}

static qn_status run_plan(qn_subject *d, const void *params)
{
  const qn_tensor *moved[QN_MAX_TENSORS] = {NULL};
  if (!d->plan) qn_try(qn_op_plan_create(&d->plan, &d->op->info, &d->exec, params, d->n_calls, d->pieces));
  for (size_t r = 0; r < d->op->info.n_tensors && d->way == QN_WAY_MOVED; r++)
    if (d->role[r].access == QN_READ) moved[r] = d->pieces[r];
  return qn_op_plan_step(d->plan, &d->exec, params, d->way == QN_WAY_MOVED ? moved : NULL);
}

/* The plan is of tensors at other addresses, which a plan's making does not touch. */
static qn_status run_elsewhere(const qn_subject *d, const void *params)
{
  qn_tensor *copies, *at;
  const qn_tensor *elsewhere[QN_MAX_TENSORS] = {NULL};
  qn_plan *plan = NULL;
  qn_try(qn_try_allocate(&copies, (QN_MAX_TENSORS * (d->n + 1)) * sizeof *copies, "tensors elsewhere"));
  at = copies;
  for (size_t r = 0; r < d->op->info.n_tensors; r++) {
    if (!d->tensors[r]) continue;
    elsewhere[r] = at;
    for (size_t k = 0; k < d->role[r].n; k++, at++) {
      *at = d->tensors[r][k];
      if (at->data) at->data = (void *)((uintptr_t)at->data + (UINT64_C(1) << 44));
    }
  }
  qn_status status = qn_op_plan_create(&plan, &d->op->info, &d->exec, params, d->n, elsewhere);
  qn_release(copies);
  if (status == QN_OK) status = qn_op_plan_step(plan, &d->exec, params, d->tensors);
  qn_plan_destroy(&plan);
  return status;
}

/* ---- the reference ---- */

static const uint64_t *host_array(const void *params, size_t offset)
{
  const uint64_t *array = NULL;
  if (offset) memcpy(&array, (const char *)params + offset - 1, sizeof array);
  return array;
}

/* One phase over tensor k. Its counters are the first that the function sees, so that no place can be mistaken. */
static void refer_tensor(const qn_subject *d, const void *params, size_t k, qn_cpu_call call, bool counts,
                         uint64_t *tally)
{
  const qn_op *op = d->op;
  _Alignas(16) char own[QN_COEF_BYTES];
  const uint64_t *first = host_array(params, op->first_element_offset), *id = host_array(params, op->tensor_id_offset);
  const uint64_t *pairs;
  qn_piece piece = {.n = d->role[0].place[k].elements,
                    .first = first ? first[k] : 0,
                    .tensor_id = (uint32_t)(id ? id[k] : k),
                    .tally = counts ? tally + 2 * k : NULL};
  memcpy(own, call.coef, sizeof own);
  call.coef = own;
  if (op->tally_offset) {
    memcpy(&pairs, own + op->tally_offset - 1, sizeof pairs);
    if (tally) pairs = tally;
    if (pairs) pairs += 2 * k;
    memcpy(own + op->tally_offset - 1, &pairs, sizeof pairs);
  }
  for (size_t r = 0; r < op->info.n_tensors; r++)
    if (d->tensors[r]) piece.data[r] = d->tensors[r][k].data;
  if (piece.n) op->cpu[qn_op_row_is_double(&op->info, d->row) ? QN_TIER_ORACLE : QN_TIER_REF](&call, &piece);
}

static qn_status run_reference(const qn_subject *d, const void *params)
{
  _Alignas(16) char coef[QN_COEF_BYTES] = {0};
  const int phases = d->op->phases ? d->op->phases(params) : 1;
  uint64_t *tally = phases > 1 ? d->exec.workspace : NULL;
  qn_try(qn_op_prepare(&d->op->info, &d->exec, params, d->n, d->tensors));
  d->op->coefficients(params, coef);
  if (tally) memset(tally, 0, 2 * d->n * sizeof *tally);
  qn_cpu_call call = {.row = d->row, .flags = d->op->flags ? d->op->flags(params, d->row) : 0, .coef = coef};
  for (call.phase = 0; call.phase < phases; call.phase++)
    for (size_t k = 0; k < d->n; k++) refer_tensor(d, params, k, call, call.phase + 1 < phases, tally);
  return QN_OK;
}

qn_status qn_subject_run(qn_subject *d)
{
  _Alignas(16) unsigned char own[QN_SUBJECT_PARAMS];
  const unsigned char *params = d->params; /* a step that is timed has nothing beside the call */
  if (d->hyper) {
    qn_subject_call_params(d, own);
    params = own;
  }
  switch (d->way) {
  case QN_WAY_REFERENCE: return run_reference(d, params);
  case QN_WAY_ELSEWHERE: return run_elsewhere(d, params);
  case QN_WAY_SINGLE: return run_singles(d, params);
  case QN_WAY_PLAN:
  case QN_WAY_MOVED: return run_plan(d, params);
  default: return qn_op_step(&d->op->info, &d->exec, params, d->n_calls, d->pieces);
  }
}
