/* SPDX-License-Identifier: Apache-2.0 */
/* bench.c - see bench.h. The order matters: what there must be of memory is known before any is taken; the step is
 * proved before it is timed; the ceilings are measured in the same rounds as the step that they judge. */
#include "workbench/bench.h"
#include "core/core.h"
#include "workbench/case.h"
#include "workbench/clocks.h"
#include "workbench/op_check.h"
#include "workbench/subject_stage.h"
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows of the type table ---- */
double qn_bench_bytes(const qn_op *op, size_t row, const void *params)
{
  const bool counts = op->phases && op->phases(params) > 1;
  double bytes = 0;
  if (op->info.element_bytes > 0) return op->info.element_bytes; /* and what a step moves besides */
  for (size_t role = 0; role < op->info.n_tensors; role++) {
    qn_access access = op->info.types[row].tensor[role].access;
    int times = !!(access & QN_READ) + !!(access & QN_WRITE) + (counts && op->info.count_reads >> role & 1);
    bytes += (double)qn_dtype_bytes(op->info.types[row].tensor[role].dtype) * times;
  }
  return bytes;
}

double qn_bench_besides(const qn_bench_request *ask) { return qn_step_bytes_besides(ask->op, ask->work->n); }

double qn_bench_step_bytes(const qn_bench_request *ask)
{
  if (ask->work->text) return ask->work->bytes;
  return (double)ask->work->elements * qn_bench_bytes(ask->op, ask->row, ask->params) + qn_bench_besides(ask);
}

double qn_bench_operations(const qn_bench_request *ask)
{
  const qn_op_check *check = qn_op_check_of(ask->op);
  const qn_call call = {.op = ask->op, .params = ask->params, .row = ask->row, .n = ask->work->n};
  if (ask->work->text) return ask->work->operations;
  return (double)ask->work->elements * ask->op->info.operations + (check->operations ? check->operations(&call) : 0);
}

double qn_bench_set(const qn_op *op, size_t row) { return qn_element_bytes_of(op, row).set; }

void qn_bench_types(const qn_op *op, size_t row, char *text, size_t bytes)
{
  size_t used = 0;
  *text = 0;
  for (size_t role = 0; role < op->info.n_tensors; role++) {
    qn_dtype dtype = op->info.types[row].tensor[role].dtype;
    if (dtype == QN_NONE || used >= bytes) continue;
    int n = snprintf(text + used, bytes - used, "%s%s", used ? " " : "", qn_dtype_name(dtype));
    used += n > 0 ? (size_t)n : 0;
  }
}

/* Does the row begin with these types? They may stand apart by spaces, commas or slashes. */
static bool begins_with(const char *row, const char *types)
{
  static const char apart[] = " ,/";
  for (;;) {
    types += strspn(types, apart);
    row += strspn(row, apart);
    size_t n = strcspn(types, apart);
    if (!n) return true;
    if (strcspn(row, apart) != n || strncmp(row, types, n) != 0) return false;
    types += n;
    row += n;
  }
}

/* The row whose types are these, else the first whose types begin so, else that with this telling type. */
qn_status qn_bench_row(const qn_op *op, const char *types, size_t *row)
{
  char text[96];
  qn_text all = {0};
  size_t begun = op->info.n_types, told = begun;
  for (*row = 0; *row < op->info.n_types; ++*row) {
    qn_bench_types(op, *row, text, sizeof text);
    if (begins_with(text, types) && begins_with(types, text)) break;
    if (begun == op->info.n_types && begins_with(text, types)) begun = *row;
    if (!strcmp(types, qn_row_type(&op->info, *row))) told = *row;
    qn_text_add(&all, "%s%s", *row ? "; " : "", text);
  }
  if (*row == op->info.n_types) *row = begun < op->info.n_types ? begun : told;
  qn_status status = *row < op->info.n_types
                         ? QN_OK
                         : qn_fail(QN_BAD_ARGUMENT, "%s has no types \"%s\"; there are, by role: %s", op->info.name,
                                   types, all.failed ? "(out of memory)" : all.at);
  qn_text_free(&all);
  return status;
}

