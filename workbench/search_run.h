/* SPDX-License-Identifier: Apache-2.0 */
/* search_run.h - the search itself: asks generators for candidates, has each judged, tells them what came of it, and
 * keeps every line. One judge runs at a time, so that nothing but generators disturbs its times. */
#ifndef QN_WORKBENCH_SEARCH_RUN_H
#define QN_WORKBENCH_SEARCH_RUN_H
#include "workbench/progress.h"
#include "workbench/search_generator.h"
#include "workbench/search_judge.h"
#include "workbench/search_store.h"

enum { QN_SEARCH_GENERATORS = 8, QN_SEARCH_FATES = 32, QN_SEARCH_STEPS = 64 };

typedef struct qn_search_order {
  const qn_search_problem *problem;
  const qn_search_bench *bench;
  qn_search_store *store;
  const char *generator[QN_SEARCH_GENERATORS]; /* words of the command line */
  size_t n_generators;
  double budget_s, patience_s; /* of the run; of a generator that was asked */
  size_t most;                 /* candidates to judge; 0: no limit */
  uint64_t seed;
  const volatile int *stop; /* set by a signal */
  qn_progress *progress;
} qn_search_order;

typedef struct qn_search_step { /* a new best */
  double seconds, speedup;
  char hash[QN_SEARCH_HASH], by[80]; /* by: the generator's words; "": the problem itself */
} qn_search_step;

typedef struct qn_search_result {
  struct {
    char word[40];
    size_t n;
  } fate[QN_SEARCH_FATES];
  size_t n_fates, judged, repeated, n_steps;
  qn_search_step step[QN_SEARCH_STEPS]; /* the first, and the latest ones */
  const char *reason;                   /* why it ended */
  struct {
    size_t offered, judged;
    char ended[QN_PROGRAM_SAID + 300];
  } of[QN_SEARCH_GENERATORS];
} qn_search_result;

/* Refused where the problem itself cannot be judged. */
qn_status qn_search_go(const qn_search_order *order, qn_search_result *result);

/* Where a line's candidate lies, as a judge takes it. */
void qn_search_path(const qn_search_store *store, const json_t *line, char path[QN_SEARCH_PATH]);
/* Over the baseline, which has 1; NAN where it is not correct. */
double qn_search_speedup(const json_t *line);

/* ---- search_message.c ---- */
/* "problem", with what is known from judging it. */
json_t *qn_search_message_problem(const qn_search_order *order, const json_t *own, size_t generator);
/* "tell" from a candidate's line in the store. */
json_t *qn_search_message_tell(const json_t *line, const char *id, bool again, bool best);
/* "ask"; best: its line and content, or NULL. */
json_t *qn_search_message_ask(const json_t *best, const json_t *content, double seconds_left);
#endif
