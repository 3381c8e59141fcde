/* SPDX-License-Identifier: Apache-2.0 */
/* search.h - which of many candidates to look at, in which order and for how long: the strategy that the tuners of ops
 * and of kernels from a body share. What a candidate is, whether it is right and how fast, the caller says. */
#ifndef QN_WORKBENCH_SEARCH_H
#define QN_WORKBENCH_SEARCH_H
#include "quern/status.h"
#include <stddef.h>
#include <stdint.h>

/* exhaustive: all, in order. random: all in a random order, until the budget is spent. halving: a short look at all, a
 * longer one at the better half, and so on down to four. */
typedef enum qn_strategy {
  QN_STRATEGY_EXHAUSTIVE,
  QN_STRATEGY_RANDOM,
  QN_STRATEGY_HALVING,
  QN_STRATEGY_COUNT
} qn_strategy;
const char *qn_strategy_name(qn_strategy strategy);
qn_status qn_strategy_from_name(const char *name, qn_strategy *strategy); /* unknown: the nearest is suggested */

enum { QN_SEARCH_MOST = 512 };

typedef struct qn_search {
  size_t n; /* candidates, at most QN_SEARCH_MOST */
  qn_strategy strategy;
  uint64_t seed;
  double look_s;   /* for one look at a candidate */
  double budget_s; /* no look begins after it; 0: no limit */
  /* Looks at some candidates, side by side where that can be; speedup[k] over the incumbent, NAN where which[k] is not
   * possible. A failure ends the search. */
  qn_status (*look)(void *user, const size_t *which, size_t n, double seconds, double *speedup);
  void *user;
} qn_search;

/* *best: the candidate with the greatest speedup, n where none is possible. *looked: how many were looked at. */
qn_status qn_search_run(const qn_search *search, size_t *best, double *speedup, size_t *looked);
#endif
