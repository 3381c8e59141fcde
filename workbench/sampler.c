/* SPDX-License-Identifier: Apache-2.0 */
/* sampler.c - see sampler.h. */
#include "workbench/sampler.h"
#include "core/core.h"
#include "device/backend.h"
#include "workbench/stats.h"
#include <stdio.h>
#include <time.h>

typedef struct qn_stopwatch {
  const qn_sampling *how;
  void *flush;
  size_t flush_bytes;
  qn_event *from, *to, *base;
  int64_t base_ns; /* the host's clock at `base` */
} bench;

int64_t qn_now_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

const char *qn_timer_name(qn_timer timer)
{
  static const char *const names[] = {"event", "simple", "do_bench"};
  return names[timer];
}

size_t qn_flush_bytes(const qn_device_info *info, qn_device_kind kind)
{
  const size_t least = (size_t)256 << 20, l2 = info->l2_bytes > 0 ? (size_t)info->l2_bytes : 0;
  if (kind != QN_CUDA) return 0;
  return 2 * l2 > least ? 2 * l2 : least;
}

void qn_timed_clear(qn_timed *runner)
{
  qn_release(runner->ns);
  runner->ns = NULL;
  runner->n = 0;
}

static bool flushes(const qn_sampling *how)
{
  return how->timer == QN_TIMER_DO_BENCH || (how->timer == QN_TIMER_EVENT && how->flush);
}

static qn_status get_ready(const qn_timed *runner) { return runner->ready ? runner->ready(runner->user) : QN_OK; }

static qn_status time_simple(const bench *b, qn_timed *runner, double *ns)
{
  const qn_exec *exec = &b->how->exec;
  qn_try(get_ready(runner));
  if (b->how->warm) qn_try(runner->run(runner->user));
  qn_try(qn_stream_synchronize(exec->device, exec->stream));
  int64_t from = qn_now_ns();
  qn_try(runner->run(runner->user));
  qn_try(qn_stream_synchronize(exec->device, exec->stream));
  *ns = (double)(qn_now_ns() - from);
  qn_trace_span(b->how->trace, QN_TRACK_HOST, runner->name, from, (int64_t)*ns, runner->launches);
  return QN_OK;
}

static qn_status time_event(const bench *b, qn_timed *runner, double *ns)
{
  const qn_exec *exec = &b->how->exec;
  qn_try(get_ready(runner));
  if (b->how->warm) qn_try(runner->run(runner->user));
  if (b->flush) qn_try(qn_memory_fill(exec->device, exec->stream, b->flush, 0x5a, b->flush_bytes));
  int64_t host = qn_now_ns();
  qn_try(qn_event_record(exec->device, exec->stream, b->from));
  qn_try(runner->run(runner->user));
  qn_try(qn_event_record(exec->device, exec->stream, b->to));
  int64_t called = qn_now_ns();
  qn_try(qn_event_elapsed(exec->device, b->from, b->to, ns));
  if (!b->how->trace) return QN_OK;
  double since;
  qn_try(qn_event_elapsed(exec->device, b->base, b->from, &since));
  qn_trace_span(b->how->trace, QN_TRACK_HOST, runner->name, host, called - host, runner->launches);
  qn_trace_span(b->how->trace, QN_TRACK_DEVICE, runner->name, b->base_ns + (int64_t)since, (int64_t)*ns, -1);
  return QN_OK;
}

static qn_status time_one(const bench *b, qn_timed *runner, double *ns)
{
  return b->how->timer == QN_TIMER_SIMPLE ? time_simple(b, runner, ns) : time_event(b, runner, ns);
}

