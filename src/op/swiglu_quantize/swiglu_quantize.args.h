/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_quantize.args.h - the argument of the quantised forward, for host code and kernels alike. */
#ifndef QN_OP_SWIGLU_QUANTIZE_ARGS_H
#define QN_OP_SWIGLU_QUANTIZE_ARGS_H
#include "op/swiglu/swiglu.args.h"

/* One call. Strides count bytes. */
typedef struct qn_swiglu_quantize_args {
  qn_swiglu_coef coef;
  char *c;
  float *scale;
  const char *a, *b;
  qn_u64 rows, cols, c_stride, a_stride, b_stride;
  qn_u64 scale_step; /* 1: one a row; 0: one */
} qn_swiglu_quantize_args;
#endif
