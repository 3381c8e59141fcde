/* SPDX-License-Identifier: Apache-2.0 */
/* reference.h - what checks hold steps of small_fc_lopt and elo against: the contract (op/small_fc_lopt/README.md) in
 * double, element by element, over whole tensors. It shares with the engine what a step is told and the layout of
 * states and weights, and none of the arithmetic. */
#ifndef QN_OP_LOPT_REFERENCE_H
#define QN_OP_LOPT_REFERENCE_H
#include "op/lopt/lopt.h"

/* Steps all tensors, of which the shapes are read; data[role][k] is tensor k's. */
qn_status qn_lopt_reference(const qn_lopt_step *step, size_t n, const qn_tensor *param,
                            double *const *const data[QN_MAX_TENSORS]);
/* The contract's tolerance of parameters; of states, some units of f32's eps of them and of their like. */
double qn_lopt_allowed(size_t role, double want, double before, double size);
/* Made weights: those of the golden vectors. */
void qn_lopt_make_small_fc(const qn_op_param *param, float *values);
#endif