/* ---- memory, before any is taken ---- */
static size_t ceiling_bytes(const qn_bench_request *ask)
{
  const uint64_t most = UINT64_C(2) << 30; /* far beyond every cache; a larger set is no slower */
  const qn_stage_request stage = {
      .op = ask->op, .params = ask->params, .row = ask->row, .work = ask->work, .device = ask->device};
  uint64_t bytes = qn_stage_bytes(&stage), least = 1 << 16;
  return (size_t)(bytes > most ? most : bytes < least ? least : bytes);
}

static bool flushes(const qn_bench_request *ask)
{
  return ask->timer == QN_TIMER_DO_BENCH || (ask->timer == QN_TIMER_EVENT && !ask->hot);
}

static qn_status check_memory(const qn_bench *b, const qn_stage_request *stage)
{
  const qn_bench_request *ask = &b->ask;
  double need = (ask->next ? 0 : (double)qn_stage_bytes(stage)) + (double)ceiling_bytes(ask) +
                (flushes(ask) ? (double)qn_flush_bytes(&b->device, ask->device.kind) : 0);
  double have = (double)b->device.free_bytes;
  if (b->device.free_bytes <= 0 || need <= 0.97 * have) return QN_OK;
  return qn_fail(QN_NO_MEMORY, "%s over %s takes %.2f GB on %s, %.2f GB are free: choose a smaller workload%s",
                 ask->op->info.name, ask->work->name, need * 1e-9, qn_device_kind_name(ask->device.kind), have * 1e-9,
                 stage->unfused ? ", or do without the unfused form (--no-unfused)" : "");
}

/* ---- what runs ---- */
typedef struct stream_call {
  qn_ceiling *ceiling;
  qn_mix mix;
  int way;
  size_t bytes;
  double moved;
} stream_call;

static qn_status run_step(void *stage) { return qn_stage_step(stage); }
static qn_status run_unfused(void *stage) { return qn_stage_unfused(stage); }
static qn_status run_stream(void *user)
{
  stream_call *c = user;
  return qn_ceiling_stream(c->ceiling, c->mix, c->way, c->bytes, 1, &c->moved);
}

/* ---- a step's bytes on the host: all of the library's allocations pass the hooks ---- */
static atomic_uint_fast64_t taken;

static void *counting_allocate(void *user, size_t bytes, size_t alignment)
{
  (void)user;
  atomic_fetch_add(&taken, bytes);
  return aligned_alloc(alignment, (bytes + alignment - 1) & ~(alignment - 1));
}

static void plain_release(void *user, void *memory, size_t bytes)
{
  (void)user;
  (void)bytes;
  free(memory);
}

static qn_status count_allocations(qn_stage *stage, uint64_t *bytes)
{
  const qn_allocator counting = {counting_allocate, plain_release, NULL};
  qn_try(qn_allocator_set(&counting));
  uint64_t before = atomic_load(&taken);
  qn_status status = qn_stage_step(stage);
  *bytes = atomic_load(&taken) - before;
  qn_try(qn_allocator_set(NULL));
  return status;
}

/* ---- the host's time of a step: only the call, in bursts that the queue takes without waiting ---- */
static qn_status time_host(const qn_bench *b, qn_stage *stage, const qn_exec *exec, bool moved, qn_summary *summary)
{
  enum { WARM = 24, CALLS = 304, BURST = 8 };
  double ns[CALLS];
  for (int k = -WARM; k < CALLS; k++) {
    if (k % BURST == 0) qn_try(qn_stream_synchronize(exec->device, exec->stream));
    int64_t from = qn_now_ns();
    qn_try(moved ? qn_stage_step_moved(stage) : qn_stage_step(stage));
    int64_t spent = qn_now_ns() - from;
    if (k >= 0) ns[k] = (double)spent;
  }
  qn_progress_at(b->ask.progress, 0, "timing the host");
  return qn_summarize(ns, CALLS, summary);
}

