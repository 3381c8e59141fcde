/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_quantize.h - what the call and its CPU kernels share. */
#ifndef QN_OP_SWIGLU_QUANTIZE_SWIGLU_QUANTIZE_H
#define QN_OP_SWIGLU_QUANTIZE_SWIGLU_QUANTIZE_H
#include "op/swiglu_quantize/swiglu_quantize.args.h"
#include <stdbool.h>

/* What a kernel is specialised for; on the processor, a table is indexed by it. */
typedef struct qn_swiglu_quantize_kind {
  qn_u32 flags; /* of swiglu.math.h */
  int storage;  /* likewise */
  bool computes;
} qn_swiglu_quantize_kind;

/* Rows [first, last). */
typedef void qn_swiglu_quantize_fn(const qn_swiglu_quantize_args *args, const qn_swiglu_quantize_kind *kind,
                                   qn_u64 first, qn_u64 last);
#endif
