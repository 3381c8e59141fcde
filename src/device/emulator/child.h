/* SPDX-License-Identifier: Apache-2.0 */
/* child.h - run a program to its end with given input, and keep what it says; and the files that this takes. */
#ifndef QN_DEVICE_EMULATOR_CHILD_H
#define QN_DEVICE_EMULATOR_CHILD_H
#include "core/core.h"

typedef enum qn_child_end {
  QN_CHILD_EXITED,   /* .code is its exit status */
  QN_CHILD_SIGNALED, /* .code is the signal */
  QN_CHILD_TIMED_OUT,
  QN_CHILD_UNKNOWN /* it ended, but the caller's own arrangements for SIGCHLD took its status */
} qn_child_end;

typedef struct qn_child {
  qn_child_end end;
  int code;
} qn_child;

/* Files that a program reads and writes beside its standard ones live in memory (qn_memory_file), so that nothing stays
 * behind however this process ends. The program has files[k] as descriptor QN_CHILD_FILE + k, whose path is
 * QN_CHILD_PATH and that number; qn_child_run leaves them open. */
enum { QN_CHILD_FILE = 3, QN_CHILD_MOST_FILES = 4 };
#define QN_CHILD_PATH "/proc/self/fd/"

/* A program's path, as a shell would find it. */
bool qn_program_find(const char *name, char *path, size_t bytes);

/* argv[0] is a path. Standard input is `input`, standard output and standard error are added to `said`. After limit_ms,
 * or when this process ends, the program and its children are killed. A program that cannot be started is
 * QN_NO_LIBRARY. No shell; the caller's signal handlers, mask and files are left alone. */
qn_status qn_child_run(char *const argv[], const void *input, size_t input_bytes, const int *files, size_t n_files,
                       int limit_ms, qn_text *said, qn_child *child);

/* An anonymous file in memory that holds the bytes, at its beginning; -1 with errno set. */
int qn_memory_file(const char *name, const void *data, size_t bytes);
/* All of it, to be released with qn_release; `what` begins the sentences. */
qn_status qn_memory_file_read(int file, const char *what, void **data, size_t *bytes);
#endif
