/* SPDX-License-Identifier: Apache-2.0 */
/* measure.c - see measure.h. */
#include "workbench/measure.h"
#include "core/core.h"
#include "workbench/clocks.h"
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ASKED = 4096 }; /* rounds that another program may ask for */

size_t qn_measure_ceiling_bytes(double set_bytes)
{
  const double most = 0x1p31, least = 0x1p16; /* most: far beyond every cache; a larger set is no slower */
  return (size_t)fmax(least, fmin(most, set_bytes));
}

bool qn_measure_flushes(const qn_bench_request *ask)
{
  return ask->timer == QN_TIMER_DO_BENCH || (ask->timer == QN_TIMER_EVENT && !ask->hot);
}

const char *qn_measure_cache(const qn_bench *b, double set_bytes)
{
  const double set = (double)qn_measure_ceiling_bytes(set_bytes), cache = (double)b->device.l2_bytes;
  if (b->ask.device.kind == QN_CUDA) return qn_measure_flushes(&b->ask) || set >= 2 * cache ? "cold" : "hot";
  return cache <= 0 ? "unknown" : set >= 2 * cache ? "cold" : set > cache ? "mixed" : "hot";
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

static qn_status count_allocations(const qn_measured *what, uint64_t *bytes)
{
  const qn_allocator counting = {counting_allocate, plain_release, NULL};
  qn_try(qn_allocator_set(&counting));
  uint64_t before = atomic_load(&taken);
  qn_status status = what->run(what->user);
  *bytes = atomic_load(&taken) - before;
  qn_try(qn_allocator_set(NULL));
  return status;
}

qn_status qn_measure_host(const qn_exec *exec, qn_status (*run)(void *user), void *user, qn_summary *summary)
{
  enum { WARM = 24, CALLS = 304, BURST = 8 };
  double ns[CALLS];
  for (int k = -WARM; k < CALLS; k++) {
    if (k % BURST == 0) qn_try(qn_stream_synchronize(exec->device, exec->stream));
    int64_t from = qn_now_ns();
    qn_try(run(user));
    int64_t spent = qn_now_ns() - from;
    if (k >= 0) ns[k] = (double)spent;
  }
  return qn_summarize(ns, CALLS, summary);
}

static qn_status note_clocks(qn_bench *b, const qn_measured *what, const qn_exec *exec)
{
  enum { BUSY = 20 };
  for (int k = 0; exec->device.kind == QN_CUDA && k < BUSY; k++)
    qn_try(what->run(what->user)); /* clocks of a busy device */
  qn_clocks_read(exec->device, b->clocks, sizeof b->clocks);
  return qn_stream_synchronize(exec->device, exec->stream);
}

/* ---- what runs ---- */
typedef struct lineup {
  qn_timed runner[2 + QN_MOST_CEILINGS];
  qn_ceiling_call call[QN_MOST_CEILINGS];
  size_t n, n_calls;
} lineup;

static void add_mix(lineup *l, qn_ceiling *ceiling, qn_mix mix, size_t bytes)
{
  for (int way = 0; way < qn_ceiling_ways(ceiling, mix) && l->n_calls < QN_MOST_CEILINGS; way++) {
    qn_ceiling_call *c = &l->call[l->n_calls++];
    *c = (qn_ceiling_call){.ceiling = ceiling, .mix = mix, .way = way, .bytes = bytes};
    l->runner[l->n++] = (qn_timed){.name = qn_mix_name(mix), .run = qn_ceiling_run, .user = c};
  }
}

static void line_up(const qn_bench *b, const qn_measured *what, lineup *l, qn_ceiling *ceiling)
{
  const size_t bytes = qn_measure_ceiling_bytes(what->set_bytes);
  *l = (lineup){.n = 0};
  if (what->run)
    l->runner[l->n++] = (qn_timed){.name = what->name, .run = what->run, .user = what->user, .decides = true};
  if (b->has_unfused)
    l->runner[l->n++] =
        (qn_timed){.name = what->against_name, .run = what->against, .user = what->against_user, .decides = true};
  /* Side by side with the step, so that a share is one of the same moment: the own mix first. */
  add_mix(l, ceiling, b->mix, bytes);
  for (size_t k = 0; k < what->n_mixes; k++)
    if (what->mixes[k] != b->mix) add_mix(l, ceiling, what->mixes[k], bytes);
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
static double floor_of(const qn_bench *b, const qn_measured *what)
{
  double best = 0;
  for (size_t k = 0; k < b->n_ceilings; k++) best = fmax(best, b->ceiling[k].bytes / b->ceiling[k].time.min);
  return best > 0 ? (what->bytes - fmin(what->written, (double)b->device.l2_bytes)) / best : 0;
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

static void find_ceilings(qn_bench *b, const qn_measured *what)
{
  for (size_t k = 0; k < b->n_ceilings; k++) {
    const qn_series *c = &b->ceiling[k];
    bool own = !strcmp(c->name, qn_mix_name(b->mix)), copies = !strcmp(c->name, qn_mix_name(QN_MIX_COPY));
    if (own && c->gbps > b->ceiling[b->best].gbps) b->best = k;
    if (copies && c->gbps > b->ceiling[b->copy].gbps) b->copy = k;
  }
  b->floor_ns = floor_of(b, what);
}

static qn_status take_all(qn_bench *b, const qn_measured *what, lineup *l)
{
  if (l->runner[0].n == 0) return QN_OK; /* nobody asked for a round */
  size_t k = 0;
  if (what->run) {
    b->launches = l->runner[0].launches;
    qn_try(take_series(&b->fused, what->name, "", &l->runner[k++], what->bytes));
  }
  if (b->has_unfused) qn_try(take_series(&b->unfused, what->against_name, "", &l->runner[k++], what->against_bytes));
  for (size_t c = 0; c < l->n_calls; c++) {
    const qn_ceiling_call *call = &l->call[c];
    qn_try(take_series(&b->ceiling[b->n_ceilings++], qn_mix_name(call->mix),
                       qn_ceiling_way_name(call->ceiling, call->mix, call->way), &l->runner[k++], call->moved));
    if (call->mix == QN_MIX_COPY && !b->copy) b->copy = c; /* the best is looked for from the first of each */
  }
  find_ceilings(b, what);
  return QN_OK;
}

static qn_status judge(qn_bench *b)
{
  qn_try(share_of(&b->fused, &b->ceiling[b->best], &b->share));
  qn_try(share_of(&b->fused, &b->ceiling[b->copy], &b->share_of_copy));
  if (b->has_unfused) {
    qn_try(qn_speedup_paired(b->unfused.ns, b->fused.ns, b->fused.n, &b->speedup));
    b->verdict = qn_verdict_of(&b->speedup);
  }
  return QN_OK;
}

/* ---- the run ---- */
static qn_status sample(qn_bench *b, const qn_measured *what, const qn_exec *exec, qn_ceiling *ceiling)
{
  const bool device = exec->device.kind == QN_CUDA;
  lineup l;
  line_up(b, what, &l, ceiling);
  const qn_sampling how = {.exec = *exec,
                           .timer = b->ask.timer,
                           .flush = !b->ask.hot,
                           .warm = !strcmp(b->cache, "hot"),
                           .budget_s = b->ask.seconds > 0 ? b->ask.seconds : what->seconds,
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
  if (status == QN_OK) status = take_all(b, what, &l);
  for (size_t k = 0; k < l.n; k++) qn_timed_clear(&l.runner[k]);
  return status;
}

qn_status qn_measure(qn_bench *b, const qn_measured *what, const qn_exec *exec)
{
  qn_ceiling *ceiling;
  qn_try(qn_ceiling_create(&ceiling, exec, qn_measure_ceiling_bytes(what->set_bytes)));
  qn_status status = sample(b, what, exec, ceiling);
  qn_ceiling_destroy(&ceiling);
  if (!what->run) {
    qn_clocks_read(exec->device, b->clocks, sizeof b->clocks);
    return status;
  }
  if (status == QN_OK) status = judge(b);
  if (status == QN_OK) status = count_allocations(what, &b->allocated);
  if (status == QN_OK) status = note_clocks(b, what, exec);
  b->timed = status == QN_OK;
  return status;
}
