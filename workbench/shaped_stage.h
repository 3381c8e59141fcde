/* SPDX-License-Identifier: Apache-2.0 */
/* shaped_stage.h - what stage.h does, for ops whose tensors have shapes of their own: one call over the workload's
 * text, proved over some of its rows where the reference over all of them would take longer than anything that is
 * timed. */
#ifndef QN_WORKBENCH_SHAPED_STAGE_H
#define QN_WORKBENCH_SHAPED_STAGE_H
#include "workbench/shaped.h"
#include "workbench/stage.h"

/* The op's workload of that name, or of a text such as "m=16 n=64 k=32"; NULL: its first. What the text says of params
 * is set in `params`. The op and the name must outlive the workload. */
qn_status qn_shaped_workload(const qn_op *op, size_t row, const char *name, qn_workload *work, void *params);

uint64_t qn_shaped_stage_bytes(const qn_stage_request *request); /* 0 where the call is refused */
qn_status qn_shaped_stage_create(qn_shaped_data **stage, const qn_stage_request *request, const qn_exec *exec);
void qn_shaped_stage_destroy(qn_shaped_data **stage);
qn_status qn_shaped_stage_prove(qn_shaped_data *stage, qn_stage_check *check);
#endif
