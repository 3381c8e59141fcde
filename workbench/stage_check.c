/* SPDX-License-Identifier: Apache-2.0 */
/* stage_check.c - a stage's data, made and compared. Inputs can be made again (fill.h), so the reference needs no copy
 * of them: each thread makes a chunk anew, runs the reference tier on it and compares with what the device holds.
 * Memory of another device passes through a window on the host. */
#include "workbench/stage_inner.h"
#include "core/core.h"
#include "quern/device.h"
#include "workbench/fill.h"
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { WINDOW = 1 << 22 }; /* elements of each role on the host at a time */

/* Chunks [from, to) as the host sees them: base[role] is where element `start` of an arena stands. */
typedef struct window {
  size_t from, to;
  uint64_t start, end;
  char *base[QN_MAX_TENSORS];
} window;

/* One sweep over all chunks. */
typedef struct sweep {
  qn_stage *stage;
  window at;
  char *own; /* windows' memory; NULL where the device's memory is the host's */
  atomic_size_t next;
  /* comparing */
  char *scratch; /* for each thread, one chunk of every role */
  size_t scratch_bytes;
  const void *coef;
  int phase;
  bool loose, last_phase;
  uint64_t *tally;
  pthread_mutex_t lock;
  size_t wrong_chunk; /* the first one; n_chunks: none */
  uint64_t outliers, compared;
  qn_stage_check *check;
} sweep;

static bool host_sees(qn_device_kind kind) { return kind != QN_CUDA; }

static uint64_t start_of(const qn_stage *s, size_t chunk)
{
  return chunk ? s->chunk[chunk].at : 0; /* the band before the first tensor is the first chunk's */
}

/* The band behind the last of a row or a tensor is its own. */
static uint64_t end_of(const qn_stage *s, size_t chunk)
{
  return chunk + 1 < s->n_chunks ? s->chunk[chunk + 1].at : s->end;
}

static size_t width_of(const qn_stage *s, size_t role) { return s->d.role[role].width; }

/* A chunk's numbers; what is only written holds NaN before. */
static void make_numbers(const qn_stage *s, size_t role, const qn_stage_chunk *c, void *to)
{
  const qn_op_tensor *t = &s->ask.op->info.tensors[role];
  const qn_filling filling = {.kind = t->fill, .scale = t->fill_scale, .seed = s->ask.seed, .role = role};
  if (s->d.role[role].access == QN_WRITE)
    memset(to, 0xff, c->n * width_of(s, role));
  else
    qn_fill_numbers(&filling, s->d.role[role].dtype, to, c->n, ((uint64_t)c->tensor << 32) + c->first);
}

static void next_window(sweep *w)
{
  qn_stage *s = w->stage;
  w->at.from = w->at.to;
  w->at.start = start_of(s, w->at.from);
  do w->at.to++;
  while (w->at.to < s->n_chunks && (!w->own || end_of(s, w->at.to) - w->at.start <= WINDOW));
  w->at.end = end_of(s, w->at.to - 1);
  size_t used = 0;
  for (size_t role = 0; role < QN_MAX_TENSORS; role++) {
    if (!s->d.role[role].memory) continue;
    size_t bytes = width_of(s, role);
    w->at.base[role] = w->own ? w->own + used : (char *)s->d.role[role].memory + w->at.start * bytes;
    used += WINDOW * bytes;
  }
  atomic_store(&w->next, w->at.from);
}

static qn_status move_window(sweep *w, bool to_device)
{
  const qn_stage *s = w->stage;
  for (size_t role = 0; w->own && role < QN_MAX_TENSORS; role++) {
    if (!s->d.role[role].memory) continue;
    size_t bytes = width_of(s, role), n = (size_t)(w->at.end - w->at.start) * bytes;
    char *there = (char *)s->d.role[role].memory + w->at.start * bytes;
    qn_try(to_device ? qn_memory_write(s->d.exec.device, s->d.exec.stream, there, w->at.base[role], n)
                     : qn_memory_read(s->d.exec.device, s->d.exec.stream, w->at.base[role], there, n));
  }
  return QN_OK;
}

static qn_status begin_sweep(sweep *w, qn_stage *s)
{
  w->stage = s;
  size_t bytes = 0;
  for (size_t role = 0; role < QN_MAX_TENSORS; role++)
    if (s->d.role[role].memory) bytes += WINDOW * width_of(s, role);
  return host_sees(s->d.exec.device.kind) ? QN_OK : qn_try_allocate(&w->own, bytes, "a window on the device's memory");
}

static size_t workers(const qn_stage *s) { return (size_t)qn_pool_threads(s->d.exec.pool); }

