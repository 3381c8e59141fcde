/* SPDX-License-Identifier: Apache-2.0 */
/* meta.train.h - meta-training of small_fc's network, on the host: part of the command and the tests, not of the
 * library. meta.h has the kernels' arguments; docs/meta-training.md the method. */
#ifndef QN_OP_LOPT_META_TRAIN_H
#define QN_OP_LOPT_META_TRAIN_H
#include "op/lopt/meta.h"
#include "workbench/meta_train.h"

enum {
  QN_META_GROUPS = 8,
  QN_META_FAN_IN = 32 /* inputs of a weight whose learning rate is not divided; files say it in their metadata */
};

/* What networks are trained: "512x32-32-8@32,128x64-256-10@64" is 512 pairs of networks of 32 inputs, 32 hidden values
 * and 8 classes on batches of 32, and 128 pairs of wider ones. Offsets, tensors and shared memory follow. */
qn_status qn_meta_groups_read(const char *text, qn_meta_group group[QN_META_GROUPS], size_t *n);

qn_meta_train_fn qn_lopt_meta_train;

/* A new optimizer's weights: as haiku draws a linear layer's, biases zero. */
void qn_meta_first_weights(uint64_t seed, float weights[QN_META_WEIGHTS]);
#endif
