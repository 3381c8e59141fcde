/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_tuned.h - tuned.json beside kernel.json: the threadgroup and template values that were the fastest on a
 * device, with its name and the date. Read whenever a kernel runs on that device; what the user sets goes before. */
#ifndef QN_WORKBENCH_KERNEL_TUNED_H
#define QN_WORKBENCH_KERNEL_TUNED_H
#include "workbench/kernel_case.h"

typedef struct qn_tuned {
  char device[128], date[32], workload[64];
  uint32_t group[3]; /* 0: not tuned */
  size_t n;
  qn_name value[QN_KERNEL_MAX_TEMPLATES]; /* names are the folder's */
  double before_ns, after_ns;
} qn_tuned;

/* Puts what is kept for the order's device into the order, behind what it says already; `text` says what ("" where
 * nothing is kept). A tuned.json that is none is QN_BAD_FILE. */
qn_status qn_tuned_apply(const qn_folder *folder, qn_kernel_case_order *order, char *text, size_t bytes);
/* Writes the entry of its device; those of others stay. */
qn_status qn_tuned_write(const qn_folder *folder, const qn_tuned *tuned);
void qn_tuned_text(const qn_tuned *tuned, char *text, size_t bytes);
#endif
