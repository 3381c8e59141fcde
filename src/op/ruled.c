/* SPDX-License-Identifier: Apache-2.0 */
/* ruled.c - ops of lists whose tensors' shapes follow from the first role's by rule: what all of them share of a call.
 * The refusals of tensors, and the work, are the op's own engine's; lists of tensors alike are list.c's. */
#include "core/core.h"
#include "op/list.h"
#include <stdio.h>

qn_status qn_op_role_shape(const qn_op_info *op, size_t role, size_t n, int ndim, const int64_t *shape, int *role_ndim,
                           int64_t *role_shape)
{
  qn_require(op, "op is NULL");
  const qn_ruled *ruled = qn_op_of(op)->ruled;
  qn_require(ruled, "%s: its roles' shapes follow from no rule", op->name);
  qn_require(role < op->n_tensors, "%s: role %zu, there are %zu", op->name, role, op->n_tensors);
  qn_require(ndim >= 0 && ndim <= ruled->most_dimensions, "%s: a %s of %d dimensions, from 0 to %d are possible",
             op->name, op->tensors[0].name, ndim, ruled->most_dimensions);
  qn_require(role_ndim && role_shape && (shape || !ndim), "%s: the shape, or a place for one, is NULL", op->name);
  for (int d = 0; d < ndim; d++)
    qn_require(shape[d] >= 0, "%s: extent %d of the shape is %lld", op->name, d, (long long)shape[d]);
  *role_ndim = ruled->shape(role, n, ndim, shape, role_shape);
  return QN_OK;
}

qn_status qn_ruled_step(const qn_op *op, const qn_exec *exec, const void *params, size_t n,
                        const qn_tensor *const *tensors, bool prepare)
{
  qn_list list = {.op = op, .mode = prepare ? QN_LIST_PREPARE : QN_LIST_STEP, .exec = exec, .params = params, .n = n};
  qn_try(qn_check_exec_and_params(&list));
  qn_require(tensors, "%s: tensors is NULL", op->info.name);
  return op->ruled->run(&list, tensors);
}

size_t qn_ruled_workspace(const qn_op *op, const void *params, size_t n, const qn_tensor *const *tensors)
{
  if (!tensors || qn_check_params(op, params) != QN_OK) return 0; /* the step says what is wrong */
  return op->ruled->workspace_bytes(params, n, tensors);
}
