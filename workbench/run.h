/* SPDX-License-Identifier: Apache-2.0 */
/* run.h - one way of calling an op over a set of buffers, ready to be stepped: the params with what they point to in
 * the tensors' memory, the workspace between guards, the plan. It calls the op through quern/op.h alone. */
#ifndef QN_WORKBENCH_RUN_H
#define QN_WORKBENCH_RUN_H
#include "workbench/buffers.h"
#include "workbench/case.h"

typedef struct qn_runner qn_runner;

/* `buffers` must stand until the runner is destroyed; `setting` only for the call. */
qn_status qn_runner_create(qn_runner **runner, const qn_op *op, qn_buffers *buffers, const qn_setting *setting,
                           qn_way way, qn_pool *pool);
void qn_runner_destroy(qn_runner **runner);

/* From the next step on with other params; a plan stays, and knows nothing of it. */
qn_status qn_runner_change(qn_runner *runner, const qn_setting *setting);

/* The next step works on what the buffers' images hold: moves (QN_WAY_MOVED), uploads, steps and downloads. */
qn_status qn_runner_step(qn_runner *runner);
/* The same without the transfers. */
qn_status qn_runner_launch(qn_runner *runner);

/* The params as the op sees them, pointers and all; they may be changed between steps. */
void *qn_runner_params(qn_runner *runner);
/* Writes a param's value where the op reads it: in the params, and in the struct in device memory if that is given. */
qn_status qn_runner_set(qn_runner *runner, const qn_op_param *param, double value);
/* False, and what happened, if a step wrote to memory that params point to or beyond the workspace. */
bool qn_runner_intact(qn_runner *runner, char *text, size_t bytes);

/* One step, or, planned, a step of a plan made for it, all of whose tensors moved. */
qn_status qn_run_once(const qn_op *op, const qn_exec *exec, const void *params, size_t n, const qn_tensor *const *list,
                      bool planned);

#endif
