/* SPDX-License-Identifier: Apache-2.0 */
/* stage.c - see stage.h: memory, tensors, plan and steps. Filling and comparing are in stage_check.c.
 *
 * All tensors of a role lie in one arena, at the same element numbers in each, with a band of untouched bytes behind
 * every tensor. */
#include "workbench/stage_inner.h"
#include "core/core.h"
#include "jit/jit.h"
#include <stdio.h>
#include <string.h>

enum { ALIGN = 128, BAND = 128 }; /* elements: 256 bytes of the shortest type */

static const qn_op_types *types_of(const qn_stage_request *r) { return &r->op->info.types[r->row]; }

bool qn_stage_has_unfused(const qn_op *op, size_t row, qn_device_kind kind)
{
  for (size_t role = 0; role < op->info.n_tensors; role++) {
    qn_dtype dtype = op->info.types[row].tensor[role].dtype;
    if (dtype != QN_NONE && dtype != QN_F32) return false;
  }
  return kind == QN_CPU ? op->unfused != NULL : op->unfused_source != NULL;
}

/* Elements side by side, and elements from one such run to the next. */
static uint64_t cols_of(const qn_workload *work, size_t k)
{
  const qn_workload_item *item = &work->item[k];
  return work->apart && item->ndim > 1 && item->elements ? (uint64_t)item->shape[item->ndim - 1] : item->elements;
}

static uint64_t pitch_of(const qn_workload *work, size_t k) { return cols_of(work, k) + work->apart; }

static uint64_t rows_of(const qn_workload *work, size_t k)
{
  return work->item[k].elements ? work->item[k].elements / cols_of(work, k) : 1;
}

/* Where the tensor behind the k-th begins. */
static uint64_t next_place(const qn_workload *work, size_t k, uint64_t place)
{
  const uint64_t end = place + rows_of(work, k) * pitch_of(work, k);
  return (end + BAND + ALIGN - 1) / ALIGN * ALIGN + work->shift;
}

static uint64_t span_of(const qn_workload *work)
{
  uint64_t place = BAND + work->shift;
  for (size_t k = 0; k < work->n; k++) place = next_place(work, k, place);
  return place;
}

uint64_t qn_stage_bytes(const qn_stage_request *r)
{
  uint64_t span = span_of(r->work), bytes = 0;
  if (qn_op_check_of(r->op)->reference) return qn_subject_stage_bytes(r);
  for (size_t role = 0; role < r->op->info.n_tensors; role++)
    bytes += span * qn_dtype_bytes(types_of(r)->tensor[role].dtype);
  if (r->unfused) bytes += span * sizeof(float);
  return bytes + qn_op_workspace_bytes(&r->op->info, r->params, r->work->n);
}

static size_t count_chunks(const qn_workload *work)
{
  size_t n = 0;
  for (size_t k = 0; k < work->n; k++) n += (size_t)(rows_of(work, k) * (cols_of(work, k) / QN_CHUNK + 1));
  return n;
}

/* Places, chunks and tensors: everything on the host. */
static qn_status describe(qn_stage *s)
{
  const qn_workload *work = s->ask.work;
  qn_try(qn_try_allocate(&s->place, (work->n + 1) * sizeof *s->place, "the places of tensors"));
  qn_try(qn_try_allocate(&s->chunk, count_chunks(work) * sizeof *s->chunk, "the list of chunks"));
  s->place[0] = BAND + work->shift;
  for (size_t k = 0; k < work->n; k++) {
    const uint64_t rows = rows_of(work, k), pitch = pitch_of(work, k);
    uint64_t first = 0;
    s->place[k + 1] = next_place(work, k, s->place[k]);
    for (uint64_t row = 0; row < rows; row++) {
      uint64_t left = cols_of(work, k), at = s->place[k] + row * pitch;
      do {
        uint32_t n = left < QN_CHUNK ? (uint32_t)left : QN_CHUNK;
        s->chunk[s->n_chunks++] = (qn_stage_chunk){(uint32_t)k, n, first, at};
        first += n, at += n, left -= n;
      } while (left);
    }
  }
  return QN_OK;
}

