/* SPDX-License-Identifier: Apache-2.0 */
/* search_keep.h - the winner of a search: measured again by a fresh judge at a higher level, and only then kept, by
 * problem, shapes, device and versions, in kept.json of the problem's folder. An entry that is stale, another's or
 * damaged counts as none: then the baseline holds. */
#ifndef QN_WORKBENCH_SEARCH_KEEP_H
#define QN_WORKBENCH_SEARCH_KEEP_H
#include "workbench/search_run.h"

typedef struct qn_search_kept {
  json_t *entry;             /* NULL: none counts, and why */
  json_t *content;           /* of the candidate */
  char path[QN_SEARCH_PATH]; /* of its source */
  char why[600];
} qn_search_kept;

/* folder: the problem's, in the store. Close it in any case. */
void qn_search_kept_read(const char *folder, const qn_search_problem *problem, const json_t *who, qn_search_kept *kept);
void qn_search_kept_close(qn_search_kept *kept);

/* Has the best candidates of the store judged again, the best first, until one is faster then too. *kept: that one, or
 * what was kept before. tried: how many were judged. */
qn_status qn_search_select(const qn_search_order *order, qn_search_kept *kept, size_t *tried);
#endif
