/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_quantize.h - what the call, its CPU kernels and its launch share. */
#ifndef QN_OP_SWIGLU_QUANTIZE_SWIGLU_QUANTIZE_H
#define QN_OP_SWIGLU_QUANTIZE_SWIGLU_QUANTIZE_H
#include "op/swiglu_quantize/swiglu_quantize.args.h"
#include "quern/stream.h"
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

/* On a device: one launch. Notes what it took for qn_op_last_variant(): "tiles-256x8x1" where scales are given,
 * "rows-448x8x4" where they are computed (threads, elements of a vector, vectors that a thread holds; 0: the row is
 * read twice). Of the option "geometry" the threads are then the most and the vectors the least. */
qn_status qn_swiglu_quantize_launch(const qn_exec *exec, const qn_swiglu_quantize_args *args,
                                    const qn_swiglu_quantize_kind *kind);
#endif
