/* SPDX-License-Identifier: Apache-2.0 */
/* call.c - every call of an op: exec, params, tensors, workspace and shared bytes are validated, each refusal with a
 * sentence, before anything is written; then the op's engine runs it. */
#include "op/call.h"
#include "core/core.h"

void qn_call_lend(qn_call *call, const char *name, const void *memory, size_t bytes, bool is_written)
{
  if (bytes) call->lent[call->n_lent++] = (qn_lent){name, memory, bytes, is_written};
}

qn_status qn_call_lend_workspace(qn_call *call)
{
  const char *op = call->op->info.name;
  const qn_exec *exec = call->exec;
  const size_t needed = call->mode == QN_CALL_STEP ? call->op->engine->workspace(call) : 0;
  if (!needed) return QN_OK;
  qn_require(exec->workspace && exec->workspace_bytes >= needed,
             "%s: the workspace is %zu bytes at %p, %zu are needed (qn_%s_workspace_bytes says so)", op,
             exec->workspace_bytes, exec->workspace, needed, op);
  qn_require((uintptr_t)exec->workspace % 16 == 0, "%s: the workspace is at %p, which is not a multiple of 16", op,
             exec->workspace);
  qn_call_lend(call, "the workspace", exec->workspace, needed, true);
  return QN_OK;
}

qn_status qn_call_validate(qn_call *call, const qn_tensor *const *tensors)
{
  qn_try(qn_validate_exec_and_params(call));
  qn_try(qn_validate_tensors(call, tensors));
  qn_try(qn_call_lend_workspace(call));
  return qn_check_overlap(call);
}

/* Coefficients are doubles and the processor's kernels floats: both need the IEEE state that the caller may lack. */
qn_status qn_call_run(qn_call *call, const qn_tensor *const *tensors)
{
  const qn_fp_word word = qn_fp_enter();
  qn_status status = qn_call_validate(call, tensors);
  if (status == QN_OK) status = call->op->engine->run(call);
  qn_fp_leave(word);
  return status;
}

qn_status qn_op_step(const qn_op_info *op, const qn_exec *exec, const void *params, size_t n,
                     const qn_tensor *const *tensors)
{
  return qn_call_run(&(qn_call){.op = qn_op_of(op), .exec = exec, .params = params, .n = n}, tensors);
}

qn_status qn_op_prepare(const qn_op_info *op, const qn_exec *exec, const void *params, size_t n,
                        const qn_tensor *const *tensors)
{
  return qn_call_run(&(qn_call){.op = qn_op_of(op), .mode = QN_CALL_PREPARE, .exec = exec, .params = params, .n = n},
                     tensors);
}

/* The step says what is wrong where the call would be refused. */
size_t qn_op_workspace_bytes(const qn_op_info *op, const void *params, size_t n)
{
  const qn_call call = {.op = qn_op_of(op), .params = params, .n = n};
  return op && qn_validate_params(call.op, params) == QN_OK ? call.op->engine->workspace(&call) : 0;
}

size_t qn_op_call_workspace_bytes(const qn_op_info *op, const qn_exec *exec, const void *params, size_t n,
                                  const qn_tensor *const *tensors)
{
  qn_call call = {.op = qn_op_of(op), .mode = QN_CALL_PREPARE, .exec = exec, .params = params, .n = n};
  const bool good = qn_validate_exec_and_params(&call) == QN_OK && qn_validate_tensors(&call, tensors) == QN_OK;
  return good ? call.op->engine->workspace(&call) : 0;
}
