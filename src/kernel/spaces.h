/* SPDX-License-Identifier: Apache-2.0 */
/* spaces.h - functions of a Metal header that differ in address spaces alone: `f(device float *)` and
 * `f(threadgroup float *)` are two functions to Metal and one to C++, whose pointers have no spaces. All but the first
 * get names of their own, and so do their calls. Which is called is told by the names in the arguments: by the space
 * that the nearest declaration before gives them. Operators and constructors cannot be renamed: the first one stays. */
#ifndef QN_KERNEL_SPACES_H
#define QN_KERNEL_SPACES_H
#include "kernel/kernel.h"

/* Exchanges the kernel's tokens for those of texts with such names; lines stay. */
qn_status qn_spaces_rename(qn_kernel *kernel);
#endif
