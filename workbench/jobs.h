/* SPDX-License-Identifier: Apache-2.0 */
/* jobs.h - items run in several processes, so that they use all processors and a crash is one failed item. */
#ifndef QN_WORKBENCH_JOBS_H
#define QN_WORKBENCH_JOBS_H
#include "workbench/check.h"

enum { QN_ITEMS_MOST = 4096 };

typedef struct qn_outcome {
  bool done;
  char note[256];
  char *failure, *skipped; /* NULL: neither */
} qn_outcome;

/* Runs all items. tell is called for each in their order, once it and all before it are done; progress when one begins
 * or ends. Both are called by the calling thread. */
qn_status qn_jobs_run(const qn_check_options *options, const qn_item *items, size_t n,
                      void (*tell)(void *user, size_t item, const qn_outcome *outcome),
                      void (*progress)(void *user, size_t done, size_t running), void *user);

/* One item, here. */
void qn_jobs_run_one(const qn_check_options *options, const qn_item *item, qn_outcome *outcome);

#endif
