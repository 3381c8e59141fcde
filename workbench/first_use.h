/* SPDX-License-Identifier: Apache-2.0 */
/* first_use.h - how long a process waits for an op's kernel when it needs it for the first time. That happens once a
 * process, so each figure is taken in a process of its own, with a kernel cache of its own. */
#ifndef QN_WORKBENCH_FIRST_USE_H
#define QN_WORKBENCH_FIRST_USE_H
#include "op/op.h"

/* In this process, which must not have needed the kernel yet: the device's context is made first and does not count. */
qn_status qn_first_use_here(const qn_op *op, const void *params, size_t row, qn_device device, double *ns);

/* Runs this very program with these arguments (ending in NULL) twice, on an empty cache and on what that left; each
 * must print one number, as the call above gives it. */
qn_status qn_first_use(const char *const *arguments, double *cold_ns, double *disk_ns);
#endif
