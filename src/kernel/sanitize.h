/* SPDX-License-Identifier: Apache-2.0 */
/* sanitize.h - launches with checks or a time limit. */
#ifndef QN_KERNEL_SANITIZE_H
#define QN_KERNEL_SANITIZE_H
#include "kernel/kernel.h"

enum { QN_UNIT_FLAGS = 24 };
/* The flags of `math`, then the compiler's flags for a sanitized build of `special`; NULL ends both. */
qn_status qn_sanitized_flags(const qn_special *special, bool fibers, const char *const *math,
                             const char *flags[QN_UNIT_FLAGS]);

/* A launch that is ready, of a call with `check` or a limit. tensor: as the body gets them, inputs before outputs;
 * group: its threads. On a GPU the call waits, at most as long as the limit says. */
qn_status qn_launch_sanitized(const qn_kernel *kernel, const qn_kernel_call *call, const uint32_t group[3],
                              const qn_tensor *const *tensor, qn_device device, const qn_device_function *function,
                              const qn_launch *launch);
#endif
