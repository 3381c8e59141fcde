/* SPDX-License-Identifier: Apache-2.0 */
/* stage.c - see stage.h: plan and steps over a subject, whose tensors lie at the same elements of every role's memory.
 * Filling and comparing are in stage_check.c. */
#include "workbench/stage_inner.h"
#include "core/core.h"
#include "jit/jit.h"
#include <stdio.h>
#include <string.h>

bool qn_stage_has_unfused(const qn_op *op, size_t row, qn_device_kind kind)
{
  for (size_t role = 0; role < op->info.n_tensors; role++) {
    qn_dtype dtype = op->info.types[row].tensor[role].dtype;
    if (dtype != QN_NONE && dtype != QN_F32) return false;
  }
  return kind == QN_CPU ? op->unfused != NULL : op->unfused_source != NULL;
}

uint64_t qn_stage_bytes(const qn_stage_request *r)
{
  return qn_subject_stage_bytes(r) + (r->unfused ? qn_subject_stage_bytes(r) / r->op->info.n_tensors : 0);
}

/* Which elements of the memory each thread fills or compares at a time: the same in every role. */
static qn_status make_chunks(qn_stage *s)
{
  const qn_subject_role *role = &s->d.role[s->first];
  size_t n = 0;
  for (size_t k = 0; k < s->d.n; k++) n += role->place[k].rows * (role->place[k].cols / QN_CHUNK + 1);
  qn_try(qn_try_allocate(&s->chunk, (n + 1) * sizeof *s->chunk, "the list of chunks"));
  for (size_t k = 0; k < s->d.n; k++) {
    const qn_subject_place *p = &role->place[k];
    uint64_t first = 0;
    for (size_t row = 0; row < p->rows; row++) {
      uint64_t left = p->cols, at = p->offset / role->width + row * p->pitch;
      do {
        const uint32_t part = left < QN_CHUNK ? (uint32_t)left : QN_CHUNK;
        s->chunk[s->n_chunks++] = (qn_stage_chunk){(uint32_t)k, part, first, at};
        first += part, at += part, left -= part;
      } while (left);
    }
  }
  return QN_OK;
}

/* Second places of the tensors that are only read. */
static qn_status make_moved(qn_stage *s, size_t r)
{
  qn_try(qn_try_allocate(&s->elsewhere[r], (s->d.n + 1) * sizeof *s->elsewhere[r], "tensors"));
  for (size_t k = 0; k < s->d.n; k++) {
    s->elsewhere[r][k] = s->d.tensors[r][k];
    s->elsewhere[r][k].data = (char *)s->d.tensors[r][k].data + QN_MOVED_BYTES;
  }
  s->moved[0][r] = s->d.tensors[r], s->moved[1][r] = s->elsewhere[r];
  return QN_OK;
}

static qn_status set_up(qn_stage *s, qn_progress *progress)
{
  const qn_op *op = s->ask.op;
  qn_subject *d = &s->d;
  qn_require(!s->ask.work->apart || qn_op_is_strided(&op->info), "%s: rows are apart, and its tensors must be dense",
             op->info.name);
  s->end = UINT64_MAX;
  for (size_t r = op->info.n_tensors; r-- > 0;) {
    if (!d->role[r].memory) continue;
    const uint64_t end = d->role[r].bytes / d->role[r].width;
    s->first = r, s->end = end < s->end ? end : s->end;
    if (d->role[r].access == QN_READ) qn_try(make_moved(s, r));
  }
  qn_try(make_chunks(s));
  if (op->coefficients) op->coefficients(s->ask.params, s->coef);
  if (s->ask.unfused) {
    qn_try(qn_memory_allocate(d->exec.device, s->end * sizeof(float), &s->scratch));
    qn_try(qn_memory_fill(d->exec.device, d->exec.stream, s->scratch, 0, s->end * sizeof(float)));
  }
  qn_try(qn_stage_fill(s, progress));
  return qn_op_plan_create(&d->plan, &op->info, &d->exec, s->ask.params, d->n, d->tensors);
}

