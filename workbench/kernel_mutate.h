/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_mutate.h - bugs planted in a body by changing its text: a sign, an index, a comparison, a number, a barrier
 * that is missing. A check that lets one pass proves less than it says. */
#ifndef QN_WORKBENCH_KERNEL_MUTATE_H
#define QN_WORKBENCH_KERNEL_MUTATE_H
#include "workbench/kernel_check.h"

typedef struct qn_mutation {
  const char *what; /* "index one too high" */
  int line;
  char *text; /* the whole body, changed; the caller's to release */
} qn_mutation;

typedef struct qn_mutations {
  size_t n;
  qn_mutation *at;
} qn_mutations;

/* All that the text has places for. A line with the comment `quern: equivalent` is left alone: what is changed there
 * cannot be seen, and its author says so. */
qn_status qn_mutations_make(const char *text, qn_mutations *mutations);
void qn_mutations_free(qn_mutations *mutations);

/* Runs the check over each mutation, told as one line each: "ok" is a bug that was caught. Those that do not compile
 * do not count. */
qn_status qn_kernel_selftest(qn_kernel_trial_request *request);
#endif
