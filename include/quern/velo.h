/* SPDX-License-Identifier: Apache-2.0 */
/* velo.h - the learned optimizer VeLO (Metz et al., 2022): an LSTM sees every tensor's progress and the loss, and mixes
 * for each the weights of a small network that moves its elements. src/op/velo/README.md has the mathematics; lopt.h
 * the state of a tensor and the weights. */
#ifndef QN_VELO_H
#define QN_VELO_H
#include "lopt.h"
#ifdef __cplusplus
extern "C" {
#endif

/* The optimizer's state beside the tensors' states. A row of the LSTM's two states is a tensor's; before the first
 * step each is lstm_init_state.0, or .1, of the weights (qn_lopt_weight_at says where they are). The loss's buffer is
 * zeros before the first step, and then f64 in this order: ten running means of the loss, the least that each has been,
 * the number of losses taken, the number of steps skipped. */
enum {
  QN_VELO_HIDDEN = 512,
  QN_VELO_LOSS_MEANS = 0,
  QN_VELO_LOSS_LEAST = 10,
  QN_VELO_LOSS_COUNT = 20,
  QN_VELO_LOSS_SKIPPED = 21,
  QN_VELO_LOSS_BUFFER = 22
};

/* Numbers have no hidden default: start from QN_VELO_DEFAULTS. */
typedef struct qn_velo_params {
  size_t size;                                        /* sizeof(qn_velo_params) */
  double lr;                                          /* >= 0; what the weights were trained for is 1 */
  double step_mult, exp_mult;                         /* of the step: lr step_mult direction e^(exp_mult magnitude) */
  double weight_decay;                                /* >= 0: behind the step, p = p - weight_decay lr p */
  double m_decay0, m_decay1, m_decay2;                /* in [0, 1) */
  double v_decay;                                     /* in [0, 1) */
  double factor_decay0, factor_decay1, factor_decay2; /* of row and column, in [0, 1) */
  uint64_t num_steps;           /* of the whole training, the same for every step: an input of the LSTM; at least 1 */
  uint64_t step;                /* steps taken before this one: its other half */
  int32_t pylo_cuda_compat;     /* 0 or 1: as PyLO's CUDA code, which departs from its reference */
  int32_t ties;                 /* which of equal dimensions is the larger, 0: PyLO's choice, 1: JAX's: lopt.h */
  const float *mlp;             /* QN_LOPT_VELO_MLP_WEIGHTS floats in the tensors' device memory */
  const float *rnn;             /* QN_LOPT_VELO_RNN_WEIGHTS floats there */
  const double *lr_scale;       /* host, one a tensor, >= 0: its lr is lr * lr_scale; NULL: all 1 */
  const qn_lopt_hyper *hyper;   /* device: replaces lr, weight_decay and step, which are then not read; NULL: none */
  const qn_lopt_shards *shards; /* host: the tensors are pieces, held by several processes; NULL: they are whole */
} qn_velo_params;

/* num_steps is 0, which is refused: it and both arrays of weights must be set. */
#define QN_VELO_DEFAULTS                                                                                               \
  {                                                                                                                    \
    sizeof(qn_velo_params), 1.0, 0.001, 0.001, 0.0, 0.9, 0.99, 0.999, 0.999, 0.9, 0.99, 0.999, 0, 0, 0, 0, NULL, NULL, \
        NULL, NULL, NULL                                                                                               \
  }

/* One step over a list of n tensors, which must be all that is trained, and in one order from step to step: each is
 * seen by the others' LSTM. The six roles are those of qn_small_fc_lopt_step, states of the shapes that
 * qn_lopt_state_shape gives with QN_LOPT_TIES_VELO, or with `ties` QN_LOPT_TIES_JAX; a param may have four dimensions
 * greater than 1.
 *
 * Beside them there is one tensor each, of which all but the loss are updated: `loss`, f32, of one element, the loss
 * that grad is of; `hidden` and `cell`, f32, (n, 512), the LSTM's two states, row k of tensor k; `loss_buffer`, f64,
 * (22), as above. Of pieces, each process has all of these four, with the same values.
 *
 * Where the loss is NaN or infinite the step is skipped and counted: nothing else is written. That is
 * seen in memory; the call returns QN_OK. An empty tensor takes no part, and a list of none but such is a no-op. On the
 * processor the same bits on every tier and for any number of threads. A gradient that is NaN makes all of its tensor
 * NaN, and with the next step, through the LSTM, all of the others. Nothing is allocated or synchronised, except that
 * the first call of a kind compiles. Bad input: a status, a sentence, nothing written. */
QN_API qn_status qn_velo_step(const qn_exec *exec, const qn_velo_params *params, size_t n, const qn_tensor *param,
                              const qn_tensor *grad, const qn_tensor *m, const qn_tensor *v, const qn_tensor *row,
                              const qn_tensor *column, const qn_tensor *loss, const qn_tensor *hidden,
                              const qn_tensor *cell, const qn_tensor *loss_buffer);
/* Workspace that a step over these params needs, with any `ties`; 0 where they would be refused. */
QN_API size_t qn_velo_workspace_bytes(size_t n, const qn_tensor *param);
/* The same of pieces. */
QN_API size_t qn_velo_shards_workspace_bytes(const qn_lopt_shards *shards, size_t n, const qn_tensor *param);

#ifdef __cplusplus
}
#endif
#endif
