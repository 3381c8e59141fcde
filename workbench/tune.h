/* SPDX-License-Identifier: Apache-2.0 */
/* tune.h - `quern tune`: for every shape and row of types of an op, each geometry that makes sense is proved, timed
 * side by side with the one in force, and the best is timed again for longer; the user's table then says which and why.
 * Variants of products and of other ops with names for them are tuned likewise (tune_variants.h). */
#ifndef QN_WORKBENCH_TUNE_H
#define QN_WORKBENCH_TUNE_H
#include "op/device_list.h"
#include "workbench/progress.h"
#include "workbench/sampler.h"
#include "workbench/search.h"
#include "workbench/stats.h"
#include "workbench/tune_space.h"
#include <jansson.h>
#include <stdio.h>

typedef struct qn_tune_order {
  const qn_op *op;
  qn_device device;
  const char *types, *shapes, *only; /* NULL: all, the op's own, all that make sense; see tune_space.h */
  bool pitched, resume, dry_run;
  qn_strategy strategy;
  double budget_s;        /* for the op; 0: no limit */
  double look_s, prove_s; /* for a look at a candidate, and for the last comparison; 0: by device */
  uint64_t seed;
  FILE *out;       /* lines for people; NULL: none */
  json_t *results; /* T4 results are appended; NULL: none */
  qn_progress *progress;
} qn_tune_order;

typedef struct qn_tune_outcome {
  size_t cells, done, candidates, looked, impossible, wrong; /* done before, by --resume, counted in `done` too */
  size_t faster, kept, failed, left;                         /* of cells; left: the budget was spent before */
  const char *what;                                          /* "geometries": the candidates */
  char path[QN_TUNE_PATH];                                   /* of the table's directory; "" where none was written */
} qn_tune_outcome;

/* As many rounds of n runners, side by side, as `seconds` allow, at least `least`; the first runner is the incumbent.
 */
qn_status qn_tune_sample(qn_exec exec, qn_timed *runner, size_t n, size_t least, double seconds);
/* Geometries, or where the op's engine has variants of names these (tune_variants.h). */
qn_status qn_tune_run(const qn_tune_order *order, qn_tune_outcome *outcome);
/* What a call of each shape takes now, and why, a line each to order->out. */
qn_status qn_tune_list(const qn_tune_order *order);
/* Measured today by this build, and no faster than what was in force until a ratio is put in. Of a build of a tree with
 * changes no commit is said: what was measured is none. */
void qn_tune_new_entry(qn_tune_entry *entry, const qn_arch *arch, const char *choice, const char *over);

/* What came of a candidate. */
typedef struct qn_tune_result {
  const double *runtimes_ns; /* n of them */
  size_t n;
  double median_ns, speedup; /* over the incumbent; 0: not timed */
  qn_list_facts facts;
  const char *validity, *why; /* "correct", "correctness", "runtime"; "": it is right */
} qn_tune_result;
/* One candidate as the T4 results format has it (schema 1.0.0). What is not known of it is left out. */
void qn_tune_json_add(json_t *results, const qn_op *op, const qn_tune_cell *cell, const qn_launch_shape *g,
                      const qn_tune_result *result);
/* The same of what is configured by something else, which is given away. */
void qn_tune_json_result(json_t *results, json_t *configuration, const qn_tune_result *result);
/* The whole file; results are given away. */
qn_status qn_tune_json_write(const char *path, qn_device device, json_t *results);
/* Appends a line of JSON: what tuning an op ("": all of them) came to and how long it took, on which device, by which
 * build. */
qn_status qn_tune_json_record(const char *path, const qn_tune_order *order, const char *op,
                              const qn_tune_outcome *outcome, double seconds);
#endif
