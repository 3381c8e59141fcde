/* SPDX-License-Identifier: Apache-2.0 */
/* move.h - memory filled with an element, and a strided view copied to dense memory, by device kernels of the library's
 * own: what they are launched with, shared by C and move.cu. An element is a word of 1, 2, 4 or 8 bytes. */
#ifndef QN_KERNEL_MOVE_H
#define QN_KERNEL_MOVE_H
#include "base/kernel.h"

enum { QN_MOVE_THREADS = 256, QN_MOVE_BYTES = 16, QN_MOVE_DIMS = 33 }; /* bytes: of a thread, at most */

typedef struct qn_fill_args {
  void *to;
  qn_u64 n, word;
} qn_fill_args;

/* Strides in elements; outermost first, at least one dimension. Rows are of the last one. 2^log threads take a row, or
 * each of the `parts` of one, and a block QN_MOVE_THREADS >> log of these. */
typedef struct qn_copy_args {
  const void *from;
  void *to;
  qn_u64 rows, parts;
  qn_u32 log, ndim;
  qn_i64 shape[QN_MOVE_DIMS], strides[QN_MOVE_DIMS];
} qn_copy_args;
#endif