/* ---- filling ---- */
static void fill_worker(void *user, size_t k)
{
  sweep *w = user;
  const qn_stage *s = w->stage;
  (void)k;
  for (size_t i; (i = atomic_fetch_add(&w->next, 1)) < w->at.to;) {
    const qn_stage_chunk *c = &s->chunk[i];
    uint64_t data = c->at, start = start_of(s, i), end = end_of(s, i);
    for (size_t role = 0; role < QN_MAX_TENSORS; role++) {
      if (!s->d.role[role].memory) continue;
      size_t bytes = width_of(s, role);
      char *base = w->at.base[role];
      memset(base + (start - w->at.start) * bytes, QN_BAND_BYTE, (data - start) * bytes);
      make_numbers(s, role, c, base + (data - w->at.start) * bytes);
      memset(base + (data + c->n - w->at.start) * bytes, QN_BAND_BYTE, (end - data - c->n) * bytes);
    }
  }
}

qn_status qn_stage_fill(qn_stage *s, qn_progress *progress)
{
  sweep w = {.stage = s};
  qn_try(begin_sweep(&w, s));
  qn_status status = QN_OK;
  while (status == QN_OK && w.at.to < s->n_chunks) {
    next_window(&w);
    qn_progress_at(progress, 0, "making %.1f million numbers", (double)s->ask.work->elements * 1e-6);
    qn_pool_run(s->d.exec.pool, workers(s), fill_worker, &w);
    status = move_window(&w, true);
  }
  qn_release(w.own);
  return status;
}

