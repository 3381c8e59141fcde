/* SPDX-License-Identifier: Apache-2.0 */
/* meta_curve.h - the mean loss of meta-training over its outer steps, as a picture. */
#ifndef QN_WORKBENCH_META_CURVE_H
#define QN_WORKBENCH_META_CURVE_H
#include "core/core.h"

enum { QN_META_CURVE_POINTS = 512 };
typedef struct qn_meta_curve {
  size_t n;
  double step[QN_META_CURVE_POINTS], loss[QN_META_CURVE_POINTS];
} qn_meta_curve;

/* Where there is no room, two neighbours become one. */
void qn_meta_curve_add(qn_meta_curve *curve, uint32_t step, double loss);
/* Writes the file whole or not at all. A curve without a point is refused. */
qn_status qn_meta_curve_draw(const char *path, const qn_meta_curve *curve, const char *title, uint32_t steps);
#endif
