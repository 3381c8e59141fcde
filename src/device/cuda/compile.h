/* SPDX-License-Identifier: Apache-2.0 */
/* compile.h - the compiling half of the CUDA backend, for its table in cuda.c. */
#ifndef QN_DEVICE_CUDA_COMPILE_H
#define QN_DEVICE_CUDA_COMPILE_H
#include "device/backend.h"

/* Members `target` and `compile` of the table. */
qn_status qn_cuda_target(qn_device device, char *text, size_t bytes);
qn_status qn_cuda_compile(qn_device device, const qn_unit *unit, qn_image *image);
#endif
