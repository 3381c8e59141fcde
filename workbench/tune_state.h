/* SPDX-License-Identifier: Apache-2.0 */
/* tune_state.h - what a tuner has seen so far, in a file beside the tables (OP.state), so that one which was stopped
 * goes on where it was. It counts for one device, driver and build; another's is begun anew. */
#ifndef QN_WORKBENCH_TUNE_STATE_H
#define QN_WORKBENCH_TUNE_STATE_H
#include "op/tune.h"

enum { QN_SEEN_KEY = 384 };
typedef struct qn_seen {
  char key[QN_SEEN_KEY]; /* "bf16/bf16/bf16 4096x14336 dense over flat-256x8x1: tiles-128x8x1" */
  double ns, speedup;    /* both 0: this place is done */
} qn_seen;

typedef struct qn_tune_seen {
  char path[QN_TUNE_PATH + 64];
  size_t n;
  qn_seen *seen;
  int file;       /* -1: none is written */
  size_t resumed; /* lines that an earlier run left */
} qn_tune_seen;

/* who: device, driver, build. resume: what an earlier run of the same saw is taken up; else it is forgotten. */
qn_status qn_tune_state_open(qn_tune_seen *state, const char *op, const char *who, bool resume);
void qn_tune_state_close(qn_tune_seen *state);
const qn_seen *qn_tune_state_find(const qn_tune_seen *state, const char *key); /* NULL: not seen */
qn_status qn_tune_state_add(qn_tune_seen *state, const char *key, double ns, double speedup);
#endif
