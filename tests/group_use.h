/* SPDX-License-Identifier: Apache-2.0 */
/* group_use.h - kernels given as text and launched on the emulator, for tests of groups of threads. */
#ifndef QN_TESTS_GROUP_USE_H
#define QN_TESTS_GROUP_USE_H
#include "core/core.h"
#include "device/emulator/emulator.h"
#include "jit/jit.h"
#include "test.h"

static const qn_device group_emulator = {QN_EMULATOR, 0};

static const qn_device_function *group_function(const char *text, const char *name)
{
  const qn_unit unit = {.source = "test.cu", .text = text};
  const qn_device_function *function = NULL;
  qn_status status = qn_jit_function(group_emulator, &unit, name, &function);
  if (status != QN_OK) check(status == QN_OK, "kernel %s compiles and is found", name);
  return function;
}

__attribute__((unused)) static qn_status group_launch(const qn_device_function *function, uint64_t blocks,
                                                      uint32_t threads, uint32_t shared_bytes, qn_pool *pool,
                                                      const void *argument, size_t bytes)
{
  if (!function) return QN_COMPILE_ERROR;
  return qn_backend_emulator.launch(group_emulator, function,
                                    &(qn_launch){.blocks = blocks,
                                                 .threads = threads,
                                                 .shared_bytes = shared_bytes,
                                                 .pool = pool,
                                                 .argument = argument,
                                                 .argument_bytes = bytes});
}
#endif
