/* SPDX-License-Identifier: Apache-2.0 */
/* small_fc_lopt.h - the learned optimizer AdafacLO / MuLO: a network of 39 inputs, two layers of 32 and 2 outputs moves
 * every element (Metz et al., 2022; Therien et al., 2024). src/op/small_fc_lopt/README.md has the mathematics; lopt.h
 * the state and the weights. */
#ifndef QN_SMALL_FC_LOPT_H
#define QN_SMALL_FC_LOPT_H
#include "lopt.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Numbers have no hidden default: start from QN_SMALL_FC_LOPT_DEFAULTS. */
typedef struct qn_small_fc_lopt_params {
  size_t size;                                        /* sizeof(qn_small_fc_lopt_params) */
  double lr;                                          /* >= 0 */
  double step_mult, exp_mult;                         /* of the step: lr step_mult direction e^(exp_mult magnitude) */
  double weight_decay;                                /* >= 0: behind the step, p = p - weight_decay lr p */
  double max_grad_norm;                               /* of each tensor's gradient; 0: not bounded */
  double m_decay0, m_decay1, m_decay2;                /* in [0, 1) */
  double v_decay;                                     /* in [0, 1) */
  double factor_decay0, factor_decay1, factor_decay2; /* of row and column, in [0, 1) */
  uint64_t step;                                      /* steps taken before this one: an input of the network */
  int32_t pylo_cuda_compat; /* 0 or 1: as PyLO's CUDA code, which departs from its reference; up to 2 dimensions */
  const float *weights;     /* QN_LOPT_SMALL_FC_WEIGHTS floats in the tensors' device memory */
  const double *lr_scale; /* host, one a tensor, >= 0: its lr is lr * lr_scale (muP's width multipliers); NULL: all 1 */
  const qn_lopt_hyper *hyper;   /* device: replaces lr, weight_decay and step, which are then not read; NULL: none */
  int32_t precision;            /* qn_lopt_precision */
  int32_t ties;                 /* which of equal dimensions is the larger, 0: PyLO's choice, 1: JAX's: lopt.h */
  const qn_lopt_shards *shards; /* host: the tensors are pieces, held by several processes; NULL: they are whole */
} qn_small_fc_lopt_params;

/* The decays are those that belong to the published weights: 1 - (1 - d) e^(10 o) of d = 0.9, 0.99, 0.999 and the
 * learned offsets o. step is 0, and weights must be set. */
#define QN_SMALL_FC_LOPT_DEFAULTS                                                                                      \
  {                                                                                                                    \
    sizeof(qn_small_fc_lopt_params), 1.0, 0.01, 0.001, 0.0, 0.0, 0.5420273867229054, 0.9584413246306187,               \
        0.9980235618709026, 0.9988859850071358, 0.35621824044756223, 0.9966259169686501, 0.9994612775091849, 0, 0,     \
        NULL, NULL, NULL, QN_LOPT_F16X3, 0, NULL                                                                       \
  }

/* One step over a list of n tensors, all f32 and row-major, of up to 5 dimensions: param and the state (of the shapes
 * that qn_lopt_state_shape gives with QN_LOPT_TIES_LATER, or with `ties` QN_LOPT_TIES_JAX) are updated, grad is read.
 * Statistics are of each tensor by itself, and the same bits on every tier and for any number of threads. A NaN in a
 * gradient makes all of its tensor NaN, and no other. An empty tensor is a no-op. Nothing is allocated. Bad input: a
 * status, a sentence, nothing written. On a device statistics are not the processor's bits, but the same in every run,
 * results lie within the class of precision, and a stream may be captured once a step has compiled what it needs. */
QN_API qn_status qn_small_fc_lopt_step(const qn_exec *exec, const qn_small_fc_lopt_params *params, size_t n,
                                       const qn_tensor *param, const qn_tensor *grad, const qn_tensor *m,
                                       const qn_tensor *v, const qn_tensor *row, const qn_tensor *column);
/* Workspace that a step over these params needs, with any `ties`; 0 where they would be refused. */
QN_API size_t qn_small_fc_lopt_workspace_bytes(size_t n, const qn_tensor *param);
/* The same of pieces. */
QN_API size_t qn_small_fc_lopt_shards_workspace_bytes(const qn_lopt_shards *shards, size_t n, const qn_tensor *param);

#ifdef __cplusplus
}
#endif
#endif
