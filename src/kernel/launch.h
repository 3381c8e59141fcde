/* SPDX-License-Identifier: Apache-2.0 */
/* launch.h - what the steps of a launch share. */
#ifndef QN_KERNEL_LAUNCH_H
#define QN_KERNEL_LAUNCH_H
#include "kernel/kernel.h"
#include <stdatomic.h>

/* The k-th tensor, inputs before outputs. */
const qn_tensor *qn_call_tensor(const qn_kernel *kernel, const qn_kernel_call *call, size_t k);

/* All that can be said of a call without its data and without compiling. */
qn_status qn_call_check(const qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call);
/* The specialisation of a checked call; then, its blocks known, the values that fold them. */
void qn_special_make(const qn_kernel *kernel, qn_device_kind target, const qn_kernel_call *call, qn_special *special);
void qn_special_fold(const qn_kernel *kernel, const uint32_t blocks[3], qn_special *special);
#endif
