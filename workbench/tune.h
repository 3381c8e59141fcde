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

/* What is tuned: an op (tune_op.c) or a kernel's folder (tune_folder.c). `self` is its own; one place at a time. */
typedef struct qn_tune_bed {
  const char *name; /* of the op or kernel */
  qn_device device;
  size_t at_once; /* variants that are timed side by side with the one in force */
  bool resumes;   /* its state is kept for a run that goes on */
  void *self;
  qn_status (*places)(void *self, qn_status (*at)(void *user, const qn_tune_place *place), void *user);
  /* The place's data are there, or where `bare` its numbers alone; a failure leaves nothing. */
  qn_status (*enter)(void *self, const qn_tune_place *place, bool bare);
  void (*leave)(void *self);
  qn_status (*knows)(void *self, const char *name);    /* refuses a name that is no variant's */
  const char *(*choice)(void *self, const char **why); /* the variant in force; NULL: a sentence */
  /* The k-th that is worth a trial, in words that last until the next call; *refusal: why it is not, or NULL. */
  const char *(*variant)(void *self, size_t k, const char **refusal);
  /* One step of it against the reference. why: "", or why it is not to be timed. */
  void (*prove)(void *self, const char *name, char *why, size_t bytes, bool *wrong);
  qn_status (*ready)(void *self, const char *name); /* its next run is like all that follow */
  qn_status (*run)(void *self, const char *name);
  const qn_exec *(*exec)(void *self);
  double (*bytes)(void *self);                /* that a run reads and writes */
  qn_status (*facts)(qn_list_facts *facts);   /* of the latest run; NULL: nothing is known */
  void (*fill)(void *self, qn_tune_entry *e); /* types and ranges */
  qn_status (*keep)(void *self, const qn_tune_entry *e, char path[QN_TUNE_PATH]); /* into the table */
  json_t *(*configuration)(void *self, const qn_tune_place *place, const char *name);
} qn_tune_bed;

/* What came of one candidate. */
typedef struct qn_tune_result {
  const double *runtimes_ns; /* n of them */
  size_t n;
  double median_ns, speedup; /* over the incumbent; 0: not timed */
  qn_list_facts facts;
  const char *validity, *why; /* "correct", "correctness", "runtime"; "": it is right */
} qn_tune_result;

/* For one who only looks: nothing is kept, no state is written. */
typedef struct qn_tune_watch {
  void *user;
  /* Seen before: its speedup over the variant in force. */
  bool (*knows)(void *user, const qn_tune_place *place, const char *over, const char *name, double *speedup);
  void (*saw)(void *user, const qn_tune_place *place, const char *over, const char *name, const qn_tune_result *result);
  /* The best of a place; over: the variant in force, which is the same where there is none better. */
  void (*chose)(void *user, const qn_tune_place *place, const char *over, const char *name, double speedup);
} qn_tune_watch;

typedef struct qn_tune_order {
  const char *only; /* names of variants, apart by commas; NULL: those that make sense */
  bool resume, dry_run;
  qn_strategy strategy;
  double budget_s;        /* for the op; 0: no limit */
  double look_s, prove_s; /* for a look at a candidate, and for the last comparison; 0: by device */
  uint64_t seed;
  FILE *out;       /* lines for people; NULL: none */
  json_t *results; /* T4 results are appended; NULL: none */
  qn_progress *progress;
  const qn_tune_watch *watch; /* NULL: none */
} qn_tune_order;

typedef struct qn_tune_outcome {
  size_t places, done;               /* done before, by --resume, counted in `done` too */
  size_t looked, impossible, wrong;  /* candidates */
  size_t faster, kept, failed, left; /* places; left: the budget was spent before */
  char path[QN_TUNE_PATH];           /* of the table's directory; "" where none was written */
} qn_tune_outcome;

qn_status qn_tune_run(const qn_tune_bed *bed, const qn_tune_order *order, qn_tune_outcome *outcome);

/* ---- tune_op.c ---- */
typedef struct qn_tune_op qn_tune_op;
/* Destroy it in any case. */
qn_status qn_tune_op_create(qn_tune_op **made, const qn_op *op, qn_device device, const qn_tune_filter *filter,
                            uint64_t seed, qn_tune_bed *bed);
void qn_tune_op_destroy(qn_tune_op **made);

/* The variant that a call takes now in each place, and why; nothing is run. */
typedef struct qn_tune_choice {
  const qn_tune_place *place;
  const qn_call *call;
  const char *name, *why; /* name NULL: none can; why is the reason */
} qn_tune_choice;
qn_status qn_tune_choices(const qn_op *op, qn_device device, const qn_tune_filter *filter,
                          qn_status (*at)(void *user, const qn_tune_choice *choice), void *user);

/* ---- tune_json.c: the T4 results format, schema 1.0.0; what is not known of a candidate is left out ---- */
void qn_tune_json_add(json_t *results, json_t *configuration, const qn_tune_result *result); /* which is given away */
/* The whole file; results are given away. */
qn_status qn_tune_json_write(const char *path, qn_device device, json_t *results);
/* Appends a line of JSON: what tuning an op ("": all of them) came to and how long it took, on which device, by which
 * build. */
qn_status qn_tune_json_record(const char *path, qn_device device, const qn_tune_order *order, const char *op,
                              const qn_tune_outcome *outcome, double seconds);
#endif
