/* SPDX-License-Identifier: Apache-2.0 */
/* break_even.c - see break_even.h. */
#include "workbench/break_even.h"
#include "core/core.h"
#include "workbench/build.h"
#include "workbench/record_inner.h"
#include "workbench/table.h"
#include "workbench/term.h"
#include <jansson.h>
#include <stdlib.h>

/* Calls in a row as one sample: a single one of a few elements is shorter than a look at the clock is exact. */
typedef struct batch {
  qn_stage *stage;
  qn_status (*call)(qn_stage *stage);
  int calls;
} batch;

static qn_status run_batch(void *user)
{
  const batch *b = user;
  for (int k = 0; k < b->calls; k++) qn_try(b->call(b->stage));
  return QN_OK;
}

/* On a device each call is waited for: that is what a user of one small tensor sees. */
static int calls_for(qn_device_kind kind, uint64_t elements)
{
  const uint64_t enough = 1 << 16;
  return kind != QN_CPU ? 1 : elements >= enough ? 1 : elements < 64 ? 1024 : (int)(enough / elements);
}

static qn_status measure(const qn_bench_request *ask, const qn_exec *exec, qn_stage *stage, uint64_t elements,
                         qn_break_even *result, size_t k)
{
  const int calls = calls_for(ask->device.kind, elements);
  batch fused = {stage, qn_stage_step, calls}, unfused = {stage, qn_stage_unfused, calls};
  qn_timed runner[] = {{.name = "fused", .run = run_batch, .user = &fused, .decides = true},
                       {.name = "unfused", .run = run_batch, .user = &unfused, .decides = true}};
  const qn_sampling how = {.exec = *exec,
                           .timer = QN_TIMER_SIMPLE,
                           .warm = true,
                           .budget_s = 0.15,
                           .error = 0.01,
                           .least = 15,
                           .most = 200,
                           .trace = ask->trace,
                           .progress = ask->progress};
  qn_summary summary[2];
  qn_status status = qn_sample(&how, runner, 2);
  for (int i = 0; status == QN_OK && i < 2; i++) status = qn_summarize(runner[i].ns, runner[i].n, &summary[i]);
  if (status == QN_OK) status = qn_speedup_paired(runner[1].ns, runner[0].ns, runner[0].n, &result->size[k].speedup);
  for (int i = 0; i < 2; i++) qn_timed_clear(&runner[i]);
  if (status != QN_OK) return status;
  result->size[k].elements = elements;
  result->size[k].fused_ns = summary[0].median / calls;
  result->size[k].unfused_ns = summary[1].median / calls;
  result->size[k].verdict = qn_verdict_of(&result->size[k].speedup);
  return QN_OK;
}

static qn_status run_size(const qn_bench_request *ask, const qn_exec *exec, qn_break_even *result, size_t k)
{
  char name[32];
  qn_workload work;
  qn_stage *stage = NULL;
  qn_stage_check check = {.right = true};
  snprintf(name, sizeof name, "1x%llu", 1ULL << k);
  qn_try(qn_workload_find(name, &work));
  const qn_stage_request request = {
      .op = ask->op, .params = ask->params, .row = ask->row, .work = &work, .unfused = true, .seed = ask->seed};
  qn_status status = qn_stage_create(&stage, &request, exec, ask->progress);
  if (status == QN_OK) status = qn_stage_prove(stage, ask->progress, &check);
  if (status == QN_OK && !check.right)
    status = qn_fail(QN_UNSUPPORTED, "%s over %s is wrong and gets no time: %s", ask->op->info.name, name, check.wrong);
  if (status == QN_OK) status = measure(ask, exec, stage, UINT64_C(1) << k, result, k);
  qn_stage_destroy(&stage);
  qn_workload_free(&work);
  return status;
}

qn_status qn_break_even_run(const qn_bench_request *ask, qn_break_even *result)
{
  qn_exec exec = {.size = sizeof exec, .device = ask->device, .pool = ask->pool};
  *result = (qn_break_even){.elements = 0};
  if (!qn_stage_has_unfused(ask->op, ask->row, ask->device.kind))
    return qn_fail(QN_UNSUPPORTED, "%s has no unfused form of these types to be compared with", ask->op->info.name);
  qn_try(qn_stream_create(ask->device, &exec.stream));
  qn_status status = QN_OK;
  for (size_t k = 0; status == QN_OK && k < QN_BREAK_EVEN_SIZES; k++) {
    qn_progress_at(ask->progress, 100 * k / QN_BREAK_EVEN_SIZES, "%llu elements", 1ULL << k);
    status = run_size(ask, &exec, result, k);
  }
  (void)qn_stream_destroy(ask->device, &exec.stream);
  for (size_t k = QN_BREAK_EVEN_SIZES; status == QN_OK && k-- > 0 && result->size[k].verdict == QN_FASTER;)
    result->elements = result->size[k].elements;
  return status;
}

void qn_break_even_print(FILE *stream, const qn_bench_request *ask, const qn_break_even *r)
{
  fprintf(stream, "%s%s%s, one tensor, on %s, host's clock with synchronisation\n  %10s %10s %10s   %s\n",
          qn_term_colour(stream, QN_BOLD), ask->op->info.name, qn_term_colour(stream, QN_PLAIN),
          qn_device_kind_name(ask->device.kind), "elements", "fused", "unfused", "speed-up");
  for (size_t k = 0; k < QN_BREAK_EVEN_SIZES; k++)
    fprintf(stream, "  %10s %10s %10s   %5.2fx %-16s %s\n", qn_grouped(r->size[k].elements).text,
            qn_duration(r->size[k].fused_ns).text, qn_duration(r->size[k].unfused_ns).text, r->size[k].speedup.ratio,
            qn_interval(r->size[k].speedup.low, r->size[k].speedup.high, 2).text, qn_verdict_word(r->size[k].verdict));
  if (r->elements)
    fprintf(stream, "break-even: from %s elements on the fused form is faster\n", qn_grouped(r->elements).text);
  else
    fprintf(stream, "break-even: none up to %s elements\n", qn_grouped(r->size[QN_BREAK_EVEN_SIZES - 1].elements).text);
}

qn_status qn_break_even_append(const char *path, const qn_bench_request *ask, const qn_break_even *r)
{
  qn_device_info info = {.size = sizeof info};
  qn_try(qn_device_query(ask->device, &info));
  json_t *sizes = json_array();
  for (size_t k = 0; k < QN_BREAK_EVEN_SIZES; k++)
    json_array_append_new(sizes,
                          json_pack("{s:I, s:f, s:f, s:f, s:s}", "elements", (json_int_t)r->size[k].elements,
                                    "fused_ns", r->size[k].fused_ns, "unfused_ns", r->size[k].unfused_ns, "speedup",
                                    r->size[k].speedup.ratio, "verdict", qn_verdict_word(r->size[k].verdict)));
  json_t *line = json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:o}", "schema", "quern break-even 1", "commit",
                           qn_build_commit, "op", ask->op->info.name, "backend", qn_device_kind_name(ask->device.kind),
                           "device", info.name, "break_even_elements", (json_int_t)r->elements, "sizes", sizes);
  return qn_json_append(path, line, 9);
}
