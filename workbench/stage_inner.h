/* SPDX-License-Identifier: Apache-2.0 */
/* stage_inner.h - what stage.c and stage_check.c share. */
#ifndef QN_WORKBENCH_STAGE_INNER_H
#define QN_WORKBENCH_STAGE_INNER_H
#include "workbench/subject_stage.h"

enum {
  QN_CHUNK = 1 << 14,  /* elements that one thread fills or compares at a time */
  QN_MOVED_BYTES = 16, /* how far a moved tensor moves: within its band, still aligned */
  QN_BAND_BYTE = 0xa5,
  QN_MAX_PASSES = 32,
};

typedef struct qn_stage_chunk {
  uint32_t tensor, n;
  uint64_t first, at; /* element of the tensor, and where it stands in the arenas */
} qn_stage_chunk;

struct qn_stage {
  qn_stage_request ask;
  qn_exec exec;
  const qn_op_types *types;
  uint64_t *place;  /* in elements, the same in all arenas; one more: where they end */
  int64_t *strides; /* of every tensor, QN_MAX_NDIM each, where rows are apart */
  qn_stage_chunk *chunk;
  size_t n_chunks;
  char *arena[QN_MAX_TENSORS];
  qn_tensor *tensor[QN_MAX_TENSORS]; /* n, then the same n moved */
  const qn_tensor *given[QN_MAX_TENSORS], *moved[2][QN_MAX_TENSORS];
  int last; /* which of the two places the plan knows */
  qn_plan *plan;
  float *scratch;
  const struct qn_device_function *pass[QN_MAX_PASSES]; /* of the unfused form, on devices */
  _Alignas(16) char coef[QN_COEF_BYTES];
  qn_subject *subject; /* of an op with a reference in double; then all else but the request is empty */
};

/* Data and bands into all arenas. */
qn_status qn_stage_fill(qn_stage *stage, qn_progress *progress);
#endif
