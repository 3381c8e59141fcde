/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_say.h - what a kernel did, for people: a compiler's complaint with the body's line and a caret, the first
 * values of arrays, a crash as a sentence. */
#ifndef QN_WORKBENCH_KERNEL_SAY_H
#define QN_WORKBENCH_KERNEL_SAY_H
#include "workbench/kernel_case.h"
#include <stdio.h>

/* The failure in qn_last_error(); where it names a line of the body (or header, or reference), that line beneath it,
 * and a caret where the column or the word is known. Ends in a newline; `before` stands in front. */
void qn_say_failure(FILE *stream, const qn_folder *folder, const char *before);
/* "out   f32 [4, 8]   0.5 -1.25 ..." */
void qn_say_array(FILE *stream, const qn_array *array, size_t most);
/* One element as text: enough digits to be the same number again. */
void qn_element_text(qn_dtype dtype, const void *at, char *text, size_t bytes);

/* Runs `work` in a child process and gives back its exit status; a child that is ended by a signal is told in `said`
 * ("" else) and gives -1. Only before this process has opened a GPU or started
 * a thread: a lock that another thread holds just then is never released in the child. */
int qn_isolated(int (*work)(void *user), void *user, char *said, size_t bytes);
#endif
