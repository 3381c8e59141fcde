/* SPDX-License-Identifier: Apache-2.0 */
/* search_store.h - what searches of one problem have seen: a folder with candidates.jsonl, which is only ever appended
 * to, and sources by the hash of their content. One search at a time has it. docs/searching.md describes the lines. */
#ifndef QN_WORKBENCH_SEARCH_STORE_H
#define QN_WORKBENCH_SEARCH_STORE_H
#include "workbench/search_problem.h"
#include <stdint.h>

#define QN_SEARCH_SCHEMA "quern search 1"

typedef struct qn_search_store {
  char folder[QN_SEARCH_PATH - 256], sources[QN_SEARCH_PATH - 240], file[QN_SEARCH_PATH - 224];
  int descriptor;
  bool made;        /* the folder, by this run */
  json_t *known;    /* lines of candidates by their hash, of this device and these versions */
  json_t *who;      /* device and versions */
  double spent_s;   /* by earlier runs with the same seed */
  size_t left_out;  /* lines that are none */
  int64_t began_ns; /* of this run */
} qn_search_store;

/* The user's own folder of all searches: below $XDG_STATE_HOME, else ~/.local/state. */
qn_status qn_search_store_place(char path[QN_SEARCH_PATH]);
/* Makes what is missing of root and the problem's folder in it, takes up its lines unless `fresh`, and appends a line
 * "begin" with the members of `begin`. Both objects are borrowed. Close it in any case. */
qn_status qn_search_store_open(qn_search_store *store, const char *root, const qn_search_problem *problem,
                               const json_t *who, uint64_t seed, bool fresh, const json_t *begin);
void qn_search_store_close(qn_search_store *store);
/* Of a problem that cannot be searched nothing stays: removes the folder, if this run made it. */
void qn_search_store_drop(qn_search_store *store);
/* The problem's folder in root, made or not. */
qn_status qn_search_store_folder(const char *root, const qn_search_problem *problem, char folder[QN_SEARCH_PATH - 256]);

/* Appends an event; line is given away, and gets what every line has. One of a candidate is known from then on. */
qn_status qn_search_store_add(qn_search_store *store, const char *event, json_t *line);
/* The line of a candidate with this content, or NULL. */
const json_t *qn_search_store_find(const qn_search_store *store, const char *hash);
#endif
