/* SPDX-License-Identifier: Apache-2.0 */
/* reference.h - what checks hold steps of VeLO against: the contract (op/velo/README.md) in double, element by element
 * and unit by unit, over whole tensors. Of a tensor's states and factors it takes small_fc_lopt's reference, which
 * stand in no step; with the engine it shares the layout of states and weights and what a step is told, and none of the
 * arithmetic. */
#ifndef QN_OP_VELO_REFERENCE_H
#define QN_OP_VELO_REFERENCE_H
#include "op/velo/velo.h"

/* Steps the list, of which the shapes are read; data[role][k] is tensor k's, or at k = 0 the list's own. */
qn_status qn_velo_reference(const void *params, size_t n, const qn_tensor *const *tensors,
                            double *const *const data[QN_MAX_TENSORS]);
/* Of the six roles that tensors have, small_fc_lopt's; of the LSTM's states some units of f32's eps; of the loss's
 * buffer, which is f64, what differing powers of e leave. */
double qn_velo_allowed(size_t role, double want, double before, double size, double moved);
/* Made weights, and the LSTM's first states: those of the golden vectors. */
void qn_velo_make(const qn_op_param *param, float *values);
void qn_velo_begin(const void *params, size_t role, bool middle, const int64_t *shape, double *values);
#endif
