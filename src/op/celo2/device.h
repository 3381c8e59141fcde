/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - CELO2's sizes and the places of its weights, for C and kernels. */
#ifndef QN_OP_CELO2_DEVICE_H
#define QN_OP_CELO2_DEVICE_H
#include "op/lopt/device.h"

enum {
  QN_CELO2_INPUTS = 30,
  QN_CELO2_WIDTH = 8,     /* of the network's two layers */
  QN_CELO2_ELEMENTS = 18, /* of its inputs, those that are no state of a row or column */
  QN_CELO2_OUTPUTS = 3    /* of which the last is not used */
};

/* Places in the array of weights, all by input. */
enum {
  QN_CELO2_W1 = 0,
  QN_CELO2_B1 = QN_CELO2_W1 + QN_CELO2_INPUTS * QN_CELO2_WIDTH,
  QN_CELO2_W2 = QN_CELO2_B1 + QN_CELO2_WIDTH,
  QN_CELO2_B2 = QN_CELO2_W2 + QN_CELO2_WIDTH * QN_CELO2_WIDTH,
  QN_CELO2_W3 = QN_CELO2_B2 + QN_CELO2_WIDTH,
  QN_CELO2_B3 = QN_CELO2_W3 + QN_CELO2_WIDTH * QN_CELO2_OUTPUTS,
  QN_CELO2_WEIGHTS = QN_CELO2_B3 + QN_CELO2_OUTPUTS
};

/* Settings of a step that its own tasks alone read; m and v: of vectors. */
typedef struct qn_celo2_own {
  double rms_mult, adam_lr_mult, m_decay, v_decay;
  float adam_decay, adam_eps, m, m_rest, v, v_rest;
  float of_m, of_v; /* corrections of their means; kernels have them in the tensors' scalars */
  qn_u32 orthogonalize;
} qn_celo2_own;

/* Where kernels of vectors find the corrections, in scalars.scale. */
enum { QN_CELO2_OF_M, QN_CELO2_OF_V };

/* Elements of a large matrix, or of a vector, that a block takes; and simdgroups of a block of small ones. */
enum { QN_CELO2_A_TASK = 2048, QN_CELO2_SIMDS = 4 };
/* Rows and columns of a large matrix that a block turns; numbers of a square that a thread takes. */
enum { QN_CELO2_TILE = 64, QN_CELO2_FOUR = 4 };

/* Of kernels over tasks: qn_lopt_device_tasks puts the two together. */
typedef struct qn_celo2_args {
  qn_lopt_device_args of;
  qn_celo2_own own;
} qn_celo2_args;

/* A large matrix: (length, width), length >= width, or where it is wide the transpose of that. */
typedef struct qn_celo2_matrix {
  float *own, *p; /* own: the network's outputs */
  const qn_lopt_scalars *scalars;
  qn_u32 is_wide, pad;
} qn_celo2_matrix;

enum { QN_CELO2_BATCH = 16 };
/* Elements for which the network reads a weight once, where they lie side by side. */
enum { QN_CELO2_SIDE_BY_SIDE = 4 };

/* Of kernels over a batch of large matrices of one shape, each by so many blocks. `tall` is what becomes of them, one
 * behind the other as (length, width), `wide` its transpose; these and the squares of `width` are f32 or bf16. */
typedef struct qn_celo2_batch_args {
  qn_celo2_matrix of[QN_CELO2_BATCH];
  void *tall, *wide, *a, *of_a;
  double *sums; /* [matrices][partials] */
  qn_u64 length, width, blocks;
  qn_u32 partials, is_orthogonal; /* is_orthogonal: it is `tall` that is meant, not the outputs */
  double rms_mult;
} qn_celo2_batch_args;

/* Elements of a matrix up to which it is taken as a whole, with all of its step in one task. */
enum { QN_CELO2_SMALL = 512 };

/* Making a move orthogonal: T = FIRST T + T (SECOND A + THIRD A A), of A = T^T T, so often. */
enum { QN_CELO2_ROUNDS = 5 };
#define QN_CELO2_FIRST 3.4445f
#define QN_CELO2_SECOND -4.7750f
#define QN_CELO2_THIRD 2.0315f
#endif
