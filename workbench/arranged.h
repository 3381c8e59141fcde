/* SPDX-License-Identifier: Apache-2.0 */
/* arranged.h - the tensors of one call of a strided op, laid out in memory in the ways that such ops take: rows at a
 * distance, halves of one tensor, even and odd columns. Beside them dense copies, over which the reference says what
 * every byte of that memory must hold afterwards, those between rows and columns included. It forces no geometry and
 * chooses no cases: that is leg_layouts.c's. */
#ifndef QN_WORKBENCH_ARRANGED_H
#define QN_WORKBENCH_ARRANGED_H
#include "op/op.h"
#include "workbench/subject.h"

/* Kinds 0 to QN_ARRANGEMENTS - 2 lay all tensors of a role out alike; under the last one each has the next kind. */
enum { QN_ARRANGEMENTS = 9, QN_ARRANGEMENT_DENSE = 0 };
const char *qn_arrangement_name(size_t kind);

typedef struct qn_arranged_order {
  const qn_op *op;
  size_t row; /* of the type table */
  qn_device device;
  void *stream; /* the caller's, for all transfers */
  size_t kind;
  qn_alignment alignment; /* of the tensors' first elements; rows lie where the pitch takes them */
  uint64_t seed;
} qn_arranged_order;

typedef struct qn_arranged qn_arranged;

/* Everything in one go, filled, or nothing. */
qn_status qn_arranged_create(qn_arranged **arranged, const qn_arranged_order *order);
void qn_arranged_destroy(qn_arranged **arranged);

/* Steps the reference over the dense copies: what must come out. The option "cpu" is "ref" afterwards. */
qn_status qn_arranged_expect(qn_arranged *arranged, const void *params);
qn_status qn_arranged_upload(qn_arranged *arranged);   /* as it was before any step */
qn_status qn_arranged_download(qn_arranged *arranged); /* what a step left */
/* Are all bytes as expected, any NaN being equal to any NaN? Else where not, in text. */
bool qn_arranged_right(qn_arranged *arranged, char *text, size_t bytes);

size_t qn_arranged_count(const qn_arranged *arranged); /* tensors a role */
const qn_tensor *const *qn_arranged_list(const qn_arranged *arranged);
uint64_t qn_arranged_elements(const qn_arranged *arranged); /* of one role */
#endif
