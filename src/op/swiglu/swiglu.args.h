/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu.args.h - what host code and kernels of gated activations share, without their arithmetic: roles, types, flags,
 * coefficients. */
#ifndef QN_OP_SWIGLU_ARGS_H
#define QN_OP_SWIGLU_ARGS_H
#include "base/kernel.h"

enum { QN_SWIGLU_C, QN_SWIGLU_A, QN_SWIGLU_B, QN_SWIGLU_ROLES };

#define QN_SWIGLU_ROWS(X) X(F32) X(BF16) X(F16)
#define QN_SWIGLU_DOUBLE_ROWS(X) X(F64)

/* The flags: the gate, as qn_swiglu_gate of the public header numbers them, and one bit. */
enum {
  QN_SWIGLU_SILU,
  QN_SWIGLU_CLAMPED,
  QN_SWIGLU_GEGLU,
  QN_SWIGLU_REGLU,
  QN_SWIGLU_GLU,
  QN_SWIGLU_GEGLU_ERF,
  QN_SWIGLU_GATES
};
enum {
  QN_SWIGLU_GATE_MASK = 7,
  QN_SWIGLU_DOWN = 8,   /* down_multiplier is not 1 */
  QN_SWIGLU_SCALED = 16 /* gate_multiplier is not 1: device kernels leave the product out elsewhere */
};

/* The numbers that are the same for all elements. */
typedef struct qn_swiglu_coef {
  float gate_multiplier, down_multiplier, alpha, limit;
} qn_swiglu_coef;

enum { QN_SWIGLU_F32, QN_SWIGLU_BF16, QN_SWIGLU_F16, QN_SWIGLU_F64 };
#endif
