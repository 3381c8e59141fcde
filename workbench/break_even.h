/* SPDX-License-Identifier: Apache-2.0 */
/* break_even.h - from which size on an op is worth calling: one tensor of 1, 2, 4 ... elements, fused against unfused.
 */
#ifndef QN_WORKBENCH_BREAK_EVEN_H
#define QN_WORKBENCH_BREAK_EVEN_H
#include "workbench/bench.h"
#include <stdio.h>

enum { QN_BREAK_EVEN_SIZES = 23 }; /* up to 2^22 */

typedef struct qn_break_even {
  struct {
    uint64_t elements;
    double fused_ns, unfused_ns; /* medians, host's clock, with synchronisation */
    qn_ratio speedup;
    qn_verdict verdict;
  } size[QN_BREAK_EVEN_SIZES];
  uint64_t elements; /* the smallest size from which on the fused form is always faster; 0: there is none */
} qn_break_even;

/* request: work, timer and hot are not read. */
qn_status qn_break_even_run(const qn_bench_request *request, qn_break_even *result);
void qn_break_even_print(FILE *stream, const qn_bench_request *request, const qn_break_even *result);
qn_status qn_break_even_append(const char *path, const qn_bench_request *request, const qn_break_even *result);
#endif