static qn_status note_clocks(qn_bench *b, qn_stage *stage, const qn_exec *exec)
{
  enum { BUSY = 20 };
  for (int k = 0; exec->device.kind == QN_CUDA && k < BUSY; k++)
    qn_try(qn_stage_step(stage)); /* clocks of a busy device */
  qn_clocks_read(exec->device, b->clocks, sizeof b->clocks);
  return qn_stream_synchronize(exec->device, exec->stream);
}

/* ---- from samples to figures ---- */
static qn_status take_series(qn_series *s, const char *name, const char *way, qn_timed *runner, double bytes)
{
  snprintf(s->name, sizeof s->name, "%s", name);
  snprintf(s->way, sizeof s->way, "%s", way);
  s->ns = runner->ns; /* it is the series' now */
  s->n = runner->n;
  s->bytes = bytes;
  runner->ns = NULL;
  qn_try(qn_summarize(s->ns, s->n, &s->time));
  s->gbps = bytes / s->time.median;
  return QN_OK;
}

/* The rate of `s` over that of `ceiling`, from samples of the same rounds. */
static qn_status share_of(const qn_series *s, const qn_series *ceiling, qn_ratio *share)
{
  qn_try(qn_ratio_paired(ceiling->ns, s->ns, s->n, share));
  double scale = s->bytes / ceiling->bytes;
  share->ratio *= scale;
  share->low *= scale;
  share->high *= scale;
  return QN_OK;
}

/* The fastest that any ceiling ever ran, over the bytes that must reach memory: what is written may stay in the cache.
 */
static double floor_of(const qn_bench *b)
{
  double best = 0, elements = (double)b->ask.work->elements;
  for (size_t k = 0; k < b->n_ceilings; k++) best = fmax(best, b->ceiling[k].bytes / b->ceiling[k].time.min);
  double bytes = qn_bench_step_bytes(&b->ask);
  double kept = fmin(elements * qn_element_bytes_of(b->ask.op, b->ask.row).written, (double)b->device.l2_bytes);
  return best > 0 ? (bytes - kept) / best : 0;
}

void qn_bench_judge(double ns, double floor_ns, double baseline_ns, char *why, size_t bytes, bool *impossible)
{
  *why = 0;
  *impossible = ns < 0.95 * floor_ns;
  if (*impossible)
    snprintf(why, bytes, "impossible: %.4g ms, and this machine's fastest stream needs %.4g ms for the bytes alone",
             ns * 1e-6, floor_ns * 1e-6);
  else if (baseline_ns > 10 * ns)
    snprintf(why, bytes, "suspicious: %.1f times as fast as the unfused form: run again in a fresh process",
             baseline_ns / ns);
}

static void find_ceilings(qn_bench *b)
{
  for (size_t k = 0; k < b->n_ceilings; k++) {
    const qn_series *c = &b->ceiling[k];
    bool own = !strcmp(c->name, qn_mix_name(b->mix)), copies = !strcmp(c->name, qn_mix_name(QN_MIX_COPY));
    if (own && c->gbps > b->ceiling[b->best].gbps) b->best = k;
    if (copies && c->gbps > b->ceiling[b->copy].gbps) b->copy = k;
  }
  b->floor_ns = floor_of(b);
}

static qn_status judge(qn_bench *b)
{
  qn_try(share_of(&b->fused, &b->ceiling[b->best], &b->share));
  qn_try(share_of(&b->fused, &b->ceiling[b->copy], &b->share_of_copy));
  if (b->has_unfused) {
    qn_try(qn_speedup_paired(b->unfused.ns, b->fused.ns, b->fused.n, &b->speedup));
    b->verdict = qn_verdict_of(&b->speedup);
  }
  qn_bench_judge(b->fused.time.median, b->floor_ns, b->has_unfused ? b->speedup.ratio * b->fused.time.median : 0,
                 b->suspicion, sizeof b->suspicion, &b->impossible);
  return QN_OK;
}

/* ---- the run ---- */
typedef struct lineup {
  qn_timed runner[2 + QN_MOST_CEILINGS];
  stream_call call[QN_MOST_CEILINGS];
  size_t n, n_calls;
} lineup;

