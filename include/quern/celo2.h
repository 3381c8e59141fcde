/* SPDX-License-Identifier: Apache-2.0 */
/* celo2.h - the learned optimizer CELO2 (arXiv 2602.19142): a small network moves every element of a matrix, and the
 * move of each matrix is made orthogonal; AdamW moves vectors. ELO-CELO2 is the same step with other weights, weight
 * decay and bounded gradients. src/op/celo2/README.md has the mathematics; lopt.h the weights. */
#ifndef QN_CELO2_H
#define QN_CELO2_H
#include "gemm_norm.h"
#include "lopt.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Numbers have no hidden default: start from QN_CELO2_DEFAULTS. */
typedef struct qn_celo2_params {
  size_t size;                                        /* sizeof(qn_celo2_params) */
  double lr;                                          /* >= 0: p = p - lr (u + weight_decay p) */
  double exp_mult;                                    /* of the network's output direction e^(exp_mult magnitude) */
  double rms_mult;                                    /* the root mean square of u over each matrix */
  double weight_decay;                                /* >= 0 */
  double m_decay0, m_decay1, m_decay2;                /* in [0, 1) */
  double v_decay;                                     /* in [0, 1) */
  double factor_decay0, factor_decay1, factor_decay2; /* of row and column, in [0, 1) */
  double adam_lr_mult;                                /* >= 0: of vectors, whose learning rate is lr adam_lr_mult */
  double adam_weight_decay;                           /* >= 0: of vectors */
  double adam_m_decay, adam_v_decay;                  /* of vectors, in [0, 1) */
  double adam_eps;                                    /* >= 0 */
  int32_t orthogonalize;                              /* 0 or 1: the network's outputs are made orthogonal */
  int32_t precision;          /* qn_precision: how the products are taken that make it so; on a CPU always fp32 */
  int32_t ties;               /* which of equal dimensions is the larger, 0: PyLO's choice, 1: JAX's: lopt.h */
  uint64_t step;              /* steps taken before this one, of which vectors' means are corrected */
  const float *weights;       /* QN_LOPT_CELO2_MLP_WEIGHTS floats in the tensors' device memory */
  const double *lr_scale;     /* host, one a tensor, >= 0: its lr is lr * lr_scale; NULL: all 1 */
  const qn_lopt_hyper *hyper; /* device: replaces lr, weight_decay and step, which are then not read; NULL: none */
} qn_celo2_params;

#define QN_CELO2_DEFAULTS                                                                                              \
  {                                                                                                                    \
    sizeof(qn_celo2_params), 0.001, 0.0, 1.0, 0.0, 0.9, 0.99, 0.999, 0.95, 0.9, 0.99, 0.999, 1.0, 0.0, 0.9, 0.95,      \
        1e-8, 1, QN_PRECISION_F16X3, 0, 0, NULL, NULL, NULL                                                            \
  }

/* One step over a list of n tensors. Of two or more dimensions, param is moved by the network, and the states are those
 * of lopt.h with QN_LOPT_TIES_LATER, or with `ties` QN_LOPT_TIES_JAX. Of fewer, AdamW moves it: m is a mean of the
 * gradient and v of its square, both of the shape of param, and row and column have the shape (0). To have AdamW move
 * another tensor, such as an embedding, give it as a vector. Gradients are clamped to +-1000; a NaN in one makes its
 * matrix NaN, of a vector that element. qn_op_call_workspace_bytes() says what workspace a step needs. Nothing is
 * allocated or synchronised, except that the first call of a kind compiles. Bad input: a status, a sentence, nothing
 * written. */
QN_API qn_status qn_celo2_step(const qn_exec *exec, const qn_celo2_params *params, size_t n, const qn_tensor *param,
                               const qn_tensor *grad, const qn_tensor *m, const qn_tensor *v, const qn_tensor *row,
                               const qn_tensor *column);

#ifdef __cplusplus
}
#endif
#endif
