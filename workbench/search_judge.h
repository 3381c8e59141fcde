/* SPDX-License-Identifier: Apache-2.0 */
/* search_judge.h - a judge in a process of its own, and what the search reads of its line
 * (docs/verdict-line.schema.json). Nothing else is known of a candidate. */
#ifndef QN_WORKBENCH_SEARCH_JUDGE_H
#define QN_WORKBENCH_SEARCH_JUDGE_H
#include "workbench/program.h"
#include "workbench/search_problem.h"
#include <stdint.h>

typedef struct qn_search_verdict {
  char word[40], reason[1000]; /* "faster", "wrong values"; a sentence, or "" */
  long line;                   /* that the reason names; 0: none */
  bool correct, judgeable;
  double speedup, low; /* over the better baseline, and the interval's lower end; NAN */
  json_t *text;        /* the judge's line; NULL: there was none */
} qn_search_verdict;

void qn_search_verdict_close(qn_search_verdict *verdict);

/* How a judge is called. */
typedef struct qn_search_bench {
  const qn_search_problem *problem;
  const char *command, *judge; /* this command; a program in place of its judge, or NULL */
  const char *backend;         /* the device's name */
  const char *workload;        /* NULL: the judge's own choice */
  const char *errors;          /* a file for its standard error */
  double limit_s;
} qn_search_bench;

typedef struct qn_search_judging {
  qn_program child;
  int64_t began_ns;
  qn_text text;
  bool ended; /* its output has, or there was too much of it */
} qn_search_judging;

/* level: of verification, "quick" or "full". */
qn_status qn_search_judge_begin(const qn_search_bench *bench, const char *candidate, const char *level,
                                qn_search_judging *judging);
/* Reads what there is; true once it has ended, or took too long. */
bool qn_search_judge_read(const qn_search_bench *bench, qn_search_judging *judging);
void qn_search_judge_end(const qn_search_bench *bench, qn_search_judging *judging, qn_search_verdict *verdict);
/* All of it, in one call; stopped once *stop is set: then the word is "". */
qn_status qn_search_judge_run(const qn_search_bench *bench, const char *candidate, const char *level,
                              const volatile int *stop, qn_search_verdict *verdict);
#endif
