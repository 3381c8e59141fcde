/* SPDX-License-Identifier: Apache-2.0 */
/* meta_train.h - `quern meta-train`: what an engine that trains its optimizers' weights is asked for. */
#ifndef QN_WORKBENCH_META_TRAIN_H
#define QN_WORKBENCH_META_TRAIN_H
#include "op/call.h"
#include <stdio.h>

typedef struct qn_meta_order {
  qn_device device;
  qn_pool *pool; /* emulator */
  const qn_op *op;
  const void *params; /* of the op: decays, step_mult, exp_mult, lr */
  const char *groups; /* networks that are trained, in the engine's words; NULL: its own choice */
  const char *out, *command;
  uint64_t seed;
  uint32_t steps, piece, window, shortest, longest; /* piece: outer steps after which all begin anew, and a checkpoint
                                                       is written, from which a run goes on to the same bits */
  double lr, sigma, most, budget_s;                 /* budget_s: ends behind a piece; 0: none */
  bool resume;
  FILE *curve; /* a line of JSON for each outer step; NULL: none */
  void (*at)(void *user, uint32_t step, double loss, double lost, double particle_steps_a_second);
  void *user;
} qn_meta_order;

/* Writes `out` (the published tensors, with metadata) and `out`.state. *done: outer steps behind us. */
typedef qn_status qn_meta_train_fn(const qn_meta_order *order, uint32_t *done);
#endif
