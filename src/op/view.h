/* SPDX-License-Identifier: Apache-2.0 */
/* view.h - the tensors of one place of a list as rows of columns: what kernels walk where tensors are not dense, or
 * where a row's number counts. Dimensions are merged where all roles' strides allow. Nothing here allocates or fails
 * with a sentence; validate.c says what cannot be walked. */
#ifndef QN_OP_VIEW_H
#define QN_OP_VIEW_H
#include "quern/op.h"
#include <stdbool.h>

typedef struct qn_view {
  uint64_t rows, cols;
  uint64_t pitch[QN_MAX_TENSORS]; /* elements from row to row, by role; cols or more */
  uint8_t step[QN_MAX_TENSORS];   /* elements from column to column: 1 or 2 */
} qn_view;

/* The k-th tensors of the roles (NULL: not given), which have one shape. row_is_last: a row is the last dimension, and
 * rows are in row-major order; else dimensions are merged as far as they go and may come in any order, the same for
 * all. False: it is not rows at one distance with columns 1 or 2 elements apart. */
bool qn_view_make(const qn_tensor *const tensors[QN_MAX_TENSORS], size_t k, bool row_is_last, qn_view *view);

/* Dense: some order of the dimensions is row-major, so the elements are one run from the first on. */
bool qn_is_dense(const qn_tensor *t);
/* Do two tensors of one shape put equal indices at equal places? */
bool qn_same_layout(const qn_tensor *a, const qn_tensor *b);

/* Elements from the first to the last of a role, both counted; 0: it is empty. */
static inline uint64_t qn_view_reach(const qn_view *v, size_t role)
{
  return v->rows && v->cols ? (v->rows - 1) * v->pitch[role] + (v->cols - 1) * v->step[role] + 1 : 0;
}

/* Two roles of one type that are the even and the odd columns of one tensor: their packs are loaded and stored
 * together. */
static inline bool qn_view_pairs(const qn_view *v, const qn_tensor *even, size_t even_role, const qn_tensor *odd,
                                 size_t odd_role)
{
  return v->step[even_role] == 2 && v->step[odd_role] == 2 && even->dtype == odd->dtype &&
         v->pitch[even_role] == v->pitch[odd_role] &&
         (const char *)odd->data == (const char *)even->data + qn_dtype_bytes(even->dtype);
}
#endif
