/* SPDX-License-Identifier: Apache-2.0 */
/* judge_images.h - the compiled kernels of a candidate, in a file in memory: the process that compiles writes them, the
 * judge looks at them, the process that runs reads them and compiles nothing. */
#ifndef QN_WORKBENCH_JUDGE_IMAGES_H
#define QN_WORKBENCH_JUDGE_IMAGES_H
#include "quern/status.h"
#include <stdbool.h>
#include <stddef.h>

enum { QN_IMAGES_FILE = 6 }; /* the descriptor, in both processes */

/* In those processes, before anything is compiled: kernels go to, or come from, the file. */
void qn_images_write(void);
void qn_images_read(void);
/* In the judge: false and why, where a kernel for the processor calls what is no part of a kernel ("it calls open,
 * which is no part of a kernel"), defines such a name, or is no kernel. `n`: how many there are. */
bool qn_images_allowed(int file, size_t *n, char *why, size_t bytes);
#endif
