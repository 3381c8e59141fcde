/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_tuned.h - the variants of a folder's kernel: values of the threadgroup and of the templates that its "tune"
 * has candidates for. A variant's name is "128x1x1+TILE=4"; the table <name>.tune beside kernel.json says which one a
 * launch takes on an architecture. What the user sets goes before. */
#ifndef QN_WORKBENCH_KERNEL_TUNED_H
#define QN_WORKBENCH_KERNEL_TUNED_H
#include "op/tune.h"
#include "workbench/kernel_case.h"

typedef struct qn_tuned {
  uint32_t group[3]; /* 0: as without tuning */
  size_t n;
  qn_name value[QN_KERNEL_MAX_TEMPLATES]; /* names are the folder's */
} qn_tuned;

void qn_tuned_name(const qn_tuned *tuned, bool group, char name[QN_TUNE_NAME]); /* group: it is a part of the name */
/* The other way; a name of no variant of the kernel is refused. */
qn_status qn_tuned_from_name(const qn_folder *folder, const char *name, qn_tuned *tuned);
/* Puts what the table says for the order's device into the order, behind what it says already; `text` is the variant's
 * name ("" where the table says nothing). A table that is none is QN_BAD_FILE. tuned.json, the former table, is read
 * for one more release. */
qn_status qn_tuned_apply(const qn_folder *folder, qn_kernel_case_order *order, char *text, size_t bytes);
#endif
