/* SPDX-License-Identifier: Apache-2.0 */
/* program.h - a program that runs beside this one, in a process group of its own, with which lines are exchanged over
 * its standard input and output. It ends with this process. */
#ifndef QN_WORKBENCH_PROGRAM_H
#define QN_WORKBENCH_PROGRAM_H
#include "quern/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { QN_PROGRAM_SAID = 80 };

typedef struct qn_program {
  pid_t pid;    /* 0: there is none */
  int to, from; /* its standard input and output, neither blocks; -1: closed */
} qn_program;

/* The Python that has the package: QUERN_PYTHON, else python3. */
const char *qn_program_python(void);
/* argv[0] is looked for along PATH, argv ends with NULL. errors: where its standard error goes; -1: with ours. */
qn_status qn_program_start(qn_program *program, const char *const *argv, int errors);
void qn_program_close(int *file); /* one of the two */
/* Waits at most so long for its end, then ends its whole group. said: how it ended, "status 3" or "signal 9 (Killed)";
 * "" for status 0. Returns the status, -1 after a signal. */
int qn_program_end(qn_program *program, int grace_ms, char said[QN_PROGRAM_SAID]);
#endif
