/* SPDX-License-Identifier: Apache-2.0 */
/* leg_subject.h - the legs of `quern check` (check.h) for ops that are held against a reference in double. */
#ifndef QN_WORKBENCH_LEG_SUBJECT_H
#define QN_WORKBENCH_LEG_SUBJECT_H
#include "workbench/check.h"

void qn_leg_subject_variants(qn_trial *trial); /* leg_subject.c */
void qn_leg_subject_oracle(qn_trial *trial);
void qn_leg_subject_selftest(qn_trial *trial); /* leg_subject_selftest.c */
#endif