static qn_status make_strides(qn_stage *s)
{
  const qn_workload *work = s->ask.work;
  if (!work->apart) return QN_OK;
  qn_require(qn_op_is_strided(&s->ask.op->info), "%s: rows are apart, and its tensors must be dense",
             s->ask.op->info.name);
  qn_try(qn_try_allocate(&s->strides, (work->n + 1) * QN_MAX_NDIM * sizeof *s->strides, "strides"));
  for (size_t k = 0; k < work->n; k++) {
    int64_t next = 1;
    for (int d = work->item[k].ndim; d-- > 0;) {
      s->strides[k * QN_MAX_NDIM + (size_t)d] = next;
      next = d + 1 == work->item[k].ndim && d ? (int64_t)pitch_of(work, k) : next * work->item[k].shape[d];
    }
  }
  return QN_OK;
}

static qn_status make_tensors(qn_stage *s, size_t role)
{
  const qn_workload *work = s->ask.work;
  const qn_dtype dtype = s->types->tensor[role].dtype;
  const size_t bytes = qn_dtype_bytes(dtype);
  void *arena;
  qn_try(qn_memory_allocate(s->exec.device, s->place[work->n] * bytes, &arena));
  s->arena[role] = arena;
  qn_try(qn_try_allocate(&s->tensor[role], 2 * work->n * sizeof(qn_tensor), "tensors"));
  for (size_t k = 0; k < 2 * work->n; k++) {
    const qn_workload_item *item = &work->item[k % work->n];
    char *data = s->arena[role] + s->place[k % work->n] * bytes;
    if (k >= work->n) data += QN_MOVED_BYTES;
    const int64_t *strides = s->strides ? s->strides + k % work->n * QN_MAX_NDIM : NULL;
    s->tensor[role][k] = (qn_tensor){data, dtype, item->ndim, item->shape, strides, s->exec.device};
  }
  s->given[role] = s->tensor[role];
  if (s->types->tensor[role].access == QN_READ)
    s->moved[0][role] = s->tensor[role], s->moved[1][role] = s->tensor[role] + work->n;
  return QN_OK;
}

static qn_status set_up(qn_stage *s)
{
  const qn_op_info *info = &s->ask.op->info;
  qn_try(describe(s));
  qn_try(make_strides(s));
  for (size_t role = 0; role < info->n_tensors; role++)
    if (s->types->tensor[role].access != QN_ABSENT) qn_try(make_tensors(s, role));
  s->exec.workspace_bytes = qn_op_workspace_bytes(info, s->ask.params, s->ask.work->n);
  if (s->exec.workspace_bytes) qn_try(qn_memory_allocate(s->exec.device, s->exec.workspace_bytes, &s->exec.workspace));
  if (s->ask.unfused) {
    void *scratch;
    qn_try(qn_memory_allocate(s->exec.device, s->place[s->ask.work->n] * sizeof(float), &scratch));
    s->scratch = scratch;
    qn_try(qn_memory_fill(s->exec.device, s->exec.stream, scratch, 0, s->place[s->ask.work->n] * sizeof(float)));
  }
  return QN_OK;
}

qn_status qn_stage_create(qn_stage **stage, const qn_stage_request *request, const qn_exec *exec, qn_progress *progress)
{
  qn_stage *s;
  *stage = NULL;
  qn_try(qn_try_allocate(&s, sizeof *s, "the stage"));
  *s = (qn_stage){.ask = *request, .exec = *exec, .types = types_of(request)};
  s->exec.workspace = NULL;
  if (qn_op_check_of(request->op)->reference) {
    const qn_status made = qn_subject_stage_create(&s->subject, request, exec);
    if (made != QN_OK) qn_release(s), s = NULL;
    *stage = s;
    return made;
  }
  if (request->op->coefficients) request->op->coefficients(request->params, s->coef);
  qn_status status = set_up(s);
  if (status == QN_OK) status = qn_stage_fill(s, progress);
  if (status == QN_OK)
    status = qn_op_plan_create(&s->plan, &request->op->info, &s->exec, request->params, request->work->n, s->given);
  if (status != QN_OK) qn_stage_destroy(&s);
  *stage = s;
  return status;
}

void qn_stage_destroy(qn_stage **stage)
{
  if (!stage || !*stage) return;
  qn_stage *s = *stage;
  qn_subject_stage_destroy(&s->subject);
  qn_plan_destroy(&s->plan);
  (void)qn_stream_synchronize(s->exec.device, s->exec.stream); /* a failure here was told by the call that caused it */
  for (size_t role = 0; role < QN_MAX_TENSORS; role++) {
    (void)qn_memory_release(s->exec.device, s->arena[role]);
    qn_release(s->tensor[role]);
  }
  (void)qn_memory_release(s->exec.device, s->scratch);
  (void)qn_memory_release(s->exec.device, s->exec.workspace);
  qn_release(s->place);
  qn_release(s->strides);
  qn_release(s->chunk);
  qn_release(s);
  *stage = NULL;
}

