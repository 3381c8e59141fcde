/* SPDX-License-Identifier: Apache-2.0 */
/* random_bench.h - what the measurements of random problems come to: their distribution, and the worst of them. */
#ifndef QN_WORKBENCH_RANDOM_BENCH_H
#define QN_WORKBENCH_RANDOM_BENCH_H
#include "workbench/bench.h"
#include "workbench/random.h"

typedef struct qn_sweep_row {
  double speedup, share; /* over the unfused form, 0: there is none; of the ceiling */
  char *text;            /* the problem and its command, as printed */
} qn_sweep_row;

typedef struct qn_sweep {
  qn_sweep_row *row;
  size_t n, n_wrong, room;
} qn_sweep;

/* Prints a problem's line and keeps what the end tells. */
qn_status qn_sweep_add(qn_sweep *sweep, const qn_problem *problem, const qn_bench *bench, FILE *to);
/* Geometric mean, share under 0.97, and the worst five with their commands: of the speed-ups, and, of problems without
 * an unfused form, of the shares of the ceiling. */
void qn_sweep_print(const qn_sweep *sweep, const char *op, FILE *to);
void qn_sweep_clear(qn_sweep *sweep);
#endif
