/* SPDX-License-Identifier: Apache-2.0 */
/* sampler.h - takes times of several things side by side, round after round (A B C, B C A, ...), so that what happens
 * to the machine happens to all of them. It keeps raw samples and judges nothing. */
#ifndef QN_WORKBENCH_SAMPLER_H
#define QN_WORKBENCH_SAMPLER_H
#include "quern/device.h"
#include "workbench/progress.h"
#include "workbench/trace.h"
#include <stdbool.h>

/* Three timers, as users know them.
 *   event     the device's own clock round each call; cold: the cache is overwritten before, hot: right behind a call
 *             of the same kind. Rounds until the medians are known well enough, or the time is spent.
 *   simple    the host's clock round call and synchronisation: what a user feels. Hot.
 *   do_bench  an estimate, then budgets in milliseconds for warm-up and repetition, cold, device events: as Triton's.
 * On CPU and HOST the device's clock is the host's, and nothing is overwritten: there "cold" follows from the size. */
typedef enum qn_timer { QN_TIMER_EVENT, QN_TIMER_SIMPLE, QN_TIMER_DO_BENCH, QN_TIMER_COUNT } qn_timer;
const char *qn_timer_name(qn_timer timer);

typedef struct qn_timed {
  const char *name;
  qn_status (*run)(void *user);
  qn_status (*ready)(void *user); /* NULL, or called before each call of run, and not timed */
  void *user;
  bool decides; /* rounds go on until its median is known well enough */
  double *ns;   /* samples; the sampler allocates, qn_timed_clear releases */
  size_t n;
  int64_t launches; /* of one call; counted at the first */
} qn_timed;
void qn_timed_clear(qn_timed *runner);

typedef struct qn_sampling {
  qn_exec exec;
  qn_timer timer;
  bool flush;               /* cold: the device's cache is overwritten before each sample (event only) */
  bool settled;             /* clocks are up already: no more warming than first calls */
  bool warm;                /* hot: each sample is right behind an untimed call of the same thing */
  double budget_s;          /* for all rounds together */
  double error;             /* half the median's interval over the median: good enough */
  size_t least, most;       /* rounds */
  bool (*next)(void *user); /* NULL, or asked before each round: no is the end of them */
  void *user;
  qn_trace *trace; /* NULL: none */
  qn_progress *progress;
} qn_sampling;

/* Bytes that are overwritten before each cold sample on this device; 0 on CPU and HOST. */
size_t qn_flush_bytes(const qn_device_info *info, qn_device_kind kind);

qn_status qn_sample(const qn_sampling *how, qn_timed *runner, size_t n);

/* One timed call at a time, for a caller whose rounds are made elsewhere: the same clocks and the same flush. `how` and
 * what it points to must outlive the stopwatch. */
typedef struct qn_stopwatch qn_stopwatch;
qn_status qn_stopwatch_create(qn_stopwatch **stopwatch, const qn_sampling *how);
qn_status qn_stopwatch_time(qn_stopwatch *stopwatch, qn_timed *runner, double *ns);

int64_t qn_now_ns(void); /* CLOCK_MONOTONIC_RAW */
#endif
