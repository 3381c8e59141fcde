/* SPDX-License-Identifier: Apache-2.0 */
/* turns.h - two command lines run again and again, one after the other, so that the runs of both see the same machine:
 * what compare.h needs for a word. */
#ifndef QN_WORKBENCH_TURNS_H
#define QN_WORKBENCH_TURNS_H
#include "quern/status.h"
#include "workbench/progress.h"

/* A command of the shell that appends its measurements to the file when `--json FILE` stands behind it. */
typedef struct qn_turn {
  const char *command, *file;
} qn_turn;

/* n runs of each, in the order A B, B A, A B ... A command that fails ends it, with the files as they are by then. What
 * the commands print is dropped, but for their complaints. */
qn_status qn_turns_run(const qn_turn *a, const qn_turn *b, size_t n, qn_progress *progress);
#endif