static void add_mix(lineup *l, qn_ceiling *ceiling, qn_mix mix, size_t bytes)
{
  for (int way = 0; way < qn_ceiling_ways(ceiling, mix) && l->n_calls < QN_MOST_CEILINGS; way++) {
    stream_call *c = &l->call[l->n_calls++];
    *c = (stream_call){ceiling, mix, way, bytes, 0};
    l->runner[l->n++] = (qn_timed){.name = qn_mix_name(mix), .run = run_stream, .user = c};
  }
}

static void line_up(const qn_bench *b, lineup *l, qn_stage *stage, qn_ceiling *ceiling)
{
  const size_t bytes = ceiling_bytes(&b->ask);
  const qn_mix others[] = {QN_MIX_COPY, QN_MIX_2R1W, QN_MIX_3R2W, QN_MIX_READ};
  *l = (lineup){.n = 0};
  if (stage)
    l->runner[l->n++] = (qn_timed){.name = b->ask.op->info.name, .run = run_step, .user = stage, .decides = true};
  if (b->has_unfused)
    l->runner[l->n++] = (qn_timed){.name = "unfused", .run = run_unfused, .user = stage, .decides = true};
  /* Side by side with the step, so that a share is one of the same moment: the own mix first. */
  add_mix(l, ceiling, b->mix, bytes);
  for (size_t k = 0; k < sizeof others / sizeof *others; k++)
    if (others[k] != b->mix) add_mix(l, ceiling, others[k], bytes);
}

static qn_status take_all(qn_bench *b, lineup *l)
{
  if (l->runner[0].n == 0) return QN_OK; /* nobody asked for a round */
  double elements = (double)b->ask.work->elements;
  size_t k = 0;
  if (!b->ask.next) {
    b->launches = l->runner[0].launches;
    qn_try(take_series(&b->fused, b->ask.op->info.name, "", &l->runner[k++], qn_bench_step_bytes(&b->ask)));
  }
  if (b->has_unfused)
    qn_try(take_series(&b->unfused, "unfused", "", &l->runner[k++], elements * b->ask.op->info.unfused_bytes));
  for (size_t c = 0; c < l->n_calls; c++) {
    const stream_call *call = &l->call[c];
    qn_try(take_series(&b->ceiling[b->n_ceilings++], qn_mix_name(call->mix),
                       qn_ceiling_way_name(call->ceiling, call->mix, call->way), &l->runner[k++], call->moved));
    if (call->mix == QN_MIX_COPY && !b->copy) b->copy = c; /* the best is looked for from the first of each */
  }
  find_ceilings(b);
  return QN_OK;
}

enum { MOST_ASKED = 4096 }; /* rounds that another program may ask for */

static qn_status measure(qn_bench *b, qn_stage *stage, const qn_exec *exec)
{
  const bool device = exec->device.kind == QN_CUDA;
  qn_ceiling *ceiling;
  lineup l;
  qn_try(qn_ceiling_create(&ceiling, exec, ceiling_bytes(&b->ask)));
  line_up(b, &l, stage, ceiling);
  qn_sampling how = {.exec = *exec,
                     .timer = b->ask.timer,
                     .flush = !b->ask.hot,
                     .warm = !strcmp(b->cache, "hot"),
                     .budget_s = b->ask.seconds > 0 ? b->ask.seconds
                                 : device           ? 5
                                                    : 15,
                     .error = 0.005,
                     .least = b->ask.next ? MOST_ASKED
                              : device    ? 30
                                          : QN_WORD_PAIRS,
                     .most = b->ask.next ? MOST_ASKED : 500,
                     .next = b->ask.next,
                     .user = b->ask.user,
                     .trace = b->ask.trace,
                     .progress = b->ask.progress};
  qn_status status = qn_sample(&how, l.runner, l.n);
  if (status == QN_OK) status = take_all(b, &l);
  for (size_t k = 0; k < l.n; k++) qn_timed_clear(&l.runner[k]);
  qn_ceiling_destroy(&ceiling);
  if (b->ask.next) {
    qn_clocks_read(exec->device, b->clocks, sizeof b->clocks);
    return status;
  }
  if (status == QN_OK) status = judge(b);
  if (status == QN_OK) status = count_allocations(stage, &b->allocated);
  b->workspace = qn_stage_workspace(stage);
  if (status == QN_OK) status = note_clocks(b, stage, exec);
  b->has_host = device;
  if (status == QN_OK && device) status = time_host(b, stage, exec, false, &b->host_same_ns);
  if (status == QN_OK && device) status = time_host(b, stage, exec, true, &b->host_moved_ns);
  b->timed = status == QN_OK;
  return status;
}

