/* SPDX-License-Identifier: Apache-2.0 */
/* reference.h - the double reference of gemm_norm for checks: the whole result, element by element, and beside each
 * element how far a result may be from it. No part of the library. */
#ifndef QN_OP_GEMM_NORM_REFERENCE_H
#define QN_OP_GEMM_NORM_REFERENCE_H
#include "op/gemm_norm/gemm.h"

typedef struct qn_gemm_reference {
  const qn_gemm_problem *problem;     /* its tensors are not read */
  const double *input[QN_GEMM_ROLES]; /* NULL: not given */
  double *y, *allowed;
  int looseness; /* of the variant that ran, as workbench/op_check.h says */
  bool on_gpu;   /* it ran on one, not on the processor or the emulator */
} qn_gemm_reference;

void qn_gemm_refer(const qn_gemm_reference *reference);
#endif