/* ---- comparing ---- */
static void complain(sweep *w, size_t chunk, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void complain(sweep *w, size_t chunk, const char *format, ...)
{
  pthread_mutex_lock(&w->lock);
  if (chunk < w->wrong_chunk) { /* of several the first, so that the sentence is the same in every run */
    w->wrong_chunk = chunk;
    w->check->right = false;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(w->check->wrong, sizeof w->check->wrong, format, arguments);
    va_end(arguments);
  }
  pthread_mutex_unlock(&w->lock);
}

static void tell_element(sweep *w, size_t chunk, size_t role, size_t at, const char *seen, const char *want)
{
  const qn_stage *s = w->stage;
  const qn_stage_chunk *c = &s->chunk[chunk];
  const qn_dtype dtype = s->d.role[role].dtype;
  const size_t place = at * width_of(s, role);
  const bool read = s->d.role[role].access == QN_READ;
  complain(w, chunk, "%s of tensor %s, element %" PRIu64 ": %.9g, %s %.9g", s->ask.op->info.tensors[role].name,
           s->ask.work->item[c->tensor].name, c->first + at, qn_number_load(dtype, seen + place),
           read ? "but it is only read and was" : "the reference says", qn_number_load(dtype, want + place));
}

static bool band_holds(const char *band, size_t bytes)
{
  for (size_t k = 0; k < bytes; k++)
    if ((unsigned char)band[k] != QN_BAND_BYTE) return false;
  return true;
}

static void check_bands(sweep *w, size_t i, size_t role)
{
  const qn_stage *s = w->stage;
  const qn_stage_chunk *c = &s->chunk[i];
  size_t bytes = width_of(s, role);
  uint64_t data = c->at, start = start_of(s, i), end = end_of(s, i);
  const char *base = w->at.base[role];
  if (!band_holds(base + (start - w->at.start) * bytes, (data - start) * bytes) ||
      !band_holds(base + (data + c->n - w->at.start) * bytes, (end - data - c->n) * bytes))
    complain(w, i, "%s of tensor %s: bytes %s it were overwritten", s->ask.op->info.tensors[role].name,
             s->ask.work->item[c->tensor].name, data > start ? "round" : "behind");
}

/* How many elements are further from the reference than rounding explains. */
static size_t count_outliers(const qn_stage *s, size_t role, const char *seen, const char *want, size_t n)
{
  const qn_dtype dtype = s->d.role[role].dtype;
  const size_t width = width_of(s, role);
  size_t far = 0;
  for (size_t k = 0; k < n; k++) {
    double a = qn_number_load(dtype, seen + k * width), b = qn_number_load(dtype, want + k * width);
    far += !(fabs(a - b) <= 16 * 0x1p-24 * fmax(fabs(b), s->ask.op->info.tensors[role].fill_scale));
  }
  return far;
}

static void compare_chunk(sweep *w, size_t i, char *const want[QN_MAX_TENSORS])
{
  const qn_stage *s = w->stage;
  const qn_stage_chunk *c = &s->chunk[i];
  uint64_t data = c->at, compared = 0, outliers = 0;
  size_t n = c->n;
  if (w->loose) { /* it goes over as many elements as there are, bands included */
    uint64_t end = qn_stage_begin(s) + s->ask.work->elements;
    n = data >= end ? 0 : end - data < n ? (size_t)(end - data) : n;
  }
  for (size_t role = 0; role < QN_MAX_TENSORS; role++) {
    if (!s->d.role[role].memory) continue;
    const char *seen = w->at.base[role] + (data - w->at.start) * width_of(s, role);
    if (s->d.role[role].access & QN_WRITE) compared += n;
    if (w->loose) {
      outliers += count_outliers(s, role, seen, want[role], n);
      continue;
    }
    size_t at = qn_numbers_differ(s->d.role[role].dtype, seen, want[role], c->n);
    if (at < c->n) tell_element(w, i, role, at, seen, want[role]);
    check_bands(w, i, role);
  }
  pthread_mutex_lock(&w->lock);
  w->compared += compared;
  w->outliers += outliers;
  pthread_mutex_unlock(&w->lock);
}

static void compare_worker(void *user, size_t k)
{
  sweep *w = user;
  const qn_stage *s = w->stage;
  const qn_op *op = s->ask.op;
  for (size_t i; (i = atomic_fetch_add(&w->next, 1)) < w->at.to;) {
    const qn_stage_chunk *c = &s->chunk[i];
    qn_piece piece = {.n = c->n, .first = c->first, .tensor_id = c->tensor, .place = c->tensor};
    piece.tally = w->tally && !w->last_phase ? w->tally + 2 * c->tensor : NULL;
    char *want[QN_MAX_TENSORS] = {NULL}, *own = w->scratch + k * w->scratch_bytes;
    for (size_t role = 0; role < QN_MAX_TENSORS; role++) {
      if (!s->d.role[role].memory) continue;
      piece.data[role] = want[role] = own;
      make_numbers(s, role, c, own);
      own += QN_CHUNK * width_of(s, role);
    }
    const qn_cpu_call call = {.row = s->ask.row,
                              .flags = op->flags ? op->flags(s->ask.params, s->ask.row) : 0,
                              .phase = w->phase,
                              .coef = w->coef};
    if (c->n) op->cpu[QN_TIER_REF](&call, &piece);
    if (w->last_phase) compare_chunk(w, i, want);
  }
}

static qn_status compare_all(sweep *w, qn_progress *progress)
{
  qn_stage *s = w->stage;
  const size_t n = s->n_chunks;
  w->at = (window){0};
  while (w->at.to < n) {
    next_window(w);
    if (w->last_phase) qn_try(move_window(w, false));
    qn_progress_at(progress, 0, "comparing with the reference, %.0f %%", 100.0 * (double)w->at.from / (double)n);
    qn_pool_run(s->d.exec.pool, workers(s), compare_worker, w);
  }
  return QN_OK;
}

/* The phases of the op over regenerated input, the last one with the comparison. */
static qn_status compare(sweep *w, qn_progress *progress)
{
  qn_stage *s = w->stage;
  const qn_op *op = s->ask.op;
  _Alignas(16) char coef[QN_COEF_BYTES];
  int phases = op->phases ? op->phases(s->ask.params) : 1;
  memcpy(coef, s->coef, sizeof coef);
  w->coef = coef;
  w->scratch_bytes = 0;
  for (size_t role = 0; role < QN_MAX_TENSORS; role++)
    if (s->d.role[role].memory) w->scratch_bytes += QN_CHUNK * width_of(s, role);
  qn_try(qn_try_allocate(&w->scratch, workers(s) * w->scratch_bytes, "the reference's chunks"));
  if (phases > 1) {
    w->tally = qn_allocate_zero(s->ask.work->n, 2 * sizeof *w->tally);
    if (!w->tally) return qn_fail(QN_NO_MEMORY, "the reference's counters: %zu tensors", s->ask.work->n);
    const uint64_t *tally = w->tally;
    if (op->tally_offset) memcpy(coef + op->tally_offset - 1, &tally, sizeof tally);
  }
  for (w->phase = 0; w->phase < phases; w->phase++) {
    w->last_phase = w->phase == phases - 1;
    qn_try(compare_all(w, progress));
  }
  return QN_OK;
}

static qn_status prove(qn_stage *s, qn_progress *progress, qn_stage_check *check, bool loose)
{
  *check = (qn_stage_check){.right = true};
  sweep w = {.stage = s, .loose = loose, .wrong_chunk = s->n_chunks, .check = check};
  qn_try(qn_stage_fill(s, progress));
  qn_progress_at(progress, 0, "one step");
  qn_try(loose ? qn_stage_unfused(s) : qn_stage_step(s));
  qn_try(begin_sweep(&w, s));
  pthread_mutex_init(&w.lock, NULL);
  qn_status status = compare(&w, progress);
  pthread_mutex_destroy(&w.lock);
  qn_release(w.own);
  qn_release(w.scratch);
  qn_release(w.tally);
  check->elements = w.compared;
  if (loose && w.outliers > w.compared / 10000 + 1) {
    check->right = false;
    snprintf(check->wrong, sizeof check->wrong, "%" PRIu64 " of %" PRIu64 " elements are not what the reference says",
             w.outliers, w.compared);
  }
  return status;
}

qn_status qn_stage_prove(qn_stage *s, qn_progress *progress, qn_stage_check *check)
{
  return s->refers ? qn_subject_stage_prove(&s->d, &s->ask, check) : prove(s, progress, check, false);
}

qn_status qn_stage_prove_unfused(qn_stage *s, qn_progress *progress, qn_stage_check *check)
{
  return prove(s, progress, check, true);
}
