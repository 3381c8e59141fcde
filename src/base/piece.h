/* SPDX-License-Identifier: Apache-2.0 */
/* piece.h - what a CPU kernel of an element-wise op is called with. */
#ifndef QN_BASE_PIECE_H
#define QN_BASE_PIECE_H
#include "quern/op.h"
#include <stdbool.h>

/* One run of elements of one tensor, as a CPU kernel sees it. Pointers stand at the run's first element. */
typedef struct qn_piece {
  void *data[QN_MAX_TENSORS]; /* by role; NULL: absent */
  size_t n;
  uint64_t first;     /* index of that element in the whole tensor (shard offset included): what random numbers count */
  uint32_t tensor_id; /* likewise */
  uint32_t place;     /* in the list */
  uint64_t row;       /* that the run lies in; 0 where rows do not count: see row_flags in op/op.h */
  const uint8_t *step; /* by role: elements from one to the next, 1 or 2; NULL: 1. qn_walk (for_packs.h) sees to it */
  bool streams;        /* as the call's */
  uint64_t *tally;     /* two counters of this tensor, added to atomically; NULL where the phase counts nothing */
} qn_piece;

typedef struct qn_cpu_call {
  size_t row;     /* of the type table */
  uint32_t flags; /* as the op's flags() gave them */
  int phase;
  bool streams; /* the list is larger than caches are: what is only written may go past them */
  const void *coef;
} qn_cpu_call;
typedef void qn_cpu_fn(const qn_cpu_call *call, const qn_piece *piece);
#endif
