/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_fill.h - numbers for a kernel's inputs by the rules of kernel.json, and numbers of any storage type as
 * doubles. The same seed gives the same numbers on every machine and with any number of threads. */
#ifndef QN_WORKBENCH_KERNEL_FILL_H
#define QN_WORKBENCH_KERNEL_FILL_H
#include "kernel/folder.h"

/* An element as a double and back: whole types to nearest and within their range, bool as 0 or 1. A c64 is two f32:
 * its callers count it as such. 64-bit numbers beyond 2^53 are not exact. */
double qn_element_load(qn_dtype dtype, const void *at);
void qn_element_store(qn_dtype dtype, void *at, double value);

/* The rule of a type where kernel.json says nothing. */
const char *qn_rule_default(qn_dtype dtype);

typedef struct qn_filler {
  qn_rule rule;
  int64_t below; /* of QN_RULE_BELOW */
  qn_dtype dtype;
  uint64_t seed, role; /* role: sets one input's numbers apart from another's */
  int ndim;
  const int64_t *shape;
} qn_filler;
/* Row-major. QN_BAD_ARGUMENT where the rule and the shape do not fit. pool may be NULL. */
qn_status qn_fill_array(const qn_filler *filler, qn_pool *pool, void *to);
#endif
