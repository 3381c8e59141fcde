/* SPDX-License-Identifier: Apache-2.0 */
/* subject_stage.h - the stage (stage.h) of an op with a reference in double: a workload's tensors, states as before the
 * first step, and what params point to. Its results are proved over some rows of what the workload's text says, or, of
 * a list, over the workload's shapes, made small: a reference over all of it would take longer than anything that is
 * timed. */
#ifndef QN_WORKBENCH_SUBJECT_STAGE_H
#define QN_WORKBENCH_SUBJECT_STAGE_H
#include "workbench/stage.h"
#include "workbench/subject.h"

/* Bytes per element of the first role, summed over all roles: stored, written, and of the state alone. */
typedef struct qn_element_bytes {
  double set, written, state;
} qn_element_bytes;
qn_element_bytes qn_element_bytes_of(const qn_op *op, size_t row);
/* Bytes that a step over a list of n moves whatever its tensors' sizes: of per-list tensors and of arrays in params. */
double qn_step_bytes_besides(const qn_op *op, size_t n);

/* The op's workload of that name, or of a text such as "m=16 n=64 k=32"; NULL: its first. What the text says of params
 * is set in `params`. The op and the name must outlive the workload. */
qn_status qn_subject_workload(const qn_op *op, size_t row, const char *name, qn_workload *work, void *params);
/* The workload of a text (subject.h), of any op: "m=16 n=64 k=32", "24*768x3072 40 shift=1", and params likewise. */
qn_status qn_subject_shapes(const qn_op *op, size_t row, const char *text, qn_workload *work, void *params);

uint64_t qn_subject_stage_bytes(const qn_stage_request *request);
/* Tensors, what params point to and workspace; of an op without a reference the tensors hold nothing yet. */
qn_status qn_subject_stage_open(qn_subject *d, const qn_stage_request *request, const qn_exec *exec);
qn_status qn_subject_stage_prove(qn_subject *stage, const qn_stage_request *request, qn_stage_check *check);
#endif
