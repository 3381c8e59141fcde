/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - what VeLO's kernels over the whole list are launched with (velo.list.cu); those over elements are
 * op/lopt's. */
#ifndef QN_OP_VELO_DEVICE_H
#define QN_OP_VELO_DEVICE_H
#include "op/lopt/device.h"

/* Behind a tensor's mixed weights, [176]. */
enum { QN_VELO_AT_LR_MULT = 159, QN_VELO_AT_SIZE = 160, QN_VELO_OF_TENSOR = 176, QN_VELO_CHUNK = 16384 };

typedef struct qn_velo_device_args {
  const qn_lopt_device_item *items; /* those that are not empty */
  const qn_u32 *first;              /* [n + 1]: the chunks before each one's */
  qn_u64 n;
  qn_lopt_head *head;
  const float *mlp, *rnn, *loss;
  double *buffer;            /* the loss's means, least means, count, steps skipped */
  float *hidden, *cell;      /* by the item's place in the list */
  const qn_lopt_live *hyper; /* or NULL, and then: */
  qn_lopt_live live;
  double steps, rate[10];     /* of the training; 1 / the means' half-lives */
  double *partial;            /* [chunks][9] */
  double *losses, *size;      /* [9]; [n] the mean of a parameter's squares */
  float *x, *most, *z, *unit; /* [n][32]; [512]; [n][1024]: Z, the old hidden state; [n][512]: the new one */
  float *mixed;               /* [n][176] */
} qn_velo_device_args;
#endif
