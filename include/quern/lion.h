/* SPDX-License-Identifier: Apache-2.0 */
/* lion.h - the Lion optimizer (Chen et al., 2023, "Symbolic Discovery of Optimization Algorithms"), one fused pass.
 *
 * One element, every line one correctly rounded f32 operation, the old momentum read before either output is written:
 *     c = fma(beta1, m, (1 - beta1) * g)
 *     s = sign(c)                    -1, 0 or +1; sign(0) = 0; NaN stays NaN (torch.sign gives 0)
 *     p = fma(p, keep, -(lr * s))    keep = 1 - lr * weight_decay, or as `decay` says
 *     m = fma(beta2, m, (1 - beta2) * g)
 * The coefficients are computed in double and rounded to f32 once. Same bits on every backend, thread count and
 * chunking; docs/numerics.md says how, and why sign(NaN) is NaN. */
#ifndef QN_LION_H
#define QN_LION_H
#include "op.h"
#ifdef __cplusplus
extern "C" {
#endif

/* keep = 1 - lr * wd;  1 - wd * lr / reference_lr (lr0);  1 - wd * lr^2 / reference_lr (max_lr) */
typedef enum qn_lion_decay { QN_LION_DECAY_LR, QN_LION_DECAY_RELATIVE, QN_LION_DECAY_SQUARED } qn_lion_decay;
typedef enum qn_rounding { QN_NEAREST, QN_STOCHASTIC } qn_rounding;

/* Values that may live in device memory, so that a captured graph sees them change. All are read by every step. */
typedef struct qn_lion_hyper {
  double lr, beta1, beta2, weight_decay, reference_lr;
  uint64_t step;
} qn_lion_hyper;

/* Numbers have no hidden default: start from QN_LION_DEFAULTS. */
typedef struct qn_lion_params {
  size_t size;         /* sizeof(qn_lion_params) */
  double lr;           /* >= 0 */
  double beta1, beta2; /* in [0, 1) */
  double weight_decay; /* >= 0 */
  double reference_lr; /* > 0 where `decay` uses it */
  double eps;          /* accepted because optimizer integrations pass one; ignored */
  int32_t decay;       /* qn_lion_decay */
  int32_t maximize;    /* 0 or 1: ascend */
  /* 0 or 1: move only where the step agrees with the gradient, scaled by f32(n / max(count, n / 1000)) */
  int32_t cautious;
  int32_t rounding;          /* qn_rounding of a 16-bit param */
  int32_t momentum_rounding; /* qn_rounding of a 16-bit momentum */
  uint64_t seed, step;       /* of stochastic rounding; step is its counter, taken modulo 2^32 */
  /* host, one a tensor: index in the whole tensor of a shard's first element; NULL: all 0 */
  const uint64_t *first_element;
  const uint64_t *tensor_id; /* host, one a tensor: its number in the model, modulo 2^32; NULL: its place in the list */
  const float *grad_scale;   /* device: gradients are divided by it; NULL: 1 */
  const float *found_inf;    /* device: where it is not 0 nothing is written; NULL: 0 */
  const qn_lion_hyper *hyper; /* device: replaces the members of the same names above (which are then not read) */
  const int64_t *agreement; /* device, 2 a tensor: {count, n} over all shards, from qn_lion_count; NULL: counted here */
} qn_lion_params;

#define QN_LION_DEFAULTS                                                                                               \
  {                                                                                                                    \
    sizeof(qn_lion_params), 1e-4, 0.9, 0.99, 0.0, 1.0, 0.0, QN_LION_DECAY_LR, 0, 0, QN_NEAREST, QN_NEAREST, 0, 0,      \
        NULL, NULL, NULL, NULL, NULL, NULL                                                                             \
  }

/* One step over a list of n tensors: param and momentum (and master) are updated, grad is read; master is NULL or an
 * f32 copy of every 16-bit param. Types: see the table in src/op/lion/README.md. An empty tensor is a no-op. One launch
 * (three where cautious counts for itself). Nothing is synchronised or allocated, except that the first call of a kind
 * compiles. Bad input: a status, a sentence, nothing written. */
QN_API qn_status qn_lion_step(const qn_exec *exec, const qn_lion_params *params, size_t n, const qn_tensor *param,
                              const qn_tensor *grad, const qn_tensor *momentum, const qn_tensor *master);
QN_API qn_status qn_lion_prepare(const qn_exec *exec, const qn_lion_params *params, size_t n, const qn_tensor *param,
                                 const qn_tensor *grad, const qn_tensor *momentum, const qn_tensor *master);

/* Cautious, by hand, for sharded tensors: counts[2k] = elements of tensor k whose step agrees with its gradient,
 * counts[2k+1] = its elements. Sum both over the shards, then give the sums to the step as params->agreement. counts is
 * device memory. */
QN_API qn_status qn_lion_count(const qn_exec *exec, const qn_lion_params *params, size_t n, const qn_tensor *param,
                               const qn_tensor *grad, const qn_tensor *momentum, const qn_tensor *master,
                               int64_t *counts);

/* 0, or where cautious counts for itself 16 bytes a tensor. */
QN_API size_t qn_lion_workspace_bytes(const qn_lion_params *params, size_t n);

/* A list checked once (op.h says what a plan is). grad NULL: the gradients are where they were. */
typedef struct qn_lion_plan qn_lion_plan;
QN_API qn_status qn_lion_plan_create(qn_lion_plan **plan, const qn_exec *exec, const qn_lion_params *params, size_t n,
                                     const qn_tensor *param, const qn_tensor *grad, const qn_tensor *momentum,
                                     const qn_tensor *master);
QN_API qn_status qn_lion_plan_step(qn_lion_plan *plan, const qn_exec *exec, const qn_lion_params *params,
                                   const qn_tensor *grad);
QN_API void qn_lion_plan_destroy(qn_lion_plan **plan);

#ifdef __cplusplus
}
#endif
#endif
