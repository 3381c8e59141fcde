/* SPDX-License-Identifier: Apache-2.0 */
/* search_problem.h - what `quern search` searches for: a kernel's folder, an op, or a PyTorch module in a file; and the
 * candidates that a generator may give for it. Its texts are what the protocol's message "problem" has
 * (docs/search-protocol.schema.json). */
#ifndef QN_WORKBENCH_SEARCH_PROBLEM_H
#define QN_WORKBENCH_SEARCH_PROBLEM_H
#include "quern/status.h"
#include <jansson.h>
#include <stdbool.h>

enum { QN_SEARCH_HASH = 33, QN_SEARCH_PATH = 4096 };

typedef enum qn_problem_kind { QN_PROBLEM_KERNEL, QN_PROBLEM_OP, QN_PROBLEM_MODEL } qn_problem_kind;

typedef struct qn_search_problem {
  qn_problem_kind kind;
  char name[64];             /* of the folder, the op, the file without .py */
  char path[QN_SEARCH_PATH]; /* as a judge takes it: absolute, or the op's name */
  char hash[QN_SEARCH_HASH]; /* of its texts */
  char ending[16];           /* of a body's file: ".metal" */
  json_t *about;             /* kind, name, source, kernel, files, workload, accepts */
} qn_search_problem;

/* An op's name, a folder with kernel.json (or that file), a file that ends in .py. workload: the one of a kernel's
 * folder that is timed, or NULL. Close it in any case. */
qn_status qn_search_problem_open(qn_search_problem *problem, const char *path, const char *workload);
void qn_search_problem_close(qn_search_problem *problem);

void qn_search_hash(const char *text, char hash[QN_SEARCH_HASH]);
/* ---- candidates ---- */
typedef struct qn_search_candidate {
  char id[128], note[400], kind[16], hash[QN_SEARCH_HASH];
  json_t *content; /* kind, with source or files; what the hash is of */
  size_t generator;
} qn_search_candidate;

/* From a message: whether it is what the problem accepts. Refused: a sentence. Close it in any case. */
qn_status qn_search_candidate_read(const qn_search_problem *problem, const json_t *message,
                                   qn_search_candidate *candidate);
void qn_search_candidate_close(qn_search_candidate *candidate);
/* The problem itself as a candidate: what all others are compared with. None of an op. */
qn_status qn_search_candidate_own(const qn_search_problem *problem, qn_search_candidate *candidate);
/* Writes it below a folder, as a judge takes it; path: where. */
qn_status qn_search_candidate_write(const qn_search_problem *problem, const json_t *content, const char *hash,
                                    const char *folder, char path[QN_SEARCH_PATH]);
/* The same to a path of the caller's: a file, or a folder that is made. */
qn_status qn_search_candidate_write_to(const json_t *content, const char *path);
/* And back; path as it was written. QN_BAD_FILE where it is not what the hash says. */
qn_status qn_search_candidate_load(const char *kind, const char *path, const char *hash, json_t **content);
#endif
