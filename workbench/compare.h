/* SPDX-License-Identifier: Apache-2.0 */
/* compare.h - two files of measurements, side by side: what became faster, what slower, and what cannot be said. Lines
 * of one kind in a file are runs of the same thing, and how far runs differ among themselves decides what may be said:
 * within one run nobody can see that the next would begin on a busier machine. */
#ifndef QN_WORKBENCH_COMPARE_H
#define QN_WORKBENCH_COMPARE_H
#include "workbench/record.h"
#include <stdio.h>

/* One op, workload, types, backend and timer that both files have. The last line of each file says what was measured;
 * its runs are the lines before it from the same build on the same machine, and itself. */
typedef struct qn_comparison {
  const qn_record *before, *after; /* the last runs */
  size_t n_before, n_after;        /* right and timed */
  double before_ns, after_ns;      /* medians over the runs, rounded as they are shown */
  double before_share, after_share;
  qn_ratio
      speedup; /* before_ns over after_ns; the interval is made of whole runs, so that it has what varies between */
  qn_verdict verdict;
  char note[400];  /* why there is no word, and what makes the figures less alike: another machine, ...; "" */
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
