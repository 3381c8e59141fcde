/* SPDX-License-Identifier: Apache-2.0 */
/* call.h - what XLA passes to a handler, as a call of an op: read by the op's description, so every op of the registry
 * is understood. The convention is in quern/xla.h. */
#ifndef QN_XLA_CALL_H
#define QN_XLA_CALL_H
#include "quern/op.h"
#include "xla/ffi.h"

typedef struct qn_xla_call {
  const qn_op_info *op;
  qn_device device;
  void *params;
  size_t n;                              /* tensors a role; 0: an empty list */
  qn_tensor *tensors[QN_MAX_TENSORS];    /* by role, where the op shall work; NULL: not given */
  const void **operands[QN_MAX_TENSORS]; /* of roles that are written: where XLA's operands are */
  void *workspace;
  size_t workspace_bytes;
  void *block; /* of which params and lists are parts */
} qn_xla_call;

/* Reads a frame. Arrays are looked into on the processor only, and there only the hyper struct. Whatever comes back,
 * the call is to be freed. */
qn_status qn_xla_call_read(qn_xla_call *call, const xla_frame *frame, qn_device device);
void qn_xla_call_free(qn_xla_call *call);
#endif
