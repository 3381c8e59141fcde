/* SPDX-License-Identifier: Apache-2.0 */
/* elo.h - the learned optimizer ELO: small_fc_lopt's network, state and inputs with plain decays, its own update, and
 * gradients made numbers first. src/op/elo/README.md has what differs; lopt.h the state and the weights. */
#ifndef QN_ELO_H
#define QN_ELO_H
#include "lopt.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Numbers have no hidden default: start from QN_ELO_DEFAULTS. */
typedef struct qn_elo_params {
  size_t size; /* sizeof(qn_elo_params) */
  double lr;   /* >= 0: p = p - lr (direction e^(exp_mult magnitude) + weight_decay p) */
  double exp_mult;
  double weight_decay;                 /* >= 0 */
  double m_decay0, m_decay1, m_decay2; /* in [0, 1) */
  double v_decay;
  double factor_decay0, factor_decay1, factor_decay2; /* of row and column */
  uint64_t step;                                      /* steps taken before this one: an input of the network */
  int32_t pylo_cuda_compat;     /* 0 or 1: as PyLO's CUDA code, which departs from its reference; up to 2 dimensions */
  const float *weights;         /* QN_LOPT_SMALL_FC_WEIGHTS floats in the tensors' device memory */
  const double *lr_scale;       /* host, one a tensor, >= 0: its lr is lr * lr_scale; NULL: all 1 */
  const qn_lopt_hyper *hyper;   /* device: replaces lr, weight_decay and step, which are then not read; NULL: none */
  int32_t precision;            /* qn_lopt_precision */
  int32_t ties;                 /* which of equal dimensions is the larger, 0: PyLO's choice, 1: JAX's: lopt.h */
  const qn_lopt_shards *shards; /* host: the tensors are pieces, held by several processes; NULL: they are whole */
} qn_elo_params;

#define QN_ELO_DEFAULTS                                                                                                \
  {                                                                                                                    \
    sizeof(qn_elo_params), 0.001, 0.001, 0.0, 0.9, 0.99, 0.999, 0.999, 0.9, 0.99, 0.999, 0, 0, NULL, NULL, NULL,       \
        QN_LOPT_F16X3, 0, NULL                                                                                         \
  }

/* One step over a list; as qn_small_fc_lopt_step, but that NaN gradients count as 0 and infinite ones as the largest
 * number. */
QN_API qn_status qn_elo_step(const qn_exec *exec, const qn_elo_params *params, size_t n, const qn_tensor *param,
                             const qn_tensor *grad, const qn_tensor *m, const qn_tensor *v, const qn_tensor *row,
                             const qn_tensor *column);
/* Workspace that a step over these params needs, with any `ties`; 0 where they would be refused. */
QN_API size_t qn_elo_workspace_bytes(size_t n, const qn_tensor *param);
/* The same of pieces. */
QN_API size_t qn_elo_shards_workspace_bytes(const qn_lopt_shards *shards, size_t n, const qn_tensor *param);

#ifdef __cplusplus
}
#endif
#endif
