/* SPDX-License-Identifier: Apache-2.0 */
/* leg_ruled.h - the legs of `quern check` for ops of lists whose shapes follow by rule. */
#ifndef QN_WORKBENCH_LEG_RULED_H
#define QN_WORKBENCH_LEG_RULED_H
#include "workbench/check.h"

void qn_leg_ruled_variants(qn_trial *trial);
void qn_leg_ruled_oracle(qn_trial *trial);
void qn_leg_ruled_golden(qn_trial *trial);
void qn_leg_ruled_contract(qn_trial *trial);
void qn_leg_ruled_selftest(qn_trial *trial);
#endif
