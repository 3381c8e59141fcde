/* SPDX-License-Identifier: Apache-2.0 */
/* list.h - the engine of element-wise ops on lists of tensors, inside: list.c runs, check.c refuses, overlap.c finds
 * shared bytes, plan.c remembers, variant.c tells what would run. What a caller sees is quern/op.h. A step allocates
 * nothing. */
#ifndef QN_OP_LIST_H
#define QN_OP_LIST_H
#include "op/device_list.h"
#include "op/op.h"

typedef enum qn_list_mode {
  QN_LIST_STEP,
  QN_LIST_PREPARE, /* only what a first step would compile; needs no workspace */
  QN_LIST_COUNT    /* only the phase that counts, for params that ask for one, into `counts` */
} qn_list_mode;

/* A call. */
typedef struct qn_list {
  const qn_op *op;
  qn_list_mode mode;
  const qn_exec *exec;
  const void *params;
  size_t n;
  const qn_tensor *tensors[QN_MAX_TENSORS]; /* by role; NULL: not given */
  int64_t *counts;
  size_t row;    /* of the type table; qn_list_check finds it */
  void *scratch; /* lent for the check of overlap; NULL: none */
  size_t scratch_bytes;
  qn_list_kept *kept; /* of a plan for a device; moved: since its last step some pointer changed */
  bool moved;
  bool strided; /* some tensor is not dense, or two of one place are laid out differently; qn_list_check finds it */
} qn_list;

/* ---- check.c: every refusal, each a sentence, before anything is written ---- */
/* The whole call; takes the tensors into the list. */
qn_status qn_list_check(qn_list *list, const qn_tensor *const *tensors);
/* Its parts, for plans: all that needs no tensors; tensor t in the place of tensors[role][k]; all that remains of a
 * call whose tensors are known to be good. */
qn_status qn_check_exec_and_params(const qn_list *list);
qn_status qn_check_tensor(const qn_list *list, size_t role, size_t k, const qn_tensor *t);
qn_status qn_check_rest(const qn_list *list);
/* The tensors of place k together, for ops that are strided: dense and alike, or else rows and columns. */
qn_status qn_check_place(const qn_list *list, size_t k, bool *strided);
/* Alone: the params. */
qn_status qn_check_params(const qn_op *op, const void *params);
/* "64x3x7x7", into text, which is given back. */
const char *qn_shape_text(const qn_tensor *t, char *text, size_t bytes);
/* Do two tensors of one shape put equal indices at equal places? */
bool qn_same_layout(const qn_tensor *a, const qn_tensor *b);

/* ---- overlap.c ---- */
typedef struct qn_span {
  uintptr_t begin, end; /* addresses; end is past the last byte */
  size_t role, k;       /* role QN_MAX_TENSORS: memory beside the tensors, which is written */
} qn_span;
/* The bytes of a checked tensor, from its first to its last; begin == end if it is empty. */
qn_span qn_span_of(const qn_list *list, size_t role, size_t k);
/* What the call writes beside the tensors: the counts, or the workspace if it is used; begin == end: nothing. */
qn_span qn_span_beside(const qn_list *list);
/* Scratch with which a check over so many tensors (of all roles) takes one round. */
size_t qn_overlap_scratch(size_t n_tensors);
/* No written bytes, those beside included, are shared. */
qn_status qn_check_overlap(const qn_list *list);
qn_status qn_fail_overlap(const qn_op *op, const qn_span *a, const qn_span *b);

/* ---- list.c ---- */
qn_status qn_list_run_checked(const qn_list *list);
qn_status qn_list_count(const qn_op *op, const qn_exec *exec, const void *params, size_t n,
                        const qn_tensor *const *tensors, int64_t *counts);
/* Bytes of workspace: 16 a tensor where the params ask for a phase that counts. */
size_t qn_list_workspace(const qn_op *op, const void *params, size_t n);

/* ---- shaped.c: ops of tensors with shapes of their own; a step or, in prepare, what leads to it ---- */
qn_status qn_shaped_step(const qn_op *op, const qn_exec *exec, const void *params, size_t n,
                         const qn_tensor *const *tensors, bool prepare);
size_t qn_shaped_workspace(const qn_op *op, const qn_exec *exec, const void *params, size_t n,
                           const qn_tensor *const *tensors);

/* ---- ruled.c: ops of lists whose shapes follow by rule ---- */
qn_status qn_ruled_step(const qn_op *op, const qn_exec *exec, const void *params, size_t n,
                        const qn_tensor *const *tensors, bool prepare);
size_t qn_ruled_workspace(const qn_op *op, const void *params, size_t n, const qn_tensor *const *tensors);

static inline const qn_op *qn_op_of(const qn_op_info *info) { return (const qn_op *)info; } /* its first member */

/* Do these params ask for the row that elements lie in? */
static inline bool qn_list_by_rows(const qn_list *list)
{
  const qn_op *op = list->op;
  return op->row_flags && op->flags(list->params, list->row) & op->row_flags;
}

static inline qn_access qn_list_access(const qn_list *list, size_t role)
{
  return list->op->info.types[list->row].tensor[role].access;
}
#endif
