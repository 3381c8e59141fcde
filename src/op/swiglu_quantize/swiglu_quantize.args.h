/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_quantize.args.h - what host code and kernels of the quantised forward share: roles, the argument, what a
 * kernel is specialised for. */
#ifndef QN_OP_SWIGLU_QUANTIZE_ARGS_H
#define QN_OP_SWIGLU_QUANTIZE_ARGS_H
#include "op/swiglu/swiglu.args.h"

enum {
  QN_SWIGLU_QUANTIZE_C,
  QN_SWIGLU_QUANTIZE_SCALE,
  QN_SWIGLU_QUANTIZE_A,
  QN_SWIGLU_QUANTIZE_B,
  QN_SWIGLU_QUANTIZE_ROLES
};

/* One call. Strides count bytes. */
typedef struct qn_swiglu_quantize_args {
  qn_swiglu_coef coef;
  char *c;
  float *scale;
  const char *a, *b;
  qn_u64 rows, cols, c_stride, a_stride, b_stride;
  qn_u64 scale_step; /* 1: one a row; 0: one */
} qn_swiglu_quantize_args;

typedef struct qn_swiglu_quantize_kind {
  qn_u32 flags; /* of swiglu.args.h */
  int storage;  /* likewise */
  int computes;
} qn_swiglu_quantize_kind;

/* Rows [first, last), on the processor. */
typedef void qn_swiglu_quantize_fn(const qn_swiglu_quantize_args *args, const qn_swiglu_quantize_kind *kind,
                                   qn_u64 first, qn_u64 last);
#endif
