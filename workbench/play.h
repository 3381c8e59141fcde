/* SPDX-License-Identifier: Apache-2.0 */
/* play.h - what the legs have in common that play an op's golden vectors line by line, where the reference in double is
 * held to them as the target is: the walk over the lines and what is said of a number. What lines mean is the leg's own
 * but for "case NAME" and "end". */
#ifndef QN_WORKBENCH_PLAY_H
#define QN_WORKBENCH_PLAY_H
#include "workbench/check.h"
#include "workbench/golden.h"

typedef struct qn_play {
  qn_trial *trial;
  qn_golden at;
  size_t number; /* of the case */
  char name[64];
  double worst; /* of what is allowed */
} qn_play;

/* A failure: the op, the line and what is wrong with it. */
qn_status qn_play_complain(const qn_play *p, const char *what);
/* Takes all lines; one of a case that the trial leaves out is not `taken`. Of the cases every `every`-th may be. */
void qn_play_lines(qn_play *p, size_t every, qn_status (*take)(void *leg, bool taken), void *leg);
/* Element k of a role: what was got may be `allowed` from what is wanted, the reference `near`. */
typedef struct qn_play_number {
  double want, got, allowed, reference, near;
} qn_play_number;
void qn_play_compare(const qn_play *p, const char *role, size_t k, const qn_play_number *x);
#endif
