/* SPDX-License-Identifier: Apache-2.0 */
/* first_use.h - how long a process waits for an op's kernel when it needs it for the first time. That happens once a
 * process, so each figure is taken in a process of its own, with a kernel cache of its own. */
#ifndef QN_WORKBENCH_FIRST_USE_H
#define QN_WORKBENCH_FIRST_USE_H
#include "op/op.h"

/* In this process, which must not have needed the kernel yet: the device's context is made first and does not count.
 * `empty`: an empty kernel takes the place of the op's, which is what the compiler itself costs a new process. */
qn_status qn_first_use_here(const qn_op *op, const void *params, size_t row, qn_device device, bool empty, double *ns);

typedef struct qn_first_use_times {
  double empty_ns, cold_ns, disk_ns; /* an empty kernel, the op's on an empty cache, the op's from disk */
} qn_first_use_times;

/* Runs this very program with these arguments (ending in NULL) once for each of the times, in one new cache; each run
 * must print one number, as the call above gives it. For the empty kernel arguments[here] is replaced by `here_empty`.
 */
qn_status qn_first_use(const char **arguments, size_t here, const char *here_empty, qn_first_use_times *times);
#endif
