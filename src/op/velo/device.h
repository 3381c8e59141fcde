/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - what VeLO's kernels over the whole list are launched with (velo.list.cu), and how those over tiles
 * (velo.tiles.cu) are cut; all others are op/lopt's. */
#ifndef QN_OP_VELO_DEVICE_H
#define QN_OP_VELO_DEVICE_H
#include "op/lopt/device.h"

/* Weights of a tensor's network, and from one's to the next one's. */
enum { QN_VELO_NETWORK = 159, QN_VELO_OF_TENSOR = 160 };

/* A simdgroup's tile in STATS and UPDATE. */
enum {
  QN_VELO_COLUMNS = 128,
  QN_VELO_STAT_ROWS = 128,
  QN_VELO_ROWS = 64,
  QN_VELO_LEAST_LENGTH = 32,    /* of rows that are taken by tiles */
  QN_VELO_ELEMENTS_A_TASK = 512 /* a block's, where elements are taken one by one: there are few */
};

/* A row of sums over elements: squares of up to 24 channels, then of the state before the step m (3), m^2 (3), v, v^2;
 * p^2 is a channel. */
enum { QN_VELO_P_SQUARES = 2, QN_VELO_OLD = 24, QN_VELO_TOTALS = 32 };

typedef struct qn_velo_device_args {
  const qn_lopt_device_item *items; /* those that are not empty */
  qn_u32 *firsts;                   /* [phases][n]: as qn_lopt_device_args has them */
  qn_u64 n;
  qn_lopt_head *head;
  const float *mlp, *rnn, *loss;
  double *buffer;            /* the loss's means, least means, count, steps skipped */
  float *hidden, *cell;      /* by the item's place in the list */
  const qn_lopt_live *hyper; /* or NULL, and then: */
  qn_lopt_live live;
  double steps, rate[10]; /* of the training; 1 / the means' half-lives */
  double step_mult;
  double *losses, *size, *scale; /* [9]; [n] the mean of a parameter's squares; [n][24] the channels' scales */
  float *x, *z, *unit;           /* [n][32]; [n][1024]: Z, the old hidden state; [n][512]: the new one */
  float *mixed;                  /* by the item's place: [160] */
} qn_velo_device_args;
#endif
