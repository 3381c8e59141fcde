/* SPDX-License-Identifier: Apache-2.0 */
/* bench.c - see bench.h. The order matters: what there must be of memory is known before any is taken; the step is
 * proved before it is timed; the ceilings are measured in the same rounds as the step that they judge. */
#include "workbench/bench.h"
#include "core/core.h"
#include "workbench/case.h"
#include "workbench/measure.h"
#include "workbench/op_check.h"
#include "workbench/subject_stage.h"
#include "workbench/table.h"
#include <stdio.h>
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

/* Bytes of a step that do not grow with the list's elements. */
static double besides(const qn_bench_request *ask) { return qn_step_bytes_besides(ask->op, ask->work->n); }

static double step_bytes(const qn_bench_request *ask)
{
  if (ask->work->text) return ask->work->bytes;
  return (double)ask->work->elements * qn_bench_bytes(ask->op, ask->row, ask->params) + besides(ask);
}

static double operations_of(const qn_bench_request *ask)
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
static double set_bytes_of(const qn_bench_request *ask)
{
  const qn_stage_request stage = {
      .op = ask->op, .params = ask->params, .row = ask->row, .work = ask->work, .device = ask->device};
  return (double)qn_stage_bytes(&stage);
}

static qn_status check_memory(const qn_bench *b, const qn_stage_request *stage)
{
  const qn_bench_request *ask = &b->ask;
  double need = (ask->next ? 0 : (double)qn_stage_bytes(stage)) + (double)qn_measure_ceiling_bytes(set_bytes_of(ask)) +
                (qn_measure_flushes(ask) ? (double)qn_flush_bytes(&b->device, ask->device.kind) : 0);
  double have = (double)b->device.free_bytes;
  if (b->device.free_bytes <= 0 || need <= 0.97 * have) return QN_OK;
  return qn_fail(QN_NO_MEMORY, "%s over %s takes %.2f GB on %s, %.2f GB are free: choose a smaller workload%s",
                 ask->op->info.name, ask->work->name, need * 1e-9, qn_device_kind_name(ask->device.kind), have * 1e-9,
                 stage->unfused ? ", or do without the unfused form (--no-unfused)" : "");
}

/* ---- what runs ---- */
static qn_status run_step(void *stage) { return qn_stage_step(stage); }
static qn_status run_moved(void *stage) { return qn_stage_step_moved(stage); }
static qn_status run_unfused(void *stage) { return qn_stage_unfused(stage); }

static qn_status measure(qn_bench *b, qn_stage *stage, const qn_exec *exec)
{
  static const qn_mix mixes[] = {QN_MIX_COPY, QN_MIX_2R1W, QN_MIX_3R2W, QN_MIX_READ};
  const qn_bench_request *ask = &b->ask;
  const bool device = exec->device.kind == QN_CUDA;
  const double elements = (double)ask->work->elements;
  const qn_measured what = {.name = ask->op->info.name,
                            .against_name = "unfused",
                            .run = stage ? run_step : NULL,
                            .against = run_unfused,
                            .user = stage,
                            .against_user = stage,
                            .bytes = step_bytes(ask),
                            .against_bytes = elements * ask->op->info.unfused_bytes,
                            .written = elements * qn_element_bytes_of(ask->op, ask->row).written,
                            .set_bytes = set_bytes_of(ask),
                            .mixes = mixes,
                            .n_mixes = sizeof mixes / sizeof *mixes,
                            .seconds = device ? 5 : 15};
  qn_try(qn_measure(b, &what, exec));
  if (!stage) return QN_OK;
  qn_bench_judge(b->fused.time.median, b->floor_ns, b->has_unfused ? b->speedup.ratio * b->fused.time.median : 0,
                 b->suspicion, sizeof b->suspicion, &b->impossible);
  b->workspace = qn_stage_workspace(stage);
  b->has_host = device;
  qn_progress_at(ask->progress, 0, "timing the host");
  qn_status status = device ? qn_measure_host(exec, run_step, stage, &b->host_same_ns) : QN_OK;
  if (status == QN_OK && device) status = qn_measure_host(exec, run_moved, stage, &b->host_moved_ns);
  b->timed = status == QN_OK;
  return status;
}

/* ---- in words ---- */
static void describe(qn_bench *b)
{
  const qn_bench_request *ask = &b->ask;
  qn_bench_subject *of = &b->of;
  const qn_op_info *op = &ask->op->info;
  const double elements = (double)ask->work->elements;
  const bool bitwise = !qn_op_check_of(ask->op)->reference || op->agreement == QN_BITWISE;
  snprintf(of->name, sizeof of->name, "%s", op->name);
  snprintf(of->workload, sizeof of->workload, "%s", ask->work->name);
  snprintf(of->against, sizeof of->against, "the unfused form");
  qn_params_text(op, ask->params, of->settings, sizeof of->settings);
  if (ask->work->text)
    snprintf(of->amount, sizeof of->amount, "%s", ask->work->text);
  else
    snprintf(of->amount, sizeof of->amount, "%s %s, %s elements of %.0f bytes", qn_grouped(ask->work->n).text,
             ask->work->n == 1 ? "tensor" : "tensors", qn_grouped(ask->work->elements).text,
             qn_bench_bytes(ask->op, ask->row, ask->params));
  snprintf(of->proof, sizeof of->proof, "%s",
           bitwise           ? "equal the reference bit for bit"
           : ask->work->text ? "are as near to the reference in double as they must be"
                             : "of its shapes, made small, are as near to the reference in double as they must be");
  of->tensors = (int64_t)ask->work->n;
  of->elements = (int64_t)ask->work->elements;
  of->bytes = step_bytes(ask);
  of->besides = besides(ask);
  of->set_bytes = ask->work->text ? ask->work->bytes : elements * qn_bench_set(ask->op, ask->row);
  of->operations = operations_of(ask);
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
  describe(b);
  find_variant(b);
  b->cache = qn_measure_cache(b, set_bytes_of(request));
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
