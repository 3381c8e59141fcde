/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_check.h - proves a folder's kernel: every size with every storage type and rule of filling, against the
 * reference in double; with any number of threads and any layout the same bits; nothing written that is nobody's,
 * nothing left unwritten; in checking mode no finding; on a GPU the same. */
#ifndef QN_WORKBENCH_KERNEL_CHECK_H
#define QN_WORKBENCH_KERNEL_CHECK_H
#include "workbench/kernel_case.h"
#include "workbench/progress.h"
#include <stdio.h>

typedef struct qn_kernel_trial_request {
  const qn_folder *folder;
  qn_kernel_case_order base;     /* what the user set; size, device and types are chosen here */
  bool processor, gpu;           /* where */
  qn_device device;              /* the GPU */
  int threads;                   /* most of the pool */
  int seeds;                     /* in checking mode; 0: not at all */
  uint32_t ignore;               /* in checking mode, beside what the folder ignores: bits of qn_finding_kind */
  bool quick, tuned, first_only; /* first_only: ends at the first failure */
  int64_t limit_ns;              /* for launches in checking mode; all of them on the processor where `stoppable` */
  bool stoppable;
  FILE *out; /* NULL: nothing is told */
  bool json;
  qn_progress *progress; /* NULL */
  size_t number;         /* of the last line told; goes on from there */
  size_t run, failures, skipped;
  char first[1024]; /* the first failure */
} qn_kernel_trial_request;

/* Tells one line for each thing that is proved, in TAP or JSON. A failure of the kernel is counted, not returned; the
 * status is for what kept it from running at all. */
qn_status qn_kernel_trial(qn_kernel_trial_request *request);
/* Whether the outputs of a launched and fetched case are right: reference (NULL: none), guards, inputs, health. */
bool qn_kernel_case_right(const qn_kernel_case *c, const qn_kernel_case *reference, char *why, size_t bytes);
#endif
