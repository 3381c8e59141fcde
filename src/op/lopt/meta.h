/* SPDX-License-Identifier: Apache-2.0 */
/* meta.h - meta-training of a learned optimizer's network: the arguments of its kernels (meta.loop.h), shared by C that
 * fills them (meta.check.c). A particle is a network in training with an optimizer whose weights are theta + or - sigma
 * epsilon; the two particles of a pair have the same epsilon, task, start and data. A block trains one particle for a
 * window of steps. All of a particle's tensors are in its slab, whose places are counted in floats. */
#ifndef QN_OP_LOPT_META_H
#define QN_OP_LOPT_META_H
#include "base/kernel.h"

enum {
  QN_META_LAYERS = 4, /* at most, of a network in training */
  QN_META_TENSORS = 2 * QN_META_LAYERS,
  QN_META_WIDTH = 256,
  QN_META_BATCH = 128,
  QN_META_THREADS = 128,
  QN_META_TEACHER = 32,      /* hidden values of the random network that labels the data */
  QN_META_CHUNK = 32,        /* elements that a simdgroup moves together */
  QN_META_OUTER_WEIGHTS = 16 /* that a block moves, a multiple of 4 */
};

/* A weight (outputs, inputs) or, inputs being 0, a bias; and places in the slab. Inputs are a multiple of 4, and so are
 * `padded` and `places`, n and outputs rounded up, which keep the three decays of a mean apart. */
typedef struct qn_meta_tensor {
  qn_u32 n, padded, outputs, inputs, places, chunk; /* chunk: its first among all tensors' */
  qn_u32 p, m, v, g;
  qn_u32 state[2]; /* (3, places) and (3, inputs): the means of squares over the other dimension */
  qn_u32 table[2]; /* (outputs, W) and (inputs, W): their parts of the first layer's sums, of W hidden values */
  float lr_scale, of_outputs, of_inputs; /* 1 over them */
} qn_meta_tensor;

/* Networks of one shape, and how they are trained. */
typedef struct qn_meta_group {
  qn_u32 layers, batch, width[QN_META_LAYERS + 1];                   /* inputs, hidden values, classes */
  qn_u32 tensors, teacher, spectrum, floats;                         /* floats: of a slab */
  qn_u32 value[QN_META_LAYERS + 1], slope[QN_META_LAYERS], delta[2]; /* in shared memory, (units, batch + 1) each */
  qn_u32 shared_bytes, pairs;
  qn_u32 move[2], gram[2]; /* of the largest matrix: its move, twice, and what its columns' products are, twice */
  qn_meta_tensor tensor[QN_META_TENSORS];
} qn_meta_group;

/* Where a pair is in its episode, which is a new task with a new epsilon. */
typedef struct qn_meta_pair {
  qn_u64 episode;
  qn_u32 step, length;
} qn_meta_pair;

/* A window of one group's particles, a block each. */
typedef struct qn_meta_window {
  qn_meta_group group;
  float *slabs;
  const float *theta;
  const qn_meta_pair *pair;
  float *loss; /* [particles]: the window's mean, at most 2 ln classes; plus 1024 where the particle is lost */
  qn_u64 seed;
  qn_u32 steps;
  float sigma, step, decay, exp_mult; /* step, decay: of a tensor whose lr_scale is 1 */
  float m[3], m_rest[3], v, v_rest, f[3], f_rest[3];
} qn_meta_window;

/* The estimate from all groups' pairs, and Adam's step with it. */
typedef struct qn_meta_outer {
  float *theta, *m, *v;
  const qn_meta_pair *pair;
  const float *loss;
  qn_u64 seed;
  qn_u32 pairs, step;    /* step: from 1 */
  float sigma, lr, most; /* most: of a difference of losses */
} qn_meta_outer;

/* The pairs' next windows; and of all the mean loss and how many pairs are lost, in `report`. */
typedef struct qn_meta_next {
  qn_meta_pair *pair;
  float *loss;
  qn_u64 seed;
  qn_u32 pairs, window, shortest, longest;
  float *report; /* [2] */
} qn_meta_next;
#define QN_META_LOST 1024.0f
#endif