/* First calls compile, touch and wake up; they also tell the launches. Then a moment more, for clocks to rise. */
static qn_status warm_up(const bench *b, qn_timed *runner, size_t n, double least_s)
{
  const qn_exec *exec = &b->how->exec;
  for (size_t k = 0; k < n; k++) {
    uint64_t before = qn_launch_count();
    qn_progress_at(b->how->progress, 0, "warming up: %s", runner[k].name);
    qn_try(get_ready(&runner[k]));
    qn_try(runner[k].run(runner[k].user));
    runner[k].launches = (int64_t)(qn_launch_count() - before);
    qn_try(qn_stream_synchronize(exec->device, exec->stream));
  }
  for (int64_t from = qn_now_ns(); (double)(qn_now_ns() - from) < least_s * 1e9;)
    for (size_t k = 0; k < n; k++) {
      double ns;
      qn_try(time_one(b, &runner[k], &ns));
    }
  return QN_OK;
}

static bool known_well(const qn_timed *runner, size_t n, double error)
{
  for (size_t k = 0; k < n; k++) {
    qn_summary s;
    if (!runner[k].decides) continue;
    if (qn_summarize(runner[k].ns, runner[k].n, &s) != QN_OK) return false;
    if (!(s.high - s.low <= 2 * error * s.median)) return false;
  }
  return true;
}

static qn_status rounds(const bench *b, qn_timed *runner, size_t n, size_t least, size_t most, double budget_s)
{
  int64_t from = qn_now_ns();
  for (size_t round = 0; round < most; round++) {
    double spent = (double)(qn_now_ns() - from) * 1e-9;
    if (round >= least && (spent >= budget_s || known_well(runner, n, b->how->error))) break;
    if (b->how->next && !b->how->next(b->how->user)) break;
    double least_done = least ? (double)round / (double)least : 1, time_done = spent / budget_s;
    qn_progress_at(b->how->progress, (size_t)(100 * (least_done < time_done ? least_done : time_done)), "round %zu",
                   round + 1);
    for (size_t k = 0; k < n; k++) {
      qn_timed *r = &runner[(round + k) % n];
      double ns;
      qn_try(time_one(b, r, &ns));
      r->ns[r->n++] = ns;
    }
  }
  return QN_OK;
}

/* ---- the kernels inside a step, for a trace: one step more, with an event before each launch ---- */
enum { MOST_KERNELS = 64 };

typedef struct kernels {
  const bench *b;
  size_t n;
  qn_event *before[MOST_KERNELS + 1]; /* and behind the last */
  char name[MOST_KERNELS][64];
  qn_status status;
} kernels;

static void note_kernel(void *user, const char *kernel, void *stream)
{
  kernels *k = user;
  if (k->n == MOST_KERNELS || k->status != QN_OK) return;
  snprintf(k->name[k->n], sizeof k->name[0], "%s", kernel);
  k->status = qn_event_create(k->b->how->exec.device, &k->before[k->n]);
  if (k->status == QN_OK) k->status = qn_event_record(k->b->how->exec.device, stream, k->before[k->n++]);
}

static qn_status tell_kernels(const kernels *k)
{
  const qn_device device = k->b->how->exec.device;
  for (size_t i = 0; i < k->n; i++) {
    double since, ns;
    qn_try(qn_event_elapsed(device, k->b->base, k->before[i], &since));
    qn_try(qn_event_elapsed(device, k->before[i], k->before[i + 1], &ns));
    qn_trace_span(k->b->how->trace, QN_TRACK_KERNELS, k->name[i], k->b->base_ns + (int64_t)since, (int64_t)ns, -1);
  }
  return QN_OK;
}

static qn_status trace_kernels(const bench *b, const qn_timed *runner)
{
  const qn_exec *exec = &b->how->exec;
  kernels k = {.b = b};
  qn_try(get_ready(runner));
  qn_try(qn_stream_synchronize(exec->device, exec->stream));
  qn_launch_observe(note_kernel, &k);
  qn_status status = runner->run(runner->user);
  qn_launch_observe(NULL, NULL);
  if (status == QN_OK) status = k.status;
  if (status == QN_OK) status = qn_event_create(exec->device, &k.before[k.n]);
  if (status == QN_OK) status = qn_event_record(exec->device, exec->stream, k.before[k.n]);
  if (status == QN_OK) status = qn_stream_synchronize(exec->device, exec->stream);
  if (status == QN_OK) status = tell_kernels(&k);
  for (size_t i = 0; i <= k.n; i++)
    if (k.before[i]) (void)qn_event_destroy(exec->device, &k.before[i]);
  return status;
}

