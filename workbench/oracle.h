/* SPDX-License-Identifier: Apache-2.0 */
/* oracle.h - one tensor of a step in double, and how far rounding may take its results: what leg 2 holds the reference
 * against, and in what units variants of an op whose class is not bitwise may differ.
 *
 * Errors are told in units of 2^-24 times the sum of the magnitudes of the terms, never in the result's own last
 * places, which mean nothing where terms cancel. That sum is measured: each input is moved by a few units, and what the
 * oracle's result does then, divided by them, is |x df/dx|; a jump (a sign that turns) shows as a move far beyond that.
 * Such elements are not left out: their own jump is what they may differ by; who asks counts them and bounds their
 * number. */
#ifndef QN_WORKBENCH_ORACLE_H
#define QN_WORKBENCH_ORACLE_H
#include "op/op.h"
#include "workbench/subject.h"

typedef struct qn_oracle {
  const qn_op *op;
  const qn_subject *subject;
  size_t tensor, n;
  uint32_t place; /* which of the tallies in coef is this tensor's */
  qn_cpu_call call;
  _Alignas(16) unsigned char coef[QN_COEF_BYTES];
  double *in[QN_MAX_TENSORS], *out[QN_MAX_TENSORS], *stirred[QN_MAX_TENSORS]; /* by role, one an element */
  double *scale[QN_MAX_TENSORS], *jump[QN_MAX_TENSORS];
  double *vanish[QN_MAX_TENSORS]; /* how far it moves where inputs so small that products of them vanish in f32 are 0 */
  uint64_t counted[2][2];         /* where a reduction comes first: the reference's two counters, the oracle's own */
} qn_oracle;

/* The step on what the tensors were filled with, which are dense. params point to the processor's memory. */
qn_status qn_oracle_open(qn_oracle *oracle, const qn_op *op, const void *params, const qn_subject *subject,
                         size_t tensor);
void qn_oracle_close(qn_oracle *oracle);

/* Within rounding of a jump. */
bool qn_oracle_uncertain(const qn_oracle *oracle, size_t role, size_t index);
/* Units by which `got`, stored, misses `want` beyond what `steps` roundings to storage explain (want NULL: the oracle's
 * own result); INFINITY: another class of number. units: how many are allowed, where one of them overflows. */
double qn_oracle_miss(const qn_oracle *oracle, size_t role, size_t index, double got, const double *want, double units,
                      int steps);

#endif