uint64_t qn_stage_workspace(const qn_stage *s)
{
  return s->subject ? s->subject->exec.workspace_bytes : s->exec.workspace_bytes;
}

qn_status qn_stage_step(qn_stage *s)
{
  if (s->subject) return qn_subject_run(s->subject);
  const qn_tensor *const *moved = s->last ? s->moved[0] : NULL; /* back from where a moved step left them */
  s->last = 0;
  return qn_op_plan_step(s->plan, &s->exec, s->ask.params, moved);
}

qn_status qn_stage_step_moved(qn_stage *s)
{
  if (s->subject) return qn_stage_step(s); /* which is told where all is in any case */
  s->last = !s->last;
  return qn_op_plan_step(s->plan, &s->exec, s->ask.params, s->moved[s->last]);
}

/* ---- the unfused form: as many elements as the step has, from where the first tensor begins ---- */
typedef struct slices {
  const qn_stage *stage;
  uint64_t end, each;
} slices;

static void unfused_slice(void *user, size_t k)
{
  const slices *w = user;
  const qn_stage *s = w->stage;
  uint64_t first = k * w->each + s->place[0], n = w->end - first < w->each ? w->end - first : w->each;
  float *arrays[QN_MAX_TENSORS + 1] = {NULL};
  size_t roles = s->ask.op->info.n_tensors;
  for (size_t role = 0; role < roles; role++)
    if (s->arena[role]) arrays[role] = (float *)s->arena[role] + first;
  arrays[roles] = s->scratch + first;
  s->ask.op->unfused(n, arrays, s->coef);
}

/* Compiled at the first call and kept: finding a kernel costs the host more than launching it. */
static qn_status find_passes(qn_stage *s)
{
  const qn_op *op = s->ask.op;
  char kernel[64];
  snprintf(kernel, sizeof kernel, "%s_unfused", op->info.name);
  for (int pass = 0; pass < op->unfused_passes; pass++) {
    char define[32];
    snprintf(define, sizeof define, "QN_PASS=%d", pass);
    const qn_unit unit = {.source = op->unfused_source, .defines = (const char *const[]){define, NULL}};
    qn_try(qn_jit_function(s->exec.device, &unit, kernel, &s->pass[pass]));
  }
  return QN_OK;
}

static qn_status unfused_on_device(qn_stage *s)
{
  enum { THREADS = 256, IN_BLOCK = 4 * THREADS };
  const qn_op *op = s->ask.op;
  const qn_backend *backend;
  union {
    qn_unfused_args head;
    char bytes[sizeof(qn_unfused_args) + QN_COEF_BYTES];
  } argument = {.head.n = s->ask.work->elements};
  for (size_t role = 0; role < op->info.n_tensors; role++)
    if (s->arena[role]) argument.head.array[role] = (float *)s->arena[role] + s->place[0];
  argument.head.array[op->info.n_tensors] = s->scratch + s->place[0];
  memcpy(argument.bytes + sizeof argument.head, s->coef, op->coef_bytes);
  const qn_launch launch = {.blocks = (argument.head.n + IN_BLOCK - 1) / IN_BLOCK,
                            .threads = THREADS,
                            .stream = s->exec.stream,
                            .pool = s->exec.pool,
                            .argument = &argument,
                            .argument_bytes = sizeof argument.head + op->coef_bytes};
  qn_try(qn_backend_of(s->exec.device, &backend));
  if (!s->pass[0]) qn_try(find_passes(s));
  for (int pass = 0; pass < op->unfused_passes; pass++) qn_try(backend->launch(s->exec.device, s->pass[pass], &launch));
  return QN_OK;
}

qn_status qn_stage_unfused(qn_stage *s)
{
  if (s->exec.device.kind != QN_CPU) return unfused_on_device(s);
  uint64_t threads = (uint64_t)qn_pool_threads(s->exec.pool), elements = s->ask.work->elements;
  uint64_t each = ((elements + threads - 1) / threads + 63) / 64 * 64;
  slices w = {s, s->place[0] + elements, each};
  qn_pool_run(s->exec.pool, (size_t)((elements + each - 1) / each), unfused_slice, &w);
  return QN_OK;
}
