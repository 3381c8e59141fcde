/* SPDX-License-Identifier: Apache-2.0 */
/* reference.h - what checks hold steps of CELO2 against: the contract (op/celo2/README.md) in double, element by
 * element and matrix by matrix. States and factors are those of the engine's reference; the step shares with the
 * library the numbers that it is told and the places of weights, and none of the arithmetic. */
#ifndef QN_OP_CELO2_REFERENCE_H
#define QN_OP_CELO2_REFERENCE_H
#include "op/celo2/celo2.h"

/* Steps the list, of which the shapes are read; data[role][k] is tensor k's. moved[k]: the root mean square of what the
 * step adds to tensor k by its moves alone, without weight decay; 0 of a vector. */
qn_status qn_celo2_reference(const qn_celo2_params *params, size_t n, const qn_tensor *param,
                             double *const *const data[QN_MAX_TENSORS], double *moved);
/* Made weights: those of the golden vectors. */
void qn_celo2_make(const qn_op_param *param, float *values);
#endif
