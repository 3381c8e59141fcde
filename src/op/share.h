/* SPDX-License-Identifier: Apache-2.0 */
/* share.h - do two tensors that are rows of columns share an element, exactly: the halves of one tensor and its even
 * and odd columns do not, though the memory from first to last of one crosses that of the other. */
#ifndef QN_OP_SHARE_H
#define QN_OP_SHARE_H
#include <stdbool.h>
#include <stdint.h>

typedef struct qn_rows {
  uintptr_t begin;     /* address of the first element */
  uint64_t rows, cols; /* neither is 0 */
  uint64_t pitch;      /* bytes from row to row, no less than a row reaches */
  uint64_t step;       /* elements from column to column, 1 or 2 */
  uint64_t width;      /* bytes of an element */
} qn_rows;

/* Exact where both have elements of one width at distances that are its multiples; else columns two apart count as if
 * what lies between them were theirs. */
bool qn_rows_share(const qn_rows *a, const qn_rows *b);
#endif
