/* SPDX-License-Identifier: Apache-2.0 */
/* search.h - `quern search`: what its options hold, and its generator "space", which is the tuner (workbench/tune.h)
 * in this process: it only looks here, and its best is proved, timed once more and kept by a process of its own. */
#ifndef QN_CLI_SEARCH_H
#define QN_CLI_SEARCH_H
#include "cli/kernel.h"
#include "workbench/search_keep.h"

typedef struct qn_search_words { /* of the command line */
  const char *problem;
  QN_WORD_LIST(QN_SEARCH_GENERATORS) generators;
  const char *backend, *store, *judge, *out;
  const char *types, *shapes, *variants, *workload;
  double budget_s, patience_s, limit_s, look_s, prove_s;
  uint64_t most, seed;
  qn_strategy strategy;
  bool fresh, best;
  const char *generate, *confirm; /* hidden: run here as a generator; prove a variant here */
} qn_search_words;

/* The best variant of a place of the op's or kernel's table. */
typedef struct qn_space_choice {
  char place[QN_PLACE_TEXT + 112], types[QN_TUNE_TYPES], shapes[QN_PLACE_TEXT + 64];
  char over[QN_TUNE_NAME], name[QN_TUNE_NAME];
  double speedup;
  bool pitched;
} qn_space_choice;

typedef struct qn_space {
  const qn_search_words *words;
  const qn_search_problem *problem;
  qn_search_store *store;
  const char *command, *backend; /* this command; the device's name */
  qn_device device;
  size_t generator, n;
  qn_space_choice *choice;
  qn_tune_outcome outcome;
  qn_status failure;
} qn_space;

/* Looks at all variants; the choices are to be released. */
qn_status qn_space_look(qn_space *space, double budget_s, qn_progress *progress);
/* Proves and times a choice in a fresh process, which keeps it in the tune table where it is faster. */
qn_status qn_space_confirm(qn_space *space, const qn_space_choice *choice, bool *kept);
/* That process: prints one object. */
int qn_space_confirm_here(const qn_search_words *words, const qn_search_problem *problem, qn_device device);
#endif
