/* SPDX-License-Identifier: Apache-2.0 */
/* child.h - run a program to its end with given input, and keep what it says; and the files that this takes. */
#ifndef QN_DEVICE_HOST_CHILD_H
#define QN_DEVICE_HOST_CHILD_H
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

/* argv[0] is a path. Standard input is `input`, standard output and standard error are added to `said`. directory, if
 * given, becomes TMPDIR. After limit_ms the program and its children are killed. A program that cannot be started is
 * QN_NO_LIBRARY. No shell; the caller's signal handlers, mask and files are left alone. */
qn_status qn_child_run(char *const argv[], const void *input, size_t input_bytes, const char *directory, int limit_ms,
                       qn_text *said, qn_child *child);

/* A private temporary directory (mode 0700) under $TMPDIR or /tmp; and away with it and the files in it. */
qn_status qn_scratch_make(char *path, size_t bytes);
void qn_scratch_remove(const char *path);

/* A whole regular file, to be released with qn_release. */
qn_status qn_file_read(const char *path, void **data, size_t *bytes);
/* An anonymous file in memory that holds the bytes, at its beginning; -1 with errno set. */
int qn_memory_file(const char *name, const void *data, size_t bytes);
#endif
