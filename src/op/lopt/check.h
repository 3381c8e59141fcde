/* SPDX-License-Identifier: Apache-2.0 */
/* check.h - the parts of checks (workbench/op_check.h) that the learned optimizers share. */
#ifndef QN_OP_LOPT_CHECK_H
#define QN_OP_LOPT_CHECK_H
#include "op/lopt/reference.h"
#include "workbench/check.h"
#include "workbench/op_check.h"

/* Of leg 1, host: places past 2^32 elements in the kernels that take this network's elements one by one (lopt.check.c).
 */
void qn_lopt_check_far(qn_trial *trial, const qn_lopt_network *network);

/* Cases of checks that all have: ranks from 0 to 5, runs shorter and longer than blocks, chunks and pieces of sums,
 * gradients for which roots' arguments are their least terms or nothing against them, and that are no numbers, or whose
 * squares are none; the middle of a run. `more`: settings of all of them, with a blank before each. */
#define QN_LOPT_CASES(more)                                                                                            \
  {"every rank", "- 1 0 1500 1x1 0x7 1x768 3x20x65 12x8x3x3 6x3x8x8 8x8x5x5 2x3x4x3x5 1x1x9x1x1 steps=2" more},        \
      {"long rows and columns", "130x67 67x130 2x2100 2100x2 1200" more},                                              \
      {"more than a chunk", "70x65 4500 12x9x7x7 10x40x3x3 5x60x4 weight_decay=0.1 step=70000" more},                  \
      {"factors of the learning rate", "12x7 9 33x40 lr_scale lr=0.3 steps=2"},                                        \
      {"gradients of zero", "40x33 90 8x6x3x3 gradients=0 steps=2" more},                                              \
      {"tiny gradients", "40x33 90 8x6x3x3 gradients=1e-30 steps=3" more},                                             \
      {"no numbers", "40x33 90 8x6x3x3 91 grad[0]=nan grad[1]=nan grad[2,5]=-inf grad[3]=inf" more},                   \
      {"small gradients", "40x33 90 8x6x3x3 gradients=1e-12 steps=3" more},                                            \
      {"large gradients", "40x33 90 8x6x3x3 gradients=1 steps=3" more},                                                \
      {"huge gradients", "40x33 90 8x6x3x3 gradients=1e9 steps=2" more},                                               \
      {"infinite squares", "40x33 90 8x6x3x3 11 grad[0]=1e20 grad[1]=-1e20 grad[2]=1e30 param[3]=inf steps=2" more},   \
      {"the middle of a run", "40x50 77 6x5x3x3 10x40x3x3 5x60x4 filled step=2000 steps=2" more},                      \
      {"states that are no numbers", "40x50 77 70 6x5x3x3 m[0]=nan v[1]=nan param[2]=nan row[3]=inf filled" more},     \
      {"other decays", "33x20 40 m_decay0=0 m_decay1=0.5 m_decay2=0.7 v_decay=0.3 factor_decay0=0 factor_decay1=0.5 "  \
                       "factor_decay2=0.8 steps=3" more},                                                              \
      {"params in device memory", "33x20 40 lr=0.3 weight_decay=0.1 step=9 hyper steps=2"},                            \
      {"equal dimensions, as JAX has them",                                                                            \
       "24x24 5x3x5 8x8x5x5 3x3x3x3 6x3x8x8 9x1x9x2x9 40x33 7 ties=jax steps=2" more},                                 \
  {                                                                                                                    \
    "as PyLO's CUDA code", "33x20 40 7x5 20x64 - pylo_cuda_compat=1 steps=2" more                                      \
  }

/* Units of device sources, as calls have them compiled. */
#define QN_LOPT_DEFINES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define QN_LOPT_SET(gradient, bounded, compat, joint_decay, means_of_decays)                                           \
  "QN_LOPT_GRADIENT=" #gradient, "QN_LOPT_BOUNDED=" #bounded, "QN_LOPT_COMPAT=" #compat,                               \
      "QN_LOPT_JOINT_DECAY=" #joint_decay, "QN_LOPT_MEANS_OF_DECAYS=" #means_of_decays
#define QN_LOPT_FIRST_PHASE "QN_LOPT_PRECISION=0", "QN_LOPT_PHASE=0", "QN_LOPT_PIECE=4080"
#define QN_LOPT_OTHER_PHASE "QN_LOPT_PRECISION=0", "QN_LOPT_PHASE=1", "QN_LOPT_PIECE=500"
/* Of small_fc. Below sm_80 all is computed as fp32, class 0. */
#define QN_LOPT_OF_CLASS(name, precision, settings, ...)                                                               \
  "op/lopt/lopt." name ".cu",                                                                                          \
      QN_LOPT_DEFINES(settings, "QN_LOPT_PRECISION=" #precision, "QN_LOPT_PHASE=0", "QN_LOPT_PIECE=500", __VA_ARGS__)
#define QN_LOPT_UPDATE(precision, warpgroups, threads, settings)                                                       \
  QN_LOPT_OF_CLASS("update", precision, settings, "QN_LOPT_WARPGROUPS=" #warpgroups, "QN_THREADS=" #threads)
#define QN_LOPT_UNIT(name, ...) "op/lopt/lopt." name ".cu", QN_LOPT_DEFINES(__VA_ARGS__), NULL
#define QN_LOPT_ALL(...)                                                                                               \
  {QN_LOPT_UNIT("elements", __VA_ARGS__)}, {QN_LOPT_UNIT("first_layer", __VA_ARGS__)},                                 \
      {QN_LOPT_UNIT("factors", __VA_ARGS__)}, {QN_LOPT_UNIT("stats", __VA_ARGS__)},                                    \
      {QN_LOPT_UNIT("sums", __VA_ARGS__)},                                                                             \
  {                                                                                                                    \
    QN_LOPT_UNIT("table", __VA_ARGS__)                                                                                 \
  }
/* The parts of both ops of small_fc. */
#define QN_LOPT_OF_CHECK                                                                                               \
  .random_weights = qn_lopt_make_small_fc, .reference = reference, .cases = cases, .units = units,                     \
  .variation = qn_lopt_variation, .domain = QN_LOPT_DOMAIN, .far = qn_lopt_small_fc_far
/* Vectors, matrices, and convolutions of the usual filters. */
#define QN_LOPT_DOMAIN                                                                                                 \
  {                                                                                                                    \
    .shapes = "1..262144 1..4096x1..4096 1..256x1..256x3x3 1..256x1..256x1x1", .most_shapes = 4, .most_copies = 6      \
  }
const char *qn_lopt_variation(qn_device_kind kind, size_t row, size_t k);
void qn_lopt_small_fc_far(qn_trial *trial);
/* Steps by small_fc's reference, and its tolerance. */
qn_status qn_lopt_refer(const qn_op *op, const qn_reference *reference);
/* The tolerance of a step's elements, the same for all; size and moved are root mean squares over a plane of the first
 * role's elements: of the wanted values, and of the wanted moves. */
typedef double qn_lopt_allowed_fn(size_t role, double want, double before, double size, double moved);
void qn_lopt_allow(const qn_reference *reference, qn_lopt_allowed_fn *allowed);
#endif
