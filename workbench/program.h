/* SPDX-License-Identifier: Apache-2.0 */
/* program.h - a program that runs beside this one, in a process group of its own, with which lines are exchanged over
 * its standard input and output. It ends with this process. */
#ifndef QN_WORKBENCH_PROGRAM_H
#define QN_WORKBENCH_PROGRAM_H
#include "core/core.h"
#include <sys/types.h>

enum { QN_PROGRAM_SAID = 80 };

typedef struct qn_program {
  pid_t pid;    /* 0: there is none */
  int to, from; /* its standard input and output, neither blocks; -1: closed */
} qn_program;

/* The Python that has the package: QUERN_PYTHON, else python3. */
const char *qn_program_python(void);
/* argv[0] is looked for along PATH, argv ends with NULL. environment: NULL for ours. errors: where its standard error
 * goes; -1: with ours. */
qn_status qn_program_start(qn_program *program, const char *const *argv, char *const *environment, int errors);
void qn_program_close(int *file); /* one of the two */
/* Adds to text all that it has written. True: its output has ended, or text has more than `most` bytes. */
bool qn_program_read(const qn_program *program, qn_text *text, size_t most);
/* The same until it is true. False: so much time went by, or *stop was set (NULL: it cannot be). */
bool qn_program_read_all(const qn_program *program, qn_text *text, size_t most, double limit_s,
                         const volatile int *stop);
/* Waits at most so long for its end, then ends its whole group. said: how it ended, "status 3" or "signal 9 (Killed)";
 * "" for status 0. Returns the status, -1 after a signal. */
int qn_program_end(qn_program *program, int grace_ms, char said[QN_PROGRAM_SAID]);
/* All of it: a program without input, what it writes and its end, for which it has `grace_ms` behind its output's end.
 * *ended: as qn_program_end returns; -1 too where its output had no end before `limit_s` and `most`. */
qn_status qn_program_run(const char *const *argv, char *const *environment, int errors, size_t most, double limit_s,
                         int grace_ms, qn_text *text, int *ended, char said[QN_PROGRAM_SAID]);
/* A folder with all that is in it, as far as it can be removed. */
void qn_tree_remove(const char *folder);
#endif
