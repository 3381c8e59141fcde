/* SPDX-License-Identifier: Apache-2.0 */
/* tune_folder.h - a kernel's folder as what is tuned (tune.h), over one of its workloads. */
#ifndef QN_WORKBENCH_TUNE_FOLDER_H
#define QN_WORKBENCH_TUNE_FOLDER_H
#include "workbench/kernel_case.h"
#include "workbench/tune.h"

typedef struct qn_tune_folder qn_tune_folder;
/* order: the values in force, its size the workload. group_is_set: the threadgroup is the user's, and not tuned; nor
 * are templates that the order sets. Refused where "tune" leaves no choice. Destroy it in any case. */
qn_status qn_tune_folder_create(qn_tune_folder **made, const qn_kernel_case_order *order, bool group_is_set,
                                qn_tune_bed *bed);
void qn_tune_folder_destroy(qn_tune_folder **made);
#endif
