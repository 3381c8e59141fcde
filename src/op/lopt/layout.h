/* SPDX-License-Identifier: Apache-2.0 */
/* layout.h - the workspace of a step on a device (lopt.layout.c): what is given out of it, in the order of the list, so
 * that measuring and laying out go the same way. */
#ifndef QN_OP_LOPT_LAYOUT_H
#define QN_OP_LOPT_LAYOUT_H
#include "op/lopt/lopt.h"

/* Where the sums lie that are added over processes, behind each of three phases, of all tensors on end. */
enum { QN_LOPT_SHARED_SUMS, QN_LOPT_SHARED_STATES, QN_LOPT_SHARED_STATS, QN_LOPT_SHARED };
typedef struct qn_lopt_shared_parts {
  double *base[QN_LOPT_SHARED];
  uint64_t n[QN_LOPT_SHARED];
} qn_lopt_shared_parts;

/* Tensor k into `it`, but for the caller's pointers; false: it is empty. `bounded`: the gradients' norms are. */
bool qn_lopt_lay(const qn_lopt_network *network, const qn_lopt_shards *shards, const qn_tensor *param, size_t k,
                 bool bounded, qn_lopt_arena *r, qn_lopt_shared_parts *s, qn_lopt_device_item *it);

/* Tiles of so many rows and columns; may the tensor be taken by tiles, if the class of precision allows it? */
uint64_t qn_lopt_tiles_of(const qn_lopt_device_item *it, uint64_t rows, uint64_t columns);
bool qn_lopt_may_be_tiled(const qn_lopt_network *network, const qn_lopt_device_item *it);

/* The table of at most n tensors, and their first tasks by phase. */
uint64_t qn_lopt_table_bytes(size_t n);
#endif