/* What the cache may hold of the working set when a sample begins. */
static const char *cache_word(const qn_bench *b)
{
  double set = (double)ceiling_bytes(&b->ask), cache = (double)b->device.l2_bytes;
  if (b->ask.device.kind == QN_CUDA) { return flushes(&b->ask) || set >= 2 * cache ? "cold" : "hot"; }
  return cache <= 0 ? "unknown" : set >= 2 * cache ? "cold" : set > cache ? "mixed" : "hot";
}

static void find_variant(qn_bench *b)
{
  const char *backend = qn_device_kind_name(b->ask.device.kind);
  for (size_t k = 0; k < qn_op_variant_count(&b->ask.op->info); k++) {
    qn_variant variant = {.size = sizeof variant};
    if (qn_op_variant_at(&b->ask.op->info, k, &variant) != QN_OK || !variant.chosen) continue;
    if (!strcmp(variant.backend, backend)) snprintf(b->variant, sizeof b->variant, "%s", variant.name);
  }
}

static qn_status prove(qn_bench *b, qn_stage *stage)
{
  int64_t from = qn_now_ns();
  if (b->has_unfused) {
    qn_try(qn_stage_prove_unfused(stage, b->ask.progress, &b->unfused_check));
    b->has_unfused = b->unfused_check.right; /* a wrong baseline gets no time either */
  }
  qn_try(qn_stage_prove(stage, b->ask.progress, &b->check));
  qn_trace_span(b->ask.trace, QN_TRACK_HOST, "check", from, qn_now_ns() - from, -1);
  return QN_OK;
}

qn_status qn_bench_run(const qn_bench_request *request, qn_bench *b)
{
  *b = (qn_bench){
      .ask = *request, .device.size = sizeof b->device, .mix = qn_mix_of(&request->op->info.types[request->row])};
  b->has_unfused = request->unfused && !request->next &&
                   qn_stage_has_unfused(request->op, request->row, request->device.kind) && !request->work->shift &&
                   !request->work->apart; /* it goes over aligned arrays */
  const qn_stage_request stage_request = {.op = request->op,
                                          .params = request->params,
                                          .row = request->row,
                                          .work = request->work,
                                          .device = request->device,
                                          .unfused = b->has_unfused,
                                          .seed = request->seed};
  qn_exec exec = {.size = sizeof exec, .device = request->device, .pool = request->pool};
  qn_stage *stage = NULL;
  qn_require(request->work->elements > 0, "workload %s has no elements: there is nothing to time", request->work->name);
  qn_try(qn_device_query(request->device, &b->device));
  qn_try(check_memory(b, &stage_request));
  qn_bench_types(request->op, request->row, b->types, sizeof b->types);
  find_variant(b);
  b->cache = cache_word(b);
  qn_try(qn_stream_create(request->device, &exec.stream));
  qn_status status = QN_OK;
  if (!request->next) {
    status = qn_stage_create(&stage, &stage_request, &exec, request->progress);
    if (status == QN_OK) status = prove(b, stage);
  }
  if (status == QN_OK && (request->next || b->check.right)) status = measure(b, stage, &exec);
  qn_stage_destroy(&stage);
  (void)qn_stream_destroy(request->device, &exec.stream);
  return status;
}

void qn_bench_clear(qn_bench *b)
{
  qn_release(b->fused.ns);
  qn_release(b->unfused.ns);
  for (size_t k = 0; k < QN_MOST_CEILINGS; k++) qn_release(b->ceiling[k].ns);
  b->fused.ns = b->unfused.ns = NULL;
  for (size_t k = 0; k < QN_MOST_CEILINGS; k++) b->ceiling[k].ns = NULL;
}
