/* SPDX-License-Identifier: Apache-2.0 */
/* data.h - the numbers that benches run on. Every element is a function of seed, role, tensor and index, so that any
 * part of the input can be made again, on any thread, instead of being kept. */
#ifndef QN_WORKBENCH_DATA_H
#define QN_WORKBENCH_DATA_H
#include "quern/op.h"

typedef struct qn_data_rule {
  qn_dtype dtype;
  qn_fill fill;
  double scale; /* standard deviation */
  int poison;   /* NaN everywhere: what an output holds before it is written */
  uint64_t seed;
} qn_data_rule;

/* Elements first .. first + n of tensor number `tensor`. Nearly normal: the sum of four uniform numbers, which ends at
 * 3.5 deviations. */
void qn_data_fill(const qn_data_rule *rule, uint64_t tensor, uint64_t first, size_t n, void *to);

double qn_data_value(qn_dtype dtype, const void *data, size_t k);
/* The first element whose bits differ, any NaN being equal to any NaN; n if there is none. */
size_t qn_data_differ(qn_dtype dtype, const void *a, const void *b, size_t n);
#endif
