/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_backward.math.h - the backward's roles and table of types; its arithmetic stands beside the forward's. */
#ifndef QN_OP_SWIGLU_BACKWARD_MATH_H
#define QN_OP_SWIGLU_BACKWARD_MATH_H
#include "op/swiglu/swiglu.math.h"

enum {
  QN_SWIGLU_BACKWARD_DC,
  QN_SWIGLU_BACKWARD_A,
  QN_SWIGLU_BACKWARD_B,
  QN_SWIGLU_BACKWARD_DA,
  QN_SWIGLU_BACKWARD_DB,
  QN_SWIGLU_BACKWARD_ROLES
};

/* The storage type, how a and b are accessed, and the gradients' type and access: apart, or over a and b. */
#define QN_SWIGLU_BACKWARD_ROWS(X)                                                                                     \
  X(F32, READ, F32, WRITE)                                                                                             \
  X(BF16, READ, BF16, WRITE)                                                                                           \
  X(F16, READ, F16, WRITE)                                                                                             \
  X(F32, READ_WRITE, NONE, ABSENT)                                                                                     \
  X(BF16, READ_WRITE, NONE, ABSENT)                                                                                    \
  X(F16, READ_WRITE, NONE, ABSENT)
#define QN_SWIGLU_BACKWARD_DOUBLE_ROWS(X) X(F64, READ, F64, WRITE) X(F64, READ_WRITE, NONE, ABSENT)
#endif
