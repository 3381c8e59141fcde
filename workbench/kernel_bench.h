/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_bench.h - one workload of a folder's kernel: proved, timed side by side with copies of the same run (and with
 * another kernel), then judged, as bench.h does with ops; the result is a bench's, so that records, reports and
 * comparisons are the same. */
#ifndef QN_WORKBENCH_KERNEL_BENCH_H
#define QN_WORKBENCH_KERNEL_BENCH_H
#include "workbench/bench.h"
#include "workbench/kernel_case.h"

typedef struct qn_kernel_bench_request {
  qn_kernel_case_order order;          /* size is the workload */
  const qn_kernel_case_order *against; /* NULL: nothing beside it */
  const qn_folder_size *small;         /* whose launch times the host; NULL: not timed */
  bool hot;
  double seconds;
  qn_trace *trace; /* NULL: none */
  qn_progress *progress;
} qn_kernel_bench_request;

typedef struct qn_kernel_bench {
  qn_bench b; /* fused: the kernel; unfused: the other one */
  const char *workload;
} qn_kernel_bench;

/* A wrong kernel is QN_OK with check.right false and nothing timed. Clear it with qn_bench_clear(&bench->b). */
qn_status qn_kernel_bench_run(const qn_kernel_bench_request *request, qn_kernel_bench *bench);

/* In this process: the wait for the kernel's code, with the compiler loaded and the device open before (`empty`: for
 * the smallest kernel there is, with the compiler's own loading). */
qn_status qn_kernel_first_use_here(const qn_kernel_case_order *order, bool empty, double *ns);
/* Whether the outputs of the workload, run now, are right: against the reference where it is small enough to run, else
 * against themselves over other values before. */
qn_status qn_kernel_prove(qn_kernel_case *c, char *proof, size_t proof_bytes, qn_stage_check *check);
#endif
