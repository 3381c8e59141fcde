/* SPDX-License-Identifier: Apache-2.0 */
/* module.h - compiled kernels on an NVIDIA GPU: the kernels' part of the backend's table (device/backend.h). */
#ifndef QN_DEVICE_CUDA_MODULE_H
#define QN_DEVICE_CUDA_MODULE_H
#include "device/backend.h"

qn_status qn_cuda_module_load(qn_device device, const void *image, size_t bytes, qn_module **module);
void qn_cuda_module_unload(qn_device device, qn_module *module);
qn_status qn_cuda_module_function(qn_device device, qn_module *module, const char *name, qn_device_function **function);
qn_status qn_cuda_function_facts(qn_device device, const qn_device_function *function, qn_function_facts *facts);
qn_status qn_cuda_allow_large_clusters(qn_device device, const qn_device_function *function);
qn_status qn_cuda_groups_at_once(qn_device device, const qn_device_function *function, uint32_t threads,
                                 uint32_t shared_bytes, int *groups);
qn_status qn_cuda_argument_limit(qn_device device, size_t *bytes);
qn_status qn_cuda_launch(qn_device device, const qn_device_function *function, const qn_launch *run);
#endif
