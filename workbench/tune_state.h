/* SPDX-License-Identifier: Apache-2.0 */
/* tune_state.h - what a tuner has seen so far, in a file beside the tables (OP.state), so that one which was stopped
 * goes on where it was. It counts for one device, driver and build; another's is begun anew. */
#ifndef QN_WORKBENCH_TUNE_STATE_H
#define QN_WORKBENCH_TUNE_STATE_H
#include "op/tune.h"
#include <jansson.h>

enum { QN_SEEN_KEY = 384 };
typedef struct qn_tune_seen {
  char path[QN_TUNE_PATH + 64];
  json_t
      *seen; /* the speedup by "bf16/bf16/bf16 4096x14336 dense over flat-256x8x1: tiles-128x8x1"; of "done PLACE" 0 */
  int file;  /* -1: none is written */
  bool resumed; /* an earlier run left lines */
} qn_tune_seen;

/* who: device, driver, build. resume: what an earlier run of the same saw is taken up; else it is forgotten. */
qn_status qn_tune_state_open(qn_tune_seen *state, const char *op, const char *who, bool resume);
void qn_tune_state_close(qn_tune_seen *state);
qn_status qn_tune_state_add(qn_tune_seen *state, const char *key, double ns, double speedup);
#endif