qn_status qn_stage_create(qn_stage **stage, const qn_stage_request *request, const qn_exec *exec, qn_progress *progress)
{
  qn_stage *s;
  *stage = NULL;
  qn_try(qn_try_allocate(&s, sizeof *s, "the stage"));
  *s = (qn_stage){.ask = *request, .refers = qn_op_check_of(request->op)->reference != NULL};
  qn_status status = qn_subject_stage_open(&s->d, request, exec);
  if (status == QN_OK && !s->refers) status = set_up(s, progress);
  if (status != QN_OK) qn_stage_destroy(&s);
  *stage = s;
  return status;
}

void qn_stage_destroy(qn_stage **stage)
{
  if (!stage || !*stage) return;
  qn_stage *s = *stage;
  (void)qn_stream_synchronize(s->d.exec.device, s->d.exec.stream); /* its failure was the failure of an earlier call */
  (void)qn_memory_release(s->d.exec.device, s->scratch);
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) qn_release(s->elsewhere[r]);
  qn_subject_close(&s->d);
  qn_release(s->chunk);
  qn_release(s);
  *stage = NULL;
}

uint64_t qn_stage_workspace(const qn_stage *s) { return s->d.exec.workspace_bytes; }

qn_status qn_stage_step(qn_stage *s)
{
  if (s->refers) return qn_subject_run(&s->d);
  const qn_tensor *const *moved = s->last ? s->moved[0] : NULL; /* back from where a moved step left them */
  s->last = 0;
  return qn_op_plan_step(s->d.plan, &s->d.exec, s->ask.params, moved);
}

qn_status qn_stage_step_moved(qn_stage *s)
{
  if (s->refers) return qn_stage_step(s); /* which is told where all is in any case */
  s->last = !s->last;
  return qn_op_plan_step(s->d.plan, &s->d.exec, s->ask.params, s->moved[s->last]);
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
  uint64_t first = k * w->each + qn_stage_begin(s), n = w->end - first < w->each ? w->end - first : w->each;
  float *arrays[QN_MAX_TENSORS + 1] = {NULL};
  size_t roles = s->ask.op->info.n_tensors;
  for (size_t role = 0; role < roles; role++)
    if (s->d.role[role].memory) arrays[role] = (float *)(void *)s->d.role[role].memory + first;
  arrays[roles] = (float *)s->scratch + first;
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
    qn_try(qn_jit_function(s->d.exec.device, &unit, kernel, &s->pass[pass]));
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
    if (s->d.role[role].memory) argument.head.array[role] = (float *)(void *)s->d.role[role].memory + qn_stage_begin(s);
  argument.head.array[op->info.n_tensors] = (float *)s->scratch + qn_stage_begin(s);
  memcpy(argument.bytes + sizeof argument.head, s->coef, op->coef_bytes);
  const qn_launch launch = {.blocks = (argument.head.n + IN_BLOCK - 1) / IN_BLOCK,
                            .threads = THREADS,
                            .stream = s->d.exec.stream,
                            .pool = s->d.exec.pool,
                            .argument = &argument,
                            .argument_bytes = sizeof argument.head + op->coef_bytes};
  qn_try(qn_backend_of(s->d.exec.device, &backend));
  if (!s->pass[0]) qn_try(find_passes(s));
  for (int pass = 0; pass < op->unfused_passes; pass++)
    qn_try(backend->launch(s->d.exec.device, s->pass[pass], &launch));
  return QN_OK;
}

qn_status qn_stage_unfused(qn_stage *s)
{
  if (s->d.exec.device.kind != QN_CPU) return unfused_on_device(s);
  uint64_t threads = (uint64_t)qn_pool_threads(s->d.exec.pool), elements = s->ask.work->elements;
  uint64_t each = ((elements + threads - 1) / threads + 63) / 64 * 64;
  slices w = {s, qn_stage_begin(s) + elements, each};
  qn_pool_run(s->d.exec.pool, (size_t)((elements + each - 1) / each), unfused_slice, &w);
  return QN_OK;
}
