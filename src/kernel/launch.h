/* SPDX-License-Identifier: Apache-2.0 */
/* launch.h - what the steps of a launch share. */
#ifndef QN_KERNEL_LAUNCH_H
#define QN_KERNEL_LAUNCH_H
#include "kernel/kernel.h"
#include <stdatomic.h>

/* The k-th tensor, inputs before outputs. */
const char *qn_kernel_tensor_name(const qn_kernel *kernel, size_t k);
const qn_tensor *qn_call_tensor(const qn_kernel *kernel, const qn_kernel_call *call, size_t k);
#endif
