/* SPDX-License-Identifier: Apache-2.0 */
/* leg_shaped.h - the legs of `quern check` for ops whose tensors have shapes of their own (qn_op.shaped). */
#ifndef QN_WORKBENCH_LEG_SHAPED_H
#define QN_WORKBENCH_LEG_SHAPED_H
#include "workbench/check.h"

void qn_leg_shaped_variants(qn_trial *trial); /* and the oracle */
void qn_leg_shaped_golden(qn_trial *trial);
void qn_leg_shaped_contract(qn_trial *trial);
void qn_leg_shaped_selftest(qn_trial *trial);
#endif
