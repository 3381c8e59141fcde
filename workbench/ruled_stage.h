/* SPDX-License-Identifier: Apache-2.0 */
/* ruled_stage.h - the stage (stage.h) of an op of lists whose shapes follow by rule: a workload's tensors with their
 * states, zeros as before the first step, gradients of a seed, and what params point to. It is proved over the shapes
 * of the workload, made small: a reference in double over all of it would take longer than anything that is timed. */
#ifndef QN_WORKBENCH_RULED_STAGE_H
#define QN_WORKBENCH_RULED_STAGE_H
#include "workbench/stage.h"

typedef struct qn_ruled_stage qn_ruled_stage;

/* Bytes of an element of the first role: all that there is of it in all roles, what is written, and what is state. */
typedef struct qn_ruled_bytes {
  double set, written, state;
} qn_ruled_bytes;
qn_ruled_bytes qn_ruled_bytes_of(const qn_op *op, size_t row);
/* Bytes that a step over a list of n moves at least besides, whatever its tensors' sizes: of what the list has one of,
 * and of params' arrays. */
double qn_ruled_step_bytes(const qn_op *op, size_t n);

qn_status qn_ruled_stage_create(qn_ruled_stage **stage, const qn_stage_request *request, const qn_exec *exec);
void qn_ruled_stage_destroy(qn_ruled_stage **stage);
qn_status qn_ruled_stage_prove(qn_ruled_stage *stage, qn_stage_check *check);
qn_status qn_ruled_stage_step(qn_ruled_stage *stage);
uint64_t qn_ruled_stage_workspace(const qn_ruled_stage *stage); /* bytes that the step is lent */
#endif
