/* SPDX-License-Identifier: Apache-2.0 */
/* stage_inner.h - the structure that stage.c and stage_check.c share. */
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
  uint64_t first, at; /* element of the tensor, and where it stands in the memory of every role */
} qn_stage_chunk;

struct qn_stage {
  qn_stage_request ask;
  qn_subject d;
  bool refers;  /* the op has a reference in double; then all below is empty */
  size_t first; /* role that is given */
  uint64_t end; /* of every role's memory, in elements */
  qn_stage_chunk *chunk;
  size_t n_chunks;
  qn_tensor *elsewhere[QN_MAX_TENSORS];
  const qn_tensor *moved[2][QN_MAX_TENSORS];
  int last; /* which of the two places the plan knows */
  void *scratch;
  const struct qn_device_function *pass[QN_MAX_PASSES]; /* of the unfused form, on devices */
  _Alignas(16) char coef[QN_COEF_BYTES];
};

/* The first element of the first tensor, in every role's memory. */
static inline uint64_t qn_stage_begin(const qn_stage *s)
{
  return s->d.role[s->first].place[0].offset / s->d.role[s->first].width;
}

/* Data and bands into all arenas. */
qn_status qn_stage_fill(qn_stage *stage, qn_progress *progress);
#endif
