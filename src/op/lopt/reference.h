/* SPDX-License-Identifier: Apache-2.0 */
/* reference.h - what checks compare steps of this engine with: the contract of its ops in double, element by
 * element, over whole tensors. It shares with the engine the step's numbers and the layout of states and weights, and
 * none of the arithmetic. An op with its own update calls the functions of states and factors alone. */
#ifndef QN_OP_LOPT_REFERENCE_H
#define QN_OP_LOPT_REFERENCE_H
#include "op/lopt/lopt.h"

/* A tensor with its states; row and column by decay first. */
typedef struct qn_lopt_seen {
  int ndim, d0, d1; /* -1: not factored */
  const int64_t *shape;
  size_t n, n_row, n_column;
  double *p, *m, *v, *row, *column;
  double *g, *mean_row, *mean_column, *means; /* as the step takes it; scratch: of squares; [3][n_row], of rows */
} qn_lopt_seen;
/* Of a shape, which must outlive it: all but the parameter and its states, which are the caller's; qn_release(t->g). */
qn_status qn_lopt_see(qn_lopt_seen *t, qn_lopt_ties ties, int ndim, const int64_t *shape);
/* The states after the step whose gradient t->g is, and the means of the rows' states. */
void qn_lopt_seen_states(qn_lopt_seen *t, const qn_lopt_step *step);
/* The states of decay k at element i, row and column (one where nothing is factored), and the factor A. */
typedef struct qn_lopt_element_states {
  double row, column, a;
} qn_lopt_element_states;
qn_lopt_element_states qn_lopt_seen_factor(const qn_lopt_seen *t, size_t k, size_t i);

/* Steps all tensors, of which the shapes are read; data[role][k] is tensor k's. */
qn_status qn_lopt_reference(const qn_lopt_step *step, size_t n, const qn_tensor *param,
                            double *const *const data[QN_MAX_TENSORS]);
/* The contract's tolerance of parameters, where a network's sum that nearly cancels has the error of its terms: those
 * of the tensor's other elements. Of states, some units of f32's eps of them and of their like. */
double qn_lopt_allowed(size_t role, double want, double before, double size, double moved);
/* The next number in [-1, 1), 24 bits of splitmix64, which the golden vectors are drawn with. */
double qn_lopt_draw(uint64_t *state);
/* Made weights: those of the golden vectors. */
void qn_lopt_make_small_fc(const qn_op_param *param, float *values);
#endif
