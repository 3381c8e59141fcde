/* SPDX-License-Identifier: Apache-2.0 */
/* meta.train.h - meta-training of a learned optimizer's network, on the host: part of the command and the tests, not of
 * the library. meta.h has the kernels' arguments; docs/meta-training.md the method. */
#ifndef QN_OP_LOPT_META_TRAIN_H
#define QN_OP_LOPT_META_TRAIN_H
#include "op/lopt/meta.h"
#include "op/lopt/lopt.h"
#include "workbench/meta_train.h"

enum { QN_META_GROUPS = 8 };

/* A network whose weights can be trained: the `meta` of an op's qn_op_check. */
typedef struct qn_meta_network {
  const char *source; /* its optimizer in training, with the kernels of meta.loop.h */
  qn_lopt_weights kind;
  qn_u32 weights, table; /* numbers; and in a place of a side's table, 0: it has none */
  qn_u32 fan_in;    /* inputs of a weight whose learning rate is not divided, as files say in their metadata; 0: none
                       is */
  bool orthogonal;  /* moves of matrices are made so */
  size_t own_bytes; /* of the op's own settings (qn_lopt_op), which follow a qn_meta_window */
} qn_meta_network;
extern const qn_meta_network qn_meta_small_fc;

/* What networks are trained: "512x32-32-8@32,128x64-256-10@64" is 512 pairs of networks of 32 inputs, 32 hidden values
 * and 8 classes on batches of 32, and 128 pairs of wider ones. Offsets, tensors and shared memory follow. */
qn_status qn_meta_groups_read(const qn_meta_network *network, const char *text, qn_meta_group group[QN_META_GROUPS],
                              size_t *n);

qn_meta_train_fn qn_lopt_meta_train;

/* A new optimizer's weights: as haiku draws a linear layer's, biases zero. */
void qn_meta_first_weights(const qn_meta_network *network, uint64_t seed, float *weights);
/* The defines of an op's unit. */
enum { QN_META_DEFINES = 4 };
typedef struct qn_meta_defines {
  char text[QN_META_DEFINES][32];
  const char *all[QN_META_DEFINES + 1];
} qn_meta_defines;
void qn_meta_define(const qn_op *op, const void *params, qn_meta_defines *to);
/* The op's arguments of meta_window for a step, and behind them the op's own settings. */
typedef struct qn_meta_window_of {
  qn_meta_window of;
  char own[QN_LOPT_OWN_BYTES];
} qn_meta_window_of;
void qn_meta_begin_window(const qn_op *op, const void *params, qn_meta_window_of *to);
#endif
