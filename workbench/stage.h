/* SPDX-License-Identifier: Apache-2.0 */
/* stage.h - an op set up on a device: memory, data, plan, the check that must pass before anything is timed, and the
 * steps that are then timed. It knows ops by their descriptions only. */
#ifndef QN_WORKBENCH_STAGE_H
#define QN_WORKBENCH_STAGE_H
#include "op/op.h"
#include "workbench/progress.h"
#include "workbench/workload.h"
#include <stdbool.h>

typedef struct qn_stage_request {
  const qn_op *op;
  const void *params;
  size_t row; /* of the type table */
  const qn_workload *work;
  qn_device device;
  bool unfused; /* memory for the unfused form is wanted too */
  uint64_t seed;
} qn_stage_request;

typedef struct qn_stage qn_stage;

/* Whether the unfused form exists for this row on this kind of device. */
bool qn_stage_has_unfused(const qn_op *op, size_t row, qn_device_kind kind);

/* Device memory that a stage takes: known before any is taken. */
uint64_t qn_stage_bytes(const qn_stage_request *request);

/* Memory and data. What the request points to must outlive the stage; exec's workspace is replaced by one of the
 * stage's own where the op wants any. */
qn_status qn_stage_create(qn_stage **stage, const qn_stage_request *request, const qn_exec *exec,
                          qn_progress *progress);
void qn_stage_destroy(qn_stage **stage);

typedef struct qn_stage_check {
  bool right;
  uint64_t elements; /* compared, of all written tensors together */
  char wrong[320];   /* a sentence: which element of what, and what it should be */
} qn_stage_check;

/* The data are made anew, the step runs once, and every element of every tensor is compared with the reference tier on
 * the same input: written ones bit for bit (any NaN equals any NaN), read ones and the bands between tensors must be
 * untouched. The status tells of what could not run; `check` of what ran. */
qn_status qn_stage_prove(qn_stage *stage, qn_progress *progress, qn_stage_check *check);
/* The same for the unfused form. It rounds differently, and where a formula branches on a sign a few elements may take
 * the other way: all but one in 10^4 must be within 16 units of eps of the reference, in terms of what is added. */
qn_status qn_stage_prove_unfused(qn_stage *stage, qn_progress *progress, qn_stage_check *check);

/* Bytes of workspace that a step is lent. */
uint64_t qn_stage_workspace(const qn_stage *stage);

/* The calls that are timed. None of them synchronises or touches the data otherwise. */
qn_status qn_stage_step(qn_stage *stage);
qn_status qn_stage_step_moved(qn_stage *stage); /* the tensors that are only read are elsewhere than in the last call */
qn_status qn_stage_unfused(qn_stage *stage); /* over the same number of elements, as one array: it has no list cost */
#endif
