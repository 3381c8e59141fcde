/* SPDX-License-Identifier: Apache-2.0 */
/* tune_stage.h - an op under one row of its types on a device, for `quern tune`: memory that is taken once for all
 * shapes, steps of any shape in any forced geometry, and the proof that a geometry gives the reference's bits. */
#ifndef QN_WORKBENCH_TUNE_STAGE_H
#define QN_WORKBENCH_TUNE_STAGE_H
#include "workbench/tune_space.h"

typedef struct qn_tune_stage qn_tune_stage;

/* Elements that a cell's tensors span, gaps between pitched rows included. */
uint64_t qn_tune_span(const qn_tune_cell *cell);
/* Memory for cells that span so many elements; exec's workspace is replaced by one of the stage's own. */
qn_status qn_tune_stage_create(qn_tune_stage **stage, const qn_op *op, size_t row, const qn_exec *exec,
                               uint64_t most_elements);
void qn_tune_stage_destroy(qn_tune_stage **stage);

/* Ragged tensors in this layout, stepped once in this geometry: every byte of every role, and of what lies between
 * tensors and behind rows, is as the reference tier leaves it. Remembered, so that asking again is free. *why: "", or
 * the reason why the geometry is not to be timed. */
qn_status qn_tune_stage_prove(qn_tune_stage *stage, qn_tune_layout layout, const qn_launch_shape *g, const char **why);

/* Steps are over tensors of this shape from here on; in this geometry, until the option is set again. */
void qn_tune_stage_take(qn_tune_stage *stage, const qn_tune_cell *cell);
qn_status qn_tune_stage_step(qn_tune_stage *stage, const qn_launch_shape *g);
double qn_tune_stage_moved(const qn_tune_stage *stage); /* bytes read and written by a step */
#endif
