/* SPDX-License-Identifier: Apache-2.0 */
/* tune.h - `quern tune`: in each place of an op's table, the device variants that its engine names (op/call.h) are
 * proved, timed side by side with the one in force, and the best is timed again for longer; the user's table then says
 * which one a call takes, and why. A variant is a launch shape, a kernel of a product, or any other name. */
#ifndef QN_WORKBENCH_TUNE_H
#define QN_WORKBENCH_TUNE_H
#include "workbench/progress.h"
#include "workbench/search.h"
#include "workbench/tune_places.h"
#include <jansson.h>
#include <stdio.h>

typedef struct qn_tune_order {
  const qn_op *op;
  qn_device device;
  qn_tune_filter filter;
  const char *only; /* names of variants, apart by commas; NULL: those that make sense */
  bool resume, dry_run;
  qn_strategy strategy;
  double budget_s;        /* for the op; 0: no limit */
  double look_s, prove_s; /* for a look at a candidate, and for the last comparison; 0: by device */
  uint64_t seed;
  FILE *out;       /* lines for people; NULL: none */
  json_t *results; /* T4 results are appended; NULL: none */
  qn_progress *progress;
} qn_tune_order;

typedef struct qn_tune_outcome {
  size_t places, done;               /* done before, by --resume, counted in `done` too */
  size_t looked, impossible, wrong;  /* candidates */
  size_t faster, kept, failed, left; /* places; left: the budget was spent before */
  char path[QN_TUNE_PATH];           /* of the table's directory; "" where none was written */
} qn_tune_outcome;

qn_status qn_tune_run(const qn_tune_order *order, qn_tune_outcome *outcome);

/* The variant that a call takes now in each place, and why; nothing is run. */
typedef struct qn_tune_choice {
  const qn_tune_place *place;
  const qn_call *call;
  const char *name, *why; /* name NULL: none can; why is the reason */
} qn_tune_choice;
qn_status qn_tune_choices(const qn_op *op, qn_device device, const qn_tune_filter *filter,
                          qn_status (*at)(void *user, const qn_tune_choice *choice), void *user);

/* ---- tune_json.c ---- */
/* One candidate in one place, as the T4 results format has it (schema 1.0.0). What is not known of it is left out. */
typedef struct qn_tune_result {
  const qn_op *op;
  const qn_tune_place *place;
  const qn_tune_key *key;
  const char *variant;
  const double *runtimes_ns; /* n of them */
  size_t n;
  double median_ns, speedup; /* over the incumbent; 0: not timed */
  qn_list_facts facts;
  const char *validity, *why; /* "correct", "correctness", "runtime"; "": it is right */
} qn_tune_result;
void qn_tune_json_add(json_t *results, const qn_tune_result *result); /* results NULL: nothing */
/* The whole file; results are given away. */
qn_status qn_tune_json_write(const char *path, qn_device device, json_t *results);
/* Appends a line of JSON: what tuning an op ("": all of them) came to and how long it took, on which device, by which
 * build. */
qn_status qn_tune_json_record(const char *path, const qn_tune_order *order, const char *op,
                              const qn_tune_outcome *outcome, double seconds);
#endif
