/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_quantize.h - what the op's description, its CPU kernels and its launch share. */
#ifndef QN_OP_SWIGLU_QUANTIZE_SWIGLU_QUANTIZE_H
#define QN_OP_SWIGLU_QUANTIZE_SWIGLU_QUANTIZE_H
#include "op/call.h"
#include "op/swiglu_quantize/swiglu_quantize.args.h"

/* A checked call. */
typedef struct qn_swiglu_quantize_problem {
  qn_swiglu_quantize_args args;
  qn_swiglu_quantize_kind kind;
} qn_swiglu_quantize_problem;
qn_swiglu_quantize_problem qn_swiglu_quantize_problem_of(const qn_call *call);

/* ---- swiglu_quantize.device.c ---- */

/* One launch. Notes what it took for qn_op_last_variant(): "tiles-256x8x1" where scales are given, "rows-448x8x4" where
 * they are computed (threads, elements of a vector, vectors that a thread holds; 0: the row is read twice). Of the
 * option "launch_shape", and of a tune table's entry, the threads are the most and the vectors the least. */
qn_status qn_swiglu_quantize_launch(const qn_call *call, const qn_swiglu_quantize_problem *problem);

/* As call.h's qn_engine says: launch shapes that cut rows into blocks of every kind. */
struct qn_tune_key;
const char *qn_swiglu_quantize_variant(const qn_op *op, size_t k);
const char *qn_swiglu_quantize_choice(const qn_call *call, const char **why);
const char *qn_swiglu_quantize_refuses(const qn_call *call, size_t k);
void qn_swiglu_quantize_key(const qn_call *call, struct qn_tune_key *key);
#endif
