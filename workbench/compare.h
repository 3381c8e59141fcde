/* SPDX-License-Identifier: Apache-2.0 */
/* compare.h - two files of measurements, side by side: what became faster, what slower, and what cannot be said. */
#ifndef QN_WORKBENCH_COMPARE_H
#define QN_WORKBENCH_COMPARE_H
#include "workbench/record.h"
#include <stdio.h>

/* One op, workload, types, backend and timer that both files have; the last line of each file counts. */
typedef struct qn_comparison {
  const qn_record *before, *after;
  qn_ratio speedup; /* the time before over the time after */
  qn_verdict verdict;
  char note[160];  /* what makes the figures less alike: another machine, other threads, ...; "" */
  bool comparable; /* on the same machine, both timed: only then is there a verdict */
} qn_comparison;

typedef struct qn_comparisons {
  size_t n, only_before, only_after;
  qn_comparison *row;
} qn_comparisons;

qn_status qn_compare(const qn_records *before, const qn_records *after, qn_comparisons *out);
void qn_comparisons_free(qn_comparisons *comparisons);
void qn_comparisons_print(FILE *stream, const qn_comparisons *comparisons);
#endif
