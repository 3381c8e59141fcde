/* SPDX-License-Identifier: Apache-2.0 */
/* table.h - a measurement as people read it. Colours only where term.h allows them. */
#ifndef QN_WORKBENCH_TABLE_H
#define QN_WORKBENCH_TABLE_H
#include "workbench/bench.h"
#include <stdio.h>

void qn_bench_print(FILE *stream, const qn_bench *bench);

typedef struct qn_amount {
  char text[40];
} qn_amount;                      /* by value, so that a call can stand among printf's arguments */
qn_amount qn_grouped(uint64_t n); /* "124,439,808" */
qn_amount qn_duration(double ns); /* "52.1 ms", "7.31 us", 4 digits at most */
qn_amount qn_interval(double low, double high, int digits); /* "[0.98, 1.00]"; "(too few samples for an interval)" */
#endif
