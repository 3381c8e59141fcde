/* SPDX-License-Identifier: Apache-2.0 */
/* tune_variants.h - `quern tune` for ops whose engine chooses among device variants that have names: which one is the
 * fastest for a workload, under each of the op's settings. No op and no variant is named here. */
#ifndef QN_WORKBENCH_TUNE_VARIANTS_H
#define QN_WORKBENCH_TUNE_VARIANTS_H
#include "workbench/tune.h"

/* As qn_tune_run. order->shapes: names of the op's workloads or texts such as "m=16 n=64 k=32 groups=2", apart by
 * commas; NULL: all workloads. A text that says "precision=tf32" is of that class alone. order->types: the type of the
 * first tensor of which there are several. order->only: names of variants. */
qn_status qn_tune_variants_run(const qn_tune_order *order, qn_tune_outcome *outcome);
/* What a call of each takes now, and why, a line each to order->out. */
qn_status qn_tune_variants_list(const qn_tune_order *order);

/* What a device variant is good for there: of the op's workloads in every class, `of` calls. */
typedef struct qn_variant_account {
  const char *name;
  size_t can, taken, of; /* calls that it could serve, and those that take it now */
  char why[200];         /* the reason of the first that it cannot; "": there is none */
} qn_variant_account;
enum { QN_VARIANT_ACCOUNTS = 64 };
/* Nothing is run; a library may be opened. */
qn_status qn_tune_variants_account(const qn_op *op, qn_device device, qn_variant_account accounts[QN_VARIANT_ACCOUNTS],
                                   size_t *n);
#endif
