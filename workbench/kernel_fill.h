/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_fill.h - numbers for a kernel's inputs by the rules of kernel.json. The same seed gives the same numbers
 * on every machine and with any number of threads. */
#ifndef QN_WORKBENCH_KERNEL_FILL_H
#define QN_WORKBENCH_KERNEL_FILL_H
#include "kernel/folder.h"

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
