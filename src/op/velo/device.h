/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - VeLO's sizes and the places of its weights, for C and kernels; what its kernels over the whole list are
 * launched with (velo.list.cu), and how those over tiles (velo.tiles.cu) are cut. All others are op/lopt's. */
#ifndef QN_OP_VELO_DEVICE_H
#define QN_OP_VELO_DEVICE_H
#include "op/lopt/device.h"

enum {
  QN_VELO_INPUTS = 30,  /* of the LSTM's mixing layers, and of an element's network */
  QN_VELO_OF_LIST = 18, /* of the LSTM's, those that all tensors share: the first ones */
  QN_VELO_UNITS = 512,
  QN_VELO_BANKS = 256,
  QN_VELO_WIDTH = 4,     /* of an element's network */
  QN_VELO_ELEMENTS = 18, /* of its inputs, those that differ from element to element where a tensor is factored */
  QN_VELO_CHANNELS = 24, /* and where it is not */
  QN_VELO_LOSSES = 10,   /* running means */
  QN_VELO_SUMMARIES = 9  /* sums of a tensor: p^2, m_k, m_k^2, v, v^2 */
};

/* Places in the two arrays of weights, and in a tensor's mixed ones, which are one bank's size. */
enum {
  QN_VELO_MIX_W = 0,
  QN_VELO_MIX_B = QN_VELO_MIX_W + QN_VELO_UNITS * QN_VELO_INPUTS,
  QN_VELO_FINAL_W = QN_VELO_MIX_B + QN_VELO_UNITS,
  QN_VELO_FINAL_B = QN_VELO_FINAL_W + QN_VELO_UNITS * QN_VELO_INPUTS,
  QN_VELO_LSTM_W = QN_VELO_FINAL_B + QN_VELO_UNITS,
  QN_VELO_LSTM_B = QN_VELO_LSTM_W + 4 * QN_VELO_UNITS * 2 * QN_VELO_UNITS,
  QN_VELO_CONTROL_W = QN_VELO_LSTM_B + 4 * QN_VELO_UNITS,
  QN_VELO_CONTROL_B = QN_VELO_CONTROL_W + QN_VELO_BANKS * QN_VELO_UNITS,
  QN_VELO_STEP_W = QN_VELO_CONTROL_B + QN_VELO_BANKS,
  QN_VELO_STEP_B = QN_VELO_STEP_W + QN_VELO_UNITS,

  QN_VELO_W1 = 0,
  QN_VELO_B1 = QN_VELO_W1 + QN_VELO_WIDTH * QN_VELO_INPUTS,
  QN_VELO_W2 = QN_VELO_B1 + QN_VELO_WIDTH,
  QN_VELO_B2 = QN_VELO_W2 + QN_VELO_WIDTH * QN_VELO_WIDTH,
  QN_VELO_W3 = QN_VELO_B2 + QN_VELO_WIDTH,
  QN_VELO_B3 = QN_VELO_W3 + 3 * QN_VELO_WIDTH,
  QN_VELO_BANK = QN_VELO_B3 + 3
};

/* A mixed weight is the sum of the banks' times their controls, and this. Where a bank's six tensors begin. */
#define QN_VELO_MIXING (100.0 / QN_VELO_BANKS)
#define QN_VELO_BEGINS                                                                                                 \
  {                                                                                                                    \
    QN_VELO_W1, QN_VELO_B1, QN_VELO_W2, QN_VELO_B2, QN_VELO_W3, QN_VELO_B3, QN_VELO_BANK                               \
  }

#define QN_VELO_B_TERM 0.0f /* as QN_LOPT_B_TERM */

enum { QN_VELO_OF_TENSOR = 160 }; /* from one tensor's mixed weights on a device to the next one's */

/* A simdgroup's tile in STATS and UPDATE. */
enum {
  QN_VELO_COLUMNS = 128,
  QN_VELO_STAT_ROWS = 128,
  QN_VELO_ROWS = 64,
  QN_VELO_LEAST_LENGTH = 32,    /* of rows that are taken by tiles */
  QN_VELO_ELEMENTS_A_TASK = 512 /* a block's, where elements are taken one by one: there are few */
};

/* A row of sums over elements: squares of the channels, then of the state before the step m (3), m^2 (3), v, v^2; p^2
 * is a channel. */
enum { QN_VELO_P_SQUARES = 2, QN_VELO_OLD = QN_VELO_CHANNELS, QN_VELO_TOTALS = QN_VELO_OLD + QN_VELO_SUMMARIES - 1 };

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
  double steps, rate[QN_VELO_LOSSES]; /* of the training; 1 / the means' half-lives */
  double step_mult;
  double *losses, *size, *scale; /* [9]; [n] the mean of a parameter's squares; [n][24] the channels' scales */
  float *x, *z, *unit;           /* [n][32]; [n][1024]: Z, the old hidden state; [n][512]: the new one */
  float *mixed;                  /* by the item's place: [160] */
} qn_velo_device_args;
#endif