static void end(bench *b)
{
  const qn_device device = b->how->exec.device;
  if (b->from) (void)qn_event_destroy(device, &b->from); /* failures of cleaning up say nothing new */
  if (b->to) (void)qn_event_destroy(device, &b->to);
  if (b->base) (void)qn_event_destroy(device, &b->base);
  (void)qn_memory_release(device, b->flush);
}

static qn_status begin(bench *b, const qn_sampling *how, qn_timed *runner, size_t n)
{
  qn_device_info info = {.size = sizeof info};
  *b = (bench){.how = how};
  qn_try(qn_device_query(how->exec.device, &info));
  if (flushes(how)) b->flush_bytes = qn_flush_bytes(&info, how->exec.device.kind);
  if (b->flush_bytes) qn_try(qn_memory_allocate(how->exec.device, b->flush_bytes, &b->flush));
  qn_try(qn_event_create(how->exec.device, &b->from));
  qn_try(qn_event_create(how->exec.device, &b->to));
  qn_try(qn_event_create(how->exec.device, &b->base));
  b->base_ns = qn_now_ns();
  qn_try(qn_event_record(how->exec.device, how->exec.stream, b->base));
  for (size_t k = 0; k < n; k++) {
    runner[k].n = 0;
    qn_try(qn_try_allocate(&runner[k].ns, how->most * sizeof(double), "samples"));
  }
  return QN_OK;
}

/* As Triton's do_bench: 25 ms of warm-up, 100 ms of repetitions, counted out from an estimate. */
static qn_status do_bench(const bench *b, qn_timed *runner, size_t n)
{
  double estimate = 0, ns;
  for (int k = 0; k < 5; k++) {
    qn_try(time_one(b, &runner[0], &ns));
    estimate += ns / 5;
  }
  size_t repetitions = estimate > 0 ? (size_t)(100e6 / estimate) : b->how->most;
  if (repetitions < 1) repetitions = 1;
  if (repetitions > b->how->most) repetitions = b->how->most;
  return rounds(b, runner, n, repetitions, repetitions, 1e9);
}

qn_status qn_sample(const qn_sampling *how, qn_timed *runner, size_t n)
{
  bench b;
  const qn_device device = how->exec.device;
  for (size_t k = 0; k < n; k++) runner[k].ns = NULL;
  qn_status status = begin(&b, how, runner, n);
  double warm_s = how->settled ? 0 : how->timer == QN_TIMER_DO_BENCH ? 0.025 : device.kind == QN_CUDA ? 0.1 : 0;
  if (status == QN_OK) status = warm_up(&b, runner, n, warm_s);
  if (status == QN_OK)
    status = how->timer == QN_TIMER_DO_BENCH ? do_bench(&b, runner, n)
                                             : rounds(&b, runner, n, how->least, how->most, how->budget_s);
  for (size_t k = 0; status == QN_OK && how->trace && k < n; k++)
    if (runner[k].decides) status = trace_kernels(&b, &runner[k]);
  end(&b);
  return status;
}

qn_status qn_stopwatch_create(qn_stopwatch **stopwatch, const qn_sampling *how)
{
  *stopwatch = qn_allocate_zero(1, sizeof **stopwatch);
  if (!*stopwatch) return qn_fail(QN_NO_MEMORY, "a stopwatch");
  const qn_status status = begin(*stopwatch, how, NULL, 0);
  if (status == QN_OK) return QN_OK;
  end(*stopwatch);
  qn_release(*stopwatch);
  *stopwatch = NULL;
  return status;
}

qn_status qn_stopwatch_time(qn_stopwatch *stopwatch, qn_timed *runner, double *ns)
{
  return time_one(stopwatch, runner, ns);
}
