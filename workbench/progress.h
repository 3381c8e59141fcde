/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h - one line on standard error that says how far long work is; nothing at all unless that is a terminal.
 * It is redrawn at most ten times a second, never wraps, and is gone when the work ends. For one thread. */
#ifndef QN_WORKBENCH_PROGRESS_H
#define QN_WORKBENCH_PROGRESS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct qn_progress {
  const char *what; /* "check" and the op: borrowed */
  size_t total;     /* 0: not known */
  int64_t began_ns, drawn_ns;
  bool shown, on;
} qn_progress;

void qn_progress_begin(qn_progress *progress, const char *what, size_t total);
/* `done` of total are behind us and this is what runs now. Cheap when it is too early to draw again. */
void qn_progress_at(qn_progress *progress, size_t done, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Takes the line away, so that a line of output can be written; the next qn_progress_at puts it back. */
void qn_progress_hide(qn_progress *progress);
void qn_progress_end(qn_progress *progress);

#endif
