/* SPDX-License-Identifier: Apache-2.0 */
/* inputs.c - row-major copies of a call's strided inputs: the room for them, and the inputs as the body gets them. */
#include "kernel/call.h"

enum { WORKSPACE_ALIGNMENT = 16 };

/* Bytes of the copy of input k, rounded up for the next one; 0: it is taken as it is. */
static qn_status copy_bytes(const qn_kernel *kernel, const qn_kernel_call *call, size_t k, size_t *bytes)
{
  const qn_tensor *t = &call->inputs[k];
  *bytes = 0;
  if (kernel->source.strided >> k & 1 || qn_is_row_major(t)) return QN_OK;
  size_t n = qn_dtype_bytes(t->dtype);
  bool fits = true;
  for (int d = 0; d < t->ndim; d++) fits &= !__builtin_mul_overflow(n, (size_t)t->shape[d], &n);
  qn_require(fits && n < SIZE_MAX / QN_KERNEL_MAX_TENSORS / 2,
             "kernel %s: a row-major copy of input %s would have more bytes than there are addresses",
             kernel->source.name, kernel->source.inputs[k]);
  *bytes = (n + WORKSPACE_ALIGNMENT - 1) / WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT;
  return QN_OK;
}

static qn_status all_bytes(const qn_kernel *kernel, const qn_kernel_call *call, size_t *bytes)
{
  *bytes = 0;
  for (size_t k = 0; k < kernel->source.n_inputs; k++) {
    size_t own;
    qn_try(copy_bytes(kernel, call, k, &own));
    *bytes += own;
  }
  return QN_OK;
}

qn_status qn_kernel_workspace_bytes(const qn_kernel *kernel, const qn_kernel_call *call, size_t *bytes)
{
  qn_require(kernel && call && bytes, "workspace: the %s is NULL",
             !kernel ? "kernel"
             : !call ? "call"
                     : "place for the bytes");
  *bytes = 0;
  qn_try(qn_call_check_tensors(kernel, call));
  return all_bytes(kernel, call, bytes);
}

static qn_status find_room(const qn_kernel *kernel, const qn_exec *exec, size_t bytes, qn_inputs *inputs, char **room)
{
  const bool lent = exec->workspace && exec->workspace_bytes >= bytes;
  *room = exec->workspace;
  if (lent && (uintptr_t)exec->workspace % WORKSPACE_ALIGNMENT == 0) return QN_OK;
  qn_require(!lent, "kernel %s: the workspace begins at %p, it is to be aligned to %d bytes", kernel->source.name,
             exec->workspace, WORKSPACE_ALIGNMENT);
  if (exec->device.kind == QN_CUDA)
    return qn_fail(QN_BAD_ARGUMENT,
                   "kernel %s: row-major copies of its strided inputs need a workspace of %zu bytes, %zu are lent; "
                   "qn_kernel_workspace_bytes says how much",
                   kernel->source.name, bytes, exec->workspace ? exec->workspace_bytes : 0);
  inputs->own = qn_allocate(bytes);
  *room = inputs->own;
  return inputs->own ? QN_OK
                     : qn_fail(QN_NO_MEMORY,
                               "kernel %s: %zu bytes for row-major copies of its inputs could not be "
                               "allocated",
                               kernel->source.name, bytes);
}

qn_status qn_inputs_copy(const qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call, qn_inputs *inputs)
{
  size_t bytes, own;
  char *room;
  inputs->tensor = call->inputs;
  inputs->own = NULL;
  qn_try(all_bytes(kernel, call, &bytes));
  if (!bytes) return QN_OK;
  qn_try(find_room(kernel, exec, bytes, inputs, &room));
  qn_status status = QN_OK;
  inputs->tensor = inputs->copied;
  for (size_t k = 0; k < kernel->source.n_inputs && status == QN_OK; k++) {
    inputs->copied[k] = call->inputs[k];
    status = copy_bytes(kernel, call, k, &own);
    if (status != QN_OK || !own) continue;
    status = qn_copy_strided(exec, &call->inputs[k], room);
    inputs->copied[k].data = room;
    inputs->copied[k].strides = NULL;
    room += own;
  }
  if (status != QN_OK) qn_inputs_release(inputs);
  return status;
}

qn_status qn_inputs_prepare(const qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call)
{
  for (size_t k = 0; exec->device.kind == QN_CUDA && k < kernel->source.n_inputs; k++) {
    size_t bytes;
    qn_try(copy_bytes(kernel, call, k, &bytes));
    if (bytes) qn_try(qn_copy_by_kernel(exec, &call->inputs[k], NULL));
  }
  return QN_OK;
}

void qn_inputs_release(qn_inputs *inputs)
{
  qn_release(inputs->own);
  inputs->own = NULL;
}
