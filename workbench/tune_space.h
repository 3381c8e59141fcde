/* SPDX-License-Identifier: Apache-2.0 */
/* tune_space.h - what `quern tune` explores: shapes, the classes that they stand for, and the geometries that make
 * sense for a shape. It knows no op's name and measures nothing. */
#ifndef QN_WORKBENCH_TUNE_SPACE_H
#define QN_WORKBENCH_TUNE_SPACE_H
#include "op/launch_shape.h"
#include "op/tune.h"

enum { QN_TUNE_CELLS = 512, QN_TUNE_CANDIDATES = 128 };

/* One place of the table: a representative shape under one row of the op's types. */
typedef struct qn_tune_cell {
  size_t row;
  uint64_t rows, cols;
  qn_tune_layout layout;
} qn_tune_cell;

/* Shapes as "4096x14336,16x4096"; NULL: the op's own, else one large tensor and a small one. types: as `quern bench
 * --types` has them, NULL: every row of the type table whose sizes no row before it has. Pitched cells only where
 * `pitched`. */
qn_status qn_tune_cells(const qn_op *op, const char *types, const char *shapes, bool pitched, qn_tune_cell *cells,
                        size_t *n);
/* "bf16/bf16/bf16 4096x14336 dense" */
void qn_tune_cell_name(const qn_op *op, const qn_tune_cell *cell, char *text, size_t bytes);
/* The class that the value is of: behind the end before, up to the first end that it does not pass; the last is the
 * greatest number. */
void qn_tune_class(uint64_t value, const uint64_t *ends, uint64_t *least, uint64_t *most);
/* The classes of rows and columns that the shape stands for. */
void qn_tune_cell_classes(const qn_tune_cell *cell, qn_tune_entry *entry);
/* The geometries to try there, the incumbent not among them. only: names, apart by commas; NULL: all that make sense.
 */
qn_status qn_tune_candidates(const qn_op *op, const qn_tune_cell *cell, int multiprocessors, const char *only,
                             const qn_launch_shape *incumbent, qn_launch_shape *candidates, size_t *n);
#endif
